"""Read a deployed stack: its outputs as a typed object, its template, and SageMaker's description of its endpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from cohost.errors import MissingStackError, RoutingError, StackError, reason_of
from cohost.routing import CPU_ONNX, INFERENCE_COMPONENTS, MULTI_MODEL, SCALE_TO_ZERO, Route, find_route

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_cloudformation.type_defs import StackTypeDef
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sagemaker.type_defs import DescribeEndpointConfigOutputTypeDef, DescribeEndpointOutputTypeDef


DEFAULT_STACK = "LmiCohostStack"
DEFAULT_REGION = "us-east-1"
"""The AWS region if neither the command nor the AWS configuration names a region."""

STACK_TAG = "lmi-cohost:stack"
"""The tag with the name of a resource's stack; CloudFormation does not write its own tags on endpoints."""

_BUDGET_STACK_CHARACTERS = 75


def budget_name(stack_name: str, region: str) -> str:
    """Return the name of a stack's budget, at most 100 characters.

    The name contains the region, because an account has a single list of budgets for all regions.
    """
    return f"{stack_name[:_BUDGET_STACK_CHARACTERS]}-{region}"


COMPONENT_OUTPUT = "InferenceComponentName"
WEIGHTS_OUTPUT = "WeightsBucket"
KINDS_OUTPUT = "Kinds"
# By topology: the reason why only a deploy adds a model, and in _THEN the effect of that deploy.
_WHY = {
    SCALE_TO_ZERO: "serves one archive of all models, which never changes",
    CPU_ONNX: "serves exported archives that are named by their content",
    INFERENCE_COMPONENTS: "serves each model by its own inference component",
}
_THEN = {SCALE_TO_ZERO: ", which publishes a new archive and starts a copy with it before the old one goes"}

_OUTPUTS = ("EndpointName", "BucketName", "Prefix", "Generation", "ModelDataUrl", "Region", "Topology", "Models")


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One deployed endpoint, as described by the outputs of its stack.

    `generation` is the id of the published set of archives; `bucket` and `prefix` are its location. `models` maps the
    name of each model of the last deploy to its TargetModel; on a scale-to-zero endpoint, to its name in the container.
    `handlers` and `tasks` map the name to the catalog's `handler` and `task`; both are empty for a stack without the
    output Kinds. `inference_component_name` is None on a multi-model endpoint. `weights_bucket` is None if no model has
    weights that were uploaded by `cohost weights push`.
    """

    stack_name: str
    endpoint_name: str
    bucket: str
    prefix: str
    generation: str
    model_data_url: str
    region: str
    topology: str
    models: Mapping[str, str]
    inference_component_name: str | None = None
    weights_bucket: str | None = None
    handlers: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, str] = field(default_factory=dict)

    def route_to(self, model: str, known: Mapping[str, str]) -> Route:
        """Return the route to a model; `known` has the form of the attribute `models`.

        Raises the errors of `find_route`.
        """
        return find_route(
            endpoint_name=self.endpoint_name,
            topology=self.topology,
            model=model,
            known=known,
            inference_component_name=self.inference_component_name,
        )

    def check_pushable(self) -> None:
        """Check that a model can be added to the endpoint without a deploy (`cohost push`).

        Raises:
            RoutingError: the endpoint is not a multi-model endpoint, so only a deploy changes its models.
        """
        if self.topology == MULTI_MODEL:
            return
        raise RoutingError(
            "topology-unfit",
            "cohost push",
            f"endpoint {self.endpoint_name!r} has the topology {self.topology!r}, and "
            f"{_WHY.get(self.topology, _WHY[SCALE_TO_ZERO])}",
            allowed=MULTI_MODEL,
            fix=f"run `cdk deploy {self.stack_name}`{_THEN.get(self.topology, '')}",
        )

    @classmethod
    def from_outputs(cls, stack_name: str, outputs: Mapping[str, str]) -> Deployment:
        """Return the deployment that a stack's outputs describe.

        Raises:
            StackError: an output is missing: the stack is not of this project, or another version deployed it.
        """
        needed = [*_OUTPUTS, *((COMPONENT_OUTPUT,) if outputs.get("Topology") == SCALE_TO_ZERO else ())]
        if missing := [name for name in needed if name not in outputs]:
            raise StackError(
                "outputs-missing",
                f"stack {stack_name}",
                f"has no output {', '.join(missing)}",
                allowed="a stack deployed by this version",
                fix=f"run `cdk deploy {stack_name}`, or name the right one with --stack",
            )
        kinds: Mapping[str, str] = json.loads(outputs.get(KINDS_OUTPUT, "{}"))
        return cls(
            stack_name=stack_name,
            endpoint_name=outputs["EndpointName"],
            bucket=outputs["BucketName"],
            prefix=outputs["Prefix"],
            generation=outputs["Generation"],
            model_data_url=outputs["ModelDataUrl"],
            region=outputs["Region"],
            topology=outputs["Topology"],
            models=json.loads(outputs["Models"]),
            inference_component_name=outputs.get(COMPONENT_OUTPUT),
            weights_bucket=outputs.get(WEIGHTS_OUTPUT),
            handlers={name: kind.partition("/")[0] for name, kind in kinds.items()},
            tasks={name: kind.partition("/")[2] for name, kind in kinds.items()},
        )


def kind_of(handler: str, task: str) -> str:
    """Return a model's value in the stack output Kinds: the catalog's `handler` and `task`, joined by a slash."""
    return f"{handler}/{task}"


def read_deployment(cloudformation: CloudFormationClient, stack_name: str = DEFAULT_STACK) -> Deployment:
    """Return the deployment of a stack; raises the errors of `read_outputs` and `Deployment.from_outputs`."""
    return Deployment.from_outputs(stack_name, read_outputs(cloudformation, stack_name))


def outputs_of(stack: StackTypeDef) -> dict[str, str]:
    """Return the outputs, by name, from CloudFormation's description of a stack."""
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}


def describe_stack(cloudformation: CloudFormationClient, stack_name: str) -> StackTypeDef:
    """Return CloudFormation's description of a stack.

    Raises:
        MissingStackError: there is no stack of that name in the account and region.
        StackError: CloudFormation refuses the request, or cannot be reached with the present credentials.
    """
    try:
        return cloudformation.describe_stacks(StackName=stack_name)["Stacks"][0]
    except ClientError as error:
        # ValidationError is CloudFormation's code for a stack that does not exist. With any other code a deploy would
        # fail too, so `cdk deploy` is not the fix.
        if error.response["Error"].get("Code") == "ValidationError":
            raise MissingStackError(
                "stack-missing",
                f"stack {stack_name}",
                reason_of(error),
                fix=f"run `cdk deploy {stack_name}`, or check account and region",
            ) from error
        raise StackError(
            "stack-refused",
            f"stack {stack_name}",
            reason_of(error),
            fix="check credentials, account and region",
        ) from error
    except BotoCoreError as error:
        raise StackError(
            "stack-unreachable",
            f"stack {stack_name}",
            f"cannot be looked up ({error})",
            fix="set credentials and a region, e.g. AWS_PROFILE",
        ) from error


def read_outputs(cloudformation: CloudFormationClient, stack_name: str) -> dict[str, str]:
    """Read a stack's outputs from CloudFormation, by name.

    Raises:
        StackError: the stack does not exist or is being created or deleted, or CloudFormation cannot be reached with
            the present credentials.
    """
    stack = describe_stack(cloudformation, stack_name)
    outputs = outputs_of(stack)
    if not outputs:
        raise StackError(
            "stack-unfinished",
            f"stack {stack_name}",
            f"is in {stack['StackStatus']} and has no outputs",
            fix=f"wait until its deploy has ended, or run `cdk deploy {stack_name}` again",
        )
    return outputs


def read_template(cloudformation: CloudFormationClient, stack_name: str) -> dict[str, Any]:
    """Return the template with which a stack was last deployed.

    Raises:
        StackError: CloudFormation refuses the request, or the template is not JSON, so `cdk` did not write it.
    """
    try:
        body = cloudformation.get_template(StackName=stack_name, TemplateStage="Original")["TemplateBody"]
        # boto3 parses a JSON template itself, although its type stubs state str.
        template: Any = json.loads(body) if isinstance(body, str) else body
    except ClientError as error:
        raise StackError(
            "template-unreadable",
            f"template of stack {stack_name}",
            f"cannot be read ({reason_of(error)})",
            fix="get the right cloudformation:GetTemplate",
        ) from error
    except ValueError:
        template = None
    if not isinstance(template, dict):
        raise StackError(
            "template-not-json",
            f"template of stack {stack_name}",
            "is not a JSON object",
            allowed="what `cdk deploy` deployed",
            fix=f"run `cdk deploy {stack_name}`",
        )
    return template


def describe_endpoint(
    sagemaker: SageMakerClient, deployment: Deployment
) -> tuple[DescribeEndpointOutputTypeDef, DescribeEndpointConfigOutputTypeDef]:
    """Return SageMaker's descriptions of a deployment's endpoint and of the endpoint's configuration.

    Raises:
        StackError: SageMaker refuses the request, or the endpoint does not exist.
    """
    try:
        endpoint = sagemaker.describe_endpoint(EndpointName=deployment.endpoint_name)
        return endpoint, sagemaker.describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
    except ClientError as error:
        raise StackError(
            "endpoint-unreadable",
            f"endpoint {deployment.endpoint_name}",
            reason_of(error),
            fix="check your rights; if it was deleted outside CloudFormation, run "
            f"`cdk destroy {deployment.stack_name}` and deploy again",
        ) from error
