"""Unpacking of model archives on an instance."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import TYPE_CHECKING

import pytest

from local_aws.sagemaker.model_cache.disk import ArchiveError, unpack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def packed(*members: tarfile.TarInfo) -> bytes:
    """An archive of members without content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"\0" * member.size))
    return buffer.getvalue()


def info(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    """A tar member."""
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = target
    return member


def test_files_and_folders_are_unpacked(tmp_path: Path, pack: Callable[[dict[str, str]], bytes]) -> None:
    """Plain files are unpacked with their content, into folders that the archive need not list."""
    (tmp_path / "a.tar.gz").write_bytes(pack({"serving.properties": "engine=Python\n", "sub/x": "y"}))
    unpack(tmp_path / "a.tar.gz", tmp_path / "out")
    assert (tmp_path / "out" / "serving.properties").read_text() == "engine=Python\n"
    assert (tmp_path / "out" / "sub" / "x").read_text() == "y"


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (info("/etc/passwd"), "outside"),
        (info("../up"), "outside"),
        (info("a/../../up"), "outside"),
        (info("link", tarfile.SYMTYPE, "/etc/passwd"), "link"),
        (info("link", tarfile.LNKTYPE, "other"), "link"),
        (info("pipe", tarfile.FIFOTYPE), "link"),
        (info("device", tarfile.CHRTYPE), "link"),
    ],
)
def test_hostile_members_are_refused(tmp_path: Path, member: tarfile.TarInfo, reason: str) -> None:
    """Links, devices and paths that lead out are refused, and nothing is written outside the folder."""
    (tmp_path / "a.tar.gz").write_bytes(packed(member))
    with pytest.raises(ArchiveError, match=reason):
        unpack(tmp_path / "a.tar.gz", tmp_path / "deep" / "out")
    assert not (tmp_path / "up").exists()
    assert not (tmp_path / "deep" / "up").exists()


@pytest.mark.parametrize("kind", ["empty", "text", "cut short", "gzip of text", "broken inside"])
def test_what_is_no_archive_is_refused(tmp_path: Path, kind: str, pack: Callable[[dict[str, str]], bytes]) -> None:
    """A file that is not a complete gzip-compressed tar raises ArchiveError, and never another exception."""
    whole = pack({"a": "x" * 100_000, "b": "y"})
    broken = bytearray(whole)
    broken[len(broken) // 2] ^= 0xFF
    data = {
        "empty": b"",
        "text": b"not an archive",
        "cut short": whole[: len(whole) // 2],
        "gzip of text": gzip.compress(b"not a tar"),
        "broken inside": bytes(broken),
    }[kind]
    (tmp_path / "a.tar.gz").write_bytes(data)
    with pytest.raises(ArchiveError):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")


def test_a_file_where_a_folder_must_be_is_refused(tmp_path: Path) -> None:
    """A name that is a file and a folder at once is the archive's fault."""
    (tmp_path / "a.tar.gz").write_bytes(packed(info("a"), info("a/b")))
    with pytest.raises(ArchiveError, match="one name"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")
