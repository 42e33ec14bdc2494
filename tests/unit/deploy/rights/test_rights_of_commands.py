"""The table of the commands' rights, held against the calls of AWS in the commands' own modules."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import botocore.session
from botocore import xform_name

from cohost.deploy.rights.commands import COMMANDS
from cohost.deploy.rights.resource_types import RESOURCE_TYPES

ROOT = Path(__file__).parents[4]

# The services that the commands call, with the prefix of their actions where it is another.
SERVICES: Final = {
    "s3": "s3", "sagemaker": "sagemaker", "sagemaker-runtime": "sagemaker", "cloudformation": "cloudformation",
    "logs": "logs", "cloudwatch": "cloudwatch", "application-autoscaling": "application-autoscaling",
    "scheduler": "scheduler", "ssm": "ssm", "sts": "sts", "ecr": "ecr", "service-quotas": "servicequotas",
    "pricing": "pricing", "secretsmanager": "secretsmanager", "iam": "iam", "lambda": "lambda", "sns": "sns",
    "budgets": "budgets", "ec2": "ec2", "kms": "kms",
}  # fmt: skip

# Service Authorization Reference: operations whose action has another name.
RENAMED: Final = {
    "s3:HeadObject": "s3:GetObject", "s3:UploadPart": "s3:PutObject", "s3:CreateMultipartUpload": "s3:PutObject",
    "s3:CompleteMultipartUpload": "s3:PutObject", "s3:ListParts": "s3:ListMultipartUploadParts",
    "s3:ListObjectsV2": "s3:ListBucket", "s3:HeadBucket": "s3:ListBucket", "s3:DeleteObjects": "s3:DeleteObject",
    "s3:GetBucketEncryption": "s3:GetEncryptionConfiguration", "s3:ListObjectVersions": "s3:ListBucketVersions",
    "s3:ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "budgets:DescribeBudget": "budgets:ViewBudget", "budgets:DeleteBudget": "budgets:ModifyBudget",
}  # fmt: skip

# GetCallerIdentity needs no right (STS API reference).
FREE: Final = {"sts:GetCallerIdentity"}

# Rights that no call in the source names, each with its source.
WITHOUT_A_CALL: Final = {
    "sts:AssumeRole": "the cdk program assumes the roles of its bootstrap",
    "iam:PassRole": "UpdateSchedule passes the schedule's role (IAM user guide: pass a role to a service)",
    "sagemaker:AddTags": "CreateEndpoint with tags needs it (resource schema of AWS::SageMaker::Endpoint)",
    "kms:CreateGrant": "CreateEndpoint of a configuration with a key (SageMaker developer guide: API permissions)",
    "kms:Decrypt": "S3 decrypts as the caller (S3 user guide: SSE-KMS)",
    "kms:GenerateDataKey": "S3 encrypts as the caller (S3 user guide: SSE-KMS)",
    "ssm:GetParameters": "CloudFormation reads a template's parameters as the caller (template of cdk bootstrap)",
    "s3:DeleteObjectVersion": "DeleteObjects with a version id (Service Authorization Reference)",
}

# Functions of cohost that have the name of some API's method.
OUR_OWN: Final = {"get_group"}

# What runs with rights of its own: the code of the stack's function, whose role has its rights in the template.
OF_THE_FUNCTION: Final = {"compose.py"}


@cache
def operations() -> dict[str, set[str]]:
    """The actions of each method of boto3's clients, by the method's name."""
    session, found = botocore.session.get_session(), {}
    for service, prefix in SERVICES.items():
        for operation in session.get_service_model(service).operation_names:
            found.setdefault(xform_name(operation), set()).add(f"{prefix}:{operation}")
    return found


def calls(*places: str) -> dict[str, set[str]]:
    """The actions that each method named in the source of some modules may need, by the method's name."""
    text = "\n".join(
        file.read_text()
        for place in places
        for file in ([ROOT / place] if place.endswith(".py") else sorted((ROOT / place).rglob("*.py")))
        if file.name not in OF_THE_FUNCTION and not {"rights", "handler"} & set(file.relative_to(ROOT).parts)
    )
    # A method with two words at least: a name of one word, such as `invoke`, may be any function.
    named = set(re.findall(r"\b[a-z0-9]+(?:_[a-z0-9]+)+\b", text))
    return {name: operations()[name] for name in named & set(operations()) - OUR_OWN}


def granted(*commands: str) -> set[str]:
    """The actions of some commands, with those of cleanup on what a stack left."""
    grants = [grant for command in commands for grant in COMMANDS[command]]
    if "cleanup" in commands:
        grants += [grant for rights in RESOURCE_TYPES.values() for grant in rights.cleanup]
    return {action for grant in grants for action in grant.actions.split()}


def missing(have: set[str], needed: dict[str, set[str]]) -> set[str]:
    """The methods none of whose actions are granted."""
    return {name for name, actions in needed.items() if not {RENAMED.get(one, one) for one in actions} & (have | FREE)}


def test_each_call_of_each_command_is_granted() -> None:
    """The modules of a command call nothing that its row lacks; a new call fails here first."""
    clean = "cohost/deploy/cleanup/"
    of: dict[str, tuple[str, ...]] = {
        "preflight": ("cohost/deploy/preflight.py",),
        "deploy": ("cohost/deploy/preflight.py", "cohost/deploy/cdk.py", "cohost/endpoint/load_failures.py"),
        "status": ("cohost/endpoint/status.py", "cohost/endpoint/load_failures.py", "cohost/endpoint/probing.py"),
        "invoke": ("cohost/endpoint/client.py", "cohost/endpoint/load_failures.py"),
        "push": ("cohost/archives/store.py", "cohost/archives/bucket.py", "cohost/endpoint/stack_outputs.py"),
        "rollback": ("cohost/deploy/rollback.py", "cohost/archives/history.py"),
        "wake": ("cohost/endpoint/copies.py", "cohost/endpoint/working_hours.py"),
        "sleep": ("cohost/endpoint/copies.py", "cohost/endpoint/working_hours.py"),
        "expire": ("cohost/deploy/expiry.py",),
        "cleanup": (clean + "stacks.py", clean + "resource_types.py", clean + "work.py"),
        "orphans": (clean + "leftovers.py",),
        "weights": ("cohost/weights",),
        "bench": ("load_tests", "cohost/report/endpoint_metrics.py"),
        "prices": ("cohost/forecast/pricing/price_list.py",),
    }
    # Calls in the same modules that other commands make: of cleanup, and of status and bench.
    also = {"orphans": {"describe_log_groups"}, "push": {"describe_endpoint", "describe_endpoint_config"}}
    lacking = {
        command: missing(granted(command), calls(*places)) - also.get(command, set()) for command, places in of.items()
    }
    assert {command: found for command, found in lacking.items() if found} == {}
    assert set(of) | {"diff"} == set(COMMANDS)


def test_no_call_of_cohost_is_outside_the_table() -> None:
    """A module that nobody listed above calls nothing that no command is granted."""
    assert missing(granted(*COMMANDS), calls("cohost", "load_tests")) == set()


def test_no_right_is_without_a_call_or_a_source() -> None:
    """A right of the caller is one that a line of the source uses, or one whose source is named here."""
    used = {RENAMED.get(one, one) for actions in calls("cohost", "load_tests").values() for one in actions}
    assert granted(*COMMANDS) - used == set(WITHOUT_A_CALL)
