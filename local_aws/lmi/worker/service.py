"""A worker's handler: a model's own `model.py` or module, or the stock one."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local_aws.lmi import handler_api
from local_aws.lmi.handler_api.input_parser import FORMATTER_MARK
from local_aws.lmi.stock.handler import StockHandler

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

Handler = "Callable[[handler_api.Input], Any]"


def load_handler(model_dir: Path, entry_point: str | None, function: str) -> Callable[[handler_api.Input], Any]:
    """The function that answers requests.

    `entry_point` is a file below `model_dir`, a module name, or None for the stock handler, which also steps in for a
    file that has no `function`; a function marked as an input formatter then parses the requests.

    Raises:
        Exception: whatever the file raises while it is imported; ValueError when it is not there.
    """
    if entry_point is None:
        return StockHandler().handle
    handler_api.install()
    module = _load_module(model_dir, entry_point)
    own = getattr(module, function, None)
    if callable(own):
        handler: Callable[[handler_api.Input], Any] = own
        return handler
    formatters = [value for value in vars(module).values() if getattr(value, FORMATTER_MARK, False)]
    return StockHandler(formatters[0] if formatters else None).handle


def _load_module(model_dir: Path, entry_point: str) -> ModuleType:
    if not entry_point.endswith(".py"):
        return importlib.import_module(entry_point)
    file = Path(model_dir, entry_point)
    if not file.is_file():
        msg = f"entry-point file not found {file}."
        raise ValueError(msg)
    # A handler may import its neighbours, as it may in the image, where the model's folder is the working directory.
    sys.path.insert(0, str(model_dir))
    name = f"model_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        msg = f"entry-point file cannot be imported: {file}"
        raise ValueError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
