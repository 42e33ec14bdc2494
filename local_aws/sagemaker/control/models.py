"""The Model operations of the control plane, and the rules for a model's containers (AWS API reference: CreateModel).

Sources of the errors' texts: "Your Ecr Image … does not contain required … Docker label(s)" is quoted in
aws/amazon-sagemaker-examples#3925, "Requested image … not found" in aws-samples/easy-amazon-sagemaker-deployments#4,
"Could not assume role …" in awslabs/predictive-maintenance-using-machine-learning#3, and "Could not find model data
at …" in aws-ia/ecs-blueprints#223.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, ParamValidationError

from cohost.errors import ImageError
from cohost.hardware.images import Image, parse_image, registry_account
from local_aws.kit.account import ACCOUNT_ID
from local_aws.kit.errors import ValidationException
from local_aws.kit.named_resources import Collection, Resource, page, tags_of
from local_aws.rights.policies import Request, UnknownConditionError, trusts
from local_aws.sagemaker.errors import unsupported
from local_aws.sagemaker.hosting.endpoint_snapshot import MULTI_MODEL, container_of
from local_aws.sagemaker.model_cache.disk import S3Location

if TYPE_CHECKING:
    from local_aws.kit.account import Account
    from local_aws.kit.clients import ServiceClients


_ECR = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.[a-z0-9.-]+/(?P<repository>[^:@]+):(?P<tag>[^@]+)"
)
_MULTI_MODEL_LABEL = "com.amazonaws.sagemaker.capabilities.multi-models=true"
_ENVIRONMENT_BYTES = 32 * 1024  # AWS API reference: ContainerDefinition, Environment
_UNSUPPORTED = (
    "ModelPackageName",
    "AdditionalModelDataSources",
    "ImageConfig",
    "InferenceSpecificationName",
    "ContainerMetricsConfig",
)


def check_container(container: dict[str, Any], *, account_id: str, region: str) -> None:
    """Check the rules for a model's container that can be checked without calling another AWS service.

    Raises:
        ValidationException: a rule is broken, or a requested feature is not emulated.
    """
    for member in _UNSUPPORTED:
        if container.get(member):
            raise unsupported(f"{member} of a container")
    _check_environment(container.get("Environment") or {})
    if (uri := container.get("Image")) is None:
        raise ValidationException("Image: a container must name the image that it runs")
    image = _image(uri, account_id, region)
    if container.get("Mode") == MULTI_MODEL:
        _check_multi_model(container, uri, image)
    elif container.get("MultiModelConfig"):
        raise ValidationException("MultiModelConfig can only be used with a container of Mode MultiModel")
    elif container.get("ModelDataSource"):
        raise unsupported("ModelDataSource of a container")


_FORBIDDEN = 403


async def check_model_data(container: dict[str, Any], role: str | None, clients: ServiceClients) -> None:
    """Check that the role can read the model data: a multi-model container's bucket, any other container's archive.

    Raises:
        ValidationException: the model data does not exist, or the role may not read it (text:
            philschmid/llm-sagemaker-sample#2).
    """
    if (url := container.get("ModelDataUrl")) is None:
        return
    location = S3Location.parse(url)

    def look() -> None:
        if container.get("Mode") == MULTI_MODEL:
            clients.s3(role).list_objects_v2(Prefix=location.key, MaxKeys=1, Bucket=location.bucket)
        else:
            clients.s3(role).head_object(Bucket=location.bucket, Key=location.key)

    try:
        await clients.run(look)
    except (ClientError, ParamValidationError) as error:
        if isinstance(error, ClientError) and error.response["ResponseMetadata"]["HTTPStatusCode"] == _FORBIDDEN:
            raise ValidationException(
                f'Could not access model data at {url}. Please ensure that the role "{role}" exists and that its trust '
                'relationship policy allows the action "sts:AssumeRole" for the service principal '
                '"sagemaker.amazonaws.com". Also ensure that the role has "s3:GetObject" permissions and that the '
                f"object is located in {clients.region}. If your Model uses multiple models or uncompressed models, "
                'please ensure that the role has "s3:ListBucket" permission.'
            ) from None
        raise ValidationException(f"Could not find model data at {url}.") from None


async def check_role(arn: str, clients: ServiceClients) -> None:
    """Check that the execution role exists and lets SageMaker assume it.

    Raises:
        ValidationException: the role does not exist, or does not let SageMaker assume it.
    """
    try:
        answer = await clients.run(lambda: clients.iam().get_role(RoleName=arn.rpartition("/")[2]))
    except (ClientError, ParamValidationError):
        trusted = False
    else:
        trusted = answer["Role"]["Arn"] == arn and _trusts_sagemaker(arn, answer["Role"]["AssumeRolePolicyDocument"])
    if not trusted:
        raise ValidationException(
            f"Could not assume role {arn}. Please ensure that the role exists and allows principal "
            "'sagemaker.amazonaws.com' to assume the role."
        )


def _trusts_sagemaker(arn: str, policy: Any) -> bool:  # boto3 has parsed the document
    context = {"aws:sourceaccount": [ACCOUNT_ID]}
    request = Request(action="sts:AssumeRole", resource=arn, context=context)
    try:
        return trusts(policy, {"sagemaker.amazonaws.com"}, request)
    except UnknownConditionError:
        return False


def _image(uri: str, account_id: str, region: str) -> Image:
    """Parse the URI of an image in one of the region's registries: AWS's, or the account's own."""
    match = _ECR.fullmatch(uri)
    if match is None or match["region"] != region or match["account"] not in _registries(account_id, region):
        raise _not_found(uri)
    try:
        return parse_image(f"{match['repository'].rpartition('/')[2]}:{match['tag']}")
    except ImageError:
        raise _not_found(uri) from None


def _registries(account_id: str, region: str) -> set[str]:
    try:
        return {account_id, registry_account(region)}
    except ImageError:
        return {account_id}


def _not_found(uri: str) -> ValidationException:
    return ValidationException(f"Requested image {uri} not found.")


def _check_multi_model(container: dict[str, Any], uri: str, image: Image) -> None:
    if not image.multi_model:
        raise ValidationException(
            f"Your Ecr Image {uri} does not contain required {_MULTI_MODEL_LABEL} Docker label(s)."
        )
    if container.get("ModelDataSource"):
        raise ValidationException(
            "ModelDataSource cannot be used with a container of Mode MultiModel; use ModelDataUrl"
        )
    url = container.get("ModelDataUrl")
    if url is None:
        raise ValidationException("ModelDataUrl: a container of Mode MultiModel needs the S3 prefix of its models")
    if not S3Location.parse(url).key.endswith("/"):
        raise ValidationException(
            f"ModelDataUrl {url} is not the prefix of a folder: with Mode MultiModel it must end with '/'"
        )


def _check_environment(environment: dict[str, str]) -> None:
    size = sum(len(key.encode()) + len(value.encode()) for key, value in environment.items())
    if size > _ENVIRONMENT_BYTES:
        raise ValidationException(f"Environment: {size} bytes of keys and values; a container takes 32768 at most")


_KEPT = ("PrimaryContainer", "Containers", "ExecutionRoleArn", "VpcConfig", "EnableNetworkIsolation")


class Models:
    """Create, describe, list and delete models."""

    def __init__(self, account: Account, collection: Collection[Resource], clients: ServiceClients) -> None:
        self._account = account
        self._models = collection
        self._clients = clients

    async def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer CreateModel."""
        name = request["ModelName"]
        self._models.check_free(name)
        container = container_of(request)
        check_container(container, account_id=self._account.account_id, region=self._account.region)
        if (role := request.get("ExecutionRoleArn")) is not None:
            await check_role(role, self._clients)
        elif container.get("ModelDataUrl"):
            raise ValidationException("ExecutionRoleArn: a model with model data needs a role that may read it")
        await check_model_data(container, role, self._clients)
        definition = {key: request[key] for key in _KEPT if request.get(key) is not None}
        model = Resource(name=name, arn=self._models.arn(name), definition=definition, tags=tags_of(request))
        self._models.add(model)
        return {"ModelArn": model.arn}

    async def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer DescribeModel."""
        model = self._models.get(request["ModelName"])
        return {"EnableNetworkIsolation": False, **model.definition, **model.summary("Model")}

    async def list(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer ListModels."""
        models, more = page(self._models, request)
        return {"Models": [model.summary("Model") for model in models], **more}

    async def delete(self, request: dict[str, Any]) -> None:
        """Answer DeleteModel. As on SageMaker, endpoints that run the model keep running it."""
        self._models.remove(request["ModelName"])
