"""The steps of the demo: each step does what a user would do, checks the outcome, and returns a summary.

Two checks are separate functions: the similarity of sentences, and the search for resources that `cdk destroy` has left
in the account.
"""

from __future__ import annotations

import copy
import math
import os
import re
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import boto3
import yaml

from cohost.endpoint.client import CohostClient
from cohost.endpoint.stack_outputs import Deployment, read_deployment
from cohost.errors import CohostError
from cohost.forecast.plan.profiles import profiles_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from local_aws.demo.cdk import Cdk


def mean_pooled(tokens: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean of a text's token vectors (tokens x hidden size), scaled to length 1.

    No attention mask is needed: the text was alone in its batch, so none of the tokens is padding.
    """
    sums = [math.fsum(column) for column in zip(*tokens, strict=True)]
    length = math.sqrt(math.fsum(value * value for value in sums))
    return [value / length for value in sums]


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors of length 1."""
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


BOOTSTRAP_STACK = "CDKToolkit"
BOOTSTRAP_MARK = "cdk-hnb659fds"
"""The prefix in the name of every resource that `cdk bootstrap` makes (aws-cdk: bootstrap template)."""


def find_leftovers(session: boto3.Session) -> dict[str, list[str]]:
    """Return the names of the account's resources by kind, except the resources that `cdk bootstrap` made."""
    found = {kind: sorted(filter(_not_bootstrap, find(session))) for kind, find in _FINDERS.items()}
    return {kind: names for kind, names in found.items() if names}


def _not_bootstrap(name: str) -> bool:
    return BOOTSTRAP_MARK not in name and name != BOOTSTRAP_STACK


def _pages(session: boto3.Session, service: str, operation: str, field: str) -> Iterable[dict[str, Any]]:
    client = session.client(service)  # type: ignore[call-overload]
    for page in client.get_paginator(operation).paginate():
        yield from page[field]


def _names(service: str, operation: str, field: str, name: str) -> Callable[[boto3.Session], list[str]]:
    return lambda session: [item[name] for item in _pages(session, service, operation, field)]


def _buckets(session: boto3.Session) -> list[str]:
    return [bucket["Name"] for bucket in session.client("s3").list_buckets()["Buckets"]]


def _objects(session: boto3.Session) -> list[str]:
    paginator = session.client("s3").get_paginator("list_objects_v2")
    return [
        f"{bucket}/{item['Key']}"
        for bucket in _buckets(session)
        for page in paginator.paginate(Bucket=bucket)
        for item in page.get("Contents", [])
    ]


def _stacks(session: boto3.Session) -> list[str]:
    summaries = _pages(session, "cloudformation", "list_stacks", "StackSummaries")
    return [item["StackName"] for item in summaries if item["StackStatus"] != "DELETE_COMPLETE"]


_FINDERS: dict[str, Callable[[boto3.Session], list[str]]] = {
    "stack": _stacks,
    "endpoint": _names("sagemaker", "list_endpoints", "Endpoints", "EndpointName"),
    "endpoint config": _names("sagemaker", "list_endpoint_configs", "EndpointConfigs", "EndpointConfigName"),
    "SageMaker model": _names("sagemaker", "list_models", "Models", "ModelName"),
    "bucket": _buckets,
    "object": _objects,
    "Lambda function": _names("lambda", "list_functions", "Functions", "FunctionName"),
    "role": _names("iam", "list_roles", "Roles", "RoleName"),
    "topic": _names("sns", "list_topics", "Topics", "TopicArn"),
    "alarm": _names("cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
    "dashboard": _names("cloudwatch", "list_dashboards", "DashboardEntries", "DashboardName"),
    "schedule": _names("scheduler", "list_schedules", "Schedules", "Name"),
    "log group": _names("logs", "describe_log_groups", "logGroups", "logGroupName"),
}


ENGLISH = "The train to Busan leaves at nine."
KOREAN = "부산행 기차는 아홉 시에 떠납니다."
PAIR = ("She has lived in Seoul for ten years.", "She moved to Seoul last week.")
RELATED = ("The cat is asleep on the sofa.", "A kitten naps on the couch.")
UNRELATED = ("The cat is asleep on the sofa.", "The central bank raised its interest rate.")

CALLS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "text-classification": ([ENGLISH, KOREAN, {"text": PAIR[0], "text_pair": PAIR[1]}], {}),
    "zero-shot-classification": ([ENGLISH, KOREAN], {"candidate_labels": ["travel", "요리"]}),
    "feature-extraction": ([ENGLISH, KOREAN], {}),
}
"""The inputs and parameters that the demo's calls use, by task."""

ADDED_MODEL = "minilm-nli"
ADDED_ENTRY = {
    "model_id": "lmi-cohost/tiny-minilm-nli",
    "task": "zero-shot-classification",
    "required_memory_mb": 1024,
    "cpu": {"minWorkers": 1, "maxWorkers": 1},
}
CHANGED_MODEL = "mdeberta"
CHANGED_KEY = "job_queue_size"
CHANGED_VALUE = 200

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class DemoError(CohostError):
    """The error for a demo step whose outcome is not the expected one."""


@dataclass(kw_only=True)
class Script:
    """The demo's steps in order, against one emulator; `offline` is the file of the first catalog that is deployed.

    Each step returns a line of text about its outcome, and raises DemoError if the outcome is not the expected one.
    """

    cdk: Cdk
    offline: Path
    work: Path
    catalog: dict[str, Any] = field(init=False)
    deployment: Deployment = field(init=False)
    untouched: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Read the catalog `offline` into memory; steps change this copy."""
        self.catalog = yaml.safe_load(self.offline.read_text())

    @property
    def file(self) -> Path:
        """Write the catalog, as the steps have changed it, to a file and return the file's path."""
        path = self.work / "catalog.yaml"
        path.write_text(yaml.safe_dump(self.catalog, sort_keys=False, allow_unicode=True))
        shutil.copyfile(profiles_path(self.offline), profiles_path(path))
        return path

    def bootstrap(self) -> str:
        """Prepare the account with `cdk bootstrap`."""
        self.cdk.bootstrap()
        return "CDKToolkit is there"

    def deploy(self) -> str:
        """Create the stack with `cdk deploy`."""
        self.cdk.deploy(self.file)
        self.deployment = self._read()
        return f"endpoint {self.deployment.endpoint_name} in service, generation {self.deployment.generation}"

    def invoke(self) -> str:
        """Call every model with English and Korean texts, and check that each text gets an answer."""
        client = CohostClient.from_stack(session=boto3.Session())
        seen = []
        for name, entry in self.catalog["models"].items():
            inputs, parameters = CALLS[entry["task"]]
            answer = client.invoke(name, inputs, parameters)
            if not isinstance(answer, list) or len(answer) != len(inputs):
                problem = f"answered {answer!r:.200} for {len(inputs)} texts"
                raise DemoError("demo-step-failed", f"model {name}", problem)
            seen.append(f"{name} {len(answer)} answers")
        return ", ".join(seen)

    def compare(self) -> str:
        """Check that MiniLM's embeddings of related sentences are more similar than those of unrelated sentences."""
        client = CohostClient.from_stack(session=boto3.Session())
        texts = sorted({*RELATED, *UNRELATED})
        vectors = {text: mean_pooled(client.invoke("minilm", text)[0][0]) for text in texts}
        related = cosine(*(vectors[text] for text in RELATED))
        unrelated = cosine(*(vectors[text] for text in UNRELATED))
        if related <= unrelated:
            problem = f"related sentences are less similar ({related:.3f}) than unrelated ones ({unrelated:.3f})"
            raise DemoError("demo-step-failed", "model minilm", problem)
        return f"cat/kitten {related:.3f}, cat/interest rate {unrelated:.3f}"

    def diff(self) -> str:
        """Change a model's setting for one `cdk diff`, and return the line that shows the change."""
        before = copy.deepcopy(self.catalog)
        self.catalog["models"][CHANGED_MODEL][CHANGED_KEY] = CHANGED_VALUE
        text = _ANSI.sub("", self.cdk.diff(self.file))
        self.catalog = before
        lines = [line.strip() for line in text.splitlines() if CHANGED_KEY in line]
        if CHANGED_MODEL not in text or not lines:
            raise DemoError("demo-step-failed", "cdk diff", f"names neither {CHANGED_MODEL} nor {CHANGED_KEY}:\n{text}")
        return f"{CHANGED_MODEL}: {lines[0].lstrip('├└─ ')}"

    def add(self) -> str:
        """Add a model to the catalog and deploy; check that the SageMaker model and endpoint config stay the same."""
        before = self._resources()
        self.catalog["models"][ADDED_MODEL] = ADDED_ENTRY
        self.cdk.deploy(self.file)
        generation, self.deployment = self.deployment.generation, self._read()
        if self._resources() != before or self.deployment.generation != generation:
            problem = "adding it replaced the endpoint's model or config"
            raise DemoError("demo-step-failed", f"model {ADDED_MODEL}", problem)
        seen = self.invoke()
        return f"{seen}; SageMaker's model and config untouched"

    def roll(self) -> str:
        """Change a model and deploy; check that a new generation serves, and that the old archives remain."""
        old = self.deployment
        self.catalog["models"][CHANGED_MODEL][CHANGED_KEY] = CHANGED_VALUE
        self.cdk.deploy(self.file)
        self.deployment = self._read()
        kept = self._keys(old)
        if self.deployment.generation == old.generation or not kept:
            problem = f"was to be replaced and kept; live: {self.deployment.generation}, kept: {kept}"
            raise DemoError("demo-step-failed", f"generation {old.generation}", problem)
        seen = self.invoke()
        return f"generation {old.generation} → {self.deployment.generation}, the old one kept for a rollback; {seen}"

    def destroy(self) -> str:
        """Remove the stack with `cdk destroy`, and check that no resource of the stack is left in the account."""
        self.cdk.destroy()
        left = find_leftovers(boto3.Session())
        if left:
            raise DemoError("demo-step-failed", "cdk destroy", f"left {left}")
        return "no stack, endpoint, model, config, bucket, object, function, role or log group left"

    def _read(self) -> Deployment:
        return read_deployment(boto3.client("cloudformation"))

    def _resources(self) -> tuple[str, str]:
        sagemaker = boto3.client("sagemaker")
        endpoint = sagemaker.describe_endpoint(EndpointName=self.deployment.endpoint_name)
        config = sagemaker.describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
        return endpoint["EndpointConfigName"], config["ProductionVariants"][0]["ModelName"]

    def _keys(self, deployment: Deployment) -> list[str]:
        page = boto3.client("s3").list_objects_v2(
            Bucket=deployment.bucket, Prefix=f"{deployment.prefix}{deployment.generation}/"
        )
        return [item["Key"] for item in page.get("Contents", [])]


def point_at(environment: dict[str, str]) -> None:
    """Direct this process's boto3 to the emulator, by the variables that `eval "$(cohost local up)"` would set."""
    for name in [name for name in os.environ if name.startswith("AWS_") and name != "AWS_CA_BUNDLE"]:
        del os.environ[name]
    os.environ.update(environment)
