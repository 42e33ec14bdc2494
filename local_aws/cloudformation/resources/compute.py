"""Resource types of Lambda, ECR, EC2 and the CDK: functions, repositories, VPC endpoints, CDK metadata."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from botocore.exceptions import ClientError

from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.resources.base import (
    Outcome,
    Request,
    ResourceType,
    call,
    call_if_there,
    physical_name,
    policy_text,
)
from local_aws.kit.errors import not_emulated

FUNCTION_NAME_LIMIT: Final = 64
# Properties that the API takes under the same names in CreateFunction and UpdateFunctionConfiguration.
SETTINGS: Final = (
    "Description", "Environment", "Handler", "LoggingConfig", "MemorySize", "Role", "Runtime", "Timeout",
)  # fmt: skip


class Function(ResourceType):
    """AWS::Lambda::Function; its code is an S3 object or text in the template (ZipFile)."""

    type: ClassVar[str] = "AWS::Lambda::Function"
    known: ClassVar[frozenset[str]] = frozenset({*SETTINGS, "Architectures", "Code", "FunctionName", "Tags"})
    name_property: ClassVar[str | None] = "FunctionName"

    def create(self, request: Request) -> Outcome:
        """Make the function."""
        properties = request.properties
        answer = call(
            request.client("lambda"),
            "create_function",
            FunctionName=request.name("FunctionName", limit=FUNCTION_NAME_LIMIT),
            Code=_code(properties["Code"]),
            Architectures=properties.get("Architectures"),
            Tags=request.all_tags() or None,
            **{key: properties.get(key) for key in SETTINGS},
        )
        return _function_outcome(answer)

    def update(self, request: Request) -> Outcome:
        """Change the function's code and settings if they differ, and set its tags."""
        client, name = request.client("lambda"), request.physical_id
        if request.changed("Code", "Architectures"):
            call(client, "update_function_code", FunctionName=name, **_code(request.properties["Code"]))
        if request.changed(*SETTINGS):
            settings = {key: request.properties.get(key) for key in SETTINGS}
            settings["Environment"] = settings["Environment"] or {"Variables": {}}
            call(client, "update_function_configuration", FunctionName=name, **settings)
        answer = call(request.own_client("lambda"), "get_function_configuration", FunctionName=name)
        if request.all_tags():
            call(client, "tag_resource", Resource=answer["FunctionArn"], Tags=request.all_tags())
        return _function_outcome(answer)

    def delete(self, request: Request) -> None:
        """Remove the function."""
        call_if_there(request.client("lambda"), "delete_function", FunctionName=request.physical_id)


def _code(code: dict[str, Any]) -> dict[str, Any]:
    """Return `Code` for the API: the location in S3, or a zip file of the code that the template contains."""
    if "ZipFile" in code:
        return {"ZipFile": zipped(str(code["ZipFile"]))}
    return {key: value for key, value in code.items() if key in {"S3Bucket", "S3Key", "S3ObjectVersion"}}


def zipped(source: str) -> bytes:
    """Zip the code that a template contains as CloudFormation does: as one file `index.py`."""
    import io  # only templates with inline code need io and zipfile
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("index.py", source)
    return buffer.getvalue()


def _function_outcome(configuration: dict[str, Any]) -> Outcome:
    return Outcome(physical_id=configuration["FunctionName"], attributes={"Arn": configuration["FunctionArn"]})


REPOSITORY_NAME_LIMIT: Final = 256


class Repository(ResourceType):
    """AWS::ECR::Repository, a repository of container images with its policies."""

    type: ClassVar[str] = "AWS::ECR::Repository"
    known: ClassVar[frozenset[str]] = frozenset(
        {
            "EmptyOnDelete", "ImageScanningConfiguration", "ImageTagMutability", "LifecyclePolicy", "RepositoryName",
            "RepositoryPolicyText", "Tags",
        }
    )  # fmt: skip
    name_property: ClassVar[str | None] = "RepositoryName"

    def create(self, request: Request) -> Outcome:
        """Make the repository, then its policies."""
        scanning = request.properties.get("ImageScanningConfiguration")
        answer = call(
            request.client("ecr"),
            "create_repository",
            repositoryName=request.name("RepositoryName", limit=REPOSITORY_NAME_LIMIT, lower=True),
            imageTagMutability=request.properties.get("ImageTagMutability"),
            imageScanningConfiguration=None if scanning is None else {"scanOnPush": scanning.get("ScanOnPush", False)},
            tags=request.tag_list() or None,
        )
        name = answer["repository"]["repositoryName"]
        request.initiated(name)
        _set_policies(request, name)
        return _repository_outcome(answer["repository"])

    def update(self, request: Request) -> Outcome:
        """Change tag mutability and policies of the repository."""
        client, name = request.client("ecr"), request.physical_id
        if request.changed("ImageTagMutability"):
            mutability = request.properties.get("ImageTagMutability", "MUTABLE")
            call(client, "put_image_tag_mutability", repositoryName=name, imageTagMutability=mutability)
        _set_policies(request, name)
        return _repository_outcome(call(client, "describe_repositories", repositoryNames=[name])["repositories"][0])

    def delete(self, request: Request) -> None:
        """Remove the repository; a repository that holds images can be removed only with EmptyOnDelete."""
        force = str(request.properties.get("EmptyOnDelete", "false")).lower() == "true"
        call_if_there(request.client("ecr"), "delete_repository", repositoryName=request.physical_id, force=force)


def _repository_outcome(repository: dict[str, Any]) -> Outcome:
    return Outcome(
        physical_id=repository["repositoryName"],
        attributes={"Arn": repository["repositoryArn"], "RepositoryUri": repository["repositoryUri"]},
    )


def _set_policies(request: Request, name: str) -> None:
    client = request.client("ecr")
    policy = request.properties.get("RepositoryPolicyText")
    if policy is not None:
        call(client, "set_repository_policy", repositoryName=name, policyText=policy_text(policy))
    elif request.changed("RepositoryPolicyText"):
        _delete(client, "delete_repository_policy", name)
    lifecycle = request.properties.get("LifecyclePolicy")
    if lifecycle is not None:
        call(client, "put_lifecycle_policy", repositoryName=name, lifecyclePolicyText=lifecycle["LifecyclePolicyText"])
    elif request.changed("LifecyclePolicy"):
        _delete(client, "delete_lifecycle_policy", name)


def _delete(client: Any, method: str, name: str) -> None:
    try:
        call(client, method, repositoryName=name)
    except ClientError as error:
        if "NotFound" not in error.response["Error"]["Code"]:
            raise


class VpcEndpoint(ResourceType):
    """AWS::EC2::VPCEndpoint with route tables of an existing VPC. The emulated endpoint routes nothing."""

    type: ClassVar[str] = "AWS::EC2::VPCEndpoint"
    known: ClassVar[frozenset[str]] = frozenset({"RouteTableIds", "ServiceName", "Tags", "VpcEndpointType", "VpcId"})
    required: ClassVar[frozenset[str]] = frozenset({"ServiceName"})

    def create(self, request: Request) -> Outcome:
        """Create the endpoint; reject a VPC or route table that does not exist, which moto would accept."""
        client, properties = request.client("ec2"), request.properties
        tables = list(properties.get("RouteTableIds", []))
        call(client, "describe_vpcs", VpcIds=[properties["VpcId"]])
        for table in (
            call(request.own_client("ec2"), "describe_route_tables", RouteTableIds=tables)["RouteTables"]
            if tables
            else []
        ):
            if table["VpcId"] != properties["VpcId"]:
                raise ResourceFailure(f"route table {table['RouteTableId']} belongs to {table['VpcId']}")
        answer = call(
            client,
            "create_vpc_endpoint",
            VpcId=properties["VpcId"],
            ServiceName=properties["ServiceName"],
            VpcEndpointType=properties.get("VpcEndpointType", "Gateway"),
            RouteTableIds=tables or None,
        )
        endpoint_id = str(answer["VpcEndpoint"]["VpcEndpointId"])
        request.initiated(endpoint_id)
        _tag(request, endpoint_id)
        return Outcome(physical_id=endpoint_id, attributes={"Id": endpoint_id})

    def update(self, request: Request) -> Outcome:
        """Put the tags on the endpoint; a change of its route tables is rejected."""
        if request.changed("RouteTableIds"):
            # moto would list the new tables and then fail to delete the endpoint, since it moves no routes.
            raise ResourceFailure(not_emulated("a change of RouteTableIds", "EC2"))
        _tag(request, request.physical_id)
        return Outcome(physical_id=request.physical_id, attributes={"Id": request.physical_id})

    def delete(self, request: Request) -> None:
        """Delete the endpoint; a missing endpoint raises no error, since EC2 only lists failures in its answer."""
        call(request.client("ec2"), "delete_vpc_endpoints", VpcEndpointIds=[request.physical_id])


def _tag(request: Request, endpoint_id: str) -> None:
    if tags := request.tag_list():
        call(request.client("ec2"), "create_tags", Resources=[endpoint_id], Tags=tags)


class CdkMetadata(ResourceType):
    """AWS::CDK::Metadata, a resource without any API behind it."""

    type: ClassVar[str] = "AWS::CDK::Metadata"
    known: ClassVar[frozenset[str]] = frozenset({"Analytics"})

    def create(self, request: Request) -> Outcome:
        """Return a generated physical id."""
        return Outcome(physical_id=physical_name(request.stack_name, request.logical_id, limit=128))

    def update(self, request: Request) -> Outcome:
        """Return the physical id unchanged."""
        return Outcome(physical_id=request.physical_id)

    def delete(self, request: Request) -> None:
        """Do nothing: there is nothing to delete."""
