import asyncio, json, os, time
from djl_python import Output
SPEED = float(os.environ.get("COHOST_LMI_SPEED", "1"))  # the replay's clock; 1 when these were recorded
async def handle(inputs):
    """{"sleep": s}: answer late, the loop stays free; {"block": s}: the loop is blocked; {"exit": true}: the process ends with code 3; else an echo.
    option.init_sleep: seconds the load takes"""
    if inputs.is_empty():
        time.sleep(float(inputs.get_properties().get("init_sleep", 0)) / SPEED); return Output()
    j = inputs.get_as_json()
    if j.get("sleep"): await asyncio.sleep(j["sleep"] / SPEED)
    if j.get("block"): time.sleep(j["block"] / SPEED)
    if j.get("exit"): os._exit(3)
    o = Output(); o.add_property("Content-Type", "application/json")
    o.add(Output.binary_encode({"data": json.dumps({"echo": j}), "last": True})); return o
