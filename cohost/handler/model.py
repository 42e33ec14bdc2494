"""The entry point of a model with `handler: batched` or `shared`; DJL Serving awaits `handle` for each request.

The model's serving.properties must have `option.async_mode=true` and `option.entryPoint=model.py` (DJL Serving 0.36.0).
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from djl_python import Output  # type: ignore[import-not-found] # there is one inside the server only

_FOLDER = Path(__file__).parent
_PACKAGE = "cohost_handler"


def _declare_package() -> None:
    """Declare this file's folder to be the package of its modules, so that their relative imports work.

    DJL Serving imports this file as a single module, under a name that depends on the server's version, and an archive
    has no folders that could be a package.
    """
    package = ModuleType(_PACKAGE)
    package.__path__ = [str(_FOLDER)]
    sys.modules[_PACKAGE] = package


def _keep_small() -> None:
    """Keep numpy from starting a thread per core, which would take memory: this process computes nothing large."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _service() -> Any:  # imported under a name that this file declares
    """Return the model's service; in a restart of an unloaded model, end the process."""
    restart = importlib.import_module(f"{_PACKAGE}.cohost_restart")
    restarted = restart.begin(_FOLDER)
    reload = importlib.import_module(f"{_PACKAGE}.cohost_reload")
    module = f"{_PACKAGE}.cohost_service"
    try:
        return reload.service_of(_FOLDER, module, "Service", Output, restarted=restarted)
    except Exception:
        restart.withdraw()
        raise


_keep_small()
_declare_package()
_served = _service()


async def handle(inputs: Any) -> Any:  # Input and Output exist inside the server only
    """Answer one request; the first call, which is empty, waits until the model is loaded, except in a restart."""
    return await _served.handle(inputs)
