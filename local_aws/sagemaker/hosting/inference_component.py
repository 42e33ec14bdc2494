"""The lifecycle of an inference component: Creating, InService, Updating, Failed, Deleting.

The statuses are those of DescribeInferenceComponent in the AWS API reference; the states in the texts of errors are
quoted in hashicorp/terraform-provider-aws (DELETE_IN_PROGRESS) and Hugging Face's SageMaker skills (the others). An
update starts new copies beside the old ones, so the instances need free resources for the new copies (AWS: blog post on
rolling updates of inference components).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from local_aws.kit.account import component_log_group
from local_aws.kit.errors import ValidationException
from local_aws.kit.named_resources import Resource
from local_aws.sagemaker.errors import DeploymentError
from local_aws.sagemaker.hosting.component_variant import ComponentVariant

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from local_aws.kit.background import BackgroundTasks
    from local_aws.kit.named_resources import Collection
    from local_aws.sagemaker.hosting.component_variant import ComponentPlan
    from local_aws.sagemaker.hosting.endpoint import Endpoint
    from local_aws.sagemaker.telemetry.logs import LogShipper


@dataclass(kw_only=True)
class InferenceComponent(Resource):
    """An inference component: `definition` is its Specification; `plan`, made from it, has container and resources.

    `under_way` is SageMaker's name of the change in progress; None if there is no change. `deployment` is the
    DeploymentConfig of the last update.
    """

    endpoint: Endpoint
    variant_name: str
    plan: ComponentPlan
    desired_copies: int
    status: str = "Creating"
    under_way: str | None = "CREATE_IN_PROGRESS"
    failure_reason: str | None = None
    deployment: dict[str, Any] | None = None
    last_modified: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def modified(self) -> datetime:
        """The time when the component's status last changed."""
        return self.last_modified

    @property
    def endpoint_name(self) -> str:
        """The name of the component's endpoint."""
        return self.endpoint.name

    @property
    def variant(self) -> ComponentVariant:
        """The component's variant in the endpoint's current fleet."""
        variant = None if self.endpoint.fleet is None else self.endpoint.fleet.variants.get(self.variant_name)
        if not isinstance(variant, ComponentVariant):
            raise ValidationException(f'Variant {self.variant_name} not found for endpoint "{self.endpoint.arn}".')
        return variant

    @property
    def current_copies(self) -> int:
        """The number of the component's copies in service."""
        return len(self.variant.copies(self.name).in_service)

    def enter(self, status: str, *, under_way: str | None = None) -> None:
        """Set the component's status, and SageMaker's name of the change in progress or None."""
        self.status = status
        self.under_way = under_way
        self.last_modified = datetime.now(UTC)

    def check_steady(self, wish: str) -> None:
        """Raise ValidationException while a change is in progress; `wish` is the verb of the refused operation."""
        if self.under_way is not None:
            raise ValidationException(
                f'Cannot {wish} inference component "{self.arn}" while it is in state {self.under_way}.'
            )


class ComponentDeployments:
    """Create, scale, update and delete inference components in the background.

    Args:
        components: all inference components of the account.
        logs: forgets the log group of a deleted component.
        tasks: runs the changes.
        transition: awaited at the beginning of each change.
    """

    def __init__(
        self,
        components: Collection[InferenceComponent],
        *,
        logs: LogShipper,
        tasks: BackgroundTasks,
        transition: Callable[[], Awaitable[None]],
    ) -> None:
        self._components = components
        self._logs = logs
        self._tasks = tasks
        self._transition = transition

    def create(self, component: InferenceComponent) -> None:
        """Add a new component in status Creating and start its copies in the background."""
        self._components.add(component)
        self._tasks.begin(self._create(component))

    def scale(self, component: InferenceComponent, count: int) -> None:
        """Scale a component to `count` copies."""
        component.desired_copies = count
        component.enter("Updating", under_way="UPDATE_RC_IN_PROGRESS")
        self._tasks.begin(self._scale(component))

    def update(
        self, component: InferenceComponent, specification: dict[str, Any], plan: ComponentPlan, copies: int
    ) -> None:
        """Replace all copies of a component by copies of another Specification, and scale to `copies`."""
        component.enter("Updating", under_way="UPDATE_IN_PROGRESS")
        self._tasks.begin(self._update(component, specification, plan, copies))

    def delete(self, component: InferenceComponent) -> None:
        """Stop all copies of a component and remove the component."""
        component.enter("Deleting", under_way="DELETE_IN_PROGRESS")
        self._tasks.begin(self._delete(component))

    async def _create(self, component: InferenceComponent) -> None:
        await self._transition()
        try:
            await component.variant.scale(component.plan, component.desired_copies)
        except DeploymentError as failure:
            component.failure_reason = str(failure)
            component.enter("Failed")
        else:
            component.enter("InService")

    async def _scale(self, component: InferenceComponent) -> None:
        await self._transition()
        try:
            await component.variant.scale(component.plan, component.desired_copies)
        except DeploymentError as failure:
            component.failure_reason = str(failure)
        else:
            component.failure_reason = None
        component.enter("InService")

    async def _update(
        self, component: InferenceComponent, specification: dict[str, Any], plan: ComponentPlan, copies: int
    ) -> None:
        await self._transition()
        variant = component.variant
        batch, pause_s = _rollout(component.deployment, component.current_copies)
        try:
            await variant.roll(plan, batch=batch, pause_s=pause_s)
            await variant.scale(plan, copies)
        except DeploymentError as failure:
            await self._roll_back(component, str(failure))
        else:
            component.definition, component.plan, component.desired_copies = specification, plan, copies
            component.failure_reason = None
            component.enter("InService")

    @staticmethod
    async def _roll_back(component: InferenceComponent, reason: str) -> None:
        """Replace the failed update's copies by copies of the former plan; usually the update had replaced no copy."""
        try:
            await component.variant.roll(component.plan, batch=1, pause_s=0)
        except DeploymentError as failure:
            component.failure_reason = f"{reason} The copies before the update could not be put back: {failure}"
            component.enter("Failed")
        else:
            component.failure_reason = reason
            component.enter("InService")

    async def _delete(self, component: InferenceComponent) -> None:
        await self._transition()
        await component.variant.scale(component.plan, 0)
        component.variant.forget(component.name)
        self._logs.forget_group(component_log_group(component.name))
        self._components.remove(component.name)


def _rollout(deployment: dict[str, Any] | None, copies: int) -> tuple[int, float]:
    """Return the copies per batch and the seconds between batches; without a RollingUpdatePolicy there is one batch."""
    policy = (deployment or {}).get("RollingUpdatePolicy")
    if policy is None:
        return max(copies, 1), 0
    size = policy["MaximumBatchSize"]
    batch = size["Value"] if size["Type"] == "COPY_COUNT" else copies * size["Value"] // 100
    return max(batch, 1), policy["WaitIntervalInSeconds"]
