"""The moment at which a length of time ends that begins with the deploy."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

import cohost.artifacts
from constructs_lib.acknowledgements import accept_function

RESOURCE_TYPE: Final = "Custom::LmiEndOfLife"

_TIMEOUT: Final = cdk.Duration.minutes(1)
_SERVICE_TIMEOUT: Final = cdk.Duration.minutes(2)

# No more of the folder than the handler imports, so that no other change touches the function.
_ASSET_ROOT: Final = Path(cohost.artifacts.__file__).parent.parent
_MODULES: Final = ("__init__", "end_of_life", "errors", "reply")
_ASSET_EXCLUDES: Final = ("*", "!artifacts", *(f"!artifacts/{module}.py" for module in _MODULES))


class EndOfLife(Construct):
    """A custom resource, because nothing in a template can read a clock, and a synth's own would change every time.

    The moment is set when the resource is made and when `minutes` changes; every other deploy leaves it.

    Args:
        scope: the stack or construct it belongs to.
        construct_id: its id there.
        minutes: the length of time.
        stated: the same as the catalog has it, so that `cdk diff` shows it.
    """

    def __init__(self, scope: Construct, construct_id: str, *, minutes: int, stated: str) -> None:
        super().__init__(scope, construct_id)
        self._resource = cdk.CustomResource(
            self,
            "Moment",
            resource_type=RESOURCE_TYPE,
            service_token=self._function().function_arn,
            service_timeout=_SERVICE_TIMEOUT,
            properties={"Expires": stated, "Minutes": minutes},
        )

    @property
    def at(self) -> str:
        """The moment as `yyyy-mm-ddThh:mm:ss` in UTC."""
        return self._resource.get_att_string("At")

    @property
    def then_at(self) -> str:
        """A minute later."""
        return self._resource.get_att_string("ThenAt")

    def _function(self) -> lambda_.Function:
        log_group = logs.LogGroup(
            self, "Logs", retention=logs.RetentionDays.ONE_MONTH, removal_policy=cdk.RemovalPolicy.DESTROY
        )
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        log_group.grant_write(role)
        function = lambda_.Function(
            self,
            "Function",
            description="Says at which moment the endpoint's time is over",
            code=lambda_.Code.from_asset(
                str(_ASSET_ROOT), exclude=list(_ASSET_EXCLUDES), ignore_mode=cdk.IgnoreMode.GIT
            ),
            handler="artifacts.end_of_life.on_event",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            timeout=_TIMEOUT,
            log_group=log_group,
            role=role,
        )
        accept_function(function)
        return function
