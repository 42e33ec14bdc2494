"""A fake model container for tests: it implements SageMaker's API for multi-model containers without real models."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.server import ServerState

from cohost.callers import TOKEN_HEADER, Guard

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from cohost.callers import Send


class Listener:
    """Serves an ASGI app on a free port of 127.0.0.1, and stops without delay.

    uvicorn's own Server stops with pauses of a tenth of a second, which add up over many tests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._config = uvicorn.Config(app, log_level="critical", lifespan="off", access_log=False)
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Start to listen and return the server's URL."""
        self._config.load()

        # uvicorn's type allows any protocol class here, but uvicorn itself makes its protocols with these arguments.
        make: Any = self._config.http_protocol_class

        def protocol() -> asyncio.Protocol:
            connection: asyncio.Protocol = make(config=self._config, server_state=self._state, app_state={})
            return connection

        self._server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        """Stop as if the process was killed: break all connections and cancel running calls."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()


class Gate:
    """A gate at which coroutines wait while it is shut; a test opens and shuts it from another thread.

    While coroutines wait at the gate, a test can check an intermediate state without a race.
    """

    def __init__(self) -> None:
        self._open = threading.Event()
        self.open()

    def open(self) -> None:
        """Open the gate: coroutines no longer wait at it."""
        self._open.set()

    def shut(self) -> None:
        """Shut the gate: coroutines that come to it wait."""
        self._open.clear()

    async def passed(self) -> None:
        """Wait until the gate is open."""
        while not self._open.is_set():  # noqa: ASYNC110 - another thread opens it, and several loops may wait
            await asyncio.sleep(0.005)


class FakeContainer:
    """One fake container. If a model's archive has a file `behaviour`, the file determines the model's behaviour.

    The lines of the file are `load=SECONDS`, `load_status=N`, `load_message=TEXT`, `invoke_status=N` and
    `invoke=SECONDS`; with `held` in place of SECONDS, the load or call waits at `gate`. An answer to a call contains
    the text of the archive's file `answer`, and the body and headers of the call. `/ping` answers with `ping_status`
    and `ping_body`; while `silent` is True it never answers. `room` is the number of models that fit into the container
    (None: no limit), `worker_faults` has the faults that the emulator requested for workers, and `loading` is the
    number of loads in progress.
    """

    def __init__(self, options: dict[str, Any], room: int | None, gate: Gate) -> None:
        self.options = options
        self.room = room
        self._gate = gate
        self.models: dict[str, Path] = {}
        self.loads: list[str] = []
        self.unloads: list[str] = []
        self.pid = 4242
        self.alive = True
        self.ping_status = 200
        self.ping_body = "{}"
        self.pings = 0
        self.silent = False
        self.worker_faults: list[dict[str, str]] = []
        self.url = ""
        self.headers = {TOKEN_HEADER: "the fake's token"}
        self.loading = 0
        self._listener: Listener | None = None

    async def start(self) -> None:
        """Start the container: listen on a free port."""
        routes = [
            Route("/ping", self._ping),
            Route("/models", self._load, methods=["POST"]),
            Route("/models", self._list, methods=["GET"]),
            Route("/models/{name}", self._unload, methods=["DELETE"]),
            Route("/models/{name}/invoke", self._invoke, methods=["POST"]),
            Route("/invocations", self._invoke_single, methods=["POST"]),
            Route("/_cohost/worker-faults", self._worker_fault, methods=["PUT"]),
        ]
        self._listener = Listener(Guard(Starlette(routes=routes), self.headers[TOKEN_HEADER], _refuse))
        self.url = await self._listener.start()
        self.log("listening")

    async def stop(self) -> None:
        """Stop the container: stop listening and break all connections."""
        self.alive = False
        if self._listener is not None:
            self._listener.stop()

    async def die(self) -> None:
        """End as if the process was killed: stop, and forget the loaded models."""
        await self.stop()
        self.models.clear()

    def log(self, line: str) -> None:
        """Append a line to the container's log file."""
        path: Path = self.options["log_file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"{line}\n")

    async def _ping(self, _request: Request) -> Response:
        self.pings += 1
        if self.silent:
            await asyncio.Event().wait()
        return Response(self.ping_body, self.ping_status)

    async def _worker_fault(self, request: Request) -> Response:
        wanted = await request.json()
        if wanted["model"] not in self._known():
            return JSONResponse({"code": 404, "message": f"no worker of {wanted['model']}"}, 404)
        self.worker_faults.append(wanted)
        return JSONResponse(wanted)

    async def _list(self, request: Request) -> Response:
        """Answer the list of models in pages of one model, so that tests show that callers read all pages."""
        names = self._known()
        start = int(request.query_params.get("next_page_token", 0))
        page = {"models": [{"modelName": name} for name in names[start : start + 1]]}
        more = {"nextPageToken": str(start + 1)} if start + 1 < len(names) else {}
        return JSONResponse({**page, **more})

    def _known(self) -> list[str]:
        """Return the names under which the container itself knows its models."""
        store: Path = self.options["model_store"]
        return sorted(self.models or (re.sub(r"\W", "_", name) for name in _models(store)))

    async def _load(self, request: Request) -> Response:
        wanted = await request.json()
        name, folder = wanted["model_name"], Path(wanted["url"])
        if name in self.models:
            return JSONResponse({"code": 409, "message": "already registered"}, 409)
        if self.room is not None and len(self.models) + self.loading >= self.room:
            return JSONResponse({"code": 507, "type": "WlmOutOfMemoryException", "message": "no memory"}, 507)
        behaviour = _behaviour(folder)
        self.loading += 1
        try:
            await self._take(behaviour.get("load", "0"))
        finally:
            self.loading -= 1
        if "load_status" in behaviour:
            message = behaviour.get("load_message", "Failed to initialize model")
            return JSONResponse({"code": 500, "message": message}, int(behaviour["load_status"]))
        self.models[name] = folder
        self.loads.append(name)
        self.log(f"loaded {request.headers['x-amzn-sagemaker-target-model']}")
        return JSONResponse({"status": "registered"})

    async def _unload(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.unloads.append(name)
        if self.models.pop(name, None) is None:
            return JSONResponse({"code": 404}, 404)
        return JSONResponse({"status": "unregistered"})

    async def _invoke(self, request: Request) -> Response:
        folder = self.models.get(request.path_params["name"])
        if folder is None:
            return JSONResponse({"code": 404, "message": "Model or workflow not found"}, 404)
        return await self._answer(folder, request)

    async def _invoke_single(self, request: Request) -> Response:
        store: Path = self.options["model_store"]
        folders = _models(store)
        if not folders:
            return await self._answer(store, request)
        attributes = request.headers.get("x-amzn-sagemaker-custom-attributes", "")
        name = dict(part.split("=", 1) for part in attributes.split(";") if "=" in part).get("model_name")
        if name is None:
            return JSONResponse({"code": 400, "message": "Parameter model_name is required."}, 400)
        if name not in folders:
            return JSONResponse({"code": 404, "message": f"Model or workflow not found: {name}"}, 404)
        return await self._answer(folders[name], request)

    async def _answer(self, folder: Path, request: Request) -> Response:
        body = await request.body()
        behaviour = _behaviour(folder)
        await self._take(behaviour.get("invoke", "0"))
        if "invoke_status" in behaviour:
            return Response("refused by the model", int(behaviour["invoke_status"]))
        answer = folder / "answer"
        content = {
            "answer": answer.read_text() if answer.exists() else None,
            "body": body.decode(),
            "headers": dict(request.headers),
            "port": self.url.rpartition(":")[2],
        }
        return JSONResponse(content, headers={"X-Amzn-SageMaker-Custom-Attributes": "trace=seen"})

    async def _take(self, time: str) -> None:
        await (self._gate.passed() if time == "held" else asyncio.sleep(float(time)))


class FakeFactory:
    """A factory that starts fake containers in place of `Container.start`, which starts real ones.

    If `failing` is True, all starts fail; otherwise the starts whose numbers, from 1, are in `fail_starts` fail. A
    start takes `delay_s` seconds and then waits at `start_gate`. `room` is the number of models that fit into a
    container. `starting` counts the starts in progress, and `given_up` the cancelled starts whose clean-up of 0.05 s
    has ended. A load or call of a model whose file `behaviour` says `held` waits at `gate`.
    """

    def __init__(self) -> None:
        self.started: list[FakeContainer] = []
        self.failing = False
        self.delay_s = 0.0
        self.starts = 0
        self.fail_starts: list[int] = []
        self.starting = 0
        self.given_up = 0
        self.room: int | None = None
        self.start_gate = Gate()
        self.gate = Gate()

    @property
    def running(self) -> list[FakeContainer]:
        """The started containers that have not been stopped."""
        return [container for container in self.started if container.alive]

    async def __call__(self, **options: Any) -> FakeContainer:
        """Start a fake container."""
        self.starts += 1
        fails = self.failing or self.starts in self.fail_starts
        self.starting += 1
        try:
            await asyncio.sleep(self.delay_s)
            await self.start_gate.passed()
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
            self.given_up += 1
            raise
        finally:
            self.starting -= 1
        if fails:
            raise RuntimeError("told to fail")
        container = FakeContainer(options, self.room, self.gate)
        await container.start()
        self.started.append(container)
        return container


async def _refuse(reason: str, send: Send) -> None:
    await send({"type": "http.response.start", "status": 403, "headers": []})
    await send({"type": "http.response.body", "body": reason.encode()})


def _models(store: Path) -> dict[str, Path]:
    return {entry.name: entry for entry in store.iterdir() if entry.is_dir()}


def _behaviour(folder: Path) -> dict[str, str]:
    file = folder / "behaviour"
    lines = file.read_text().splitlines() if file.exists() else []
    return dict(line.split("=", 1) for line in lines)
