"""The bytes of all archives: one tar format, three levels of compression, no data of the machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import struct
import tarfile
import zlib
from typing import TYPE_CHECKING

import pytest

from cohost.archives.archive import pack
from cohost.archives.packed import CRC, PLAIN_BYTES, tail
from cohost.designs.onnx.archive import pack_files
from cohost.weights.push import PLAIN_SHA256, write_part

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILES = {
    "serving.properties": b"engine=Python\n",
    "model.py": b"answer = 42\n" * 200,
    "tokenizer/vocab.bin": bytes(range(256)) * 5,
    "block.bin": b"z" * 512,
    "empty": b"",
}
HEADER = bytes.fromhex("1f8b08000000000000ff")
MEMBERS_SHA256 = "aee640958b1ab8a324d9a18588e8d4a1a0dee98f23761efca46b7059c2da625e"
"""The members of the tar without its end."""
TAR_SHA256 = "142e37aaaaac7be4cdf7d6978af62838ed72fb28a8264b5daac3859a2f1c16d9"
"""The whole tar."""
MIB = 1024 * 1024


def deflated(plain: bytes, level: int, end: int = zlib.Z_FINISH) -> bytes:
    """Return the compressed bytes of this machine's zlib, which differ between versions."""
    deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return deflate.compress(plain) + deflate.flush(end)


def gzipped(plain: bytes, level: int) -> bytes:
    """A gzip file as RFC 1952 describes it."""
    return HEADER + deflated(plain, level) + struct.pack("<LL", zlib.crc32(plain), len(plain))


def stored(folder: Path, files: Mapping[str, bytes] = FILES) -> dict[str, Path]:
    """The files on the disk, by member name."""
    folder.mkdir()
    paths = {name: folder / name.replace("/", "_") for name in files}
    for name, path in paths.items():
        path.write_bytes(files[name])
    return paths


def sha256(data: bytes) -> str:
    """64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def test_packed_archive_keeps_its_bytes() -> None:
    """An archive of small files has the known tar bytes with the best compression."""
    data = pack(FILES)
    plain = gzip.decompress(data)
    assert sha256(plain) == TAR_SHA256
    assert data == gzipped(plain, 9)


@pytest.mark.parametrize("from_disk", [False, True])
def test_exported_archive_keeps_its_bytes(tmp_path: Path, from_disk: bool) -> None:  # noqa: FBT001
    """An archive of an exported model has the known tar bytes with fast compression, and its SHA-256."""
    target = tmp_path / "out" / "m.tar.gz"
    digest = pack_files(stored(tmp_path / "files") if from_disk else FILES, target)
    data = target.read_bytes()
    plain = gzip.decompress(data)
    assert sha256(plain) == TAR_SHA256
    assert data == gzipped(plain, 1)
    assert digest == sha256(data)
    assert list(target.parent.iterdir()) == [target]


def test_beginning_and_end_of_an_archive_keep_their_bytes(tmp_path: Path) -> None:
    """Stored weights are an uncompressed beginning of an archive, and small files follow in the same stream."""
    read: list[int] = []
    metadata = write_part(stored(tmp_path / "files"), tmp_path / "part", on_bytes=read.append)
    beginning = (tmp_path / "part").read_bytes()
    members = zlib.decompressobj(-zlib.MAX_WBITS).decompress(beginning[len(HEADER) :])
    assert sha256(members) == MEMBERS_SHA256
    assert beginning == HEADER + deflated(members, 0, zlib.Z_FULL_FLUSH)
    assert metadata == {
        CRC: str(zlib.crc32(members)),
        PLAIN_BYTES: str(len(members)),
        PLAIN_SHA256: MEMBERS_SHA256,
    }
    assert sum(read) == sum(map(len, FILES.values()))

    ending = tail({"late.txt": b"x"}, metadata)
    small = gzip.decompress(pack({"late.txt": b"x"}))
    checksum = struct.pack("<LL", zlib.crc32(members + small), len(members + small))
    assert ending == deflated(small, 9) + checksum
    assert gzip.decompress(beginning + ending) == members + small


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 7680, 8192, 8193, 9216, 9728, 3 * MIB + 1])
def test_tar_is_that_of_the_standard_library(tmp_path: Path, size: int) -> None:
    """Padding and end of a tar equal tarfile's for all sizes around a block and a record."""
    files = {"a.bin": b"a" * size, "b.bin": b"b"}
    expected = io.BytesIO()
    with tarfile.open(fileobj=expected, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    pack_files(stored(tmp_path / "files", files), tmp_path / "m.tar.gz")
    assert gzip.decompress(pack(files)) == expected.getvalue()
    assert gzip.decompress((tmp_path / "m.tar.gz").read_bytes()) == expected.getvalue()


def test_large_archives_do_not_depend_on_the_pieces_that_are_read(tmp_path: Path) -> None:
    """The compressed bytes do not depend on the pieces in which a file is read."""
    files = {"text": b"".join(b"%d alpha beta\n" % number for number in range(200_000)), "weights": os.urandom(2 * MIB)}
    pack_files(stored(tmp_path / "files", files), tmp_path / "m.tar.gz")
    data = (tmp_path / "m.tar.gz").read_bytes()
    assert data == gzipped(gzip.decompress(data), 1)


def test_file_that_shrinks_while_it_is_packed_is_an_error(tmp_path: Path) -> None:
    """A file that becomes shorter during packing is an error."""
    path = tmp_path / "weights"
    path.write_bytes(bytes(3 * MIB))
    with pytest.raises(OSError, match="weights: has become shorter"):
        write_part({"weights": path}, tmp_path / "part", on_bytes=lambda _: os.truncate(path, MIB))
