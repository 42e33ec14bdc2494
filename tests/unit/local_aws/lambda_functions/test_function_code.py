"""Unpacking the code of functions."""

from __future__ import annotations

import base64
import io
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from local_aws.kit.clients import Clients
from local_aws.lambda_functions.code import CodeStore
from local_aws.lambda_functions.errors import CodeError
from local_aws.lambda_functions.operations import function_name

if TYPE_CHECKING:
    from pathlib import Path


def zipped(**files: str) -> dict[str, str]:
    """Return a `Code` with these files; `__` stands for a slash."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/"), text)
    return {"ZipFile": base64.b64encode(buffer.getvalue()).decode()}


@pytest.fixture
def store(tmp_path: Path) -> CodeStore:
    """An empty store."""
    return CodeStore(tmp_path / "functions", Clients(lambda: "http://127.0.0.1:9"))


def test_code_is_unpacked_and_goes_with_its_last_function(store: CodeStore) -> None:
    """Two functions with the same code share a folder, which is deleted with the second function."""
    folder = store.unpack("r", zipped(a__index="code"))
    assert (folder / "a" / "index").read_text() == "code"
    assert store.unpack("r", zipped(a__index="code")) == folder
    store.bind("r", "one", folder)
    store.bind("r", "two", folder)
    store.remove("r", "one")
    assert store.get("r", "one") is None
    assert folder.exists()
    store.bind("r", "two", folder)
    assert folder.exists()
    store.remove("r", "two")
    assert not folder.exists()


def test_the_same_code_at_the_same_time_is_whole_for_both(store: CodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two functions with the same code that are created at once both get complete files."""
    usual, first = zipfile.ZipFile.extractall, threading.Event()

    def slow(archive: zipfile.ZipFile, path: str) -> None:
        first.set()
        # Long enough for the other to come, which may wait but must not interfere.
        time.sleep(0.3)
        usual(archive, path)

    monkeypatch.setattr(zipfile.ZipFile, "extractall", slow)
    code = zipped(artifacts__one="1", artifacts__two="2")
    with ThreadPoolExecutor(2) as pool:
        earlier = pool.submit(store.unpack, "r", code)
        assert first.wait(60)
        later = pool.submit(store.unpack, "r", code)
        folders = {earlier.result(60), later.result(60)}

    (folder,) = folders
    assert sorted(file.name for file in (folder / "artifacts").iterdir()) == ["one", "two"]


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil"])
def test_unsafe_member_is_refused(store: CodeStore, tmp_path: Path, name: str) -> None:
    """A member that leaves the folder is named, and nothing is written."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, "x")
    with pytest.raises(CodeError, match="evil"):
        store.unpack("r", {"ZipFile": base64.b64encode(buffer.getvalue()).decode()})
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize(
    ("code", "text"),
    [({"ZipFile": base64.b64encode(b"no zip").decode()}, "Code"), ({"ImageUri": "x"}, "S3Bucket")],
)
def test_other_code_is_refused(store: CodeStore, code: dict[str, str], text: str) -> None:
    """Images and broken archives are rejected as code of a function."""
    with pytest.raises(CodeError, match=text):
        store.unpack("r", code)


@pytest.mark.parametrize(
    "given",
    [
        "f",
        "f:$LATEST",
        "arn:aws:lambda:us-east-1:123456789012:function:f",
        "123456789012:function:f:$LATEST",
        "arn%3Aaws%3Alambda%3Ar%3A1%3Afunction%3Af",
    ],
)
def test_function_name_in_all_its_forms(given: str) -> None:
    """A function is found by name, partial ARN and ARN, with or without a qualifier."""
    assert function_name(given) == "f"
