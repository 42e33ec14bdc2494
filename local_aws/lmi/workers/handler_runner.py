"""The code of a worker process: it loads a model's handler, and answers calls until the container closes the socket.

The first frame from the container is {"model_dir", "entry_point", "function", "async_mode", "environment", "name",
"sock_name"}; the answer {"started": true} means that the handler is imported. Each later frame is a request {"id",
"properties"} with contents, whose answer is {"id", "code", "message", "properties"} with contents; or a {"fault"} that
makes every later forward pass of this process fail. With `option.async_mode=true` each request goes to the handler as
soon as it arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import importlib.util
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local_aws.lmi import handler_api
from local_aws.lmi.handler_api import Input, Output
from local_aws.lmi.handler_api.inputs import FORMATTER_MARK
from local_aws.lmi.stock.handler import StockHandler
from local_aws.lmi.workers import engine_start
from local_aws.lmi.workers.connection import Frame, FrameReader, receive
from local_aws.lmi.workers.faults.sitecustomize import SIGNALS, break_forward_passes

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from types import ModuleType


logger = logging.getLogger(__name__)

_CHUNK = 1 << 18
_ASYNC_FAILURE = "service.invoke_handler_async() failure"
_ENGINE_PROGRAM = "cohost_host.py"
_INTERPRETER = "COHOST_LMI_PYTHON"
_OUT_OF_MEMORY = 507
_OUT_OF_MEMORY_TYPES = {"OutOfMemoryError", "MemoryError"}


def load_handler(model_dir: Path, entry_point: str | None, function: str) -> Callable[[Input], Any]:
    """Return the function of a model's handler that answers requests.

    `entry_point` is a file below `model_dir`, a module name, or None for the stock handler. If the file has no such
    `function`, the stock handler answers; the file's function that is marked as input formatter, if there is one, then
    parses the requests.

    Raises:
        ValueError: the file does not exist.
        Exception: any error that the file raises while it is imported.
    """
    if entry_point is None:
        return StockHandler().handle
    handler_api.install()
    module = _load_module(model_dir, entry_point)
    own = getattr(module, function, None)
    if callable(own):
        handler: Callable[[Input], Any] = own
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
    # A handler may import other files of its folder, as in the image, where this folder is the working directory.
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


async def serve_async(connection: socket.socket, handler: Callable[[Input], Awaitable[Any]], model_dir: str) -> None:
    """Serve an asynchronous handler until the socket closes; answers go out in the order in which they are ready."""
    reader, writer = await asyncio.open_connection(sock=connection)
    frames = FrameReader()
    running: set[asyncio.Task[None]] = set()
    while data := await reader.read(_CHUNK):
        for frame in frames.feed(data):
            if "fault" in frame.head:
                inject(frame.head["fault"])
                continue
            task = asyncio.create_task(_answer(writer, frame, handler, model_dir))
            running.add(task)
            task.add_done_callback(running.discard)


async def _answer(
    writer: asyncio.StreamWriter, frame: Frame, handler: Callable[[Input], Awaitable[Any]], model_dir: str
) -> None:
    async for output in _outputs(handler, input_of(frame, model_dir)):
        writer.write(answer_frame(frame, output).pack())


async def _outputs(handler: Callable[[Input], Awaitable[Any]], inputs: Input) -> AsyncIterator[Output]:
    """Yield a handler's answer to one request: one output, or several if the handler returns an async generator."""
    try:
        result = await handler(inputs)
        if hasattr(result, "__aiter__"):
            async for part in result:
                yield part
        else:
            yield answer_of(result)
    except Exception as error:
        logger.exception("the handler failed")
        yield failure_of(error, _ASYNC_FAILURE)


def run(connection: socket.socket) -> int:
    """Run a worker on its socket to the container; returns the exit code, 1 if the handler cannot be imported."""
    frames = receive(connection, FrameReader())
    order = next(frames, None)
    if order is None:
        return 0
    os.environ.update(order.head["environment"])
    _fork_further_processes()
    sys.argv = _arguments(order.head)
    _use_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    model_dir = order.head["model_dir"]
    lines = logging.StreamHandler(sys.stdout)
    lines.setFormatter(_WorkerLines(order.head["name"]))
    logging.basicConfig(handlers=[lines], level="INFO", force=True)
    try:
        handler = load_handler(Path(model_dir), order.head["entry_point"], order.head["function"])
    except Exception:
        logger.exception("the handler cannot be imported")
        return 1
    connection.sendall(Frame({"started": True}).pack())
    if order.head["async_mode"]:
        asyncio.run(serve_async(connection, handler, model_dir))
    else:
        _serve(connection, frames, handler, model_dir)
    return 0


def _fork_further_processes() -> None:
    """Make processes that the handler starts be forks of the zygote, too, if the zygote has imported torch.

    The order to fork goes through an abstract socket, one without a file, which only Linux has.
    """
    if "torch" in sys.modules and sys.platform == "linux":
        os.environ[engine_start.ADDRESS] = engine_start.program_address(os.getppid())
        os.environ[_INTERPRETER] = sys.executable
        sys.executable = str(Path(engine_start.__file__).with_name("engine_python"))


def _arguments(order: dict[str, Any]) -> list[str]:
    """Return the command line of the real engine, in which a handler can read --sock-name; no socket has that name."""
    return [
        *("djl_python_engine.py", "--sock-type", "unix", "--sock-name", order["sock_name"]),
        *("--model-dir", order["model_dir"], "--entry-point", order["entry_point"] or ""),
        *("--device-id", "-1", "--cluster-size", "1"),
        "--async-mode" if order["async_mode"] else "--no-async-mode",
    ]


class _WorkerLines(logging.Formatter):
    """The format of a worker's log lines, as in the real server's log: each line names the process and the model.

    Source: DJL Serving 0.36.0 (PyProcess), which cuts the model's name to 15 characters.
    """

    def __init__(self, model: str) -> None:
        super().__init__("%(levelname)s::%(message)s")
        self._start = f"W-{os.getpid()}-{model[:15]}-stdout: "

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record's text with process and model before each line, also before a traceback's lines."""
        return "\n".join(self._start + line for line in super().format(record).splitlines())


def _use_threads(count: int) -> None:
    """Set torch's number of threads; torch read OMP_NUM_THREADS at its import, before this process was forked."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(count)


def _serve(connection: socket.socket, frames: Iterator[Frame], handler: Callable[[Input], Any], model_dir: str) -> None:
    for frame in frames:
        if "fault" in frame.head:
            inject(frame.head["fault"])
            continue
        try:
            output = answer_of(handler(input_of(frame, model_dir)))
        except Exception as error:
            logger.exception("the handler failed")
            output = failure_of(error)
        connection.sendall(answer_frame(frame, output).pack())


def input_of(frame: Frame, model_dir: str) -> Input:
    """Return a handler's input for a request frame, with the engine's properties (recorded: 21_handler_properties)."""
    inputs = Input()
    inputs.properties = frame.head["properties"] | {"cluster_size": "1", "device_id": "-1", "model_dir": model_dir}
    inputs.function_name = inputs.properties.get("handler")
    for key, value in frame.contents:
        inputs.content.add(key, value)
    return inputs


def answer_of(result: Any) -> Output:
    """Return a handler's result as an output: None gives 204 "No content", any value but an Output gives an error."""
    if result is None:
        return Output(code=204, message="No content")
    return result if isinstance(result, Output) else Output().error(f"Invalid output type: {type(result)}")


def failure_of(error: Exception, message: str = "invoke handler failure") -> Output:
    """Return the answer to a call in which the handler raised `error`."""
    if type(error).__name__ in _OUT_OF_MEMORY_TYPES:
        return Output(code=_OUT_OF_MEMORY, message=str(error))
    return Output().error(str(error), message=message)


def answer_frame(request: Frame, output: Output) -> Frame:
    """Return a handler's output as the frame that answers a request frame."""
    head = {
        "id": request.head["id"],
        "code": output.code,
        "message": output.message,
        "properties": {str(key): str(value) for key, value in output.properties.items()},
    }
    return Frame(head, list(zip(output.content.keys, output.content.values, strict=True)))


def inject(fault: str) -> None:
    """Inject `fault` ("hang" or "lose_device") into each later forward pass of this worker's model.

    The batching handler runs the model in an engine process, which takes the fault as a signal.
    """
    engines = engine_processes(os.getpid(), os.getppid())
    for process in engines:
        os.kill(process, SIGNALS[fault])
    if not engines:
        break_forward_passes(fault)


def engine_processes(worker: int, server: int, proc: Path = Path("/proc")) -> list[int]:
    """Return the pids of a worker's engine processes: its children, and the engine process of all shared models."""
    found = []
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            arguments = (folder / "cmdline").read_text(encoding="utf-8").rstrip("\0").split("\0")
            if Path(arguments[-2]).name != _ENGINE_PROGRAM:
                continue
            parent = int((folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            settings = json.loads(arguments[-1])
            if parent == worker or (settings["shared"] and settings["server"] == server):
                found.append(int(folder.name))
    return found
