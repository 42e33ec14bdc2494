"""An account that is bootstrapped with the policies of `cohost rights`, and a person who has only the caller's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import boto3

from cohost.deploy.rights.assembly import caller_of
from cohost.deploy.rights.commands import COMMANDS
from cohost.deploy.rights.policies import Place, StackRights, cloudformation_policies
from fakes.assembly import FLAGS, cdk, publish
from local_aws.testing.running import wait_for
from stacks.lmi_cohost_stack import LmiCohostStack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cohost.catalog.models import Catalog
    from local_aws.testing.running import FrontDoor

ACCOUNT, REGION, STACK = "123456789012", "us-east-1", "LmiCohostStack"
PLACE: Final = Place(partition="aws", region=REGION, account=ACCOUNT)
CDK: Final = Path(__file__).parents[2] / "node_modules" / "aws-cdk"
BOOTSTRAP: Final = CDK / "lib" / "api" / "bootstrap" / "bootstrap-template.yaml"
EXECUTION_ROLE: Final = f"arn:aws:iam::{ACCOUNT}:role/cdk-hnb659fds-cfn-exec-role-{ACCOUNT}-{REGION}"
CAPABILITIES: Final = ["CAPABILITY_NAMED_IAM"]

Document = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Policies:
    """The documents of both policies."""

    caller: Sequence[Document]
    cloudformation: Sequence[Document]


def policies_of(catalog: Catalog, template: Document, commands: Sequence[str] = tuple(COMMANDS)) -> Policies:
    """Return the two policies of `cohost rights` for a template."""
    stacks = [StackRights(STACK, template, PLACE)]
    return Policies(
        caller=caller_of(catalog, stacks).policies(commands), cloudformation=cloudformation_policies(stacks)
    )


def template_of(catalog: Catalog, folder: Path) -> Document:
    """Return the template of a catalog's stack."""
    app = cdk.App(context=FLAGS, analytics_reporting=False, outdir=str(folder))
    LmiCohostStack(app, STACK, catalog=catalog, env=cdk.Environment(region=REGION))
    found: Document = app.synth().get_stack_by_name(STACK).template
    return found


class Person:
    """Somebody in a bootstrapped account, whose role `person` has the caller's policies and nothing else."""

    def __init__(self, door: FrontDoor, policies: Policies) -> None:
        self._door = door
        arns = _managed(door, "cfn", policies.cloudformation)
        door.client("cloudformation").create_stack(
            StackName="CDKToolkit",
            TemplateBody=BOOTSTRAP.read_text(),
            Capabilities=CAPABILITIES,
            Parameters=[
                {"ParameterKey": "CloudFormationExecutionPolicies", "ParameterValue": ",".join(arns)},
                {"ParameterKey": "FileAssetsBucketKmsKeyId", "ParameterValue": "AWS_MANAGED_KEY"},
            ],
        )
        door.settle("CREATE_COMPLETE", "CDKToolkit")
        iam = door.client("iam")
        trust = {"Effect": "Allow", "Principal": {"AWS": ACCOUNT}, "Action": "sts:AssumeRole"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        role = iam.create_role(RoleName="person", AssumeRolePolicyDocument=document)["Role"]["Arn"]
        for arn in _managed(door, "caller", policies.caller):
            iam.attach_role_policy(RoleName="person", PolicyArn=arn)
        self.session = self._assumed(door.client("sts"), role)

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the person's programs."""
        found = self.session.get_credentials().get_frozen_credentials()
        keys = {
            "AWS_ACCESS_KEY_ID": found.access_key,
            "AWS_SECRET_ACCESS_KEY": found.secret_key,
            "AWS_SESSION_TOKEN": found.token,
        }
        return {**self._door.environment(), **keys}

    def client(self, service: str, role: str | None = None) -> Any:
        """Return a client with the person's credentials, or with those of a role of the bootstrap."""
        session = self.session
        if role is not None:
            arn = f"arn:aws:iam::{ACCOUNT}:role/cdk-hnb659fds-{role}-role-{ACCOUNT}-{REGION}"
            session = self._assumed(self.client("sts"), arn)
        return session.client(service, endpoint_url=self._door.server.url)

    def publish(self, catalog: Catalog, folder: Path) -> dict[str, str]:
        """Synthesise a catalog's stack and upload its assets as the cdk program does."""
        return publish(self._door, catalog, folder, s3=self.client("s3", "file-publishing"))

    def deploy(self, uploaded: dict[str, str]) -> str:
        """Deploy a published stack as the cdk program does; return the status that the stack ends in."""
        client = self.client("cloudformation", "deploy")
        there = [one for one in client.describe_stacks()["Stacks"] if one["StackName"] == STACK]
        if there:
            client.delete_change_set(StackName=STACK, ChangeSetName="cdk-deploy")
        client.create_change_set(
            **uploaded,
            ChangeSetName="cdk-deploy",
            ChangeSetType="UPDATE" if there else "CREATE",
            RoleARN=EXECUTION_ROLE,
            Capabilities=CAPABILITIES,
        )
        client.execute_change_set(StackName=STACK, ChangeSetName="cdk-deploy")
        return self.settled()

    def settled(self) -> str:
        """Wait until the stack's operation has ended; return the stack's status."""
        client = self._door.client("cloudformation")

        def now() -> str:
            return str(client.describe_stacks(StackName=STACK)["Stacks"][0]["StackStatus"])

        wait_for(lambda: not now().endswith("IN_PROGRESS"))
        return now()

    def use(self, documents: Sequence[Document]) -> None:
        """Put other documents in the place of CloudFormation's policies; there are as many as before."""
        iam = self._door.client("iam")
        for number, document in enumerate(documents, 1):
            arn = f"arn:aws:iam::{ACCOUNT}:policy/cfn-{number}"
            for one in iam.list_policy_versions(PolicyArn=arn)["Versions"]:
                if not one["IsDefaultVersion"]:
                    iam.delete_policy_version(PolicyArn=arn, VersionId=one["VersionId"])
            iam.create_policy_version(PolicyArn=arn, PolicyDocument=json.dumps(document), SetAsDefault=True)

    def failures(self) -> list[dict[str, Any]]:
        """Return the events of the resources that failed, without those that were only cancelled."""
        events = self._door.client("cloudformation").describe_stack_events(StackName=STACK)["StackEvents"]
        return [
            event
            for event in events
            if event["ResourceStatus"].endswith("_FAILED") and "cancelled" not in event.get("ResourceStatusReason", "")
        ]

    def reasons(self) -> str:
        """Return the reasons of all events of the stack."""
        events = self._door.client("cloudformation").describe_stack_events(StackName=STACK)["StackEvents"]
        return "\n".join(event["ResourceStatusReason"] for event in events if "ResourceStatusReason" in event)

    @staticmethod
    def _assumed(sts: Any, role: str) -> Any:
        found = sts.assume_role(RoleArn=role, RoleSessionName="test")["Credentials"]
        return boto3.Session(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"], region_name=REGION)


def _managed(door: FrontDoor, name: str, documents: Sequence[Document]) -> list[str]:
    iam = door.client("iam")
    return [
        iam.create_policy(PolicyName=f"{name}-{number}", PolicyDocument=json.dumps(document))["Policy"]["Arn"]
        for number, document in enumerate(documents, 1)
    ]
