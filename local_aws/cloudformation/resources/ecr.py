"""AWS::ECR::Repository."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from botocore.exceptions import ClientError

from local_aws.cloudformation.resources.base import Outcome, Request, ResourceType, call, call_if_there, policy_text

NAME_LIMIT: Final = 256


class Repository(ResourceType):
    """A repository of container images with its policies."""

    type: ClassVar[str] = "AWS::ECR::Repository"
    known: ClassVar[frozenset[str]] = frozenset(
        {
            "EmptyOnDelete", "ImageScanningConfiguration", "ImageTagMutability", "LifecyclePolicy", "RepositoryName",
            "RepositoryPolicyText", "Tags",
        }
    )  # fmt: skip
    create_only: ClassVar[frozenset[str]] = frozenset({"RepositoryName"})
    name_property: ClassVar[str | None] = "RepositoryName"

    def create(self, request: Request) -> Outcome:
        """Make the repository, then its policies."""
        scanning = request.properties.get("ImageScanningConfiguration")
        answer = call(
            request.client("ecr"),
            "create_repository",
            repositoryName=request.name("RepositoryName", limit=NAME_LIMIT, lower=True),
            imageTagMutability=request.properties.get("ImageTagMutability"),
            imageScanningConfiguration=None if scanning is None else {"scanOnPush": scanning.get("ScanOnPush", False)},
            tags=request.tag_list() or None,
        )
        name = answer["repository"]["repositoryName"]
        request.initiated(name)
        _set_policies(request, name)
        return _outcome(answer["repository"])

    def update(self, request: Request) -> Outcome:
        """Change mutability and policies."""
        client, name = request.client("ecr"), request.physical_id
        if request.changed("ImageTagMutability"):
            mutability = request.properties.get("ImageTagMutability", "MUTABLE")
            call(client, "put_image_tag_mutability", repositoryName=name, imageTagMutability=mutability)
        _set_policies(request, name)
        return _outcome(call(client, "describe_repositories", repositoryNames=[name])["repositories"][0])

    def delete(self, request: Request) -> None:
        """Remove the repository; one that holds images needs EmptyOnDelete."""
        force = str(request.properties.get("EmptyOnDelete", "false")).lower() == "true"
        call_if_there(request.client("ecr"), "delete_repository", repositoryName=request.physical_id, force=force)


def _outcome(repository: dict[str, Any]) -> Outcome:
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


def _delete(client: Any, method: str, name: str) -> None:  # noqa: ANN401 - boto3 client
    try:
        call(client, method, repositoryName=name)
    except ClientError as error:
        if "NotFound" not in error.response["Error"]["Code"]:
            raise
