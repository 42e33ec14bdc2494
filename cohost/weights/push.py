"""A model's files as the beginning of an archive, written to the disk piece by piece.

One model's weights into the bucket: fetched, checked, uploaded, and only then said to be whole.
"""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from cohost.artifacts.archive import GZIP_HEADER, member_of
from cohost.artifacts.packed import CRC, PLAIN_BYTES
from cohost.catalog.serving import packed_revision, pushed_revision
from cohost.errors import WeightsError
from cohost.weights.files import faults_of, files_below, kinds_in, still_chosen
from cohost.weights.source import chosen_files
from cohost.weights.store import StoredFile
from cohost.weights.upload import PART_BYTES, Uploader, checksums_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from cohost.artifacts.weights import Revision
    from cohost.catalog.models import ModelEntry
    from cohost.weights.source import Source
    from cohost.weights.store import Manifest, WeightsStore
    from cohost.weights.upload import Checksums


PLAIN_SHA256: Final = "cohost-plain-sha256"
"""User metadata of a part: what it decompresses to, which does not depend on the version of zlib that wrote it."""

_READ_BYTES: Final = 1024 * 1024


def write_part(files: Mapping[str, Path], target: Path, *, on_bytes: Callable[[int], None]) -> dict[str, str]:
    """Write the part of an archive that holds these files, and return the metadata that it is uploaded with.

    Nothing is compressed: weights hardly get smaller, and an instance unpacks them sooner. `on_bytes` is told how much
    of the files was read.

    Raises:
        ArtifactError: a name is neither that of a file at the root nor of one in a folder there.
        OSError: a file cannot be read, or there is no room.
    """
    deflate = zlib.compressobj(0, zlib.DEFLATED, -zlib.MAX_WBITS)
    crc, size, sha256 = 0, 0, hashlib.sha256()
    with target.open("wb") as part:
        part.write(GZIP_HEADER)
        for piece in _tar(files, on_bytes):
            crc, size = zlib.crc32(piece, crc), size + len(piece)
            sha256.update(piece)
            part.write(deflate.compress(piece))
        # To a whole byte, and with nothing that a later block could refer to.
        part.write(deflate.flush(zlib.Z_FULL_FLUSH))
    return {CRC: str(crc), PLAIN_BYTES: str(size), PLAIN_SHA256: sha256.hexdigest()}


def _tar(files: Mapping[str, Path], on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    """The members of a tar without its end."""
    for name in sorted(files):
        size = files[name].stat().st_size
        yield member_of(name, size).tobuf(tarfile.USTAR_FORMAT)
        with files[name].open("rb") as file:
            while piece := file.read(_READ_BYTES):
                yield piece
                on_bytes(len(piece))
        yield bytes(-size % tarfile.BLOCKSIZE)


KINDS: Final = "cohost-kinds"
"""User metadata of a part: what `choice.kinds_in` says of its files."""

_SHOWN: Final = 5


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

        Weights that go into the archive are uploaded as the beginning of one.

        An interrupted push goes on where it ended. A revision that is whole is never changed.

        Raises:
            WeightsError: the entry's weights are not for S3; they cannot be fetched, have faults, or differ from what
                is there under this revision; or S3 refuses.
        """
        revision = pushed_revision(entry)
        if revision is None:
            raise WeightsError(
                f"models.{name}: its weights do not go to S3; allowed: models with weights: s3 or archive; "
                "fix: write weights: s3 for the model or for the whole catalog"
            )
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
            raise WeightsError(_changed(revision.prefix, self._store.bucket, ", ".join(names[:_SHOWN])))
        sent = self._upload(name, revision, files, sums)
        if manifest is None:
            self._finish(revision, wanted)
        return self._pushed(name, revision, wanted, sent=sent)

    def _push_packed(self, name: str, entry: ModelEntry, revision: Revision) -> Pushed:
        with self._store.explaining(f"s3://{self._store.bucket}/{revision.packed} cannot be compared"):
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
                raise WeightsError(_changed(revision.packed, self._store.bucket, "its files"))
            sent = 0 if there is not None else self._send_part(name, revision, part, metadata)
        return self._pushed_packed(name, revision, size=int(metadata[PLAIN_BYTES]), sent=sent)

    def _send_part(self, name: str, revision: Revision, part: Path, metadata: Mapping[str, str]) -> int:
        sums = self._sums(name, {"part": part}, {})["part"]
        self._progress.begin(f"{name}: uploading", sums.size)
        with self._store.explaining(f"s3://{self._store.bucket}/{revision.packed}: the upload did not end"):
            return self._uploader.upload(part, revision.packed, sums, metadata)

    def _pushed_packed(self, name: str, revision: Revision, *, size: int, sent: int) -> Pushed:
        uri = f"s3://{self._store.bucket}/{revision.packed}"
        return Pushed(
            name=name, model_id=revision.model_id, revision=revision.revision, uri=uri, files=1, size=size, sent=sent
        )

    def _needs_no_fetch(self, entry: ModelEntry, kinds: Collection[str]) -> bool:
        """Whether files of these kinds, which are there as a whole, are what a fetch would bring again."""
        return self._source.immutable and still_chosen(
            kinds, allow_pickle=entry.allow_pickle, with_code=bool(entry.trust_remote_code)
        )

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


def _changed(key: str, bucket: str, files: str) -> str:
    return (
        f"s3://{bucket}/{key} holds other content in {files}, and a revision that is whole is never changed, since "
        "containers may have loaded it; fix: push other content as another revision, or write trust_remote_code and "
        "allow_pickle as they were when it was pushed"
    )
