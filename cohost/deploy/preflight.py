"""Checks before a deploy: price, credentials, bootstrap, instance type, quota, image, endpoint, logs, key, models."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, Literal

from botocore.exceptions import BotoCoreError, ClientError, CredentialRetrievalError, NoCredentialsError

from cohost.archives.weights import Revision
from cohost.catalog.serving import image_of, instance_bounds
from cohost.deploy.cleanup.leftovers import UNKNOWN_TYPE, instances_of
from cohost.deploy.expiry import OUTPUT
from cohost.endpoint.load_failures import COMPONENT_LOGS, ENDPOINT_LOGS
from cohost.endpoint.stack_outputs import outputs_of
from cohost.errors import HubAccessError, WeightsError
from cohost.forecast.plan.model_files import HubFiles
from cohost.forecast.pricing.price_list import bill_for, money
from cohost.routing import MULTI_MODEL, SCALE_TO_ZERO, component_name
from cohost.weights.store import WeightsStore, find_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import boto3

    from cohost.catalog.models import Catalog, ModelEntry
    from cohost.forecast.pricing.price_list import PriceList

    Quotas = Callable[[], Mapping[str, float]]

Outcome = Literal["pass", "fail", "unknown"]

_S3: Final = "s3://"
_NO_CREDENTIALS = (NoCredentialsError, CredentialRetrievalError)
_BAD_CREDENTIALS = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The outcome of one check. "unknown" means that the check could not be made; `why` states the reason."""

    check: str
    outcome: Outcome
    why: str


def passed(check: str, why: str) -> Finding:
    """Return the finding of a check that passed."""
    return Finding(check=check, outcome="pass", why=why)


def failed(check: str, why: str) -> Finding:
    """Return the finding of a failed check: the deploy would fail or not do as expected. `why` includes the fix."""
    return Finding(check=check, outcome="fail", why=why)


def unknown(check: str, why: str) -> Finding:
    """Return the finding of a check that could not be made; this finding does not stop a deploy."""
    return Finding(check=check, outcome="unknown", why=why)


def guarded(check: str, work: Callable[[], Finding]) -> Finding:
    """Run a check; an error of an AWS service or the network becomes "unknown", invalid credentials become "fail"."""
    try:
        return work()
    except _NO_CREDENTIALS as error:
        return failed(check, f"{error}; fix: set AWS_PROFILE, or log in")
    except ClientError as error:
        code, operation = error.response["Error"].get("Code", ""), error.operation_name
        if code in _BAD_CREDENTIALS:
            return failed(check, f"{operation}: {code}; fix: log in again, or set AWS_PROFILE to another profile")
        return unknown(check, f"{operation}: {code}: {error.response['Error'].get('Message', '')}")
    except BotoCoreError as error:
        return unknown(check, str(error))


CREDENTIALS: Final = "credentials"
BOOTSTRAP: Final = "bootstrap"

# Both from aws-cdk-lib's DefaultStackSynthesizer: the least bootstrap version that supports the project's file assets,
# and the parameter of Systems Manager in which `cdk bootstrap` stores the version.
BOOTSTRAP_VERSION: Final = 6
BOOTSTRAP_PARAMETER: Final = "/cdk-bootstrap/hnb659fds/version"


def check_credentials(session: boto3.Session, region: str) -> Finding:
    """Check that the credentials are valid; the finding names their account."""
    identity = session.client("sts", region_name=region).get_caller_identity()
    return passed(CREDENTIALS, f"account {identity['Account']}, {identity['Arn']}")


def check_bootstrap(session: boto3.Session, region: str) -> Finding:
    """Check that `cdk bootstrap` was run in the account and region, in a version that this project's stacks accept."""
    fix = "fix: cdk bootstrap"
    try:
        answer = session.client("ssm", region_name=region).get_parameter(Name=BOOTSTRAP_PARAMETER)
    except ClientError as error:
        if error.response["Error"].get("Code") == "ParameterNotFound":
            return failed(BOOTSTRAP, f"{region} of this account is not bootstrapped; {fix}")
        raise
    version = int(answer["Parameter"]["Value"])
    if version < BOOTSTRAP_VERSION:
        return failed(BOOTSTRAP, f"version {version}; allowed: {BOOTSTRAP_VERSION} or later; {fix}")
    return passed(BOOTSTRAP, f"version {version}")


QUOTA: Final = "quota"
OFFERED: Final = "instance type"
SERVICE: Final = "sagemaker"
_OF_ENDPOINTS: Final = " for endpoint usage"


def quotas_of(session: boto3.Session, region: str) -> dict[str, float]:
    """Return the number of instances that a region's quotas "<type> for endpoint usage" allow, by instance type.

    Service Quotas lists such a quota for each instance type that SageMaker hosting offers in the region (its console:
    Amazon SageMaker). The applied value of a quota replaces its default; a quota without an applied value has only the
    default (API reference: ListServiceQuotas).
    """
    client: Any = session.client("service-quotas", region_name=region)
    return {
        quota["QuotaName"].removesuffix(_OF_ENDPOINTS): quota["Value"]
        for operation in ("list_aws_default_service_quotas", "list_service_quotas")
        for page in client.get_paginator(operation).paginate(ServiceCode=SERVICE)
        for quota in page["Quotas"]
        if quota["QuotaName"].endswith(_OF_ENDPOINTS)
    }


def check_offered(quotas: Quotas, region: str, catalog: Catalog) -> Finding:
    """Check that SageMaker hosting offers the instance type in the region, by the region's quotas (`quotas_of`)."""
    wanted = catalog.endpoint.instance_type
    offered = quotas()
    if wanted in offered:
        return passed(OFFERED, f"{wanted} is offered in {region}")
    family = wanted.rpartition(".")[0]
    near = ", ".join(sorted(name for name in offered if name.startswith(f"{family}."))) or "none of that family"
    return unknown(OFFERED, f"Service Quotas names no quota of {wanted} in {region}, but of {near}")


def check_quota(quotas: Quotas, session: boto3.Session, region: str, catalog: Catalog) -> Finding:
    """Check that the quota allows the catalog's maximum of instances in addition to those of other endpoints.

    An update without downtime runs the old and the new instances side by side, so twice the minimum must fit too.
    """
    wanted = catalog.endpoint.instance_type
    if (quota := quotas().get(wanted)) is None:
        return unknown(QUOTA, f'Service Quotas names no "{wanted}{_OF_ENDPOINTS}" in {region}')
    others, unclear = _running(session, region, catalog)
    least, most = instance_bounds(catalog)
    needed = max(most, 2 * max(least, 1))
    room = f"{quota:g} allowed, {others} run elsewhere, {needed} needed ({most} at most, an update needs room for two)"
    if unclear:
        room += f"; {unclear} more of an unknown type run, of endpoints whose configuration was deleted"
    if quota - others >= needed:
        return passed(QUOTA, f"{wanted}{_OF_ENDPOINTS}: {room}")
    fix = f'ask for "{wanted}{_OF_ENDPOINTS}" in Service Quotas, or remove what `cohost orphans` lists'
    return failed(QUOTA, f"{wanted}{_OF_ENDPOINTS}: {room}; fix: {fix}")


def _running(session: boto3.Session, region: str, catalog: Catalog) -> tuple[int, int]:
    """Count the instances of other endpoints: those of the catalog's instance type, and those of an unknown type."""
    sagemaker = session.client("sagemaker", region_name=region)
    found: Counter[str] = Counter()
    for page in sagemaker.get_paginator("list_endpoints").paginate():
        for one in page["Endpoints"]:
            if one["EndpointName"] != catalog.endpoint.name:
                endpoint: Any = sagemaker.describe_endpoint(EndpointName=one["EndpointName"])
                found.update(instances_of(sagemaker, endpoint))
    return found[catalog.endpoint.instance_type], found[UNKNOWN_TYPE]


ENDPOINT: Final = "endpoint"

_NOT_THERE: Final = "ValidationException"


def check_endpoint(session: boto3.Session, region: str, catalog: Catalog) -> Finding:
    """Check that an existing endpoint of the catalog's name can be updated to the catalog's topology and instance type.

    SageMaker does not update an endpoint whose variant names a model to one with inference components, or the reverse.
    SageMaker also does not change the instance type of a variant that is registered with Application Auto Scaling (AWS:
    update endpoints that use auto scaling).
    """
    name, wanted = catalog.endpoint.name, catalog.endpoint
    variant = _variant_of(session, region, name)
    if variant is None and (stack := _stack_that_had(session, region, name)) is not None:
        return failed(
            ENDPOINT,
            f"{name!r} of stack {stack!r} has ended, and CloudFormation believes that it exists: it could neither "
            f"update it nor go back; fix: cohost expire 8h --stack {stack}, then deploy",
        )
    if variant is None:
        return passed(ENDPOINT, f"there is no endpoint {name!r} yet")
    topology = SCALE_TO_ZERO if variant.get("ModelName") is None else MULTI_MODEL
    if topology != wanted.topology:
        return failed(
            ENDPOINT,
            f"{name!r} is a {topology} endpoint, the catalog has {wanted.topology}, and SageMaker updates no endpoint "
            "from one to the other; fix: another endpoint.name, with which the stack makes the new endpoint before it "
            "removes this one, or cdk destroy first",
        )
    now = variant.get("InstanceType")
    if topology == MULTI_MODEL and now != wanted.instance_type and _is_scaled(session, region, name, variant):
        return failed(
            ENDPOINT,
            f"{name!r} runs on {now} and scales, and SageMaker changes no instance type while it does; fix: deploy "
            f"without `scaling` first, then with instance_type {wanted.instance_type}; or another endpoint.name",
        )
    return passed(ENDPOINT, f"{name!r} is a {topology} endpoint on {now}, and can be updated")


def _variant_of(session: boto3.Session, region: str, name: str) -> dict[str, Any] | None:
    """Return the production variant in an endpoint's configuration; None if there is no endpoint of this name."""
    client = session.client("sagemaker", region_name=region)
    try:
        config = client.describe_endpoint(EndpointName=name)["EndpointConfigName"]
    except ClientError as error:
        if error.response["Error"].get("Code") == _NOT_THERE:
            return None
        raise
    return dict(client.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"][0])


def _stack_that_had(session: boto3.Session, region: str, name: str) -> str | None:
    """Return the name of the stack that has an expiring endpoint of this name; None if no stack has one."""
    client = session.client("cloudformation", region_name=region)
    for page in client.get_paginator("describe_stacks").paginate():
        for stack in page["Stacks"]:
            outputs = outputs_of(stack)
            if outputs.get("EndpointName") == name and OUTPUT in outputs:
                return str(stack["StackName"])
    return None


def _is_scaled(session: boto3.Session, region: str, name: str, variant: dict[str, Any]) -> bool:
    """Return True if the endpoint's variant is registered with Application Auto Scaling."""
    client = session.client("application-autoscaling", region_name=region)
    resource = f"endpoint/{name}/variant/{variant['VariantName']}"
    found = client.describe_scalable_targets(ServiceNamespace="sagemaker", ResourceIds=[resource])
    return bool(found["ScalableTargets"])


LOGS: Final = "log groups"


def check_log_groups(session: boto3.Session, region: str, catalog: Catalog) -> Finding:
    """Check that no log group of a deleted endpoint still has the name of a log group of the stack.

    The names of the stack's log groups are fixed, and CloudFormation does not create a log group that exists already.
    """
    name = catalog.endpoint.name
    if _variant_of(session, region, name) is not None or _stack_that_had(session, region, name) is not None:
        return passed(LOGS, f"those of {name!r} belong to its endpoint or its stack")
    wanted = [f"{ENDPOINT_LOGS}{name}"]
    if catalog.endpoint.topology == SCALE_TO_ZERO:
        wanted.append(f"{COMPONENT_LOGS}{component_name(name)}")
    client = session.client("logs", region_name=region)
    left = [one for one in wanted if _has_log_group(client, one)]
    if not left:
        return passed(LOGS, f"none is left of an earlier {name!r}")
    fix = "; ".join(f"aws logs delete-log-group --log-group-name {one}" for one in left)
    return failed(
        LOGS, f"{' and '.join(left)} of an earlier {name!r} would fail the deploy: already exists; fix: {fix}"
    )


def _has_log_group(logs: Any, name: str) -> bool:  # a boto3 client
    groups = logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    return any(group["logGroupName"] == name for group in groups)


WEIGHTS_KEY: Final = "weights key"
_NO_ENCRYPTION: Final = "ServerSideEncryptionConfigurationNotFoundError"


def own_buckets(catalog: Catalog) -> list[str]:
    """Return the names of the user's own buckets from which models' weights are read."""
    named = {catalog.storage.weights_bucket} if any(entry.pushed for entry in catalog.models.values()) else set()
    addresses = [entry.model_id for entry in catalog.models.values() if entry.model_id.startswith(_S3)]
    return sorted({*(one for one in named if one), *(one.removeprefix(_S3).partition("/")[0] for one in addresses)})


def check_weights_key(session: boto3.Session, region: str, catalog: Catalog) -> Finding:
    """Check that the containers will have the right to use the KMS keys that encrypt the weights.

    A bucket's default key is the key of its objects, unless they were uploaded with another one.
    """
    storage, client = catalog.storage, session.client("s3", region_name=region)
    allowed = {storage.weights_kms_key, storage.kms_key}
    for bucket in own_buckets(catalog):
        key = _default_key(session, region, client, bucket)
        if key is not None and key not in allowed:
            return failed(
                WEIGHTS_KEY,
                f"s3://{bucket} is encrypted with {key}, which the containers may not use: no model would load; "
                f"fix: storage.weights_kms_key: {key}",
            )
    return passed(WEIGHTS_KEY, "the containers may use the keys of " + ", ".join(own_buckets(catalog)))


def _default_key(session: boto3.Session, region: str, s3: Any, bucket: str) -> str | None:  # a boto3 client
    """Return the ARN of a bucket's default KMS key; None if S3 or AWS manages the key."""
    try:
        answer = s3.get_bucket_encryption(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"].get("Code") == _NO_ENCRYPTION:
            return None
        raise
    rule = answer["ServerSideEncryptionConfiguration"]["Rules"][0].get("ApplyServerSideEncryptionByDefault", {})
    key = rule.get("KMSMasterKeyID")
    if key is None or "alias/aws/" in key:
        return None
    if ":key/" in key:
        return str(key)
    return str(session.client("kms", region_name=region).describe_key(KeyId=key)["KeyMetadata"]["Arn"])


IMAGE: Final = "image"


def check_image(session: boto3.Session, region: str, catalog: Catalog) -> Finding:
    """Check that the catalog's container image is in its ECR registry.

    Raises:
        ImageError: the catalog's image name cannot be parsed, or the region has no known registry for the image.
    """
    uri = image_of(catalog.endpoint, region)
    answer = session.client("ecr", region_name=uri.region).batch_get_image(
        registryId=uri.account, repositoryName=uri.repository, imageIds=[_identifier(uri.reference)]
    )
    if answer.get("images"):
        return passed(IMAGE, f"{uri} is there")
    failure = answer["failures"][0] if answer.get("failures") else {}
    if failure.get("failureCode") == "ImageNotFound":
        return failed(IMAGE, f"{uri} is not in the registry; fix: a tag that is, see the release notes of the image")
    return unknown(IMAGE, f"{uri}: {failure.get('failureReason', 'the registry gave no reason')}")


def _identifier(reference: str) -> dict[str, str]:
    """Return ECR's image identifier for the ":tag" or "@digest" of an image URI."""
    return {"imageDigest": reference[1:]} if reference.startswith("@") else {"imageTag": reference[1:]}


CONFIG_FILE: Final = "config.json"


def check_on_hub(name: str, entry: ModelEntry) -> Finding:
    """Check that the Hub has config.json of the model in its revision; the variable HF_ENDPOINT names another Hub."""
    check = f"model {name}"
    where = f"{entry.model_id} at {entry.revision or 'main'}"
    try:
        found = HubFiles(entry.model_id, entry.revision).read(CONFIG_FILE)
    except HubAccessError as error:
        return unknown(check, str(error))
    if found is None:
        return failed(check, f"the Hub has no {CONFIG_FILE} of {where}; fix: check model_id and revision")
    return passed(check, f"the Hub has {where}")


def check_pushed(session: boto3.Session, catalog: Catalog, name: str, entry: ModelEntry) -> Finding:
    """Check that a model's weights, which the catalog places in S3, were pushed completely."""
    check = f"model {name}"
    revision = Revision(entry.model_id, str(entry.revision))
    try:
        bucket = find_bucket(catalog, session)
        packed = entry.weights == "archive"
        there = WeightsStore(session.client("s3"), bucket).is_there(revision, packed=packed)
    except WeightsError as error:
        return unknown(check, str(error))
    where = f"s3://{bucket}/{revision.packed}" if packed else revision.uri(bucket)
    if not there:
        return failed(check, f"{where} is not there, or not whole; fix: cohost weights push {name}")
    return passed(check, f"{where} is there as a whole")


PRICE: Final = "price"


def check_price(catalog: Catalog, prices: PriceList, region: str) -> Finding:
    """Check that the maximum number of instances costs no more per month than the catalog's budget, if it has one."""
    least, most = instance_bounds(catalog)
    bill = bill_for(prices, region, catalog.endpoint.instance_type, least=least, most=most)
    if (month := bill.per_month) is None:
        fix = f"fix: cohost prices refresh --region {region}"
        return unknown(PRICE, f"no price of {bill.instance_type} in {region} is known; {fix}")
    text = f"{money(bill.per_hour, 3)} USD an hour, {money(month)} USD a month"
    if catalog.budget is None:
        return passed(PRICE, f"{text}; the catalog states no budget")
    limit = catalog.budget.monthly_usd
    if month[1] > limit:
        fix = "a cheaper instance_type, fewer instances, or a larger budget.monthly_usd"
        return failed(PRICE, f"{text}; allowed: {money(limit)} USD a month; fix: {fix}")
    return passed(PRICE, f"{text}, within the budget of {money(limit)}")


def run_checks(session: boto3.Session, region: str, catalog: Catalog, prices: PriceList) -> Iterator[Finding]:
    """Yield the finding of each check as soon as it is known; the cheapest and most informative checks come first.

    Without valid credentials the checks of the account are "unknown" and not made.

    Raises:
        ImageError: the catalog's image name cannot be parsed, or the region has no known registry for the image.
    """
    yield guarded(PRICE, partial(check_price, catalog, prices, region))
    credentials = guarded(CREDENTIALS, partial(check_credentials, session, region))
    yield credentials
    for name, check in _of_the_account(session, region, catalog).items():
        if credentials.outcome == "pass":
            yield guarded(name, check)
        else:
            yield unknown(name, "needs an account that can be reached")
    for name, entry in catalog.models.items():
        if entry.from_hub:
            yield guarded(f"model {name}", partial(check_on_hub, name, entry))
        elif entry.pushed:
            yield guarded(f"model {name}", partial(check_pushed, session, catalog, name, entry))


def _of_the_account(session: boto3.Session, region: str, catalog: Catalog) -> dict[str, Callable[[], Finding]]:
    # Two checks need the quotas, whose listing takes many requests, so the listing is cached.
    quotas = cache(partial(quotas_of, session, region))
    return {
        BOOTSTRAP: partial(check_bootstrap, session, region),
        OFFERED: partial(check_offered, quotas, region, catalog),
        QUOTA: partial(check_quota, quotas, session, region, catalog),
        IMAGE: partial(check_image, session, region, catalog),
        ENDPOINT: partial(check_endpoint, session, region, catalog),
        LOGS: partial(check_log_groups, session, region, catalog),
        **({WEIGHTS_KEY: partial(check_weights_key, session, region, catalog)} if own_buckets(catalog) else {}),
    }
