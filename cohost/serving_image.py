"""What an endpoint of a catalog runs on: the server's image, and the host's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cohost.images import default_inference_ami_version, locate_image, parse_image_uri

if TYPE_CHECKING:
    from cohost.catalog.models import Endpoint
    from cohost.images import Image, ImageUri


def image_of(endpoint: Endpoint, region: str) -> ImageUri:
    """The server image: the one named in full, else AWS's own for the region.

    Raises:
        ImageError: the image cannot be read, or the region has no known registry for it.
    """
    if endpoint.image_uri is not None:
        return parse_image_uri(endpoint.image_uri)
    return locate_image(endpoint.image, region)


def inference_ami_version(endpoint: Endpoint, image: Image) -> str | None:
    """The host image: the one whose driver fits the server image, the one named, or None to leave it to SageMaker."""
    match endpoint.inference_ami_version:
        case "default":
            return default_inference_ami_version(image)
        case "none":
            return None
        case verbatim:
            return verbatim
