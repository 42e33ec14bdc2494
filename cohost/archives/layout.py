"""The keys of all objects in the bucket. Nothing in this module calls S3.

<prefix><generation>/<name>.tar.gz                   archives, and nothing else: ModelDataUrl points to this folder
<prefix><generation>/models.tar.gz                   of a bundle, the one archive of all models: ModelDataUrl is this
<prefix>removed/<generation>/<name>/<digest>         zero bytes: this content was once served under this name
<prefix>unfinished/<generation>                      zero bytes: this generation is not completely published yet
<prefix>served.json                                  the served generation, and the number of earlier ones to keep
<prefix>trial/<generation>                           zero bytes: the update that published it may still fail
<prefix>earlier/<time>/<generation>.json             the properties that an earlier generation was published from
<prefix>rollback/<name>                              a template on its way to CloudFormation, kept for minutes
"""

from __future__ import annotations

from dataclasses import dataclass

from .generation import is_generation_id

_SUFFIX = ".tar.gz"

BUNDLE_NAME = "models"
"""The name of a bundle's archive, in place of a model's name."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The keys below one prefix of one bucket; the prefix ends with "/"."""

    bucket: str
    prefix: str

    def uri(self, generation: str) -> str:
        """Return the generation's S3 URI: CloudFormation's physical id, and ModelDataUrl of a multi-model endpoint."""
        return f"s3://{self.bucket}/{self.archives(generation)}"

    def bundle_uri(self, generation: str) -> str:
        """Return the S3 URI of a generation's bundle: ModelDataUrl where one container serves all models."""
        return f"s3://{self.bucket}/{self.archive(generation, BUNDLE_NAME)}"

    def generation_at(self, uri: str) -> str | None:
        """Return the generation that an S3 URI names; None if the URI is not one of this bucket and prefix."""
        start = f"s3://{self.bucket}/{self.prefix}"
        generation = uri[len(start) : -1]
        return generation if is_generation_id(generation) and uri == self.uri(generation) else None

    def archives(self, generation: str) -> str:
        """Return the prefix of a generation's archives."""
        return f"{self.prefix}{generation}/"

    def archive(self, generation: str, name: str) -> str:
        """Return the key of a model's archive."""
        return f"{self.archives(generation)}{name}{_SUFFIX}"

    def name_at(self, generation: str, key: str) -> str | None:
        """Return the model whose archive lies at a key; None for any other object."""
        name = key[len(self.archives(generation)) : -len(_SUFFIX)]
        return name if name and "/" not in name and key == self.archive(generation, name) else None

    def tombstones(self, generation: str = "") -> str:
        """Return the prefix of the marks of removed models of a generation; without one, of all generations."""
        return f"{self.prefix}removed/{generation}/" if generation else f"{self.prefix}removed/"

    def tombstone(self, generation: str, name: str, digest: str) -> str:
        """Return the key that marks this content as removed from a generation."""
        return f"{self.tombstones(generation)}{name}/{digest}"

    def removed_at(self, generation: str, key: str) -> tuple[str, str] | None:
        """Return the (name, digest) in the key of such a mark; None for any other object."""
        match key.removeprefix(self.tombstones(generation)).split("/"):
            case [name, digest] if name and digest:
                return name, digest
        return None

    def unfinished(self, generation: str = "") -> str:
        """Return the key that marks a generation as unfinished; without one, the prefix of these marks."""
        return f"{self.prefix}unfinished/{generation}"

    def served(self) -> str:
        """Return the key of the note about the generation that is served."""
        return f"{self.prefix}served.json"

    def trial(self, generation: str) -> str:
        """Return the key that marks a generation as on trial: the update that published it may still fail."""
        return f"{self.prefix}trial/{generation}"

    def left(self, time: str = "", generation: str = "") -> str:
        """Return the key of the note about a generation replaced at a time; without both, the prefix of these notes."""
        return f"{self.prefix}earlier/{time}/{generation}.json" if generation else f"{self.prefix}earlier/"

    def left_at(self, key: str) -> str:
        """Return the time in the key of such a note."""
        return key.removeprefix(self.left()).partition("/")[0]

    def generation_left(self, key: str) -> str:
        """Return the generation in the key of such a note."""
        return key.removeprefix(self.left()).partition("/")[2].removesuffix(".json")

    def template(self, name: str = "") -> str:
        """Return the key of a template for CloudFormation; without a name, the prefix of all templates."""
        return f"{self.prefix}rollback/{name}"
