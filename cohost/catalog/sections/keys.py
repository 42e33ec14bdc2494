"""Keys of the account's own that the catalog may name, by the ARN that all services take."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

KMS_KEY: Final = "the ARN of a KMS key: arn:aws:kms:REGION:ACCOUNT:key/ID; an alias has no rights of its own"

KmsKey = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+$")]
