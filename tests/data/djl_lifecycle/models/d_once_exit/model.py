import tempfile
import asyncio, json, os
from djl_python import Output
SPEED = float(os.environ.get("COHOST_LMI_SPEED", "1"))  # the replay's clock; 1 when these were recorded
# The second process of this folder under one server ends in its first (empty) call, after it has connected
MARK = tempfile.gettempdir() + f"/d_once.{os.getppid()}.{os.path.basename(os.path.dirname(os.path.abspath(__file__)))}"
ME = str(os.getpid()); AGAIN = os.path.exists(MARK) and open(MARK).read() != ME  # the module is imported twice in one process
if not AGAIN: open(MARK, "w").write(ME)

async def handle(inputs):
    """an echo; {"sleep": s} answers late"""
    if inputs.is_empty():
        if AGAIN: os._exit(3)
        return Output()
    j = inputs.get_as_json()
    if j.get("sleep"): await asyncio.sleep(j["sleep"] / SPEED)
    o = Output(); o.add_property("Content-Type", "application/json")
    o.add(Output.binary_encode({"data": json.dumps({"echo": j}), "last": True})); return o
