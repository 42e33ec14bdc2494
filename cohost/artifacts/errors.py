"""The fault of this folder; it stands alone because the Lambda function carries no other code of cohost."""

from __future__ import annotations


class ArtifactError(Exception):
    """An archive, its properties or their store is not as it must be; the text is one line and holds the fix."""
