"""Whether the image's tag is in the registry, as far as that can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cohost.preflight.finding import Finding, failed, passed, unknown
from cohost.serving_image import image_of

if TYPE_CHECKING:
    import boto3

    from cohost.catalog.models import Catalog

IMAGE: Final = "image"


def check_image(session: boto3.Session, region: str, catalog: Catalog) -> Finding:
    """Ask the registry for the manifest of the catalog's image.

    Raises:
        ImageError: the catalog's image cannot be read.
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
    """How the registry's API names what a URI's ":tag" or "@digest" says."""
    return {"imageDigest": reference[1:]} if reference.startswith("@") else {"imageTag": reference[1:]}
