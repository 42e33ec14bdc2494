"""Archives: equal bytes for equal files, a digest that does not hang on compression, files whole or not at all."""

from __future__ import annotations

import errno
import gzip
import io
import os
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused
from hypothesis import given
from hypothesis import strategies as st

from cohost.archives.archive import (
    content_digest,
    digest,
    model_files,
    pack,
    write_archive,
)

if TYPE_CHECKING:
    from pathlib import Path

PACK = """
import os, sys
os.umask(int(sys.argv[1], 8))
from cohost.archives.archive import content_digest, pack
names = set("bdac") | {"serving.properties", "model.py"}
files = {name: name.encode() * 100 for name in names}
sys.stdout.write(pack(files).hex() + " " + content_digest(files))
"""


@pytest.mark.process
def test_packing_gives_equal_bytes_in_any_environment() -> None:
    """Time zone, hash seed and umask of a process do not change an archive or its digest."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PACK, umask],
            env={**os.environ, "TZ": zone, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for zone, seed, umask in (("UTC", "0", "022"), ("Asia/Seoul", "1", "077"), ("America/New_York", "2", "000"))
    }
    assert len(outputs) == 1


def test_members_are_plain_files_at_the_root() -> None:
    """An archive holds sorted regular files without time, owner or folder."""
    with tarfile.open(fileobj=io.BytesIO(pack({"b": b"2", "a": b"1"}))) as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == ["a", "b"]
    assert all(member.isreg() and member.mode == 0o644 for member in members)
    assert {(member.mtime, member.uid, member.gid, member.uname, member.gname) for member in members} == {
        (0, 0, 0, "", "")
    }


def test_gzip_header_names_no_time_system_or_level() -> None:
    """The first ten bytes of an archive are fixed, because Python versions write them differently."""
    data = pack({"a": b"1"})
    assert data[:10] == bytes.fromhex("1f8b08000000000000ff")
    assert gzip.decompress(data)[:1] == b"a"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "/a", "a/", "a//b", "../a", "a/..", "a/b/c", "a\\b", "a b", "ä", "a\x00", "a" * 101]
)
def test_names_other_than_plain_file_names_are_refused(name: str) -> None:
    """A file name that the server would not find, at the root or in a model's folder, is rejected."""
    with refused("member-name"):
        pack({name: b""})


def test_order_in_which_properties_arrive_does_not_matter() -> None:
    """The order of properties in an event does not change the generation."""
    properties = {"engine": "Python", "option.model_id": "org/nli", "batch_size": "8", "gpu.minWorkers": "1"}

    first, second = model_files(properties), model_files(dict(reversed(properties.items())))

    assert first == second
    assert first["serving.properties"].decode() == (
        "engine=Python\noption.model_id=org/nli\ngpu.minWorkers=1\nbatch_size=8\n"
    )


def test_archive_of_a_model_holds_properties_and_wanted_requirements() -> None:
    """An archive has a requirements.txt only if the model has requirements."""
    assert model_files({"engine": "Python"}) == {"serving.properties": b"engine=Python\n"}
    with tarfile.open(
        fileobj=io.BytesIO(pack(model_files({"engine": "Python"}, ["torch==2.11.0", "peft==0.21.2"])))
    ) as tar:
        requirements = tar.extractfile("requirements.txt")
        assert requirements is not None
        assert requirements.read() == b"torch==2.11.0\npeft==0.21.2\n"
        assert tar.getnames() == ["requirements.txt", "serving.properties"]


@given(
    st.dictionaries(st.sampled_from("abc"), st.binary(max_size=3), max_size=3),
    st.dictionaries(st.sampled_from("abc"), st.binary(max_size=3), max_size=3),
)
def test_content_digest_is_equal_just_for_equal_files(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    """Two different sets of files never share a digest, and the order of the files does not matter."""
    assert (content_digest(one) == content_digest(other)) == (one == other)
    assert content_digest(dict(reversed(one.items()))) == content_digest(one)
    assert digest(pack(one)) == content_digest(one)


def test_digest_of_what_is_no_archive_is_refused() -> None:
    """The digest of bytes that are no tar.gz is a clear error."""
    with refused("archive-unreadable"):
        digest(b"no archive")


def test_written_archive_replaces_the_old_one(tmp_path: Path) -> None:
    """Writing an archive replaces the old file, creates missing folders, and leaves no other file."""
    path = tmp_path / "out" / "m.tar.gz"
    write_archive(path, b"old")
    write_archive(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


def test_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write leaves the old file and no other, and its error has the cause."""
    path = tmp_path / "m.tar.gz"
    write_archive(path, b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with refused("file-unwritable", str(path)):
        write_archive(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during a write is raised, and the partial file is deleted."""
    seen: list[list[Path]] = []

    def interrupt(_: int) -> None:
        seen.append(list(tmp_path.iterdir()))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_archive(tmp_path / "m.tar.gz", b"half")
    assert len(seen[0]) == 1
    assert not list(tmp_path.iterdir())


def test_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    """A file in the place of the folder is an error with its path."""
    (tmp_path / "out").write_bytes(b"")
    with refused("file-unwritable"):
        write_archive(tmp_path / "out" / "m.tar.gz", b"")
