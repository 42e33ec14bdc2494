"""Which bucket holds the weights: the one that the catalog names, else one whose name account and region make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from cohost.deployment import DEFAULT_REGION
from cohost.weights.errors import WeightsError

if TYPE_CHECKING:
    import boto3

    from cohost.catalog.models import Catalog

WEIGHTS_STACK: Final = "LmiCohostWeightsStack"
BUCKET_PREFIX: Final = "lmi-cohost-weights-"


def bucket_name(account: str, region: str) -> str:
    """The name of the bucket that the weights' own stack makes; both may be tokens of a template."""
    return f"{BUCKET_PREFIX}{account}-{region}"


def find_bucket(catalog: Catalog, session: boto3.Session) -> str:
    """The bucket of a catalog's weights; without a name in the catalog, the account is asked who it is.

    Raises:
        WeightsError: there are no usable credentials.
    """
    if catalog.storage.weights_bucket is not None:
        return catalog.storage.weights_bucket
    try:
        account = session.client("sts").get_caller_identity()["Account"]
    except (BotoCoreError, ClientError) as error:
        raise WeightsError(
            f"the weights' bucket: its name holds the account's number, which cannot be asked for ({error}); "
            "fix: set credentials and a region, e.g. AWS_PROFILE, or name the bucket as storage.weights_bucket"
        ) from error
    return bucket_name(account, session.region_name or DEFAULT_REGION)
