"""Upload of one model's weights to the bucket: fetched, checked, uploaded, and only then marked as whole.

Weights that go into the archive are uploaded as the beginning of one, which is written to the disk piece by piece.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from cohost.archives.archive import GZIP_HEADER, Gzip, tar_members
from cohost.archives.packed import CRC, PLAIN_BYTES
from cohost.catalog.serving import packed_revision, pushed_revision
from cohost.errors import WeightsError
from cohost.weights.files import FaultyModelError, faults_of, files_below, kinds_in, still_chosen
from cohost.weights.source import chosen_files
from cohost.weights.store import StoredFile
from cohost.weights.upload import PART_BYTES, Uploader, checksums_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from cohost.archives.weights import Revision
    from cohost.catalog.models import ModelEntry
    from cohost.weights.source import Source
    from cohost.weights.store import Manifest, WeightsStore
    from cohost.weights.upload import Checksums


PLAIN_SHA256: Final = "cohost-plain-sha256"
"""User metadata of a part: the SHA-256 of its decompressed bytes, which does not depend on the version of zlib."""


def write_part(files: Mapping[str, Path], target: Path, *, on_bytes: Callable[[int], None]) -> dict[str, str]:
    """Write the part of an archive that holds these files, and return the metadata that it is uploaded with.

    Nothing is compressed: weights hardly get smaller, and an instance unpacks them sooner. `on_bytes` is called with
    the number of bytes of each piece that was read.

    Raises:
        ArtifactError: a name is neither that of a file at the root nor of one in a folder there.
        OSError: a file cannot be read or has become shorter meanwhile, or there is no room.
    """
    gzip, sha256 = Gzip(0), hashlib.sha256()
    with target.open("wb") as part:
        part.write(GZIP_HEADER)
        for piece in tar_members(files, on_bytes):
            sha256.update(piece)
            part.write(gzip.compress(piece))
        part.write(gzip.pause())
    return {CRC: str(gzip.checksum), PLAIN_BYTES: str(gzip.size), PLAIN_SHA256: sha256.hexdigest()}


KINDS: Final = "cohost-kinds"
"""User metadata of a part: the kinds of its files, as `kinds_in` names them."""

_SHOWN: Final = 5


class Progress(Protocol):
    """A display of the progress of a push."""

    def begin(self, what: str, total: int) -> None:
        """Begin a step of `total` bytes; 0 means that the number is not known."""

    def advance(self, count: int) -> None:
        """Add to the bytes of the step that are done; called from several threads."""


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """The result of a push: `sent` of `size` bytes had to be sent, 0 if all were there."""

    name: str
    model_id: str
    revision: str
    uri: str
    files: int
    size: int
    sent: int


class Pusher:
    """A push of models into a bucket from one source.

    Args:
        store: the bucket.
        source: the folders or the Hub that the files come from.
        progress: receives each step.
        part_bytes: the size of a part of a large file; S3 accepts 5 MiB or more.
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
        """Upload a model's revision to the bucket; one that is whole is never changed.

        Weights that go into the archive are uploaded as the beginning of one. An interrupted push is resumed.

        Raises:
            WeightsError: the entry's weights are not for S3; they cannot be fetched, have faults, or differ from the
                objects of this revision; or S3 refuses.
        """
        revision = pushed_revision(entry)
        if revision is None:
            fix = "write weights: s3 for the model or for the whole catalog"
            raise WeightsError("weights-on-hub", f"models.{name}.weights", "is hub", allowed="s3, archive", fix=fix)
        if packed_revision(entry) is not None:
            return self._push_packed(name, entry, revision)
        manifest = self._store.manifest(revision)
        if (
            manifest is not None
            and self._needs_no_fetch(entry, kinds_in(manifest))
            and self._missing(revision, manifest) == 0
        ):
            return self._pushed(name, revision, manifest, sent=0)
        files = self._fetch(name, entry, revision)
        sums = self._sums(name, files, manifest or {})
        wanted = {file: _stored_file(found) for file, found in sums.items()}
        if manifest is not None and manifest != wanted:
            names = sorted(file for file in manifest | wanted if manifest.get(file) != wanted.get(file))
            raise _changed(revision.uri(self._store.bucket), ", ".join(names[:_SHOWN]))
        sent = self._upload(name, revision, files, sums)
        if manifest is None:
            self._finish(revision, wanted)
        return self._pushed(name, revision, wanted, sent=sent)

    def _push_packed(self, name: str, entry: ModelEntry, revision: Revision) -> Pushed:
        with self._store.explaining(self._packed_uri(revision), "cannot be compared"):
            there = self._uploader.metadata(revision.packed)
        if there is not None and KINDS in there and self._needs_no_fetch(entry, there[KINDS].split()):
            return self._pushed_packed(name, revision, size=int(there.get(PLAIN_BYTES, 0)), sent=0)
        files = self._fetch(name, entry, revision)
        with tempfile.TemporaryDirectory(prefix="cohost-weights-") as folder:
            part = Path(folder) / "part"
            self._progress.begin(f"{name}: packing", sum(path.stat().st_size for path in files.values()))
            metadata = write_part(files, part, on_bytes=self._progress.advance)
            metadata[KINDS] = " ".join(sorted(kinds_in(files)))
            if there is not None and there.get(PLAIN_SHA256) != metadata[PLAIN_SHA256]:
                raise _changed(self._packed_uri(revision), "its files")
            sent = 0 if there is not None else self._send_part(name, revision, part, metadata)
        return self._pushed_packed(name, revision, size=int(metadata[PLAIN_BYTES]), sent=sent)

    def _send_part(self, name: str, revision: Revision, part: Path, metadata: Mapping[str, str]) -> int:
        sums = self._sums(name, {"part": part}, {})["part"]
        self._progress.begin(f"{name}: uploading", sums.size)
        with self._store.explaining(self._packed_uri(revision), "the upload did not end"):
            return self._uploader.upload(part, revision.packed, sums, metadata)

    def _pushed_packed(self, name: str, revision: Revision, *, size: int, sent: int) -> Pushed:
        return Pushed(
            name=name,
            model_id=revision.model_id,
            revision=revision.revision,
            uri=self._packed_uri(revision),
            files=1,
            size=size,
            sent=sent,
        )

    def _packed_uri(self, revision: Revision) -> str:
        return f"s3://{self._store.bucket}/{revision.packed}"

    def _needs_no_fetch(self, entry: ModelEntry, kinds: Collection[str]) -> bool:
        """Return True if a fetch would bring the same kinds of files, which are there as a whole."""
        return self._source.immutable and still_chosen(
            kinds, allow_pickle=entry.allow_pickle, with_code=bool(entry.trust_remote_code)
        )

    def _fetch(self, name: str, entry: ModelEntry, revision: Revision) -> dict[str, Path]:
        self._progress.begin(f"{name}: fetching", 0)
        allow_pickle, with_code = entry.allow_pickle, bool(entry.trust_remote_code)
        folder = self._source.fetch(revision, allow_pickle=allow_pickle, with_code=with_code)
        chosen = chosen_files(folder, allow_pickle=allow_pickle, with_code=with_code)
        faults = [
            WeightsError(fault.code, f"models.{name}: {revision}", fault.message, fix=fault.fix)
            for fault in faults_of(files_below(folder), chosen, task=entry.task)
            if fault.severity == "error"
        ]
        if faults:
            raise FaultyModelError(faults)
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
        with self._store.explaining(revision.uri(self._store.bucket), "the upload did not end"):
            return sum(self._uploader.upload(files[file], revision.prefix + file, sums[file]) for file in files)

    def _finish(self, revision: Revision, wanted: Manifest) -> None:
        """Mark the revision as whole, after deleting objects of an earlier attempt that are not part of it."""
        known = {revision.prefix + file for file in wanted}
        self._store.delete_keys([key for key in self._store.keys(revision.prefix) if key not in known])
        self._store.write_manifest(revision, wanted)

    def _missing(self, revision: Revision, manifest: Manifest) -> int:
        """Count the files of a whole revision that differ from its manifest."""
        with self._store.explaining(revision.uri(self._store.bucket), "cannot be compared"):
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


def _changed(uri: str, files: str) -> WeightsError:
    return WeightsError(
        "weights-changed",
        uri,
        f"holds other content in {files}",
        allowed="the same content, since containers may have loaded it",
        fix="push other content as another revision, or write trust_remote_code and allow_pickle as they were when it "
        "was pushed",
    )
