"""An endpoint's life: Creating, InService, Updating, RollingBack, Failed, Deleting.

The statuses are those of DescribeEndpoint in the AWS API reference.
Every change is blue/green: the new instances are up before the old ones get no more calls, and the old ones end
only when their calls have ended.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from local_aws.sagemaker.account import log_group
from local_aws.sagemaker.faults import ValidationException
from local_aws.sagemaker.fleet import Fleet
from local_aws.sagemaker.instance import StartFailed
from local_aws.sagemaker.registry import Resource

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from local_aws.sagemaker.instance import Host
    from local_aws.sagemaker.plan import VariantPlan
    from local_aws.sagemaker.registry import Collection

_logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Endpoint(Resource):
    """An endpoint; `fleet` is what takes calls, None before the first one is up and after a failed creation."""

    config_name: str
    status: str = "Creating"
    failure_reason: str | None = None
    last_modified: datetime = field(default_factory=lambda: datetime.now(UTC))
    fleet: Fleet | None = None
    starting: Fleet | None = None

    @property
    def modified(self) -> datetime:
        """When its status last changed."""
        return self.last_modified

    def enter(self, status: str) -> None:
        """Take on a status."""
        self.status = status
        self.last_modified = datetime.now(UTC)

    def check_steady(self) -> None:
        """Raise ValidationException while a change is under way, as the service does for updates and deletions."""
        if self.status not in {"InService", "Failed"}:
            raise ValidationException(f'Cannot update in-progress endpoint "{self.arn}".')


class Deployments:
    """Carries out the changes of endpoints in the background."""

    def __init__(self, endpoints: Collection[Endpoint], host: Host) -> None:
        self._endpoints = endpoints
        self._host = host
        self._running: set[asyncio.Task[None]] = set()

    def create(self, endpoint: Endpoint, plans: Sequence[VariantPlan]) -> None:
        """Bring a new endpoint up."""
        self._endpoints.add(endpoint)
        self._go(self._create(endpoint, plans))

    def update(self, endpoint: Endpoint, config_name: str, plans: Sequence[VariantPlan]) -> None:
        """Move an endpoint to another configuration."""
        endpoint.enter("Updating")
        self._go(self._update(endpoint, config_name, plans))

    def rescale(self, endpoint: Endpoint, counts: Mapping[str, int], weights: Mapping[str, float]) -> None:
        """Change instance counts and weights of an endpoint's variants."""
        endpoint.enter("Updating")
        self._go(self._rescale(endpoint, counts, weights))

    def delete(self, endpoint: Endpoint) -> None:
        """End an endpoint and everything that it runs."""
        endpoint.enter("Deleting")
        self._go(self._delete(endpoint))

    async def shutdown(self) -> None:
        """Give up changes under way and end every container at once."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        fleets = [fleet for endpoint in self._endpoints for fleet in (endpoint.fleet, endpoint.starting) if fleet]
        await asyncio.gather(*(fleet.stop() for fleet in fleets))

    async def _create(self, endpoint: Endpoint, plans: Sequence[VariantPlan]) -> None:
        try:
            await self._replace_fleet(endpoint, endpoint.config_name, plans)
        except StartFailed as failure:
            endpoint.failure_reason = str(failure)
            endpoint.enter("Failed")
        else:
            endpoint.enter("InService")

    async def _update(self, endpoint: Endpoint, config_name: str, plans: Sequence[VariantPlan]) -> None:
        try:
            await self._replace_fleet(endpoint, config_name, plans)
        except StartFailed as failure:
            # The old instances never stopped, so that rolling back is no more than saying so.
            endpoint.failure_reason = str(failure)
            endpoint.enter("RollingBack")
            await asyncio.sleep(self._host.settings.transition_delay_s)
        else:
            endpoint.failure_reason = None
        endpoint.enter("InService")

    async def _rescale(self, endpoint: Endpoint, counts: Mapping[str, int], weights: Mapping[str, float]) -> None:
        variants = {} if endpoint.fleet is None else endpoint.fleet.variants
        try:
            for name, count in counts.items():
                await variants[name].resize(count)
        except StartFailed as failure:
            endpoint.failure_reason = str(failure)
        else:
            endpoint.failure_reason = None
            for name, weight in weights.items():
                variants[name].weight = weight
        endpoint.enter("InService")

    async def _delete(self, endpoint: Endpoint) -> None:
        await asyncio.sleep(self._host.settings.transition_delay_s)
        if endpoint.fleet is not None:
            await endpoint.fleet.drain_and_stop()
        self._host.logs.forget_group(log_group(endpoint.name))
        self._endpoints.remove(endpoint.name)

    async def _replace_fleet(self, endpoint: Endpoint, config_name: str, plans: Sequence[VariantPlan]) -> None:
        endpoint.starting = Fleet(endpoint.name, config_name, plans, self._host)
        try:
            await asyncio.sleep(self._host.settings.transition_delay_s)
            await endpoint.starting.start()
            old, endpoint.fleet, endpoint.config_name = endpoint.fleet, endpoint.starting, config_name
        finally:
            endpoint.starting = None
        if old is not None:
            await old.drain_and_stop()

    def _go(self, change: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(change)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _logger.error("a change of an endpoint ended with a fault of the emulation", exc_info=fault)
