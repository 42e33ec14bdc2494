"""How the SageMaker part sees a server container: a process to start, and its HTTP interface.

The interface is the one that SageMaker asks of containers (AWS: "Custom Containers Contract for Multi-Model
Endpoints" and "Custom Inference Code with Hosting Services").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import httpx

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_CONNECT_TIMEOUT_S = 5
_PING_TIMEOUT_S = 5  # AWS: containers must answer pings within 2 s; a busy small machine gets some more


class ContainerProcess(Protocol):
    """A running container."""

    @property
    def url(self) -> str:
        """Where it listens, `http://127.0.0.1:port`."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What every request to it has to send besides: the token of its start."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def alive(self) -> bool:
        """Whether its process still runs."""

    async def stop(self) -> None:
        """End it and every process below it."""


class StartContainer(Protocol):
    """Starts a container and returns when it answers pings; `Container.start` of local_aws.lmi is the real one."""

    async def __call__(
        self,
        *,
        model_store: Path,
        multi_model: bool,
        hub_roots: Sequence[Path],
        log_file: Path,
        environment: Mapping[str, str],
        memory_mb: int | None,
        start_timeout_s: float,
    ) -> ContainerProcess:
        """Start one; raises whatever kept it from answering."""


class ContainerApi:
    """The requests that SageMaker makes to a container. Each may raise httpx.TransportError."""

    def __init__(self, container: ContainerProcess, client: httpx.AsyncClient, invocation_timeout_s: float) -> None:
        self._url = container.url
        self._headers = dict(container.headers)
        self._client = client
        self._invocation_timeout = httpx.Timeout(invocation_timeout_s, connect=_CONNECT_TIMEOUT_S)
        # Loading has no limit here: its caller ends it when the time for fetching and loading together is up.
        self._load_timeout = httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S)

    async def ping(self) -> bool:
        """Whether the container says that it is healthy."""
        try:
            answer = await self._client.get(f"{self._url}/ping", headers=self._headers, timeout=_PING_TIMEOUT_S)
        except httpx.TransportError:
            return False
        return answer.status_code == httpx.codes.OK

    async def load(self, model_id: str, folder: Path, target: str) -> httpx.Response:
        """Ask for a model to be loaded from a folder."""
        return await self._client.post(
            f"{self._url}/models",
            json={"model_name": model_id, "url": str(folder)},
            headers={"X-Amzn-SageMaker-Target-Model": target, **self._headers},
            timeout=self._load_timeout,
        )

    async def unload(self, model_id: str) -> httpx.Response:
        """Ask for a model to be unloaded."""
        return await self._client.delete(
            f"{self._url}/models/{model_id}", headers=self._headers, timeout=self._load_timeout
        )

    async def invoke(self, model_id: str | None, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Pass a call on, to a loaded model or (None) to the one model of a single-model container."""
        path = "/invocations" if model_id is None else f"/models/{model_id}/invoke"
        return await self._client.post(
            f"{self._url}{path}", content=body, headers={**headers, **self._headers}, timeout=self._invocation_timeout
        )
