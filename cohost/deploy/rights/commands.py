"""The actions that the commands of `cohost` call with the caller's own credentials.

The tests in tests/unit/deploy/rights compare this table with the calls in each command's modules. A name in braces in
an ARN stands for a value of `policies.Caller.values`; if the catalog has no such value, the grant is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cohost.deploy.rights.resource_types import Condition, Grant

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAGEMAKER: Final = "arn:{partition}:sagemaker:{region}:{account}:"
_STACKS: Final = ("arn:{partition}:cloudformation:{region}:{account}:stack/{stack}/*",)
_ENDPOINT: Final = (_SAGEMAKER + "endpoint/{endpoint}",)
_ANY_ENDPOINT: Final = (_SAGEMAKER + "endpoint/*",)
_CONFIG: Final = (_SAGEMAKER + "endpoint-config/{config}",)
_ANY_CONFIG: Final = (_SAGEMAKER + "endpoint-config/*",)
_COMPONENT: Final = (_SAGEMAKER + "inference-component/{component}",)
_MODEL: Final = (_SAGEMAKER + "model/{model}",)
_ANY_MODEL: Final = (_SAGEMAKER + "model/*",)
_LOGS: Final = tuple(
    f"arn:{{partition}}:logs:{{region}}:{{account}}:log-group:{{container_logs}}{end}" for end in ("", ":*")
)
_STORE: Final = ("arn:{partition}:s3:::{bucket}",)
_ARCHIVES: Final = ("arn:{partition}:s3:::{bucket}/{prefix}*",)
_WEIGHTS: Final = ("arn:{partition}:s3:::{weights_bucket}",)
_WEIGHT_FILES: Final = ("arn:{partition}:s3:::{weights_bucket}/*",)
# The placeholders `with_component` and `without_component` are replaced by nothing. `with_component` has no value if
# the stack has no component, and `without_component` has no value if the stack has a component.
_SCALABLE: Final = ("arn:{partition}:application-autoscaling:{region}:{account}:scalable-target/*{with_component}",)
_WITH_COMPONENT: Final = ("*{with_component}",)
_WITHOUT_COMPONENT: Final = ("*{without_component}",)
_OWN_ENDPOINT: Final = (_SAGEMAKER + "endpoint/{endpoint}{without_component}",)
_OWN_CONFIG: Final = (_SAGEMAKER + "endpoint-config/{config}{without_component}",)
_BOOTSTRAP: Final = "arn:{partition}:iam::{account}:role/cdk-{qualifier}-"
_VERSION: Final = ("arn:{partition}:ssm:{region}:{account}:parameter/cdk-bootstrap/{qualifier}/version",)
_BELOW_PREFIX: Final[Condition] = {"StringLike": {"s3:prefix": "{prefix}*"}}
_PASSED_TO_SCHEDULER: Final[Condition] = {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}}
_OF_SAGEMAKER: Final[Condition] = {"StringEquals": {"application-autoscaling:service-namespace": "sagemaker"}}

_READ_STACK: Final = Grant(actions="cloudformation:DescribeStacks", on=_STACKS)
_LIST_ARCHIVES: Final = Grant(actions="s3:ListBucket", on=_STORE, condition=_BELOW_PREFIX)
_READ_ARCHIVES: Final = Grant(actions="s3:GetObject", on=_ARCHIVES)
_DECRYPT: Final = Grant(actions="kms:Decrypt", on=("{key}",))
_ENCRYPT: Final = Grant(actions="kms:GenerateDataKey", on=("{key}",))
_READ_ENDPOINT: Final = (
    Grant(actions="sagemaker:DescribeEndpoint", on=_ENDPOINT),
    Grant(actions="sagemaker:DescribeEndpointConfig", on=_CONFIG),
)
_READ_COPIES: Final = (
    Grant(actions="sagemaker:DescribeInferenceComponent", on=_COMPONENT),
    Grant(actions="application-autoscaling:DescribeScalableTargets", on=_WITH_COMPONENT),
)
_READ_CONTAINER_LOGS: Final = Grant(actions="logs:FilterLogEvents", on=_LOGS)
_CALL: Final = (
    Grant(actions="sagemaker:InvokeEndpoint", on=_ENDPOINT),
    Grant(actions="sagemaker:InvokeEndpoint", on=_COMPONENT),
)
_SET_COPIES: Final = (
    Grant(actions="sagemaker:UpdateInferenceComponentRuntimeConfig", on=_COMPONENT),
    Grant(actions="application-autoscaling:RegisterScalableTarget", on=_SCALABLE, condition=_OF_SAGEMAKER),
)
_ASSUME: Final = Grant(
    actions="sts:AssumeRole",
    on=tuple(f"{_BOOTSTRAP}{role}-role-{{account}}-{{region}}" for role in ("deploy", "file-publishing", "lookup")),
)
_READ_TOKEN: Final = (
    Grant(actions="secretsmanager:GetSecretValue", on=("{secret}",)),
    Grant(actions="ssm:GetParameter", on=("{parameter}",)),
)
_READ_WEIGHTS: Final = (
    Grant(actions="s3:ListBucket s3:ListBucketMultipartUploads", on=_WEIGHTS),
    Grant(actions="s3:GetObject", on=_WEIGHT_FILES),
    _DECRYPT,
)
_PREFLIGHT: Final = (
    Grant(actions="ssm:GetParameter", on=_VERSION),
    Grant(actions="servicequotas:ListServiceQuotas servicequotas:ListAWSDefaultServiceQuotas"),
    # The check of the quota counts the instances of all endpoints.
    Grant(actions="sagemaker:ListEndpoints"),
    Grant(actions="sagemaker:DescribeEndpoint", on=_ANY_ENDPOINT),
    Grant(actions="sagemaker:DescribeEndpointConfig", on=_ANY_CONFIG),
    # The check of the endpoint reads the outputs of all stacks.
    Grant(actions="cloudformation:DescribeStacks"),
    Grant(actions="application-autoscaling:DescribeScalableTargets"),
    Grant(actions="logs:DescribeLogGroups"),
    Grant(actions="ecr:BatchGetImage", on=("{image}",)),
    # The check of the weights' keys reads the default key of each bucket of the user's own, which may be an alias.
    Grant(actions="s3:GetEncryptionConfiguration", on=("arn:{partition}:s3:::{own_bucket}",)),
    Grant(actions="kms:DescribeKey", on=("{any_key_of_own_bucket}",)),
    Grant(actions="s3:ListBucket", on=_WEIGHTS),
    Grant(actions="s3:GetObject", on=_WEIGHT_FILES),
    _DECRYPT,
)

COMMANDS: Final[Mapping[str, tuple[Grant, ...]]] = {
    "preflight": _PREFLIGHT,
    "deploy": (
        *_PREFLIGHT,
        _ASSUME,
        Grant(actions="cloudformation:DescribeStackEvents cloudformation:ListStackResources", on=_STACKS),
        _READ_CONTAINER_LOGS,
    ),
    "diff": (_READ_STACK, _ASSUME),
    "status": (
        _READ_STACK,
        *_READ_ENDPOINT,
        *_READ_COPIES,
        *_CALL,
        _LIST_ARCHIVES,
        _READ_ARCHIVES,
        _DECRYPT,
        _READ_CONTAINER_LOGS,
        Grant(actions="cloudwatch:GetMetricStatistics", on=_WITHOUT_COMPONENT),
    ),
    "invoke": (_READ_STACK, *_CALL, *_READ_COPIES, _LIST_ARCHIVES, _READ_CONTAINER_LOGS),
    "push": (
        _READ_STACK,
        # The template states the handler version that a model with `handler: shared` must have.
        Grant(actions="cloudformation:GetTemplate", on=_STACKS),
        _LIST_ARCHIVES,
        _READ_ARCHIVES,
        Grant(actions="s3:PutObject s3:DeleteObject", on=_ARCHIVES),
        Grant(actions="s3:ListBucket", on=_WEIGHTS),
        Grant(actions="s3:GetObject", on=_WEIGHT_FILES),
        _DECRYPT,
        _ENCRYPT,
    ),
    "rollback": (
        _READ_STACK,
        Grant(
            actions="cloudformation:GetTemplate cloudformation:UpdateStack cloudformation:DescribeStackEvents",
            on=_STACKS,
        ),
        # CloudFormation reads the template's parameter of Systems Manager as the caller (template of `cdk bootstrap`).
        Grant(actions="ssm:GetParameters", on=_VERSION),
        _LIST_ARCHIVES,
        _READ_ARCHIVES,
        Grant(actions="s3:PutObject s3:DeleteObject", on=_ARCHIVES),
        _DECRYPT,
        _ENCRYPT,
    ),
    "wake": (_READ_STACK, *_READ_ENDPOINT, *_READ_COPIES, *_SET_COPIES, *_CALL),
    "sleep": (_READ_STACK, *_READ_ENDPOINT, *_READ_COPIES, *_SET_COPIES),
    "expire": (
        _READ_STACK,
        Grant(
            actions="scheduler:GetSchedule scheduler:UpdateSchedule",
            on=("arn:{partition}:scheduler:{region}:{account}:schedule/{schedule_group}/*",),
        ),
        Grant(
            actions="iam:PassRole",
            on=("arn:{partition}:iam::{account}:role/{schedule_role}",),
            condition=_PASSED_TO_SCHEDULER,
        ),
        Grant(actions="sagemaker:DescribeEndpoint", on=_ENDPOINT),
        # A multi-model endpoint is made again; one with a component was only scaled to zero.
        Grant(actions="sagemaker:CreateEndpoint sagemaker:AddTags", on=_OWN_ENDPOINT),
        Grant(actions="sagemaker:CreateEndpoint", on=_OWN_CONFIG),
        # CreateEndpoint of a configuration with a key (developer guide, "API permissions").
        Grant(actions="kms:CreateGrant", on=("{volume_key}{without_component}",)),
        *_READ_COPIES,
        Grant(actions="application-autoscaling:RegisterScalableTarget", on=_SCALABLE, condition=_OF_SAGEMAKER),
    ),
    "cleanup": (
        Grant(actions="cloudformation:ListStacks"),
        _READ_STACK,
        Grant(actions="cloudformation:ListStackResources cloudformation:DeleteStack", on=_STACKS),
        Grant(
            actions="sagemaker:ListEndpoints sagemaker:ListEndpointConfigs sagemaker:ListModels "
            "sagemaker:ListInferenceComponents logs:DescribeLogGroups"
        ),
        # The tags show which endpoints and models a stack left.
        Grant(actions="sagemaker:ListTags", on=(*_ANY_ENDPOINT, *_ANY_MODEL)),
    ),
    "orphans": (
        Grant(actions="sagemaker:ListEndpoints cloudwatch:GetMetricStatistics"),
        Grant(actions="sagemaker:DescribeEndpoint sagemaker:ListTags", on=_ANY_ENDPOINT),
        Grant(actions="sagemaker:DescribeEndpointConfig", on=_ANY_CONFIG),
    ),
    "weights": (
        *_READ_WEIGHTS,
        Grant(
            actions="s3:PutObject s3:DeleteObject s3:AbortMultipartUpload s3:ListMultipartUploadParts",
            on=_WEIGHT_FILES,
        ),
        _ENCRYPT,
        *_READ_TOKEN,
        # `prune` reads the archives of all stacks that may use the weights; grant it these stacks' buckets too.
        Grant(actions="cloudformation:DescribeStacks"),
        _LIST_ARCHIVES,
        _READ_ARCHIVES,
    ),
    "bench": (
        _READ_STACK,
        *_READ_ENDPOINT,
        Grant(actions="sagemaker:DescribeModel", on=_MODEL),
        Grant(actions="sagemaker:DescribeInferenceComponent", on=_COMPONENT),
        Grant(actions="sagemaker:ListInferenceComponents cloudwatch:GetMetricStatistics"),
        *_CALL,
    ),
    "prices": (Grant(actions="pricing:GetProducts"),),
}
"""The rights of each command that calls AWS; those of `cleanup` on what a stack left come from RESOURCE_TYPES."""
