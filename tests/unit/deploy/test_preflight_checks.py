"""Each check of `cohost preflight` in each of its outcomes, with answers in the form of AWS's."""

from __future__ import annotations

import http.server
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError
from botocore.stub import Stubber

from cohost.catalog.models import Budget, Catalog
from cohost.catalog_file import load_catalog
from cohost.deploy.preflight import run_checks
from cohost.forecast.pricing.price_list import load_prices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cohost.deploy.preflight import Finding

pytestmark = pytest.mark.process

ENCODERS = Path(__file__).parents[3] / "model_configs" / "encoders.yaml"
REGION = "us-east-1"
NAMES = ("price", "credentials", "bootstrap", "instance type", "quota", "image", "endpoint", "log groups")

IDENTITY = {"Account": "123456789012", "UserId": "AIDA", "Arn": "arn:aws:iam::123456789012:user/u"}
QUOTAS = {
    "Quotas": [
        {"ServiceCode": "sagemaker", "QuotaName": "ml.g5.xlarge for endpoint usage", "Value": 2.0},
        {"ServiceCode": "sagemaker", "QuotaName": "ml.g5.2xlarge for endpoint usage", "Value": 0.0},
        {"ServiceCode": "sagemaker", "QuotaName": "ml.g5.xlarge for training job usage", "Value": 9.0},
    ]
}
DEFAULTS = {
    "Quotas": [
        {"ServiceCode": "sagemaker", "QuotaName": "ml.g5.xlarge for endpoint usage", "Value": 0.0},
        {"ServiceCode": "sagemaker", "QuotaName": "ml.g5.12xlarge for endpoint usage", "Value": 4.0},
    ]
}
IMAGE = {"images": [{"imageId": {"imageTag": "0.36.0-lmi26.0.0-cu130"}}], "failures": []}
NO_IMAGE = {
    "images": [],
    "failures": [{"failureCode": "ImageNotFound", "failureReason": "Requested image not found"}],
}
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
DENIED = ("AccessDeniedException", "User is not authorized to perform this")

ENDPOINT_GONE = ("ValidationException", 'Could not find endpoint "arn".')

# What each service answers when all is well: by service, the operations in the order in which they are asked.
GOOD: dict[str, list[tuple[str, Any]]] = {
    "sts": [("get_caller_identity", IDENTITY)],
    "ssm": [("get_parameter", {"Parameter": {"Value": "27"}})],
    "service-quotas": [("list_aws_default_service_quotas", DEFAULTS), ("list_service_quotas", QUOTAS)],
    "sagemaker": [("list_endpoints", {"Endpoints": []}), *[("describe_endpoint", ENDPOINT_GONE)] * 2],
    "ecr": [("batch_get_image", IMAGE)],
    "cloudformation": [("describe_stacks", {"Stacks": []})] * 2,
    "logs": [("describe_log_groups", {"logGroups": []})],
}


class Session:
    """A boto3 session whose clients give prepared answers; a pair is an error's code and text."""

    def __init__(self, answers: dict[str, list[tuple[str, Any]]]) -> None:
        self._answers = answers
        self.clients: dict[str, Any] = {}

    def client(self, service: str, **_: object) -> Any:
        """Return the only client of a service."""
        if service not in self.clients:
            client = boto3.client(service, region_name=REGION, aws_access_key_id="a", aws_secret_access_key="b")
            stubber = Stubber(client)
            for operation, answer in self._answers.get(service, []):
                if isinstance(answer, tuple):
                    stubber.add_client_error(operation, answer[0], answer[1])
                elif isinstance(answer, Exception):
                    setattr(client, operation, _raising(answer))
                else:
                    stubber.add_response(operation, answer)
            stubber.activate()
            self.clients[service] = client
        return self.clients[service]


def _raising(error: Exception) -> Any:
    def ask(**_: object) -> None:
        raise error

    return ask


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Start a Hub on this machine; the dictionary has the status per part of a path, by default 200."""
    statuses: dict[str, int] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = next((status for part, status in statuses.items() if part in self.path), 200)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield statuses
    server.shutdown()
    server.server_close()
    thread.join(60)


def findings(catalog: Catalog | None = None, **answers: list[tuple[str, Any]]) -> dict[str, Finding]:
    """Return all findings by check, with other answers of some services."""
    session: Any = Session({**GOOD, **{name.replace("_", "-"): value for name, value in answers.items()}})
    found = run_checks(session, REGION, catalog or load_catalog(ENCODERS).catalog, load_prices())
    return {one.check: one for one in found}


def changed(**changes: Any) -> Catalog:
    """The product's catalog with other parts."""
    return load_catalog(ENCODERS).catalog.model_copy(update=changes)


def of_type(instance_type: str) -> Catalog:
    """The product's catalog on another instance type."""
    endpoint = load_catalog(ENCODERS).catalog.endpoint.model_copy(update={"instance_type": instance_type})
    return changed(endpoint=endpoint)


@pytest.mark.usefixtures("hub")
def test_a_good_account_passes_everything() -> None:
    """In a well-prepared account every check passes and states the value that it found."""
    found = findings()
    assert tuple(found) == (*NAMES, "model mdeberta", "model minilm", "model xlmr-large")
    assert {one.outcome for one in found.values()} == {"pass"}
    assert "123456789012" in found["credentials"].why
    assert found["quota"].why.startswith("ml.g5.xlarge for endpoint usage: 2 allowed, 0 run elsewhere, 2 needed")


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    "answer", [NoCredentialsError(), ("ExpiredToken", "The security token included in the request is expired")]
)
def test_without_credentials_nothing_is_asked_of_the_account(answer: Any) -> None:
    """Missing or expired credentials fail with the fix; checks that need them are unknown."""
    found = findings(sts=[("get_caller_identity", answer)])
    assert found["credentials"].outcome == "fail"
    assert "fix: " in found["credentials"].why
    assert {found[name].outcome for name in ("bootstrap", "instance type", "quota", "image")} == {"unknown"}
    assert found["price"].outcome == found["model minilm"].outcome == "pass"


@pytest.mark.usefixtures("hub")
def test_an_account_that_cannot_be_reached_is_unknown() -> None:
    """Checks have the result "unknown" if the account cannot be reached."""
    error = EndpointConnectionError(endpoint_url="https://sts.us-east-1.amazonaws.com/")
    assert findings(sts=[("get_caller_identity", error)])["credentials"].outcome == "unknown"


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("answer", "outcome", "words"),
    [
        (("ParameterNotFound", ""), "fail", "fix: cdk bootstrap"),
        ({"Parameter": {"Value": "5"}}, "fail", "version 5; allowed: 6 or later; fix: cdk bootstrap"),
        (DENIED, "unknown", "GetParameter: AccessDeniedException"),
    ],
)
def test_bootstrap(answer: Any, outcome: str, words: str) -> None:
    """The check fails for a missing or old bootstrap, and is unknown without the right to read its version."""
    found = findings(ssm=[("get_parameter", answer)])["bootstrap"]
    assert (found.outcome, words in found.why) == (outcome, True), found.why


@pytest.mark.usefixtures("hub")
def test_a_type_without_a_quota_is_unknown_and_its_family_is_named() -> None:
    """An instance type without a listed quota is unknown, because Service Quotas may not list every type."""
    found = findings(of_type("ml.g5.48xlarge"))
    assert found["instance type"].outcome == found["quota"].outcome == "unknown"
    assert "of ml.g5.12xlarge, ml.g5.2xlarge, ml.g5.xlarge" in found["instance type"].why


@pytest.mark.usefixtures("hub")
def test_a_quota_without_an_applied_value_has_its_default() -> None:
    """A quota that ListServiceQuotas leaves out has its default value."""
    found = findings(of_type("ml.g5.12xlarge"))
    assert found["instance type"].outcome == found["quota"].outcome == "pass"
    assert "4 allowed" in found["quota"].why


@pytest.mark.usefixtures("hub")
def test_quotas_that_may_not_be_read_are_unknown() -> None:
    """Quotas that the caller may not read are unknown."""
    found = findings(service_quotas=[("list_aws_default_service_quotas", DENIED)] * 2)
    assert {found["quota"].outcome, found["instance type"].outcome} == {"unknown"}


@pytest.mark.usefixtures("hub")
def test_a_quota_that_others_use_up_fails_with_the_way_to_more() -> None:
    """A quota that other endpoints use up fails with the fix."""
    found = findings(sagemaker=running_elsewhere(CONFIG))["quota"]
    assert found.outcome == "fail"
    assert "2 allowed, 1 run elsewhere, 2 needed" in found.why
    assert "Service Quotas" in found.why


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("variant", "words", "outcome"),
    [
        ({"CurrentInstanceCount": 1}, "0 run elsewhere, 2 needed ", "pass"),
        ({"CurrentInstanceCount": 1}, "; 1 more of an unknown type run", "pass"),
        ({"InstancePools": [{"InstanceType": "ml.g5.xlarge", "CurrentInstanceCount": 1}]}, "1 run elsewhere", "fail"),
        ({"CurrentServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1}}, "0 run elsewhere", "pass"),
    ],
)
def test_an_endpoint_without_its_configuration_is_counted(variant: dict[str, Any], words: str, outcome: str) -> None:
    """An endpoint whose config was deleted counts for the quota, although its type is unknown."""
    gone = ("ValidationException", 'Could not find endpoint configuration "arn".')
    found = findings(sagemaker=[*running_elsewhere(gone, **variant), *GOOD["sagemaker"][1:]])["quota"]
    assert (found.outcome, words in found.why) == (outcome, True), found.why


CONFIG = {
    "EndpointConfigName": "c",
    "EndpointConfigArn": "arn:aws:sagemaker:us-east-1:123456789012:endpoint-config/c",
    "ProductionVariants": [{"VariantName": "v", "ModelName": "m", "InstanceType": "ml.g5.xlarge"}],
    "CreationTime": LONG_AGO,
}


def running_elsewhere(config: Any, **variant: Any) -> list[tuple[str, Any]]:
    """Return SageMaker's answer if another endpoint runs."""
    return [
        (
            "list_endpoints",
            {
                "Endpoints": [
                    {
                        "EndpointName": "theirs",
                        "EndpointArn": "arn:aws:sagemaker:us-east-1:123456789012:endpoint/theirs",
                        "CreationTime": LONG_AGO,
                        "LastModifiedTime": LONG_AGO,
                        "EndpointStatus": "InService",
                    }
                ]
            },
        ),
        (
            "describe_endpoint",
            {
                "EndpointName": "theirs",
                "EndpointArn": "arn:aws:sagemaker:us-east-1:123456789012:endpoint/theirs",
                "EndpointConfigName": "c",
                "EndpointStatus": "InService",
                "CreationTime": LONG_AGO,
                "LastModifiedTime": LONG_AGO,
                "ProductionVariants": [{"VariantName": "v", **(variant or {"CurrentInstanceCount": 1})}],
            },
        ),
        (
            "describe_endpoint_config",
            config,
        ),
    ]


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [(NO_IMAGE, "fail"), (("AccessDeniedException", "not authorized"), "unknown"), ({"images": []}, "unknown")],
)
def test_image(answer: Any, outcome: str) -> None:
    """A tag that is not there fails; a registry that may not be read is unknown."""
    assert findings(ecr=[("batch_get_image", answer)])["image"].outcome == outcome


@pytest.mark.parametrize(("status", "outcome"), [(404, "fail"), (401, "unknown"), (500, "unknown")])
def test_models_on_the_hub(hub: dict[str, int], status: int, outcome: str) -> None:
    """A missing revision fails; a gated model or a failing Hub is unknown, without effect on other models."""
    hub["multilingual-MiniLMv2"] = status
    found = findings()
    assert found["model minilm"].outcome == outcome
    assert found["model mdeberta"].outcome == "pass"


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(("limit", "outcome"), [(2000.0, "pass"), (1000.0, "fail")])
def test_price_against_the_budget(limit: float, outcome: str) -> None:
    """1,027.84 USD per month pass a budget of 2,000 and fail one of 1,000."""
    found = findings(changed(budget=Budget(monthly_usd=limit, email="a@b.example")))["price"]
    assert (found.outcome, "1027.84" in found.why) == (outcome, True)


@pytest.mark.usefixtures("hub")
def test_a_price_that_nobody_knows_is_unknown() -> None:
    """An unknown price gives the result "unknown"."""
    session: Any = Session(GOOD)
    found = next(run_checks(session, "mx-central-1", load_catalog(ENCODERS).catalog, load_prices()))
    assert (found.check, found.outcome) == ("price", "unknown")
    assert "cohost prices refresh --region mx-central-1" in found.why


def endpoint_of(**variant: Any) -> list[tuple[str, Any]]:
    """Return SageMaker's answer for an existing endpoint with this variant."""
    whole = {"VariantName": "AllTraffic", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1, **variant}
    arn = "arn:aws:sagemaker:us-east-1:123456789012:endpoint/lmi-cohost"
    endpoint = {
        "EndpointName": "lmi-cohost",
        "EndpointArn": arn,
        "EndpointConfigName": "config",
        "EndpointStatus": "InService",
        "CreationTime": LONG_AGO,
        "LastModifiedTime": LONG_AGO,
    }
    config = {
        "EndpointConfigName": "config",
        "EndpointConfigArn": arn,
        "ProductionVariants": [whole],
        "CreationTime": LONG_AGO,
    }
    return [*GOOD["sagemaker"][:1], ("describe_endpoint", endpoint), ("describe_endpoint_config", config)]


def scalable_targets(count: int) -> list[tuple[str, Any]]:
    """Return Application Auto Scaling's scalable targets of the variant."""
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/lmi-cohost/variant/AllTraffic",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        "MinCapacity": 1,
        "MaxCapacity": 2,
        "RoleARN": "arn:aws:iam::123456789012:role/aws-service-role/x",
        "CreationTime": LONG_AGO,
    }
    return [("describe_scalable_targets", {"ScalableTargets": [target] * count})]


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(("variant", "now"), [({}, "scale-to-zero"), ({"ModelName": "m"}, "multi-model")])
def test_endpoint_of_another_topology_fails_before_the_deploy_does(variant: dict[str, Any], now: str) -> None:
    """An existing endpoint of another topology fails with the fix."""
    topology = "multi-model" if now == "scale-to-zero" else "scale-to-zero"
    catalog = changed(endpoint=load_catalog(ENCODERS).catalog.endpoint.model_copy(update={"topology": topology}))

    found = findings(catalog, sagemaker=endpoint_of(**variant))["endpoint"]

    assert found.outcome == "fail"
    assert found.why.startswith(f"'lmi-cohost' is a {now} endpoint, the catalog has {topology}")
    assert "fix: another endpoint.name" in found.why


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("instance_type", "targets", "outcome"),
    [("ml.g5.xlarge", 0, "pass"), ("ml.g5.2xlarge", 0, "pass"), ("ml.g5.2xlarge", 1, "fail")],
)
def test_type_of_a_variant_that_scales_cannot_be_changed(instance_type: str, targets: int, outcome: str) -> None:
    """A changed instance type fails the check only if a scalable target is registered for the variant."""
    catalog = changed(
        endpoint=load_catalog(ENCODERS).catalog.endpoint.model_copy(update={"instance_type": instance_type})
    )

    found = findings(catalog, sagemaker=endpoint_of(ModelName="m"), application_autoscaling=scalable_targets(targets))[
        "endpoint"
    ]

    assert found.outcome == outcome, found.why
    assert ("deploy without `scaling` first" in found.why) is (outcome == "fail")


@pytest.mark.usefixtures("hub")
def test_endpoint_that_has_ended_is_brought_back_before_a_deploy() -> None:
    """An expired endpoint fails with the command that restores it."""
    outputs = [
        {"OutputKey": "EndpointName", "OutputValue": "lmi-cohost"},
        {"OutputKey": "EndOfLife", "OutputValue": "{}"},
    ]
    stack = {"StackName": "S", "CreationTime": LONG_AGO, "StackStatus": "CREATE_COMPLETE", "Outputs": outputs}

    found = findings(cloudformation=[("describe_stacks", {"Stacks": [stack]})])["endpoint"]

    assert found.outcome == "fail"
    assert "fix: cohost expire 8h --stack S" in found.why


def test_endpoint_that_may_not_be_looked_at_is_unknown() -> None:
    """An endpoint that the caller may not describe is unknown."""
    found = findings(sagemaker=[*GOOD["sagemaker"][:1], ("describe_endpoint", DENIED)])
    assert found["endpoint"].outcome == "unknown"


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("groups", "outcome"),
    [
        (["/aws/sagemaker/Endpoints/lmi-cohost"], "fail"),
        (["/aws/sagemaker/Endpoints/lmi-cohost-2"], "pass"),
    ],
)
def test_a_log_group_that_is_left_fails_with_the_command_that_deletes_it(groups: list[str], outcome: str) -> None:
    """CloudFormation does not create a log group that is there; a group of another endpoint is nobody's business."""
    found = findings(logs=[("describe_log_groups", {"logGroups": [{"logGroupName": one} for one in groups]})])
    assert found["log groups"].outcome == outcome
    command = "fix: aws logs delete-log-group --log-group-name /aws/sagemaker/Endpoints/lmi-cohost"
    assert (command in found["log groups"].why) is (outcome == "fail")


KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def encrypted(key: str | None) -> list[tuple[str, Any]]:
    """Return S3's answer for a bucket with this default key."""
    by_default = {"SSEAlgorithm": "AES256"} if key is None else {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    rule = {"ApplyServerSideEncryptionByDefault": by_default}
    return [("get_bucket_encryption", {"ServerSideEncryptionConfiguration": {"Rules": [rule]}})]


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("s3", "stated", "outcome"),
    [
        (encrypted(KEY), None, "fail"),
        (encrypted("alias/mine"), None, "fail"),
        (encrypted(KEY), KEY, "pass"),
        (encrypted("alias/mine"), KEY, "pass"),
        (encrypted("alias/aws/s3"), None, "pass"),
        (encrypted(None), None, "pass"),
        ([("get_bucket_encryption", ("ServerSideEncryptionConfigurationNotFoundError", "none"))], None, "pass"),
        ([("get_bucket_encryption", DENIED)], None, "unknown"),
    ],
)
def test_a_key_of_the_weights_must_be_in_the_catalog(
    s3: list[tuple[str, Any]], stated: str | None, outcome: str
) -> None:
    """Weights in a bucket with a customer key load only if the role may decrypt with that key."""
    catalog = load_catalog(ENCODERS).catalog
    entry = catalog.models["minilm"].model_copy(update={"model_id": "s3://mine/models/minilm/", "revision": None})
    storage = catalog.storage.model_copy(update={"weights_kms_key": stated})
    described = {"KeyMetadata": {"KeyId": "1234abcd", "Arn": KEY}}
    found = findings(changed(models={"minilm": entry}, storage=storage), s3=s3, kms=[("describe_key", described)])
    assert found["weights key"].outcome == outcome
    assert (f"fix: storage.weights_kms_key: {KEY}" in found["weights key"].why) is (outcome == "fail")
