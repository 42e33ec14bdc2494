"""The S3 keys of all objects of a model store. The module `layout` never calls S3.

`<prefix><generation>/<name>.tar.gz` is a model's archive; ModelDataUrl is its folder, which has only archives.
`<prefix><generation>/models.tar.gz` is a bundle, the one archive of all models; ModelDataUrl is the bundle's URI.
`<prefix>removed/<generation>/<name>/<digest>` is empty: content with this digest was served under this name.
`<prefix>unfinished/<generation>` is empty: this generation is not completely published yet. `<prefix>served.json` has
the id of the served generation, and the number of earlier generations to keep. `<prefix>trial/<generation>` is empty:
the update that published this generation may still fail. `<prefix>earlier/<time>/<generation>.json` has the properties
that an earlier generation was published from. `<prefix>rollback/<name>` is a template on its way to CloudFormation,
kept for minutes.
"""

from __future__ import annotations

from dataclasses import dataclass

from .generation import is_generation_id

_SUFFIX = ".tar.gz"

BUNDLE_NAME = "models"
"""The name of a bundle's archive; the archive of one model has the model's name."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The layout of a model store's keys below one prefix of a bucket; the prefix ends with "/"."""

    bucket: str
    prefix: str

    def uri(self, generation: str) -> str:
        """Return a generation's S3 URI: the resource's physical id, and the ModelDataUrl of a multi-model endpoint."""
        return f"s3://{self.bucket}/{self.archives(generation)}"

    def bundle_uri(self, generation: str) -> str:
        """Return the S3 URI of a generation's bundle: the ModelDataUrl of a container that serves all its models."""
        return f"s3://{self.bucket}/{self.archive(generation, BUNDLE_NAME)}"

    def generation_at(self, uri: str) -> str | None:
        """Return the id of the generation at an S3 URI; None if the URI is not that of a generation of this store."""
        start = f"s3://{self.bucket}/{self.prefix}"
        generation = uri[len(start) : -1]
        return generation if is_generation_id(generation) and uri == self.uri(generation) else None

    def archives(self, generation: str) -> str:
        """Return the key prefix of a generation's archives, which ends with "/"."""
        return f"{self.prefix}{generation}/"

    def archive(self, generation: str, name: str) -> str:
        """Return the key of a model's archive in a generation."""
        return f"{self.archives(generation)}{name}{_SUFFIX}"

    def name_at(self, generation: str, key: str) -> str | None:
        """Return the name of the model whose archive has this key; None if the key is not that of an archive."""
        name = key[len(self.archives(generation)) : -len(_SUFFIX)]
        return name if name and "/" not in name and key == self.archive(generation, name) else None

    def tombstones(self, generation: str = "") -> str:
        """Return the key prefix of a generation's marks for removed models; without a generation, of all such marks."""
        return f"{self.prefix}removed/{generation}/" if generation else f"{self.prefix}removed/"

    def tombstone(self, generation: str, name: str, digest: str) -> str:
        """Return the key of the mark that records the removal of a model with this content digest from a generation."""
        return f"{self.tombstones(generation)}{name}/{digest}"

    def removed_at(self, generation: str, key: str) -> tuple[str, str] | None:
        """Return the model's name and digest in the key of a removed model's mark; None for any other key."""
        match key.removeprefix(self.tombstones(generation)).split("/"):
            case [name, digest] if name and digest:
                return name, digest
        return None

    def unfinished(self, generation: str = "") -> str:
        """Return the key that marks a generation as unfinished; without a generation, the prefix of these marks."""
        return f"{self.prefix}unfinished/{generation}"

    def served(self) -> str:
        """Return the key of the record of the served generation."""
        return f"{self.prefix}served.json"

    def trial(self, generation: str) -> str:
        """Return the key that marks a generation as on trial: the update that published it may still fail."""
        return f"{self.prefix}trial/{generation}"

    def left(self, time: str = "", generation: str = "") -> str:
        """Return the key of a replaced generation's record, by `time`; without arguments, the prefix of these keys."""
        return f"{self.prefix}earlier/{time}/{generation}.json" if generation else f"{self.prefix}earlier/"

    def left_at(self, key: str) -> str:
        """Return the time in the key of a replaced generation's record."""
        return key.removeprefix(self.left()).partition("/")[0]

    def generation_left(self, key: str) -> str:
        """Return the generation in the key of a replaced generation's record."""
        return key.removeprefix(self.left()).partition("/")[2].removesuffix(".json")

    def template(self, name: str = "") -> str:
        """Return the key of a template for CloudFormation; without a name, the prefix of all templates."""
        return f"{self.prefix}rollback/{name}"
