"""What the catalog says of the bucket that archives are published to."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from cohost.catalog.sections import rules
from cohost.catalog.sections.keys import KMS_KEY, KmsKey
from cohost.catalog.sections.settings import Settings
from cohost.catalog.sections.weights import BUCKET_NAME, BucketName


class Storage(Settings):
    """Where the archives lie in the stack's bucket, how long, and what becomes of them when the stack goes."""

    prefix: Annotated[str, AfterValidator(rules.check_prefix)] = Field(
        default="encoder-serving/lmi/04-lmi/", description="an S3 prefix that ends with / and does not start with it"
    )
    keep_generations: int = Field(
        default=2, ge=0, le=50, description="0 to 50 earlier generations; 0 removes each as soon as it is replaced"
    )
    on_destroy: Literal["delete", "keep"] = Field(
        default="delete", description="delete (the bucket goes with the stack) or keep"
    )
    weights_bucket: BucketName | None = Field(default=None, description=BUCKET_NAME)
    kms_key: KmsKey | None = Field(default=None, description=KMS_KEY)
