"""The operations of Application Auto Scaling on targets and policies (AWS API reference: RegisterScalableTarget)."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from local_aws.autoscaling.errors import ResourceNotFoundException
from local_aws.autoscaling.policies import alarms_of, check_steps, check_tracking
from local_aws.autoscaling.state import Policy, ScalableTarget, ScheduledAction
from local_aws.autoscaling.targets import NAMESPACE, resource_of
from local_aws.kit.errors import ValidationException, not_emulated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local_aws.autoscaling.scaling_activities import Scaler
    from local_aws.autoscaling.state import Activity, ScalableTargets
    from local_aws.autoscaling.targets import ScalableResource
    from local_aws.kit.account import Account
    from local_aws.kit.clients import ServiceClients

    Request = dict[str, Any]
    Answer = dict[str, Any]

_CONFIGURATIONS = {
    "StepScaling": "StepScalingPolicyConfiguration",
    "TargetTrackingScaling": "TargetTrackingScalingPolicyConfiguration",
}
_SUSPENDED = ("DynamicScalingInSuspended", "DynamicScalingOutSuspended", "ScheduledScalingSuspended")


class TargetOperations:
    """The operations that change scalable targets and policies."""

    def __init__(self, account: Account, targets: ScalableTargets, scaler: Scaler, clients: ServiceClients) -> None:
        self._account = account
        self._targets = targets
        self._scaler = scaler
        self._clients = clients

    async def register(self, request: Request) -> Answer:
        """Answer RegisterScalableTarget; a capacity outside of the new bounds is changed at once."""
        resource = resource_of(request)
        target = self._targets.find(resource)
        minimum, maximum = _bounds(request, target)
        _check_bounds(resource, minimum, maximum)
        if target is None:
            await self._check_there(resource)
            target = self._new_target(resource, request)
            self._targets.add(target)
        target.minimum, target.maximum, target.occasion = minimum, maximum, ""
        target.suspended.update(request.get("SuspendedState") or {})
        target.tags.update(request.get("Tags") or {})
        target.role_arn = request.get("RoleARN") or target.role_arn
        self._scaler.keep_within_bounds(target)
        return {"ScalableTargetARN": target.arn}

    async def deregister(self, request: Request) -> Answer:
        """Answer DeregisterScalableTarget; delete the target's policies, scheduled actions and alarms too."""
        target = self._targets.get(resource_of(request))
        self._targets.remove(target)
        await self._delete_alarms(name for policy in target.policies.values() for name in policy.alarms)
        return {}

    async def put_policy(self, request: Request) -> Answer:
        """Answer PutScalingPolicy; each call gives a target tracking policy new alarms and deletes its old alarms."""
        target = self._targets.get(resource_of(request))
        name = request["PolicyName"]
        old = target.policies.get(name)
        kind = request.get("PolicyType") or (old.type if old else "StepScaling")
        configuration = _configuration(request, kind)
        if kind == "StepScaling":
            check_steps(configuration)
        else:
            check_tracking(target.resource, configuration)
        if old is not None and old.type != kind:
            raise ValidationException(f"PolicyType of scaling policy {name} is {old.type} and cannot be changed")
        policy = Policy(
            name=name, arn=old.arn if old else self._policy_arn(target, name), type=kind, configuration=configuration
        )
        if policy.tracks:
            await self._make_alarms(target, policy)
        target.policies[name] = policy
        if old is not None:
            policy.created = old.created
            await self._delete_alarms(old.alarms)
        return {"PolicyARN": policy.arn, "Alarms": self._alarms(policy)}

    async def delete_policy(self, request: Request) -> Answer:
        """Answer DeleteScalingPolicy; the alarms that the service made for the policy are deleted too."""
        target = self._targets.get(resource_of(request))
        policy = target.policy(request["PolicyName"])
        del target.policies[policy.name]
        await self._delete_alarms(policy.alarms)
        return {}

    async def tag(self, request: Request) -> Answer:
        """Answer TagResource."""
        self._by_arn(request).tags.update(request["Tags"])
        return {}

    async def untag(self, request: Request) -> Answer:
        """Answer UntagResource."""
        tags = self._by_arn(request).tags
        for key in request["TagKeys"]:
            tags.pop(key, None)
        return {}

    async def tags(self, request: Request) -> Answer:
        """Answer ListTagsForResource."""
        return {"Tags": self._by_arn(request).tags}

    def _by_arn(self, request: Request) -> ScalableTarget:
        for target in self._targets:
            if target.arn == request["ResourceARN"]:
                return target
        raise ResourceNotFoundException(f"No scalable target found for ARN {request['ResourceARN']}")

    def _alarms(self, policy: Policy) -> list[dict[str, str]]:
        account = self._account
        start = f"arn:{account.partition}:cloudwatch:{account.region}:{account.account_id}:alarm:"
        return [{"AlarmName": name, "AlarmARN": start + name} for name in policy.alarms]

    def described(self, target: ScalableTarget, policy: Policy) -> dict[str, Any]:
        """Return a policy's entry in DescribeScalingPolicies."""
        return {
            "PolicyARN": policy.arn,
            "PolicyName": policy.name,
            **target.resource.names,
            "PolicyType": policy.type,
            _CONFIGURATIONS[policy.type]: policy.configuration,
            "Alarms": self._alarms(policy),
            "CreationTime": policy.created,
        }

    def _new_target(self, resource: ScalableResource, request: Request) -> ScalableTarget:
        account = self._account
        role = (
            f"arn:{account.partition}:iam::{account.account_id}:role/aws-service-role/"
            "sagemaker.application-autoscaling.amazonaws.com/AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
        )
        return ScalableTarget(
            resource=resource,
            arn=f"arn:{account.partition}:application-autoscaling:{account.region}:{account.account_id}:"
            f"scalable-target/{uuid.uuid4().hex}",
            minimum=0,
            maximum=0,
            role_arn=request.get("RoleARN") or role,
            suspended=dict.fromkeys(_SUSPENDED, False),
            tags={},
        )

    def _policy_arn(self, target: ScalableTarget, name: str) -> str:
        account = self._account
        return (
            f"arn:{account.partition}:autoscaling:{account.region}:{account.account_id}:scalingPolicy:{uuid.uuid4()}:"
            f"resource/{NAMESPACE}/{target.resource.resource_id}:policyName/{name}"
        )

    async def _check_there(self, resource: ScalableResource) -> None:
        try:
            await self._clients.run(lambda: resource.read(self._clients.sagemaker()))
        except ClientError as fault:
            reason = fault.response["Error"].get("Message", "")
            raise ValidationException(f"{resource.resource_id} is not there to be scaled: {reason}") from None

    async def _make_alarms(self, target: ScalableTarget, policy: Policy) -> None:
        definitions = alarms_of(target.resource, policy)
        for definition in definitions:
            await self._clients.run(lambda wanted: self._clients.cloudwatch().put_metric_alarm(**wanted), definition)
        policy.alarms = tuple(definition["AlarmName"] for definition in definitions)

    async def _delete_alarms(self, names: Any) -> None:  # `names` is any iterable of texts
        if listed := list(names):
            await self._clients.run(lambda: self._clients.cloudwatch().delete_alarms(AlarmNames=listed))


def _bounds(request: Request, target: ScalableTarget | None) -> tuple[int, int]:
    """Return the target's MinCapacity and MaxCapacity after a request; a request for a new target must give both."""
    minimum = request.get("MinCapacity", None if target is None else target.minimum)
    maximum = request.get("MaxCapacity", None if target is None else target.maximum)
    if minimum is None or maximum is None:
        raise ValidationException("MinCapacity and MaxCapacity must be specified to register a new scalable target")
    return minimum, maximum


def _check_bounds(resource: ScalableResource, minimum: int, maximum: int) -> None:
    if minimum > maximum:
        raise ValidationException(f"Maximum capacity {maximum} cannot be less than minimum capacity {minimum}")
    if minimum < resource.least:
        raise ValidationException(
            f"MinCapacity {minimum}: {resource.dimension} cannot go below {resource.least}; only endpoints of "
            "inference components scale to zero"
        )


def _configuration(request: Request, kind: str) -> dict[str, Any]:
    if kind not in _CONFIGURATIONS:
        allowed = ", ".join(_CONFIGURATIONS)
        raise ValidationException(not_emulated(f"PolicyType {kind}", "Application Auto Scaling", allowed=allowed))
    configuration: dict[str, Any] | None = request.get(_CONFIGURATIONS[kind])
    if configuration is None:
        raise ValidationException(f"{_CONFIGURATIONS[kind]} must be specified for PolicyType {kind}")
    return configuration


_PAGE = 50


class DescribeOperations:
    """The operations that describe targets, policies, activities and scheduled actions."""

    def __init__(self, targets: ScalableTargets, operations: TargetOperations) -> None:
        self._targets = targets
        self._operations = operations

    async def targets(self, request: Request) -> Answer:
        """Answer DescribeScalableTargets."""
        wanted = request.get("ResourceIds")
        found = [
            _described_target(target)
            for target in self._targets
            if _fits(request, target.resource) and (not wanted or target.resource.resource_id in wanted)
        ]
        return _page("ScalableTargets", found, request)

    async def policies(self, request: Request) -> Answer:
        """Answer DescribeScalingPolicies."""
        names = request.get("PolicyNames")
        found = [
            self._operations.described(target, policy)
            for target in self._targets
            if _fits(request, target.resource)
            for policy in target.policies.values()
            if not names or policy.name in names
        ]
        return _page("ScalingPolicies", found, request)

    async def activities(self, request: Request) -> Answer:
        """Answer DescribeScalingActivities, newest first, including activities of deregistered targets."""
        found = [_described_activity(one) for one in self._targets.activities if _fits(request, one.resource)]
        return _page("ScalingActivities", found, request)

    async def actions(self, request: Request) -> Answer:
        """Answer DescribeScheduledActions."""
        names = request.get("ScheduledActionNames")
        found = [
            _described_action(target, action)
            for target in self._targets
            if _fits(request, target.resource)
            for action in target.actions.values()
            if not names or action.name in names
        ]
        return _page("ScheduledActions", found, request)


def _fits(request: Request, resource: ScalableResource) -> bool:
    return all(request.get(key) in {None, value} for key, value in resource.names.items())


def _page(name: str, found: Iterable[Any], request: Request) -> Answer:
    everything, token = list(found), request.get("NextToken") or "0"
    if not token.isdecimal():
        raise ValidationException("NextToken is not one that an earlier answer gave")
    start, size = int(token), request.get("MaxResults") or _PAGE
    more = {"NextToken": str(start + size)} if start + size < len(everything) else {}
    return {name: everything[start : start + size], **more}


def _described_target(target: ScalableTarget) -> dict[str, Any]:
    return {
        **target.resource.names,
        "MinCapacity": target.minimum,
        "MaxCapacity": target.maximum,
        "RoleARN": target.role_arn,
        "CreationTime": target.created,
        "SuspendedState": target.suspended,
        "ScalableTargetARN": target.arn,
    }


def _described_action(target: ScalableTarget, action: ScheduledAction) -> dict[str, Any]:
    times = {
        key: datetime.fromtimestamp(float(action.definition[key]), UTC)
        for key in ("StartTime", "EndTime")
        if key in action.definition
    }
    return {
        **target.resource.names,
        **action.definition,
        **times,
        "ScheduledActionName": action.name,
        "ScheduledActionARN": action.arn,
        "CreationTime": action.created,
    }


def _described_activity(activity: Activity) -> dict[str, Any]:
    ended = {} if activity.ended is None else {"EndTime": activity.ended}
    return {
        "ActivityId": activity.identity,
        **activity.resource.names,
        "Description": activity.description,
        "Cause": activity.cause,
        "StartTime": activity.started,
        **ended,
        "StatusCode": activity.status,
        "StatusMessage": activity.message,
    }
