"""Starting and stopping the AWS on this machine: the parts that need no server."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.deploy import local_aws as local
from cohost.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Return a port on 127.0.0.1 on which another program listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.process
def test_port_in_use_is_named_with_the_way_out(taken_port: int, tmp_path: Path) -> None:
    """A used port is an error with the fix before the emulator starts."""
    with refused("port-unusable", "--port", kind=LocalError):
        local.start(port=taken_port, state=tmp_path, catalog=tmp_path / "c.yaml")


@pytest.mark.parametrize("port", [-1, 65536])
def test_port_that_is_none_is_refused(port: int, tmp_path: Path) -> None:
    """A port outside the valid range is rejected in one line."""
    with refused("port-unusable", "--port"):
        local.start(port=port, state=tmp_path, catalog=tmp_path / "c.yaml")


def test_nothing_runs_in_an_empty_folder(tmp_path: Path) -> None:
    """`cohost local down` without a running emulator succeeds."""
    assert local.find(tmp_path) is None
    assert local.stop(tmp_path) is False


@pytest.mark.parametrize("record", ["{", "{}", '{"url": "http://127.0.0.1:1", "pid": 1}'])
def test_stale_record_is_no_server(record: str, tmp_path: Path) -> None:
    """The record of a killed emulator neither prevents a start nor leads to the end of another process."""
    (tmp_path / "server.json").write_text(record)

    assert local.find(tmp_path) is None


@pytest.mark.process
def test_another_process_on_the_port_is_never_killed(taken_port: int, tmp_path: Path) -> None:
    """`cohost local down` stops only a server that answers as the emulator with the recorded process id."""
    record = {"url": f"http://127.0.0.1:{taken_port}", "pid": os.getpid()}
    (tmp_path / "server.json").write_text(json.dumps(record))

    assert local.stop(tmp_path) is False


def test_environment_leads_every_tool_to_the_server(tmp_path: Path) -> None:
    """The exported variables are enough for cdk, aws and boto3 to call the emulator and no real account."""
    server = local.LocalServer(url="http://127.0.0.1:4599", pid=1, state=tmp_path)
    (tmp_path / local.KEY_FILE).write_text('{"key_id": "AKIA1", "secret": "s"}')

    environment = server.environment(tmp_path / "c.yaml")

    assert environment["AWS_ENDPOINT_URL"] == "http://127.0.0.1:4599"
    assert (environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]) == ("AKIA1", "s")
    assert environment["AWS_SESSION_TOKEN"] == ""
    assert environment["AWS_EC2_METADATA_DISABLED"] == "true"
    assert environment["COHOST_CATALOG"] == str(tmp_path / "c.yaml")
    assert "COHOST_CATALOG" not in server.environment()


@pytest.mark.parametrize("text", [None, "{", "{}", "[]"])
def test_a_folder_without_a_key_is_told_with_the_way_to_one(text: str | None, tmp_path: Path) -> None:
    """The error for a state folder without an access key names the command that creates the key."""
    if text is not None:
        (tmp_path / local.KEY_FILE).write_text(text)

    with refused("access-key-missing", kind=LocalError) as caught:
        local.read_key(tmp_path)
    assert f"`cohost local up --state {tmp_path}`" in caught.value.fix


def test_a_command_names_the_folder_unless_it_is_the_usual_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in a message has --state unless the folder is the default one, with quotes if needed."""
    monkeypatch.chdir(tmp_path)

    assert local.subcommand("down", Path(".cohost").resolve()) == "cohost local down"
    assert local.subcommand("down", Path("a b")) == "cohost local down --state 'a b'"
