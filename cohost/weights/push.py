"""Push a model's weights to the bucket: fetch, check and upload them, and mark them as complete last.

Weights of a model with `weights: archive` are uploaded as one object, the beginning of an archive, which is called a
part. The part is first written to the disk, piece by piece. Weights of a model with `weights: s3` are uploaded as
single files, followed by a manifest.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, TypedDict

from cohost.archives.archive import GZIP_HEADER, Gzip, tar_members
from cohost.archives.packed import CRC, PLAIN_BYTES
from cohost.catalog.serving import packed_revision, pushed_revision
from cohost.errors import WeightsError
from cohost.weights.files import FaultyModelError, choose, faults_of, files_below, kinds_in, still_chosen
from cohost.weights.upload import PART_BYTES, Uploader, checksums_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from cohost.archives.weights import Revision
    from cohost.catalog.models import ModelEntry
    from cohost.weights.source import Source
    from cohost.weights.store import Manifest, WeightsStore
    from cohost.weights.upload import Checksums


PLAIN_SHA256: Final = "cohost-plain-sha256"
"""Key of a part's user metadata: the SHA-256 of its decompressed bytes, which does not depend on zlib's version."""


def write_part(files: Mapping[str, Path], target: Path, *, on_bytes: Callable[[int], None]) -> dict[str, str]:
    """Write the archive's part with these files to `target`, and return the part's user metadata for S3.

    The files are not compressed: compression hardly makes weights smaller, and an instance unpacks uncompressed files
    faster. `on_bytes` is called with the number of bytes of each piece that was read.

    Raises:
        ArtifactError: the name of a file is neither `file` nor `folder/file`.
        OSError: a file cannot be read or became shorter while it was read, or the disk is full.
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
"""Key of a part's user metadata: the kinds of its files as `kinds_in` returns them, with spaces between."""

_SHOWN: Final = 5


class Progress(Protocol):
    """The display of the progress of a push, such as a progress bar."""

    def begin(self, what: str, total: int) -> None:
        """Begin a step with the description `what` and `total` bytes; 0 means that the number is not known."""

    def advance(self, count: int) -> None:
        """Report that `count` more bytes of the step are done; called from several threads."""


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """The result of one model's push: its `size` in bytes, and the bytes `sent`, 0 if all were in S3 already."""

    name: str
    model_id: str
    revision: str
    uri: str
    files: int
    size: int
    sent: int


class _Choice(TypedDict):
    allow_pickle: bool
    with_code: bool


@dataclass(frozen=True)
class _Model:
    name: str
    entry: ModelEntry
    revision: Revision
    uri: str

    @property
    def choice(self) -> _Choice:
        """Return the model's settings for `choose`: `allow_pickle` and `with_code`."""
        return {"allow_pickle": self.entry.allow_pickle, "with_code": bool(self.entry.trust_remote_code)}


class Pusher:
    """Pushes models' weights from one source into a bucket.

    Args:
        store: the weights' bucket.
        source: the local folders or the Hub from which the files come.
        progress: the display of each step.
        part_bytes: the bytes in each part of a multipart upload; S3 accepts 5 MiB or more.
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
        """Upload the weights of a model's revision to the bucket; a completely uploaded revision is never changed.

        A second call resumes an interrupted push.

        Raises:
            WeightsError: the catalog does not place the model's weights in S3; or the weights cannot be fetched, have
                faults, or differ from the objects of this revision in the bucket; or S3 refuses.
            HubAccessError: the Hub does not provide the weights.
        """
        revision = pushed_revision(entry)
        if revision is None:
            raise WeightsError(
                "weights-on-hub",
                f"models.{name}.weights",
                "is hub",
                allowed="s3, archive",
                fix="write weights: s3 for the model or for the whole catalog",
            )
        if packed_revision(entry) is not None:
            uri = f"s3://{self._store.bucket}/{revision.packed}"
            files, size, sent = self._push_part(_Model(name, entry, revision, uri))
        else:
            uri = revision.uri(self._store.bucket)
            files, size, sent = self._push_files(_Model(name, entry, revision, uri))
        facts = {"model_id": revision.model_id, "revision": revision.revision, "uri": uri}
        return Pushed(name=name, **facts, files=files, size=size, sent=sent)

    def _push_files(self, model: _Model) -> tuple[int, int, int]:
        """Upload the files one by one; return their number, their total size, and the bytes that were sent."""
        revision = model.revision
        manifest = self._store.manifest(revision)
        if (
            manifest is not None
            and self._needs_no_fetch(model, kinds_in(manifest))
            and self._all_there(model, manifest)
        ):
            return len(manifest), _size(manifest), 0
        files = self._fetch(model)
        sums = self._sums(model, files, manifest or {})
        wanted = {file: found.stored for file, found in sums.items()}
        if manifest is not None and manifest != wanted:
            names = sorted(file for file in manifest | wanted if manifest.get(file) != wanted.get(file))
            raise _changed(model.uri, ", ".join(names[:_SHOWN]))
        sent = self._upload(model, files, sums, prefix=revision.prefix)
        if manifest is None:
            self._finish(revision, wanted)
        return len(wanted), _size(wanted), sent

    def _push_part(self, model: _Model) -> tuple[int, int, int]:
        """Upload the files as one part; return 1 for its one object, its decompressed size, and the bytes sent."""
        key = model.revision.packed
        with self._store.explaining(model.uri, "cannot be compared"):
            there = self._uploader.metadata(key)
        if there is not None and KINDS in there and self._needs_no_fetch(model, there[KINDS].split()):
            return 1, int(there.get(PLAIN_BYTES, 0)), 0
        files = self._fetch(model)
        with tempfile.TemporaryDirectory(prefix="cohost-weights-") as folder:
            part = Path(folder) / "part"
            self._progress.begin(f"{model.name}: packing", sum(path.stat().st_size for path in files.values()))
            metadata = write_part(files, part, on_bytes=self._progress.advance)
            metadata[KINDS] = " ".join(sorted(kinds_in(files)))
            sent = 0
            if there is None:
                sent = self._upload(model, {key: part}, self._sums(model, {key: part}, {}), metadata=metadata)
            elif there.get(PLAIN_SHA256) != metadata[PLAIN_SHA256]:
                raise _changed(model.uri, "its files")
        return 1, int(metadata[PLAIN_BYTES]), sent

    def _needs_no_fetch(self, model: _Model, kinds: Collection[str]) -> bool:
        """Return True if a complete upload with files of these `kinds` need not be compared with the source.

        An upload need not be compared if the source cannot change a revision, and the model's settings still choose
        these kinds of files.
        """
        return self._source.immutable and still_chosen(kinds, **model.choice)

    def _fetch(self, model: _Model) -> dict[str, Path]:
        self._progress.begin(f"{model.name}: fetching", 0)
        files = files_below(self._source.fetch(model.revision, **model.choice))
        chosen = {name: files[name] for name in choose(files, **model.choice)}
        faults = [
            WeightsError(fault.code, f"models.{model.name}: {model.revision}", fault.message, fix=fault.fix)
            for fault in faults_of(files, chosen, task=model.entry.task)
            if fault.severity == "error"
        ]
        if faults:
            raise FaultyModelError(faults)
        return chosen

    def _sums(self, model: _Model, files: Mapping[str, Path], manifest: Manifest) -> dict[str, Checksums]:
        self._progress.begin(f"{model.name}: checksums", sum(path.stat().st_size for path in files.values()))
        part_bytes = {file: facts.part_bytes for file, facts in manifest.items()}
        return {
            file: checksums_of(path, part_bytes=part_bytes.get(file, self._part_bytes), on_bytes=self._progress.advance)
            for file, path in files.items()
        }

    def _upload(
        self,
        model: _Model,
        files: Mapping[str, Path],
        sums: Mapping[str, Checksums],
        *,
        prefix: str = "",
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> int:
        self._progress.begin(f"{model.name}: uploading", sum(found.stored.size for found in sums.values()))
        with self._store.explaining(model.uri, "the upload did not end"):
            return sum(self._uploader.upload(path, prefix + file, sums[file], metadata) for file, path in files.items())

    def _finish(self, revision: Revision, wanted: Manifest) -> None:
        """Delete other objects of the revision, then write the manifest, which marks the revision as complete.

        The other objects are those below the revision's prefix that are not in `wanted`; an earlier attempt left them.
        """
        known = {revision.prefix + file for file in wanted}
        self._store.delete_keys([key for key in self._store.keys(revision.prefix) if key not in known])
        self._store.write_manifest(revision, wanted)

    def _all_there(self, model: _Model, manifest: Manifest) -> bool:
        """Return True if every object of a complete revision still has the content that the manifest states."""
        with self._store.explaining(model.uri, "cannot be compared"):
            return all(self._uploader.holds(model.revision.prefix + file, facts) for file, facts in manifest.items())


def _size(files: Manifest) -> int:
    return sum(facts.size for facts in files.values())


def _changed(uri: str, files: str) -> WeightsError:
    return WeightsError(
        "weights-changed",
        uri,
        f"holds other content in {files}",
        allowed="the same content, since containers may have loaded it",
        fix="push other content as another revision, or write trust_remote_code and allow_pickle as they were when it "
        "was pushed",
    )
