"""The store of published models in S3, organised in generations (published sets of archives)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .archive import content_digest, pack
from .compose import ComposingBucket
from .errors import ArtifactError
from .generation import FOREIGN, Generation, check_name, is_generation_id
from .history import History
from .layout import Layout
from .packed import part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mypy_boto3_s3 import S3Client

_log = logging.getLogger(__name__)


class ModelStore:
    """The store of all generations below one prefix of a bucket; the prefix ends with "/".

    `checkpoint` is called before each request to S3; to keep a time limit, it raises an exception that stops the work.
    All methods raise ArtifactError if S3 refuses a request, and MissingBucketError if the bucket does not exist.
    """

    def __init__(
        self, s3_client: S3Client, bucket: str, prefix: str, *, checkpoint: Callable[[], None] = lambda: None
    ) -> None:
        self._layout = Layout(bucket=bucket, prefix=prefix)
        self._bucket = ComposingBucket(s3_client, bucket, checkpoint)
        self.history = History(self._bucket, self._layout)

    def uri(self, generation: str) -> str:
        """Return a generation's S3 URI, which is the ModelDataUrl of a multi-model endpoint."""
        return self._layout.uri(generation)

    def bundle_uri(self, generation: str) -> str:
        """Return the S3 URI of a generation's bundle: the ModelDataUrl of a container that serves all its models."""
        return self._layout.bundle_uri(generation)

    def generation_at(self, uri: str) -> str | None:
        """Return the id of the generation at an S3 URI; None if the URI is not that of a generation of this store."""
        return self._layout.generation_at(uri)

    def generations(self) -> tuple[str, ...]:
        """Return the sorted ids of all generations that have archives, or marks for removed models."""
        found = {
            *self._bucket.folders(self._layout.prefix),
            *self._bucket.folders(self._layout.tombstones()),
        }
        return tuple(sorted(filter(is_generation_id, found)))

    def models(self, generation: str) -> dict[str, str]:
        """Return the content digest of each archive that lmi-cohost wrote into a generation, by model name."""
        return {name: digest for name, digest in self.read(generation).models.items() if digest != FOREIGN}

    def read(self, generation: str) -> Generation:
        """Return the contents of a generation; they are empty if the generation does not exist."""
        named = {
            key: name
            for key in self._bucket.keys(self._layout.archives(generation))
            if (name := self._layout.name_at(generation, key)) is not None
        }
        removed: dict[str, set[str]] = {}
        for key in self._bucket.keys(self._layout.tombstones(generation)):
            if (pair := self._layout.removed_at(generation, key)) is not None:
                removed.setdefault(pair[0], set()).add(pair[1])
        digests = self._bucket.digests(list(named))
        return Generation(
            id=generation, models={named[key]: digest for key, digest in digests.items()}, removed=removed
        )

    def add(self, generation: str, name: str, files: Mapping[str, bytes]) -> str:
        """Publish one more model into an existing generation, and return the archive's content digest.

        If the generation already has the model with the same content, nothing is written.

        Raises:
            ArtifactError: the generation does not exist, holds a bundle, or has or had other content under this name,
                which the endpoint may still have loaded.
        """
        digest = content_digest(files)
        found = self.read(generation)
        if found.empty:
            raise ArtifactError(
                "generation-missing", self.uri(generation), "there is no such generation", fix="run `cdk deploy` first"
            )
        if found.bundled:
            raise ArtifactError(
                "archive-unchangeable",
                f"model {name!r}",
                f"{self.uri(generation)} holds one archive of all models, which never changes",
                fix="run `cdk deploy`, which publishes a new one",
            )
        if not found.agrees({check_name(name): digest}):
            raise ArtifactError(
                "archive-unchangeable",
                f"model {name!r}",
                f"other content is or was published as {self.uri(generation)}{name}.tar.gz, and a loaded archive is "
                "never read again",
                fix="run `cdk deploy`, which publishes a new generation",
            )
        if name not in found.models:
            self.put(generation, name, files)
        return digest

    def put(self, generation: str, name: str, files: Mapping[str, bytes]) -> None:
        """Write the archive of one model into a generation, unless the generation already has this archive.

        Raises:
            OccupiedError: the archive's key has an object of other content.
        """
        key, digest = self._layout.archive(generation, name), content_digest(files)
        if part_of(files) is None:
            self._bucket.put_archive(key, pack(files), digest)
        else:
            self._bucket.put_composed(key, files, digest)
        _log.info("wrote %s%s.tar.gz", self.uri(generation), name)

    def remove(self, generation: str, models: Mapping[str, str]) -> None:
        """Remove models (digest by name) from a generation, and write a mark that records each removed digest."""
        # The marks are written first: if the run stops before the deletion, no later deploy may reuse the names.
        for name, digest in models.items():
            self._bucket.put_mark(self._layout.tombstone(generation, name, digest))
        self._delete([self._layout.archive(generation, name) for name in models])

    def take_back(self, generation: str, models: Mapping[str, str]) -> None:
        """Undo `put`: remove each given model (digest by name) whose stored archive has exactly the given digest."""
        keys = {self._layout.archive(generation, name): name for name in models}
        # HeadObject of a missing key is answered with 403 if the role may list only below a prefix; so list first.
        there = [key for key in self._bucket.keys(self._layout.archives(generation)) if key in keys]
        found = {keys[key]: digest for key, digest in self._bucket.digests(there).items()}
        self.remove(generation, {name: digest for name, digest in found.items() if digest == models[name]})

    def begin(self, generation: str) -> None:
        """Mark a new generation as unfinished, before its first archive is written."""
        self._bucket.put_mark(self._layout.unfinished(generation))

    def finish(self, generation: str) -> None:
        """Remove a generation's mark as unfinished, because all its archives are written."""
        self._bucket.delete([self._layout.unfinished(generation)])

    def unfinished(self) -> tuple[str, ...]:
        """Return the sorted ids of the generations that are marked as unfinished."""
        prefix = self._layout.unfinished()
        return tuple(sorted(filter(is_generation_id, (key[len(prefix) :] for key in self._bucket.keys(prefix)))))

    def delete_all(self) -> None:
        """Delete every generation.

        The served generation and its record are deleted last, so that a repeated call still finds the other
        generations.
        """
        served = self.history.served()
        known = {*self.generations(), *self.history.left()} - ({served.generation} if served else set())
        for generation in sorted(known):
            self.delete(generation)
        self._bucket.delete(self._bucket.keys(self._layout.template()))
        if served is not None:
            self.delete(served.generation)

    def delete(self, generation: str) -> None:
        """Delete a generation's archives, marks and records; objects not written by lmi-cohost stay and are logged."""
        keys = self._bucket.keys(self._layout.archives(generation))
        digests = self._bucket.digests([key for key in keys if self._layout.name_at(generation, key)])
        ours = [key for key in keys if digests.get(key, FOREIGN) != FOREIGN]
        marks = self._bucket.keys(self._layout.tombstones(generation))
        self._delete(ours)
        removed = [key for key in marks if self._layout.removed_at(generation, key)]
        self._bucket.delete([*removed, *self.history.notes(generation), self._layout.unfinished(generation)])
        self.history.end(generation)
        for key in keys:
            if key not in ours:
                _log.warning("left s3://%s/%s where it is: not written by lmi-cohost", self._layout.bucket, key)

    def _delete(self, keys: list[str]) -> None:
        self._bucket.delete(keys)
        for key in keys:
            _log.info("deleted s3://%s/%s", self._layout.bucket, key)
