"""The two policies of `cohost rights` are enough for a deploy, its life and its end, and nothing of them is spare."""

from __future__ import annotations

import copy
import functools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import boto3
import pytest
from fakes.least_rights import EXECUTION_ROLE, STACK, Person, Policies, policies_of, template_of
from typer.testing import CliRunner

from cohost import cli
from cohost.catalog.models import Catalog
from cohost.deploy.rights.resource_types import rights_of
from local_aws.cloudformation.templates.handlers import permissions
from local_aws.rights.policies import Verdict, evaluate
from local_aws.sagemaker.routes import SageMaker
from local_aws.sagemaker.settings import Settings
from local_aws.testing.fake_container import FakeFactory
from local_aws.testing.running import running, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from local_aws.rights.judge import Judgement
    from local_aws.rights.policies import Request
    from local_aws.testing.running import FrontDoor

pytestmark = pytest.mark.timeout(600)

# An hour and a half in one and a half seconds.
FAST: Final = 3600
LIMITS: Final = Settings(publish_interval_s=0.2)
COMMANDS: Final = ("deploy", "status", "invoke", "expire", "cleanup")
DESIGNS: Final[dict[str, dict[str, Any]]] = {
    "multi-model": {
        "scaling": {"min": 1, "max": 2},
        "monitoring": {"model_metrics": True},
        "budget": {"monthly_usd": 900, "email": "someone@example.com"},
        "data_capture": {"sampling_percentage": 100},
        "models": {"nli": {"handler": "batched"}},
    },
    "scale-to-zero": {"endpoint": {"topology": "scale-to-zero"}},
}

# The actions of the caller that no request of these lives needs, each with what demands it. The removal of a resource
# that a stack left is demanded by the kinds of cohost.deploy.cleanup.
DEMANDED: Final = {
    "cloudformation:DescribeStackEvents": "cohost.deploy.cdk, which follows the events of `cdk deploy`",
}


def catalog(design: str, model_id: str = "org/name") -> Catalog:
    """A catalog of one model that expires."""
    endpoint = {"name": "lmi", "instance_type": "ml.g5.xlarge", "image": "djl-inference:0.36.0-lmi26.0.0-cu130"}
    changes = DESIGNS[design]
    given = {
        "expires": "1h",
        **changes,
        "models": {
            "nli": {"model_id": model_id, "task": "text-classification", **changes.get("models", {}).get("nli", {})}
        },
        "endpoint": {**endpoint, **changes.get("endpoint", {})},
    }
    return Catalog.model_validate(given)


def cohost(*arguments: str, check: bool = True) -> Any:
    """Run a command of cohost in this process; what it prints as JSON."""
    result = CliRunner().invoke(cli.app, [*arguments, "--json"], catch_exceptions=False)
    assert not check or result.exit_code == 0, result.output
    return json.loads(result.stdout)


@dataclass(frozen=True)
class Life:
    """One life of a stack: the policies it was lived with, its template, and the requests that were judged."""

    policies: Policies
    template: dict[str, Any]
    record: Sequence[Judgement]

    def requests(self, who: str) -> list[Request]:
        """The different requests of a principal."""
        found = {
            (one.request.action, one.request.resource, json.dumps(one.request.context, default=list)): one.request
            for one in self.record
            if f"/{who}/" in one.principal
        }
        return list(found.values())


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    """Changes of the environment for the whole file."""
    with pytest.MonkeyPatch.context() as own:
        own.setattr("cohost.deploy.expiry.POLL_SECONDS", 0.05)
        own.setattr(boto3, "DEFAULT_SESSION", None)
        for name in ("AWS_PROFILE", "COHOST_CATALOG"):
            own.delenv(name, raising=False)
        yield own


@pytest.fixture(scope="module", params=list(DESIGNS))
def life(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch
) -> Iterator[Life]:
    """Deploy, call, move the end, end, bring back, change and clean up with exactly the two policies."""
    own, folder = catalog(request.param), tmp_path_factory.mktemp("life")
    template = template_of(own, folder / "template")
    policies = policies_of(own, template, COMMANDS)
    make = functools.partial(SageMaker, settings=LIMITS, start_container=FakeFactory())
    with running(folder / "state", make, managed_policies=True) as door:
        person = Person(door, policies)
        for name, value in person.environment().items():
            patch.setenv(name, value)
        _live(door, person, request.param, folder)
        yield Life(policies, template, door.server.judge.record())


def _live(door: FrontDoor, person: Person, design: str, folder: Path) -> None:
    assert person.deploy(person.publish(catalog(design), folder / "first")) == "CREATE_COMPLETE", person.reasons()
    cohost("preflight", "--catalog", _file(design, folder), check=False)
    assert cohost("status")["endpoint_status"] == "InService"
    cohost("invoke", "--model", "nli", "a text")
    cohost("expire", "+30m")
    door.set_speed(FAST)
    wait_for(lambda: cohost("expire")["state"] in {"Gone", "AtZero", "at-zero"})
    door.set_speed(1)
    assert cohost("expire", "60d")["state"] == "InService"
    changed = person.publish(catalog(design, "org/other"), folder / "second")
    assert person.deploy(changed) == "UPDATE_COMPLETE", person.reasons()
    answer = cohost("cleanup", "--yes", "--poll", "0.1")
    assert (answer["faults"], answer["left"]["stacks"]) == ([], [])


def _file(design: str, folder: Path) -> str:
    file = folder / "catalog.yaml"
    file.write_text(json.dumps(catalog(design).model_dump(mode="json", exclude_defaults=True)))
    return str(file)


# Each with the resource whose event has the denial.
MUTATIONS: Final = {
    "sagemaker:CreateModel": "AWS::SageMaker::Model",
    "iam:PassRole": "AWS::Lambda::Function",
    "lambda:InvokeFunction": "Custom::",
    "s3:PutBucketPolicy": "AWS::S3::BucketPolicy",
    "logs:PutRetentionPolicy": "AWS::Logs::LogGroup",
}


def test_deploy_without_an_action_fails_with_its_denial(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    """Each of these mutations of the policy is deployed, and rolled back; the stack's events name the action."""
    own = catalog("multi-model")
    policies = policies_of(own, template_of(own, tmp_path / "template"), COMMANDS)
    make = functools.partial(SageMaker, settings=LIMITS, start_container=FakeFactory())
    with running(tmp_path / "state", make, managed_policies=True) as door:
        person = Person(door, policies)
        for name, value in person.environment().items():
            patch.setenv(name, value)
        uploaded = person.publish(own, tmp_path / "assembly")
        for action, kind in MUTATIONS.items():
            person.use(without(policies.cloudformation, action))
            # A custom resource that cannot be invoked cannot be deleted either, so its rollback fails on AWS too.
            assert person.deploy(uploaded).startswith("ROLLBACK_"), (action, person.reasons())
            failed = person.failures()
            assert any(one["ResourceType"].startswith(kind) for one in failed), (action, failed)
            assert f"is not authorized to perform: {action} on resource: " in person.reasons()
            assert f"because no identity-based policy allows the {action} action" in person.reasons()
            person.use(policies.cloudformation)
            door.delete_stack(STACK)


def test_both_policies_are_enough_for_the_whole_life(life: Life) -> None:
    """No request of the person, of the bootstrap's roles, of CloudFormation or of the stack's roles was denied."""
    assert [one for one in life.record if not one.allowed] == []
    assert len(life.requests("person")) > 20
    assert len(life.requests(EXECUTION_ROLE.rpartition("/")[2])) > 100


def without(documents: Sequence[dict[str, Any]], action: str) -> list[dict[str, Any]]:
    """The policies without one action."""
    changed = copy.deepcopy(list(documents))
    for document in changed:
        for statement in document["Statement"]:
            statement["Action"] = [one for one in statement["Action"] if one != action] or ["none:None"]
    return changed


def unneeded(documents: Sequence[dict[str, Any]], requests: list[Request]) -> set[str]:
    """The actions without which every request is allowed as before."""
    actions = {action for one in documents for statement in one["Statement"] for action in statement["Action"]}
    assert all(evaluate(documents, one) is Verdict.ALLOWED for one in requests)
    return {
        action
        for action in actions
        # A request of another action cannot need this one.
        if all(evaluate(without(documents, action), one) is Verdict.ALLOWED for one in requests if one.action == action)
    }


def test_each_action_of_cloudformation_is_needed_or_demanded_by_a_schema(life: Life) -> None:
    """Judged again without each single action, a request is denied, or a handler of the template's types lists it."""
    spare = unneeded(life.policies.cloudformation, life.requests(EXECUTION_ROLE.rpartition("/")[2]))
    kinds = {resource["Type"] for resource in life.template["Resources"].values()}
    listed = {action for kind in kinds for actions in permissions(kind).values() for action in actions}
    assert spare <= listed, spare - listed


def test_each_action_of_the_caller_is_needed_or_demanded(life: Life) -> None:
    """Judged again without each single action, a request of the person is denied, or its source is named."""
    spare = unneeded(life.policies.caller, life.requests("person"))
    kinds = {resource["Type"] for resource in life.template["Resources"].values()}
    removals = {
        action
        for kind in kinds
        for grant in getattr(rights_of(kind), "cleanup", ())
        for action in grant.actions.split()
    }
    assert spare - removals == set(DEMANDED)
