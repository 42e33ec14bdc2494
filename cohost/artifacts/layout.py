"""Where things lie in the bucket. Pure, no S3.

<prefix><generation>/<name>.tar.gz                   archives, and nothing else: ModelDataUrl points here
<prefix><generation>/models.tar.gz                   of a bundle, the one archive of all models: ModelDataUrl is this
<prefix>removed/<generation>/<name>/<digest>         zero bytes: this content was once served under this name
<prefix>unfinished/<generation>                      zero bytes: nobody has been told of this generation yet
<prefix>served.json                                  the generation that is served, and how many stay beside it
<prefix>trial/<generation>                           zero bytes: the update that published it may yet fail
<prefix>earlier/<time>/<generation>.json             what a generation that served before was published from
<prefix>rollback/<name>                              a template on its way to CloudFormation, for minutes
"""

from __future__ import annotations

from dataclasses import dataclass

from .generation import is_generation_id

_SUFFIX = ".tar.gz"

BUNDLE_NAME = "models"
"""What a bundle is named where an archive has its model's name."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The keys below one prefix of one bucket; the prefix ends with "/"."""

    bucket: str
    prefix: str

    def uri(self, generation: str) -> str:
        """The generation's S3 URI: CloudFormation's physical id, and ModelDataUrl of a multi-model endpoint."""
        return f"s3://{self.bucket}/{self.archives(generation)}"

    def bundle_uri(self, generation: str) -> str:
        """The S3 URI of a generation's bundle: ModelDataUrl where one container serves all models."""
        return f"s3://{self.bucket}/{self.archive(generation, BUNDLE_NAME)}"

    def generation_at(self, uri: str) -> str | None:
        """The generation that an S3 URI stands for; None if it is none of this bucket and prefix."""
        start = f"s3://{self.bucket}/{self.prefix}"
        generation = uri[len(start) : -1]
        return generation if is_generation_id(generation) and uri == self.uri(generation) else None

    def archives(self, generation: str) -> str:
        """The prefix of a generation's archives."""
        return f"{self.prefix}{generation}/"

    def archive(self, generation: str, name: str) -> str:
        """The key of a model's archive."""
        return f"{self.archives(generation)}{name}{_SUFFIX}"

    def name_at(self, generation: str, key: str) -> str | None:
        """The model whose archive a key holds; None for any other object."""
        name = key[len(self.archives(generation)) : -len(_SUFFIX)]
        return name if name and "/" not in name and key == self.archive(generation, name) else None

    def tombstones(self, generation: str = "") -> str:
        """The prefix of the marks of what was removed from a generation; without one, from any."""
        return f"{self.prefix}removed/{generation}/" if generation else f"{self.prefix}removed/"

    def tombstone(self, generation: str, name: str, digest: str) -> str:
        """The key that says that this content was removed from a generation."""
        return f"{self.tombstones(generation)}{name}/{digest}"

    def removed_at(self, generation: str, key: str) -> tuple[str, str] | None:
        """The (name, digest) that a tombstone's key tells of; None for any other object."""
        match key.removeprefix(self.tombstones(generation)).split("/"):
            case [name, digest] if name and digest:
                return name, digest
        return None

    def unfinished(self, generation: str = "") -> str:
        """The key that marks a generation as not finished; without one, the prefix of these marks."""
        return f"{self.prefix}unfinished/{generation}"

    def served(self) -> str:
        """The key of the note of what is served."""
        return f"{self.prefix}served.json"

    def trial(self, generation: str) -> str:
        """The key that marks a generation as not yet proven."""
        return f"{self.prefix}trial/{generation}"

    def left(self, time: str = "", generation: str = "") -> str:
        """The key of the note of a generation that was left at a time; without them, the prefix of these notes."""
        return f"{self.prefix}earlier/{time}/{generation}.json" if generation else f"{self.prefix}earlier/"

    def left_at(self, key: str) -> str:
        """The time in the key of such a note."""
        return key.removeprefix(self.left()).partition("/")[0]

    def generation_left(self, key: str) -> str:
        """The generation in the key of such a note."""
        return key.removeprefix(self.left()).partition("/")[2].removesuffix(".json")

    def template(self, name: str = "") -> str:
        """The key of a template for CloudFormation; without a name, the prefix of these."""
        return f"{self.prefix}rollback/{name}"
