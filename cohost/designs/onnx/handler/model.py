"""The entry point of an ONNX archive with a Python handler: DJL Serving imports this file and awaits `handle`.

The model's serving.properties must have `option.async_mode=true` and `option.entryPoint=model.py` (DJL Serving 0.36.0).
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from djl_python import Output  # type: ignore[import-not-found] # it exists inside the server only

_FOLDER = Path(__file__).parent
_PACKAGES = ("cohost", "cohost.handler", "cohost.onnx", "cohost.onnx.handler")


def _declare_packages() -> None:
    """Declare this file's folder to be the packages that the other files in it name in their imports.

    In the project, the handler's files lie in two folders; in an archive, all lie in one folder.
    """
    for name in _PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(_FOLDER)]
        sys.modules[name] = package


def _service() -> Any:  # imported under a name that this file declares
    """Create the service, or end the process if it restarts a model that is unloaded."""
    restart = importlib.import_module("cohost.handler.cohost_restart")
    restarted = restart.begin(_FOLDER)
    reload = importlib.import_module("cohost.handler.cohost_reload")
    module = "cohost.onnx.handler.onnx_service"
    try:
        return reload.service_of(_FOLDER, module, "OnnxService", Output, restarted=restarted)
    except Exception:
        restart.withdraw()
        raise


_declare_packages()
_served = _service()


async def handle(inputs: Any) -> Any:  # Input and Output exist inside the server only
    """Answer one request; the first call, which is empty, waits until the model is loaded, except in a restart."""
    return await _served.handle(inputs)
