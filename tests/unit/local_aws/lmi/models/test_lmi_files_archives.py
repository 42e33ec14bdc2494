"""Addresses of models lead to folders, and broken or hostile archives to faults."""

from __future__ import annotations

import io
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest
from fakes.faults import faulted

from local_aws.lmi.errors import EngineFailure
from local_aws.lmi.models.files import model_folder, name_from_url

if TYPE_CHECKING:
    from pathlib import Path


def _no_download(url: str, into: Path) -> Path:
    raise EngineFailure(f"{url} {into}")


def _tar(file: Path, members: dict[str, bytes], mode: str = "w:gz") -> None:
    with tarfile.open(file, mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("prefix", ["", "file://", "file:"])
def test_a_folder_is_itself(tmp_path: Path, prefix: str) -> None:
    """A path or file address of a folder gives the folder (recorded: 01, 12)."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").touch()
    assert model_folder(f"{prefix}{tmp_path}/m", tmp_path, _no_download) == tmp_path / "m"


@pytest.mark.parametrize("member", ["serving.properties", "./serving.properties", "nested/serving.properties"])
def test_an_archive_is_read_from_its_innermost_folder(tmp_path: Path, member: str) -> None:
    """An archive that contains its folder loads (recorded: 22)."""
    _tar(tmp_path / "m.tar.gz", {member: b"engine=Python"})
    cache = tmp_path / "cache"
    cache.mkdir()
    assert (model_folder(str(tmp_path / "m.tar.gz"), cache, _no_download) / "serving.properties").is_file()


def test_plain_tar_and_zip_are_unpacked(tmp_path: Path) -> None:
    """Recorded (22): .tar and .zip load."""
    _tar(tmp_path / "a.tar", {"model.py": b""}, "w")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("model.py", "")
    for name in ("a.tar", "b.zip"):
        assert (model_folder(str(tmp_path / name), tmp_path, _no_download) / "model.py").is_file()


@pytest.mark.parametrize("name", ["nothing", "nothing.tar.gz", "file.bin"])
def test_nothing_at_the_address_is_not_found(tmp_path: Path, name: str) -> None:
    """The answer names the address that was asked for (01)."""
    (tmp_path / "file.bin").touch()
    with faulted("ModelNotFoundException", 404, f"Invalid model url: {tmp_path}/{name}"):
        model_folder(str(tmp_path / name), tmp_path, _no_download)


def test_a_file_that_is_no_gzip_is_refused_with_the_real_text(tmp_path: Path) -> None:
    """A file that is no gzip is rejected with the real server's text (recorded: 22)."""
    (tmp_path / "m.tar.gz").write_bytes(b"no gzip")
    with faulted("IOException", 500, "Input is not in the .gz format"):
        model_folder(str(tmp_path / "m.tar.gz"), tmp_path, _no_download)


def test_a_cut_archive_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """A truncated archive fails the load, and leaves no partial model in the cache."""
    _tar(tmp_path / "m.tar.gz", {"model.py": bytes(range(256)) * 64})
    data = (tmp_path / "m.tar.gz").read_bytes()
    (tmp_path / "m.tar.gz").write_bytes(data[: len(data) // 2])
    cache = tmp_path / "cache"
    cache.mkdir()
    with faulted("IOException", 500):
        model_folder(str(tmp_path / "m.tar.gz"), cache, _no_download)
    assert list(cache.iterdir()) == []


def test_a_member_outside_the_folder_is_refused(tmp_path: Path) -> None:
    """An archive with a member outside its folder is rejected."""
    _tar(tmp_path / "m.tar.gz", {"../../evil": b"x"})
    cache = tmp_path / "cache"
    cache.mkdir()
    with faulted("IOException", 500):
        model_folder(str(tmp_path / "m.tar.gz"), cache, _no_download)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("/a/xlmr", "xlmr"),
        ("file:///a/xlmr/", "xlmr"),
        ("/a/m-1.tar.gz", "m_1"),
        ("file:///%ED%95%9C/", "_"),
        ("s3://b/p/m.zip", "m"),
    ],
)
def test_a_name_is_taken_from_the_address(url: str, name: str) -> None:
    """The address file://…/xlmr/ registers the model "xlmr" (recorded: 01, 29)."""
    assert name_from_url(url) == name
