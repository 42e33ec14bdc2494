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
    """A running server container, as a process on this machine."""

    @property
    def url(self) -> str:
        """The address that the container listens on, `http://127.0.0.1:port`."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that every request to the container needs: the access token made at its start."""

    @property
    def pid(self) -> int:
        """The id of the container's process."""

    @property
    def alive(self) -> bool:
        """True while the container's process runs."""

    async def stop(self) -> None:
        """Stop the container's process and all its descendants."""


class StartContainer(Protocol):
    """A function that starts a container and returns once the container answers pings; local_aws.lmi implements it."""

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
        """Start a container; any exception means that the container never answered a ping."""


@dataclass(frozen=True, kw_only=True)
class Ping:
    """A container's answer to a ping; `healthy` means status 200; `said` is status and body or a connection error."""

    healthy: bool
    said: str


class ContainerApi:
    """The requests that SageMaker makes to a container. Each request can raise httpx.TransportError."""

    def __init__(self, container: ContainerProcess, client: httpx.AsyncClient, invocation_timeout_s: float) -> None:
        self._url = container.url
        self._headers = dict(container.headers)
        self._client = client
        self._invocation_timeout = httpx.Timeout(invocation_timeout_s, connect=_CONNECT_TIMEOUT_S)
        # No limit for loading here: the caller cancels a load when the time for fetching and loading together is up.
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
            httpx.HTTPStatusError: the container answered with an error instead of a list.
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
        """Ask the container to inject a fault into a model's worker process; SageMaker does not have this request."""
        return await self._client.put(
            f"{self._url}/_cohost/worker-faults",
            json={"model": model_id, "fault": fault},
            headers=self._headers,
            timeout=self._load_timeout,
        )

    async def load(self, model_id: str, folder: Path, target: str) -> httpx.Response:
        """Ask the container to load a model from a folder; `target` is the model's TargetModel."""
        return await self._client.post(
            f"{self._url}/models",
            json={"model_name": model_id, "url": str(folder)},
            headers={"X-Amzn-SageMaker-Target-Model": target, **self._headers},
            timeout=self._load_timeout,
        )

    async def unload(self, model_id: str) -> httpx.Response:
        """Ask the container to unload a model."""
        return await self._client.delete(
            f"{self._url}/models/{model_id}", headers=self._headers, timeout=self._load_timeout
        )

    async def invoke(self, model_id: str | None, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Pass a call on to the loaded model `model_id`; None means the one model of a single-model container."""
        path = "/invocations" if model_id is None else f"/models/{model_id}/invoke"
        return await self._client.post(
            f"{self._url}{path}", content=body, headers={**headers, **self._headers}, timeout=self._invocation_timeout
        )
