"""The lifecycle of an endpoint: Creating, InService, Updating, RollingBack, Failed, Deleting.

The statuses are those of DescribeEndpoint in the AWS API reference. Every update is blue/green: the old instances get
calls until the new instances are up, and end only after their running calls have ended.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from local_aws.kit.account import log_group
from local_aws.kit.errors import ValidationException
from local_aws.kit.named_resources import Resource
from local_aws.sagemaker.errors import DeploymentError
from local_aws.sagemaker.hosting.component_variant import ComponentVariant
from local_aws.sagemaker.hosting.guardrails import Shift, shift_calls
from local_aws.sagemaker.hosting.production_variants import Fleet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from local_aws.kit.background import BackgroundTasks
    from local_aws.kit.clients import ServiceClients
    from local_aws.kit.named_resources import Collection
    from local_aws.sagemaker.hosting.context import EndpointContext
    from local_aws.sagemaker.hosting.endpoint_snapshot import VariantPlan
    from local_aws.sagemaker.hosting.guardrails import Guardrails
    from local_aws.sagemaker.hosting.production_variants import ModelVariant, Variant
    from local_aws.sagemaker.telemetry.logs import LogShipper


@dataclass(kw_only=True)
class Endpoint(Resource):
    """An endpoint. `fleet` is all variants with their instances, which take the calls; None until the first fleet runs.

    `starting` is the fleet that a change in progress is starting. `deployment` is the DeploymentConfig of the last
    update, or of the creation if there was no update. While an update moves calls in steps, `shift` selects one of two
    fleets for each call.
    """

    config_name: str
    status: str = "Creating"
    failure_reason: str | None = None
    last_modified: datetime = field(default_factory=lambda: datetime.now(UTC))
    fleet: Fleet | None = None
    starting: Fleet | None = None
    deployment: Mapping[str, Any] | None = None
    shift: Shift | None = None

    @property
    def taking(self) -> Fleet | None:
        """The fleet that takes the next call."""
        return self.fleet if self.shift is None else self.shift.next()

    @property
    def modified(self) -> datetime:
        """The time when the endpoint's status last changed."""
        return self.last_modified

    def enter(self, status: str) -> None:
        """Set the endpoint's status, and the time of its change."""
        self.status = status
        self.last_modified = datetime.now(UTC)

    def check_steady(self) -> None:
        """Raise ValidationException while a change is in progress, as SageMaker does for updates and deletions."""
        if self.status not in {"InService", "Failed"}:
            raise ValidationException(f'Cannot update in-progress endpoint "{self.arn}".')


class EndpointDeployments:
    """Create, update and delete endpoints in the background.

    Args:
        endpoints: all endpoints of the account.
        context: the parts that production variants need.
        clients: read the states of the alarms that guard a deployment.
        logs: forgets the log group of a deleted endpoint.
        tasks: runs the changes.
        transition: awaited at the beginning of each creation, update, deletion and rollback.
    """

    def __init__(
        self,
        endpoints: Collection[Endpoint],
        *,
        context: EndpointContext,
        clients: ServiceClients,
        logs: LogShipper,
        tasks: BackgroundTasks,
        transition: Callable[[], Awaitable[None]],
    ) -> None:
        self._endpoints = endpoints
        self._context = context
        self._clients = clients
        self._logs = logs
        self._tasks = tasks
        self._transition = transition

    def create(self, endpoint: Endpoint, plans: Sequence[VariantPlan]) -> None:
        """Add a new endpoint in status Creating and start its instances in the background."""
        self._endpoints.add(endpoint)
        self._tasks.begin(self._create(endpoint, plans))

    def update(
        self, endpoint: Endpoint, config_name: str, plans: Sequence[VariantPlan], guardrails: Guardrails | None = None
    ) -> None:
        """Move an endpoint to another configuration; without guardrails all calls move at once and no alarm is read."""
        endpoint.enter("Updating")
        self._tasks.begin(self._update(endpoint, config_name, plans, guardrails))

    def rescale(self, endpoint: Endpoint, counts: Mapping[ModelVariant, int], weights: Mapping[Variant, float]) -> None:
        """Change the instance counts and weights of an endpoint's variants."""
        endpoint.enter("Updating")
        self._tasks.begin(self._rescale(endpoint, counts, weights))

    def delete(self, endpoint: Endpoint) -> None:
        """Stop all containers of an endpoint once their running calls have ended, and remove the endpoint."""
        endpoint.enter("Deleting")
        self._tasks.begin(self._delete(endpoint))

    async def shutdown(self) -> None:
        """Cancel all changes in progress and stop every container of every endpoint at once."""
        await self._tasks.give_up()
        fleets = [fleet for endpoint in self._endpoints for fleet in (endpoint.fleet, endpoint.starting) if fleet]
        await asyncio.gather(*(fleet.stop() for fleet in fleets))

    async def _create(self, endpoint: Endpoint, plans: Sequence[VariantPlan]) -> None:
        try:
            await self._replace_fleet(endpoint, endpoint.config_name, plans)
        except DeploymentError as failure:
            endpoint.failure_reason = str(failure)
            endpoint.enter("Failed")
        else:
            endpoint.enter("InService")

    async def _update(
        self, endpoint: Endpoint, config_name: str, plans: Sequence[VariantPlan], guardrails: Guardrails | None
    ) -> None:
        try:
            await self._replace_fleet(endpoint, config_name, plans, guardrails)
        except DeploymentError as failure:
            # The old instances never stopped, so a rollback only changes the status.
            endpoint.failure_reason = str(failure)
            endpoint.enter("RollingBack")
            await self._transition()
        else:
            endpoint.failure_reason = None
        endpoint.enter("InService")

    async def _rescale(
        self, endpoint: Endpoint, counts: Mapping[ModelVariant, int], weights: Mapping[Variant, float]
    ) -> None:
        try:
            for variant, count in counts.items():
                await variant.resize(count)
        except DeploymentError as failure:
            endpoint.failure_reason = str(failure)
        else:
            endpoint.failure_reason = None
            for weighted, weight in weights.items():
                weighted.weight = weight
        endpoint.enter("InService")

    async def _delete(self, endpoint: Endpoint) -> None:
        await self._transition()
        if endpoint.fleet is not None:
            await endpoint.fleet.drain_and_stop()
        self._logs.forget_group(log_group(endpoint.name))
        self._endpoints.remove(endpoint.name)

    async def _replace_fleet(
        self,
        endpoint: Endpoint,
        config_name: str,
        plans: Sequence[VariantPlan],
        guardrails: Guardrails | None = None,
    ) -> None:
        endpoint.starting = Fleet(endpoint.name, config_name, plans, self._context)
        try:
            await self._transition()
            await endpoint.starting.start()
            await _move_copies(endpoint.fleet, endpoint.starting)
            if guardrails is not None and endpoint.fleet is not None:
                role = next((plan.container.role for plan in plans if plan.container is not None), None)
                await self._shift(endpoint, endpoint.fleet, endpoint.starting, guardrails, role)
            old, endpoint.fleet, endpoint.config_name = endpoint.fleet, endpoint.starting, config_name
        finally:
            endpoint.starting = None
        if old is not None:
            await old.drain_and_stop()

    async def _shift(
        self, endpoint: Endpoint, old: Fleet, new: Fleet, guardrails: Guardrails, role: str | None
    ) -> None:
        """Move calls to the new fleet under guardrails; on DeploymentError move them back and stop the new fleet."""
        endpoint.shift = Shift(old, new)
        try:
            try:
                await shift_calls(endpoint.shift, guardrails, role, self._clients, self._context.clock)
            finally:
                # End the shift before anything else, so that the new fleet gets no more calls while it ends.
                endpoint.shift = None
        except DeploymentError:
            await new.drain_and_stop()
            raise
        except BaseException:
            await new.stop()
            raise


async def _move_copies(old: Fleet | None, new: Fleet) -> None:
    """Start the old fleet's copies of inference components in the new fleet; on DeploymentError stop the new fleet."""
    try:
        for name, variant in new.variants.items():
            former = None if old is None else old.variants.get(name)
            if isinstance(variant, ComponentVariant) and isinstance(former, ComponentVariant):
                await variant.adopt(former)
    except BaseException:
        await new.stop()
        raise
