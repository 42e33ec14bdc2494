"""A boto3 session of one scale-to-zero stack with its state in memory: copies, bounds, template, instances."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

from cohost.endpoint.stack_outputs import Deployment

COMPONENT = Deployment(
    stack_name="S",
    endpoint_name="lmi-cohost",
    bucket="bucket",
    prefix="p/",
    generation="0123456789ab",
    model_data_url="s3://bucket/p/0123456789ab/models.tar.gz",
    region="us-east-1",
    topology="scale-to-zero",
    models={"nli": "nli", "mini": "mini"},
    inference_component_name="lmi-cohost-models",
)
OUTPUTS = {
    "EndpointName": "lmi-cohost",
    "BucketName": "bucket",
    "Prefix": "p/",
    "Generation": "0123456789ab",
    "ModelDataUrl": "s3://bucket/p/0123456789ab/models.tar.gz",
    "Region": "us-east-1",
    "Topology": "scale-to-zero",
    "Models": '{"nli": "nli", "mini": "mini"}',
    "InferenceComponentName": "lmi-cohost-models",
}
DIMENSION = "sagemaker:inference-component:DesiredCopyCount"


class Session:
    """The fake clients of CloudFormation, SageMaker, its runtime, CloudWatch, its logs and auto scaling.

    `minimum` None: there is no scalable target. `refused` maps an operation to the error message that it fails with;
    `changes` are the changes that were asked for, in order; `calls` counts those of the endpoint. A copy that is wanted
    runs after `starts_after` looks at the component; an "Updating" one refuses `busy_for` changes.
    """

    region_name = "us-east-1"

    def __init__(
        self, *, desired: int = 1, minimum: int | None = 0, maximum: int = 2, deployed_minimum: int = 0
    ) -> None:
        self.desired, self.current = desired, desired
        self.minimum, self.maximum, self.suspended = minimum, maximum, False
        self.deployed_minimum, self.deployed_maximum = deployed_minimum, maximum
        self.managed: dict[str, Any] | None = {"Status": "ENABLED", "MinInstanceCount": deployed_minimum}
        self.outputs = dict(OUTPUTS)
        self.refused: dict[str, str] = {}
        self.changes: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self.answers: list[Exception | bytes] = []
        self.starts_after = 2
        self.status = "InService"
        self.busy_for = 0

    def client(self, service: str, **_: object) -> Any:
        """A client of any of the services."""
        self.meta = SimpleNamespace(endpoint_url=f"https://{service}.us-east-1.amazonaws.com")
        return self

    def get_credentials(self) -> object:
        """Return credentials, because boto3 needs some."""
        return object()

    def _check(self, operation: str) -> None:
        if operation in self.refused:
            raise fault(operation, self.refused[operation])

    def filter_log_events(self, **_: object) -> dict[str, Any]:
        """Return no log lines of containers."""
        return {"events": []}

    def describe_stacks(self, **_: str) -> dict[str, Any]:
        """CloudFormation."""
        outputs = [{"OutputKey": key, "OutputValue": value} for key, value in self.outputs.items()]
        return {"Stacks": [{"StackStatus": "CREATE_COMPLETE", "Outputs": outputs}]}

    def get_template(self, **_: str) -> dict[str, Any]:
        """CloudFormation."""
        self._check("GetTemplate")
        bounds = {"MinCapacity": self.deployed_minimum, "MaxCapacity": self.deployed_maximum}
        target = {"Type": "AWS::X", "Properties": {"ScalableDimension": DIMENSION, **bounds}}
        resources = {"Role": {"Type": "AWS::IAM::Role"}, **({} if self.minimum is None else {"Target": target})}
        return {"TemplateBody": json.dumps({"Resources": resources})}

    def describe_endpoint(self, **_: str) -> dict[str, Any]:
        """SageMaker."""
        return {
            "EndpointStatus": "InService",
            "EndpointConfigName": "config",
            "ProductionVariants": [{"CurrentInstanceCount": self.current}],
        }

    def describe_endpoint_config(self, **_: str) -> dict[str, Any]:
        """SageMaker."""
        managed = {} if self.managed is None else {"ManagedInstanceScaling": self.managed}
        variant = {"VariantName": "AllTraffic", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1, **managed}
        variant |= {"ModelName": "model"} if "InferenceComponentName" not in self.outputs else {}
        return {"ProductionVariants": [variant]}

    def describe_inference_component(self, **_: str) -> dict[str, Any]:
        """SageMaker: each look brings a wanted copy nearer."""
        self._check("DescribeInferenceComponent")
        if self.current != self.desired and self.status != "Failed":
            self.starts_after -= 1
            if self.starts_after <= 0:
                self.current = self.desired
        reason = {"FailureReason": "no machine was to be had"} if self.status == "Failed" else {}
        counts = {"DesiredCopyCount": self.desired, "CurrentCopyCount": self.current}
        specification = {"ModelName": "model"}
        return {
            "InferenceComponentStatus": self.status,
            "RuntimeConfig": counts,
            "Specification": specification,
            **reason,
        }

    def get_metric_statistics(self, **given: Any) -> dict[str, Any]:
        """CloudWatch: two models are loaded."""
        assert given["MetricName"] == "LoadedModelCount"
        return {"Datapoints": [{"Timestamp": 0, "Maximum": 2.0}]}

    def list_inference_components(self, **_: str) -> dict[str, Any]:
        """SageMaker."""
        return {"InferenceComponents": [{"InferenceComponentName": "lmi-cohost-models"}]}

    def describe_model(self, **_: str) -> dict[str, Any]:
        """SageMaker."""
        return {"PrimaryContainer": {"Image": "the image"}}

    def update_inference_component_runtime_config(self, **given: Any) -> dict[str, Any]:
        """SageMaker."""
        self._check("UpdateInferenceComponentRuntimeConfig")
        if self.status == "Updating":
            self.busy_for -= 1
            if self.busy_for >= 0:
                raise fault("UpdateInferenceComponentRuntimeConfig", "Cannot update in-progress component")
            self.status = "InService"
        self.desired = given["DesiredRuntimeConfig"]["CopyCount"]
        if not self.desired:
            self.current = 0
        self.changes.append(f"copies {self.desired}")
        return {}

    def describe_scalable_targets(self, **_: Any) -> dict[str, Any]:
        """Application Auto Scaling."""
        if self.minimum is None:
            return {"ScalableTargets": []}
        state = {"DynamicScalingOutSuspended": self.suspended}
        return {
            "ScalableTargets": [
                {"MinCapacity": self.minimum, "MaxCapacity": self.maximum, "SuspendedState": state},
            ]
        }

    def register_scalable_target(self, **given: Any) -> dict[str, Any]:
        """Application Auto Scaling."""
        self._check("RegisterScalableTarget")
        assert given["ResourceId"] == "inference-component/lmi-cohost-models"
        assert given["ScalableDimension"] == DIMENSION
        self.minimum, self.maximum = given["MinCapacity"], given["MaxCapacity"]
        states = given["SuspendedState"]
        self.suspended = states["DynamicScalingOutSuspended"]
        assert states["ScheduledScalingSuspended"] == self.suspended
        self.changes.append(f"bounds {self.minimum}-{self.maximum}{' suspended' if self.suspended else ''}")
        return {}

    def invoke_endpoint(self, **given: Any) -> dict[str, Any]:
        """The runtime: the answers in turn."""
        self.calls.append({**given, "copies": self.current})
        answer = self.answers.pop(0) if self.answers else b'[{"label": "a", "score": 1.0}]'
        if isinstance(answer, Exception):
            raise answer
        return {"Body": Body(answer)}


class Body:
    """The body of an answer, as botocore returns it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self) -> bytes:
        """Return the whole body."""
        return self._content


def fault(
    operation: str, message: str, *, code: str = "ValidationException", status: int = 400, **more: Any
) -> ClientError:
    """An error of a service."""
    response: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
        **more,
    }
    return ClientError(response, operation)
