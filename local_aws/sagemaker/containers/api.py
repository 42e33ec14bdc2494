"""The interface to a server container: a process to start, and its HTTP API.

The interface is the one that SageMaker requires of containers (AWS: "Custom Containers Contract for Multi-Model
Endpoints" and "Custom Inference Code with Hosting Services").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import httpx

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


_CONNECT_TIMEOUT_S = 5
_PING_TIMEOUT_S = 2  # AWS: "How Your Container Should Respond to Health Check (Ping) Requests"
_PAGE = 100


class ContainerProcess(Protocol):
    """A running container."""

    @property
    def url(self) -> str:
        """The address that it listens on, `http://127.0.0.1:port`."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that every request to it needs: the token of its start."""

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def alive(self) -> bool:
        """True while its process runs."""

    async def stop(self) -> None:
        """End it and every process below it."""


class StartContainer(Protocol):
    """Start a container and return when it answers pings. The server hands in that of local_aws.lmi."""

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


@dataclass(frozen=True, kw_only=True)
class Ping:
    """A container's answer to a ping: only 200 is healthy; `said` is its status and body, or the connection error."""

    healthy: bool
    said: str


class ContainerApi:
    """The requests that SageMaker makes to a container. Each may raise httpx.TransportError."""

    def __init__(self, container: ContainerProcess, client: httpx.AsyncClient, invocation_timeout_s: float) -> None:
        self._url = container.url
        self._headers = dict(container.headers)
        self._client = client
        self._invocation_timeout = httpx.Timeout(invocation_timeout_s, connect=_CONNECT_TIMEOUT_S)
        # Loading has no limit here: its caller ends it when the time for fetching and loading together is up.
        self._load_timeout = httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S)

    async def ping(self) -> Ping:
        """Ask the container for its health; no answer within two seconds counts as unhealthy."""
        try:
            answer = await self._client.get(f"{self._url}/ping", headers=self._headers, timeout=_PING_TIMEOUT_S)
        except httpx.TransportError as fault:
            return Ping(healthy=False, said=str(fault) or type(fault).__name__)
        healthy = answer.status_code == httpx.codes.OK
        return Ping(healthy=healthy, said=f"{answer.status_code} {' '.join(answer.text.split())}".rstrip())

    async def models(self) -> list[str]:
        """List the names of all models that the container knows.

        Raises:
            httpx.HTTPStatusError: it does not list them.
        """
        names: list[str] = []
        query: dict[str, Any] = {"limit": _PAGE}
        while True:
            answer = await self._client.get(
                f"{self._url}/models", params=query, headers=self._headers, timeout=self._load_timeout
            )
            page: dict[str, Any] = answer.raise_for_status().json()
            names += [model["modelName"] for model in page["models"]]
            if (token := page.get("nextPageToken")) is None:
                return names
            query["next_page_token"] = token

    async def worker_fault(self, model_id: str, fault: str) -> httpx.Response:
        """Cause a fault in the worker process of a model; SageMaker's own interface has no such request."""
        return await self._client.put(
            f"{self._url}/_cohost/worker-faults",
            json={"model": model_id, "fault": fault},
            headers=self._headers,
            timeout=self._load_timeout,
        )

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
