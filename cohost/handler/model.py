"""The entry point of a model with `handler: batched`: DJL Serving imports this file and awaits `handle` per request.

Needs `option.async_mode=true` and `option.entryPoint=model.py` (DJL Serving 0.36.0).
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from djl_python import Output  # type: ignore[import-not-found] # there is one inside the server only

_FOLDER = Path(__file__).parent
_PACKAGE = "cohost_handler"


def _declare_package() -> None:
    """Makes this file's folder the package that its neighbours belong to, so that their relative imports hold.

    The server imports this file by itself, under a name that differs between its versions, and an archive has no
    folders that could be a package.
    """
    package = ModuleType(_PACKAGE)
    package.__path__ = [str(_FOLDER)]
    sys.modules[_PACKAGE] = package


def _let_threads_sleep() -> None:
    """Has threads that wait for work give up their core. OpenMP reads this once, when torch is imported.

    Models on one machine share its cores, and threads that spin while another model computes make both several times
    slower (measured on two busy cores: one text at a time 41 items/s instead of 9).
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _service() -> Any:  # noqa: ANN401 - imported under a name that this file declares
    """Makes the service, or ends the process before torch is imported: in a restart of a model that is unloaded."""
    restarted = importlib.import_module(f"{_PACKAGE}.cohost_restart").begin(_FOLDER)
    reload = importlib.import_module(f"{_PACKAGE}.cohost_reload")
    return reload.service_of(f"{_PACKAGE}.cohost_service", "Service", Output, restarted=restarted, last_resort=True)


_let_threads_sleep()
_declare_package()
_served = _service()
_why_not_loaded = importlib.import_module(f"{_PACKAGE}.cohost_errors").why_not_loaded
_logger = logging.getLogger(__name__)


def _is_too_little_memory(error: Exception) -> bool:
    """Whether the server answers 507 for an error, by which SageMaker unloads other models and tries again."""
    return type(error).__name__ in {"OutOfMemoryError", "MemoryError"} or "CUDA error: out of memory" in str(error)


async def handle(inputs: Any) -> Any:  # noqa: ANN401 - Input and Output exist inside the server only
    """Answers one request; the first call, which has no content, loads the model.

    DJL Serving 0.36.0 answers `POST /models` with the message of a refused load, but of one that raised only with
    "invoke handler failure" (PyProcess; recorded: 07_load_failures_custom). Of too little memory it wants the error.
    """
    try:
        return await _served.handle(inputs)
    except Exception as error:
        if not inputs.is_empty() or _is_too_little_memory(error):
            raise
        _logger.exception("the model is not served")
        return Output(code=500, message=_why_not_loaded(inputs.get_properties().get("model_id", "the model"), error))
