import os, time
from djl_python import Output
SPEED = float(os.environ.get("COHOST_LMI_SPEED", "1"))  # the replay's clock; 1 when these were recorded
def handle(inputs):
    """{"sleep": s}: answer late; {"exit": true}: the process ends with code 3; else an echo"""
    if inputs.is_empty(): return None
    j = inputs.get_as_json()
    if j.get("sleep"): time.sleep(j["sleep"] / SPEED)
    if j.get("exit"): os._exit(3)
    return Output().add_as_json({"echo": j})
