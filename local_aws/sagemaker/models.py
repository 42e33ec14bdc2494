"""The Model operations of the control plane (AWS API reference: CreateModel and its like)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_aws.sagemaker.container_rules import check_container, check_model_data, check_role
from local_aws.sagemaker.faults import ValidationException, unsupported
from local_aws.sagemaker.listing import page
from local_aws.sagemaker.registry import Collection, Resource, tags_of

if TYPE_CHECKING:
    from local_aws.sagemaker.account import Account
    from local_aws.sagemaker.front import Front

_KEPT = ("PrimaryContainer", "Containers", "ExecutionRoleArn", "VpcConfig", "EnableNetworkIsolation")


def container_of(definition: dict[str, Any]) -> dict[str, Any]:
    """The one container of a model.

    Raises:
        ValidationException: the request has none, or several (an inference pipeline, which is not emulated).
    """
    containers = [*([definition["PrimaryContainer"]] if definition.get("PrimaryContainer") else [])]
    containers += definition.get("Containers") or []
    if not containers:
        raise ValidationException("PrimaryContainer: a model needs a container")
    if len(containers) > 1 or definition.get("InferenceExecutionConfig"):
        raise unsupported("A model of several containers")
    container: dict[str, Any] = containers[0]
    return container


class Models:
    """Creates, describes, lists and deletes models."""

    def __init__(self, account: Account, collection: Collection[Resource], front: Front) -> None:
        self._account = account
        self._models = collection
        self._front = front

    async def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateModel."""
        name = request["ModelName"]
        self._models.check_free(name)
        container = container_of(request)
        check_container(container, account_id=self._account.account_id, region=self._account.region)
        if (role := request.get("ExecutionRoleArn")) is not None:
            await check_role(role, self._front)
        elif container.get("ModelDataUrl"):
            raise ValidationException("ExecutionRoleArn: a model with model data needs a role that may read it")
        await check_model_data(container, self._front)
        definition = {key: request[key] for key in _KEPT if request.get(key) is not None}
        model = Resource(name=name, arn=self._models.arn(name), definition=definition, tags=tags_of(request))
        self._models.add(model)
        return {"ModelArn": model.arn}

    async def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeModel."""
        model = self._models.get(request["ModelName"])
        return {
            "EnableNetworkIsolation": False,
            **model.definition,
            "ModelName": model.name,
            "ModelArn": model.arn,
            "CreationTime": model.created,
        }

    async def list(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListModels."""
        models, more = page(self._models, request)
        summaries = [
            {"ModelName": model.name, "ModelArn": model.arn, "CreationTime": model.created} for model in models
        ]
        return {"Models": summaries, **more}

    async def delete(self, request: dict[str, Any]) -> None:
        """DeleteModel. Endpoints that run the model keep running it, as on the service."""
        self._models.remove(request["ModelName"])
