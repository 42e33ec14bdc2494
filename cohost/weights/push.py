"""One model's weights into the bucket: fetched, checked, uploaded, and only then said to be whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cohost.render import pushed_revision
from cohost.weights.checksums import PART_BYTES, checksums_of
from cohost.weights.choice import files_below
from cohost.weights.errors import WeightsError
from cohost.weights.inspection import faults_of
from cohost.weights.source import chosen_files
from cohost.weights.store import StoredFile
from cohost.weights.upload import Uploader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cohost.artifacts.weights import Revision
    from cohost.catalog import ModelEntry
    from cohost.weights.checksums import Checksums
    from cohost.weights.source import Source
    from cohost.weights.store import Manifest, WeightsStore


class Progress(Protocol):
    """Is told how far a push is."""

    def begin(self, what: str, total: int) -> None:
        """A step of `total` bytes begins; 0 where nobody knows."""

    def advance(self, count: int) -> None:
        """So many bytes of the step are done; called from several threads."""


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """What came of a push: `sent` of `size` bytes had to be sent; 0 where all was there."""

    name: str
    model_id: str
    revision: str
    uri: str
    files: int
    size: int
    sent: int


class Pusher:
    """Pushes models into a bucket from one source.

    Args:
        store: the bucket.
        source: where the files come from.
        progress: told of each step.
        part_bytes: the size of a part of a large file; S3 takes none under 5 MiB.
    """

    def __init__(
        self, store: WeightsStore, source: Source, progress: Progress, *, part_bytes: int = PART_BYTES
    ) -> None:
        self._store = store
        self._source = source
        self._progress = progress
        self._part_bytes = part_bytes
        self._uploader = Uploader(s3=store.s3, bucket=store.bucket, on_bytes=progress.advance)

    def push(self, name: str, entry: ModelEntry) -> Pushed:
        """Bring a model's revision into the bucket; one that is there is left as it is.

        An interrupted push goes on where it ended. A revision that is whole is never changed.

        Raises:
            WeightsError: the entry's weights are not for S3; they cannot be fetched, have faults, or differ from what
                is there under this revision; or S3 refuses.
        """
        revision = pushed_revision(entry)
        if revision is None:
            raise WeightsError(
                f"models.{name}: its weights do not go to S3; allowed: models with weights: s3; "
                "fix: write weights: s3 for the model or for the whole catalog"
            )
        manifest = self._store.manifest(revision)
        if manifest is not None and self._source.immutable and self._missing(revision, manifest) == 0:
            return self._pushed(name, revision, manifest, sent=0)
        files = self._fetch(name, entry, revision)
        sums = self._sums(name, files, manifest or {})
        wanted = {file: _stored_file(found) for file, found in sums.items()}
        if manifest is not None and manifest != wanted:
            raise WeightsError(_changed(revision, self._store.bucket, manifest, wanted))
        sent = self._upload(name, revision, files, sums)
        if manifest is None:
            self._finish(revision, wanted)
        return self._pushed(name, revision, wanted, sent=sent)

    def _fetch(self, name: str, entry: ModelEntry, revision: Revision) -> dict[str, Path]:
        self._progress.begin(f"{name}: fetching", 0)
        allow_pickle, with_code = entry.allow_pickle, bool(entry.trust_remote_code)
        folder = self._source.fetch(revision, allow_pickle=allow_pickle, with_code=with_code)
        chosen = chosen_files(folder, allow_pickle=allow_pickle, with_code=with_code)
        faults = [
            fault for fault in faults_of(files_below(folder), chosen, task=entry.task) if fault.severity == "error"
        ]
        if faults:
            raise WeightsError(
                "\n".join(f"models.{name}: {revision}: {fault.message}; fix: {fault.fix}" for fault in faults)
            )
        return chosen

    def _sums(self, name: str, files: Mapping[str, Path], manifest: Manifest) -> dict[str, Checksums]:
        self._progress.begin(f"{name}: checksums", sum(path.stat().st_size for path in files.values()))
        part_bytes = {file: facts.part_bytes for file, facts in manifest.items()}
        return {
            file: checksums_of(path, part_bytes=part_bytes.get(file, self._part_bytes), on_bytes=self._progress.advance)
            for file, path in files.items()
        }

    def _upload(self, name: str, revision: Revision, files: Mapping[str, Path], sums: Mapping[str, Checksums]) -> int:
        self._progress.begin(f"{name}: uploading", sum(found.size for found in sums.values()))
        with self._store.explaining(f"{revision.uri(self._store.bucket)}: the upload did not end"):
            return sum(self._uploader.upload(files[file], revision.prefix + file, sums[file]) for file in files)

    def _finish(self, revision: Revision, wanted: Manifest) -> None:
        """Say that the revision is whole, without what an earlier attempt left that is not part of it."""
        known = {revision.prefix + file for file in wanted}
        self._store.delete_keys([key for key in self._store.keys(revision.prefix) if key not in known])
        self._store.write_manifest(revision, wanted)

    def _missing(self, revision: Revision, manifest: Manifest) -> int:
        """How many files of a whole revision are not there as the manifest says."""
        with self._store.explaining(f"{revision.uri(self._store.bucket)} cannot be compared"):
            return sum(
                not self._uploader.holds(
                    revision.prefix + file, size=facts.size, sha256=facts.sha256, checksum=facts.checksum
                )
                for file, facts in manifest.items()
            )

    def _pushed(self, name: str, revision: Revision, files: Manifest, *, sent: int) -> Pushed:
        return Pushed(
            name=name,
            model_id=revision.model_id,
            revision=revision.revision,
            uri=revision.uri(self._store.bucket),
            files=len(files),
            size=sum(facts.size for facts in files.values()),
            sent=sent,
        )


def _stored_file(sums: Checksums) -> StoredFile:
    return StoredFile(size=sums.size, sha256=sums.sha256, part_bytes=sums.part_bytes, checksum=sums.s3)


def _changed(revision: Revision, bucket: str, manifest: Manifest, wanted: Manifest) -> str:
    differing = sorted(file for file in manifest.keys() | wanted.keys() if manifest.get(file) != wanted.get(file))
    return (
        f"{revision.uri(bucket)} holds other content in {', '.join(differing[:5])}, and a revision that is whole is "
        "never changed, since containers may have loaded it; fix: push other content as another revision"
    )
