"""A restarted worker process: it ends before a load if its model is unloaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes import fake_djl_server

import cohost.handler
from cohost.handler.cohost_restart import UncertainError, begin, management_address, may_be, started_at

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.process

ROOT = Path(cohost.handler.__file__).parents[2]
SOURCE = Path(cohost.handler.__file__).parent

# What a process of the server does: it says whether it is a restart, or ends.
START = """
import logging, sys
from pathlib import Path
sys.path.insert(0, {root!r})
logging.basicConfig(level="WARNING")
from cohost.handler import cohost_restart
cohost_restart._LIMIT_S = 2.0
print(cohost_restart.begin(Path({folder!r})), cohost_restart.begin(Path({folder!r})))
"""

IMPORT = """
import sys
sys.path[:0] = [{root!r}, {folder!r}]
from local_aws.lmi import handler_api
handler_api.install()
import model
print(sorted({{"torch", "transformers"}} & sys.modules.keys()))
"""


LONG_AGO = "2026-01-02T03:04:05.678Z"


def describes(*started: str) -> list[dict[str, Any]]:
    """Return the server's description of a model with workers of these start times."""
    workers = [{"id": n, "startTime": time, "status": "READY"} for n, time in enumerate(started)]
    return [{"models": [{"workerGroups": [{"minWorkers": 1, "workers": workers}]}]}]


def now_and(seconds: float) -> str:
    """Return a time in the server's format."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class Server:
    """A process in the place of DJL Serving, with a list of loaded models."""

    process: subprocess.Popen[str]
    root: Path
    answers: Path
    models: list[dict[str, Any]] = field(default_factory=list)

    def says(self, answers: dict[str, Any]) -> None:
        """Set the answers to GET requests by path."""
        self.answers.write_text(json.dumps(answers))

    def has(self, *urls: str, status: str = "READY", workers: tuple[str, ...] = (LONG_AGO,)) -> None:
        """Set the list of models with the start times of their workers."""
        models = [{"modelName": f"m {n}", "modelUrl": url, "status": status} for n, url in enumerate(urls)]
        described = {f"/models/m%20{n}": describes(*workers) for n in range(len(urls))}
        self.says({"/models": {"models": models}, **described})

    def runs(self, code: str, socket: str = "djl_sock.19000") -> dict[str, Any]:
        """Start a process on a socket of the server, and return its exit code and output."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = ["-c", code, "--sock-type", "unix", "--sock-name", str(self.root / socket), "--device-id", "-1"]
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def starts(self, folder: Path, socket: str = "djl_sock.19000") -> str:
        """Start a worker's process: "first", "restart", or "ended"."""
        answer = self.runs(START.format(root=str(ROOT), folder=str(folder)), socket)
        assert answer["code"] == 0, answer["log"]
        return {"True True": "restart", "False False": "first", "": "ended"}[answer["out"]]

    def marker(self, socket: str = "djl_sock.19000") -> Path:
        """The marker of a socket."""
        return self.root / f"{socket}.cohost"


@contextmanager
def running(root: Path, *, unix: bool = True, config: bool = True) -> Iterator[Server]:
    """Start a server whose config file has the address of its management API."""
    answers, file, listen = root / "answers.json", root / "config.properties", root / "management.sock"
    arguments = ["--config-file", str(file)] if config else []
    process = subprocess.Popen(
        [sys.executable, fake_djl_server.__file__, *arguments, str(listen) if unix else "0", str(answers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    )
    with process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        address = f"unix:{listen}" if unix else f"http://0.0.0.0:{port}"
        file.write_text(f"# a comment\ninference_address=http://127.0.0.1:1\nmanagement_address={address}\n")
        yield Server(process, root, answers)
        process.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server whose management API listens on a Unix socket."""
    with running(tmp_path) as one:
        yield one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder, with a name that a URL writes in another way."""
    path = tmp_path / "models" / "a model"
    path.mkdir(parents=True)
    return path


def test_a_first_start_is_none_and_a_second_one_is_a_restart(server: Server, folder: Path) -> None:
    """A second start on the same socket and server, with the folder still listed, is a restart."""
    server.has(str(folder))

    assert [server.starts(folder) for _ in range(3)] == ["first", "restart", "restart"]
    assert server.marker().stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("unix", [True, False], ids=["unix", "http"])
def test_a_restart_of_an_unloaded_model_ends(tmp_path: Path, folder: Path, *, unix: bool) -> None:
    """A restarted process ends and removes its marker if its folder is not listed, whatever similar names are."""
    others = [folder.with_name("a model 2"), folder.with_name("a")]
    for other in others:
        other.mkdir()
    with running(tmp_path, unix=unix) as server:
        server.has(str(folder), *map(str, others))
        assert server.starts(folder) == "first"

        server.has(*map(str, others))

        assert server.starts(folder) == "ended"
        assert not server.marker().exists()


@pytest.mark.parametrize("form", ["{path}", "{path}/", "file://{path}", "file:{path}/", "file://{url}/", "file:{url}"])
def test_the_folder_is_known_in_each_form_that_the_list_has(server: Server, folder: Path, form: str) -> None:
    """A folder is recognised in each form of the server's list: a path, a URI, with a slash, with escaped blanks."""
    url = form.format(path=folder, url=str(folder).replace(" ", "%20"))
    server.has(url)
    assert server.starts(folder) == "first"

    assert server.starts(folder) == "restart"


def test_a_folder_is_known_through_symbolic_links(server: Server, folder: Path) -> None:
    """A folder is recognised if the list, or the process, uses a symbolic link to it."""
    link = folder.with_name("link")
    link.symlink_to(folder)
    server.has(str(link))

    assert [server.starts(folder), server.starts(folder)] == ["first", "restart"]


@pytest.mark.parametrize(
    "url", ["{root}/m.tar.gz", "s3://bucket/m/", "file:{root}/gone", "m", "file://{root}/m.tar.gz"]
)
def test_an_address_that_may_be_the_models_own_keeps_it(server: Server, folder: Path, url: str) -> None:
    """A process continues if a listed archive may have been unpacked to its folder."""
    (server.root / "m.tar.gz").touch()
    server.has(url.format(root=server.root))

    assert [server.starts(folder), server.starts(folder)] == ["first", "restart"]


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/models": "no JSON"},
        {"/models": []},
        {"/models": {"models": "many"}},
        {"/models": {"models": [{"modelName": "m"}]}},
        {"/models": {"models": [{"modelName": "m", "modelUrl": "s3://b/m/"}]}},
        {"/models": {"models": [{"modelName": "m", "modelUrl": "s3://b/m/"}]}, "/models/m": [{"models": [{}]}]},
        {"/models": {"models": [], "nextPageToken": "1"}},
        {"/models": "[" * 200_000},
        {"/models": {"hang": True}},
    ],
    ids=[
        "404",
        "text",
        "list",
        "no list",
        "no URL",
        "not described",
        "no workers",
        "no second page",
        "deep",
        "no answer",
    ],
)
def test_an_answer_that_is_not_clear_keeps_the_process(server: Server, folder: Path, answers: dict[str, Any]) -> None:
    """A process does not end on an unclear answer, because a missing process would cost the model."""
    server.has(str(folder))
    assert server.starts(folder) == "first"

    server.says(answers)

    assert server.starts(folder) == "restart"


def test_a_server_that_cannot_be_asked_keeps_the_process(tmp_path: Path, folder: Path) -> None:
    """A process does not end if the server cannot be asked: nobody listens, or the config file has no address."""
    with running(tmp_path) as server:
        server.has()
        assert server.starts(folder) == "first"
        file = tmp_path / "config.properties"
        for text in ("management_address=http://127.0.0.1:9\n", "management_address=https://127.0.0.1:8443\n", "a=b\n"):
            file.write_text(text)
            assert server.starts(folder) == "restart"
        file.unlink()
        assert server.starts(folder) == "restart"


def test_a_model_that_the_server_has_given_up_is_not_loaded_again(server: Server, folder: Path) -> None:
    """A restarted process of a failed model does not load it, because the model gets no calls any more."""
    server.has(str(folder))
    assert server.starts(folder) == "first"

    server.has(str(folder), status="FAILED")

    assert server.starts(folder) == "ended"


@pytest.mark.parametrize("workers", [(), (now_and(3600),)], ids=["loads", "is loaded"])
def test_a_model_that_was_unloaded_and_loaded_again_has_a_process_of_its_own(
    server: Server, folder: Path, workers: tuple[str, ...]
) -> None:
    """A restarted process ends if the listed worker started after the process that it replaces."""
    server.has(str(folder))
    assert server.starts(folder) == "first"

    server.has(str(folder), workers=workers)

    assert server.starts(folder) == "ended"


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param((now_and(3600), LONG_AGO), id="one of two workers"),
        pytest.param((now_and(-1800),), id="a clock that was set back"),
        pytest.param(("yesterday",), id="no time"),
    ],
)
def test_a_worker_that_may_be_ones_own_keeps_the_process(
    server: Server, folder: Path, workers: tuple[str, ...]
) -> None:
    """A restarted process continues if the listed worker is older than the process that it replaces."""
    server.has(str(folder))
    assert server.starts(folder) == "first"

    server.has(str(folder), workers=workers)

    assert server.starts(folder) == "restart"


def test_all_pages_of_the_list_are_read(server: Server, folder: Path) -> None:
    """All pages of the server's list are read for the folder."""
    other = {"models": [{"modelName": "other", "modelUrl": str(server.root), "status": "READY"}]}
    own = {"models": [{"modelName": "own", "modelUrl": str(folder), "status": "READY"}]}
    pages = {"/models": other | {"nextPageToken": "1"}, "/models?next_page_token=1": other | {"nextPageToken": "2"}}
    server.says(pages | {"/models?next_page_token=2": own, "/models/own": describes(LONG_AGO)})
    assert [server.starts(folder), server.starts(folder)] == ["first", "restart"]

    server.says(pages | {"/models?next_page_token=2": other})

    assert server.starts(folder) == "ended"


def test_each_worker_has_a_start_of_its_own(server: Server, folder: Path) -> None:
    """Two workers of a model have two sockets, so neither start is taken for the other's restart."""
    server.has(str(folder))

    assert [server.starts(folder, f"djl_sock.1900{n}") for n in (0, 1, 0, 1)] == [
        "first",
        "first",
        "restart",
        "restart",
    ]


def test_a_marker_of_an_earlier_server_is_none(tmp_path: Path, folder: Path) -> None:
    """A marker of an earlier server with the same process id is told by the server's start time, and removed."""
    with running(tmp_path) as server:
        server.has(str(folder))
        assert [server.starts(folder, f"djl_sock.1900{n}") for n in (0, 1)] == ["first", "first"]
        old = json.loads(server.marker().read_text())
    (tmp_path / "management.sock").unlink()
    with running(tmp_path) as server:
        server.has()
        server.marker().write_text(json.dumps(old | {"server": server.process.pid}))

        assert server.starts(folder) == "first"
        assert not server.marker("djl_sock.19001").exists()


def test_what_is_no_marker_of_ones_own_is_left_alone(server: Server, folder: Path) -> None:
    """A symbolic link in the place of the marker is neither followed nor written to."""
    server.has(str(folder))
    server.marker().symlink_to(server.root / "elsewhere")
    (server.root / "elsewhere").write_text("mine")

    assert server.starts(folder) == "first"
    assert (server.root / "elsewhere").read_text() == "mine"


def test_without_a_server_nothing_is_a_restart(folder: Path) -> None:
    """Without a socket, as in tests and notebooks, no start is a restart and no marker is written."""
    assert begin(folder, arguments=["python", "-m", "pytest"]) is False
    assert list(folder.parent.iterdir()) == [folder]


def test_the_servers_home_has_the_config_file_where_it_is_told_none(tmp_path: Path) -> None:
    """The config file is found in MODEL_SERVER_HOME, as in the image; an environment variable overrides the file."""
    home, proc = tmp_path / "djl", tmp_path / "proc"
    (home / "conf").mkdir(parents=True)
    (proc / "7").mkdir(parents=True)
    (home / "conf" / "config.properties").write_text("management_address = http\\://0.0.0.0\\:8080\n")
    (proc / "7" / "cmdline").write_text("java\0ai.djl.serving.ModelServer\0")
    (proc / "7" / "environ").write_text(f"A=1\0MODEL_SERVER_HOME={home}\0")
    assert management_address(7, proc) == "http://0.0.0.0:8080"

    (proc / "7" / "environ").write_text("SERVING_MANAGEMENT_ADDRESS=unix:/run/m\0")

    assert management_address(7, proc) == "unix:/run/m"


def test_the_config_file_is_found_in_each_form_of_the_command_line(tmp_path: Path) -> None:
    """Long and short, with a blank and with =; a path below the server's working directory too."""
    (tmp_path / "own.properties").write_text("management_address=unix:/run/m\n")
    home = tmp_path / "7"
    (home / "cwd").mkdir(parents=True)
    shutil.copy(tmp_path / "own.properties", home / "cwd")
    (home / "environ").touch()
    path = str(tmp_path / "own.properties")
    for words in (
        ["--config-file", path],
        [f"--config-file={path}"],
        ["-f", "own.properties"],
        [f"-Dai.djl.conf={path}"],
    ):
        (home / "cmdline").write_text("\0".join(["java", *words, ""]))
        assert management_address(7, tmp_path) == "unix:/run/m"
    (home / "cmdline").write_text("java\0-f\0nowhere.properties\0")
    with pytest.raises(UncertainError, match=r"nowhere\.properties"):
        management_address(7, tmp_path)


def test_only_a_folder_that_is_there_is_certainly_another_one(tmp_path: Path) -> None:
    """Only an existing folder counts as the folder of another model."""
    (tmp_path / "own").mkdir()
    own = os.path.realpath(tmp_path / "own")
    assert not may_be(str(tmp_path), own)
    assert not may_be(f"file://localhost{tmp_path}/", own)
    assert all(may_be(url, own) for url in (own, f"file:{own}", "jar:file:/x", "https://host/m.zip", "None", ""))


def test_the_start_of_a_process_is_read_past_its_name(tmp_path: Path) -> None:
    """A process's start time is read correctly if its name has blanks and parentheses."""
    odd = tmp_path / "a) 1 (b"
    shutil.copy("/bin/sleep", odd)
    with subprocess.Popen([odd, "60"]) as process:
        assert (started_at(process.pid) or 0) >= (started_at(os.getpid()) or 0) > 0
        process.kill()
    assert started_at(process.pid) is None


def test_no_worker_process_imports_torch(server: Server, tmp_path: Path) -> None:
    """Memory may run out while torch is imported, and a process that ends there is not started for ever.

    Only the engine process imports it: a first start and a restart are proxies of some 40 MB.
    """
    model = tmp_path / "model"
    model.mkdir()
    for file in SOURCE.glob("*.py"):
        if file.name != "__init__.py":
            shutil.copy(file, model)
    server.has(str(model))
    code = IMPORT.format(root=str(ROOT), folder=str(model))

    assert [server.runs(code)["out"] for _ in range(2)] == ["[]", "[]"]


def test_a_model_that_cannot_be_loaded_ends_the_process_while_it_is_imported(server: Server, tmp_path: Path) -> None:
    """A model that cannot be loaded ends the process at import and removes the marker."""
    model = tmp_path / "model"
    model.mkdir()
    for file in SOURCE.glob("*.py"):
        if file.name != "__init__.py":
            shutil.copy(file, model)
    (model / "serving.properties").write_text("engine=Python\noption.dtype=fp8\n")

    ended = server.runs(IMPORT.format(root=str(ROOT), folder=str(model)))

    assert ended["code"] == 1
    assert "dtype: got 'fp8'; allowed: one of auto" in ended["log"]
    assert not server.marker().exists()
