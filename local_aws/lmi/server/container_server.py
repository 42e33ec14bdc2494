"""The server process of a container: it loads the model store and listens; when it ends, it ends all its processes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from cohost.callers import Guard, write_private
from local_aws.kit.account import bound_listener
from local_aws.lmi.errors import Fault, Forbidden
from local_aws.lmi.models.hub import Hub
from local_aws.lmi.models.registry import Registry, startup_models
from local_aws.lmi.server.http import LmiHttpProtocol, NetworkThreads, fault_reply, new_request_id, server_settings
from local_aws.lmi.server.routes import LmiApp
from local_aws.lmi.workers.fork_server import CONFIG_FILE, ForkServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.types import Send

    from local_aws.lmi.models.model import Model
    from local_aws.lmi.settings import ServerRules


logger = logging.getLogger(__name__)

_FAILURE_VISIBLE_S = 3
_FAILED_FAST = 137
_MANAGEMENT = "management.sock"


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of a container's server process.

    With `port` 0 the server listens on any free port. `memory_mb` is the memory, in MiB, that models may take; None for
    the machine's free memory. `cache` is the folder for unpacked files (None: a new one), which is removed at the end.
    Callers on the port must send `token` (cohost/callers.py). With `wait_model_loading` the server listens only once
    the models of the model store are loaded. `rules` are the settings of failures and time limits, read from the
    environment.
    """

    host: str = "127.0.0.1"
    port: int
    token: str
    model_store: Path
    multi_model: bool
    hub_roots: Sequence[Path]
    ready_file: Path | None
    memory_mb: int | None
    watch_parent: bool
    cache: Path | None
    wait_model_loading: bool
    rules: ServerRules


async def serve(settings: ServerSettings) -> int:
    """Run a container until a signal, or until standard input closes if `watch_parent` is set.

    Returns the exit code: 1 if the port is taken or a model of the store cannot be loaded, else 0.
    """
    try:
        listener = bound_listener(settings.port, settings.host)
    except OSError as error:
        sys.stderr.write(
            f"--port: {settings.port} cannot be taken ({error.strerror}); use another, or 0 for a free one\n"
        )
        return 1
    cache = settings.cache or Path(tempfile.mkdtemp(prefix="lmi-cache-"))
    management = _management_socket(cache)
    fork_server = ForkServer(cache)
    LmiHttpProtocol.threads = NetworkThreads(settings.rules.network_threads)

    def end_server() -> None:
        logger.error("a model has failed, which ends the server, as SERVING_FAIL_FAST says")
        shutil.rmtree(cache, ignore_errors=True)
        os._exit(_FAILED_FAST)

    registry = Registry(
        fork_server=fork_server,
        hub=Hub(settings.hub_roots),
        cache=cache,
        memory_mb=settings.memory_mb,
        multi_model=settings.multi_model,
        rules=settings.rules,
        end_server=end_server,
    )

    async def clean_up() -> None:
        registry.end()
        await fork_server.stop()
        await asyncio.to_thread(shutil.rmtree, cache, ignore_errors=True)

    server = _Server(settings, registry, (listener, management), clean_up)
    try:
        await fork_server.start()
        return await server.run()
    finally:
        await clean_up()


def _management_socket(folder: Path) -> socket.socket:
    """Open the management socket in the container's folder; write config.properties, which tells handlers its address.

    The image also has a config.properties. Only the user who started the container can open the socket, so requests
    need no token.
    """
    path = folder / _MANAGEMENT
    (folder / CONFIG_FILE).write_text(f"management_address=unix:{path}\n")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    return listener


class _Server(uvicorn.Server):
    def __init__(
        self,
        settings: ServerSettings,
        registry: Registry,
        listeners: Sequence[socket.socket],
        clean_up: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(server_settings(Guard(LmiApp(registry), settings.token, _refuse)))
        self._settings = settings
        self._registry = registry
        self._listeners = listeners
        self._clean_up = clean_up
        self._store_failed = False

    async def run(self) -> int:  # type: ignore[override]
        if self._settings.watch_parent:
            self._watch_parent()
        loading = asyncio.create_task(self._load_store())
        if self._settings.wait_model_loading and not await loading:
            return 1
        try:
            await self.serve(sockets=list(self._listeners))
        finally:
            loading.cancel()
        return int(loading.done() and not loading.cancelled() and not loading.result())

    async def _load_store(self) -> bool:
        """Load the models of the model store; return False if a model cannot be loaded, which ends the server."""
        try:
            await asyncio.gather(*map(self._register, startup_models(self._settings.model_store)))
        except Fault:
            if not self._settings.wait_model_loading:
                # As in the real server, callers of /ping have time to see the failed model before the server ends.
                await asyncio.sleep(_FAILURE_VISIBLE_S)
                self.should_exit = True
            return False
        return True

    async def _register(self, model: Model) -> None:
        """Load a model of the store; a failure is logged with the real server's text (ModelServer.java)."""
        try:
            await self._registry.register(model)
        except Fault as fault:
            if self._store_failed:
                # This load was cancelled because another model of the store had failed.
                raise
            self._store_failed = True
            logger.error("Failed register workflow\nai.djl.engine.%s: %s", fault.kind, fault)  # noqa: TRY400
            logger.info("ModelLoadingError.Count:1|#Model:%s", model.name)
            raise

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._settings.ready_file is not None and self.started:
            _write_ready(self._settings.ready_file, self._listeners[0].getsockname()[1], self._settings.token)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn raises the signal again after its shutdown, so this is the last moment to clean up.
        await self._clean_up()
        await super().shutdown(sockets)

    def _watch_parent(self) -> None:
        main = asyncio.current_task()

        def read() -> None:
            if os.read(sys.stdin.fileno(), 1024):
                return
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self.should_exit = True
            if not self.started and main is not None:
                main.cancel()

        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), read)


async def _refuse(reason: str, send: Send) -> None:
    await fault_reply(Forbidden(reason)).send(send, new_request_id(None))


def _write_ready(file: Path, port: int, token: str) -> None:
    write_private(file, json.dumps({"port": port, "pid": os.getpid(), "token": token}))
