"""Processes, GPUs and models are reported from the answers of programs and servers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from fakes.refusals import refused

from local_aws.engines.engine import EngineError
from local_aws.engines.machine import (
    Gpu,
    Process,
    gpus,
    memory_by_process,
    processes_below,
    processes_of_container,
)
from local_aws.engines.report import Server, report_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fakes.engine_programs import Programs

APPS = "--query-compute-apps=pid,used_memory"
GPUS = "--query-gpu=index,name,memory.used,memory.total"
TOP = """PID    RSS   COMMAND
71 218112 java -Xmx1g ai.djl.serving.ModelServer
95 1228800 python3 /tmp/djl_python_engine.py --sock-type unix --model-dir /opt/ml/models/minilm/model --device-id 0
96 614400 python3 /tmp/djl_python_engine.py --sock-type unix --model-dir /opt/store/other --device-id 0
"""


def test_gpus_and_their_processes(programs: Programs) -> None:
    """The report counts a process on two GPUs once, and leaves out processes that nvidia-smi does not list."""
    answers = {
        GPUS: {"out": "0, NVIDIA A10G, 4406, 23028\n1, NVIDIA A10G, 0, 23028\n"},
        APPS: {"out": "95, 2578\n96, 900\n95, 22\n[N/A], [N/A]\n97, [N/A]\n\n"},
    }
    programs.install("nvidia-smi", answers)
    assert gpus()[0] == Gpu(index=0, name="NVIDIA A10G", used_mb=4406, total_mb=23028)
    assert memory_by_process() == {95: 2600, 96: 900}
    assert programs.arguments("nvidia-smi") == [
        [GPUS, "--format=csv,noheader,nounits"],
        [APPS, "--format=csv,noheader,nounits"],
    ]


@pytest.mark.parametrize("answers", [None, {"--query": {"code": 9, "err": "NVIDIA-SMI has failed\n"}}])
def test_without_a_gpu_nothing_is_claimed(programs: Programs, answers: dict[str, Any] | None) -> None:
    """Without nvidia-smi or a driver the GPU memory is unknown, and not zero."""
    if answers is not None:
        programs.install("nvidia-smi", answers)
    assert gpus() == []
    assert memory_by_process() is None


def test_processes_of_a_container(programs: Programs) -> None:
    """The processes of a container come from `docker top`; a worker's model is the folder of its command line."""
    programs.install("docker", {"top encoder-lmi-local": {"out": TOP}})
    assert processes_of_container("encoder-lmi-local", {95: 2578}) == [
        Process(pid=71, role="server (java)", resident_mb=213, gpu_mb=0),
        Process(pid=95, role="worker of minilm", resident_mb=1200, gpu_mb=2578),
        Process(pid=96, role="worker of other", resident_mb=600, gpu_mb=0),
    ]
    assert programs.arguments("docker") == [["top", "encoder-lmi-local", "-eo", "pid,rss,args"]]


def test_processes_of_this_machine() -> None:
    """The processes of a server are the process and its children, without ended ones."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = {process.pid: process for process in processes_below(os.getpid(), {child.pid: "minilm"}, None, {})}
        assert found[child.pid].role == "worker of minilm"
        assert found[os.getpid()].resident_mb > 10
        assert found[os.getpid()].gpu_mb is None
        assert child.stdin is not None
        child.stdin.close()
    assert processes_below(child.pid, {}, None, {}) == []


def test_an_engine_process_is_reported_although_its_parent_has_ended() -> None:
    """An engine process that is no descendant of the server is listed too, with the models that it has."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as server:
        engines = {os.getpid(): "engine of minilm, xlmr", server.pid + 4_000_000: "engine of one that has ended"}
        found = {process.pid: process.role for process in processes_below(server.pid, {}, None, engines)}
        assert server.stdin is not None
        server.stdin.close()
    assert found[os.getpid()] == "engine of minilm, xlmr"
    assert set(found) == {server.pid, os.getpid()}


class FakeServer(HTTPServer):
    """Answers by path, a call of a model too."""

    answers: dict[str, tuple[int, str]]


class Handler(BaseHTTPRequestHandler):
    """A server that answers one request."""

    def do_GET(self) -> None:
        """Answer by the path as sent."""
        assert isinstance(self.server, FakeServer)
        status, body = self.server.answers.get(self.path, (404, "{}"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_POST(self) -> None:
        """A call of a model."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Write no log."""


@pytest.fixture
def serve() -> Iterator[Callable[[dict[str, tuple[int, str]]], str]]:
    """Start a server with these answers, and return its address."""
    started = []

    def start(answers: dict[str, tuple[int, str]]) -> str:
        server = FakeServer(("127.0.0.1", 0), Handler)
        server.answers = answers
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        started.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()


def _model(status: str) -> tuple[int, str]:
    group = '{"minWorkers":1,"maxWorkers":2,"workers":[{"id":1,"status":"READY"},{"id":2,"status":"UNLOADING"}]}'
    return 200, f'[{{"models":[{{"status":"{status}","requestInQueue":3,"workerGroups":[{group}]}}]}}]'


def test_models_of_all_pages_are_told(programs: Programs, serve: Callable[[dict[str, tuple[int, str]]], str]) -> None:
    """The report lists models of all pages with workers and queue, and fails if one is not ready."""
    assert programs.calls == []
    answers = {
        "/models?limit=100": (200, '{"nextPageToken":"1","models":[{"modelName":"a","status":"READY"}]}'),
        "/models?limit=100&next_page_token=1": (200, '{"models":[{"modelName":"b","status":"FAILED"}]}'),
        "/models/a": _model("Healthy"),
        "/models/b": _model("FAILED"),
    }
    report = report_on(Server(name="x", url=serve(answers), token="t", pid=os.getpid()))
    state = report.models[0]
    assert (state.name, state.workers, state.max_workers, state.waiting) == ("a", 1, 2, 3)
    assert report.faults == ["b is FAILED"]
    assert report.gpu_mb is None
    content = report.content()
    assert (content["fits"], content["gpu_mb"], content["models"][1]["status"]) == (False, None, "FAILED")
    assert content["resident_mb"] == sum(process["resident_mb"] for process in content["processes"])


def test_models_have_the_catalogs_names_and_those_not_loaded_their_reasons(
    programs: Programs, serve: Callable[[dict[str, tuple[int, str]]], str], tmp_path: Path
) -> None:
    """The report has the catalog's names of models, and the reason from the log for each that did not load."""
    assert programs.calls == []
    counters = f'cohost_worker_resident_bytes{{Model="0a1b",pid="{os.getpid()}"}} 5\n'
    answers = {
        "/_cohost/metrics": (200, counters),
        "/models?limit=100": (200, '{"models":[{"modelName":"0a1b","status":"READY"}]}'),
        "/models/0a1b": _model("Healthy"),
    }
    log = tmp_path / "container.log"
    log.write_text("t sagemaker nli.tar.gz was not loaded: labels do not fit the head\n")
    report = report_on(
        Server(name="x", url=serve(answers), token="t", pid=os.getpid(), names={"0a1b": "minilm"}, log=str(log)),
    )
    assert [model.name for model in report.models] == ["minilm"]
    assert {process.role for process in report.processes if process.pid == os.getpid()} == {"worker of minilm"}
    assert report.faults == ["model nli was not loaded: labels do not fit the head"]


STOPPED = '{"code": 400, "type": "TranslateException", "message": "Backend Python process is stopped."}'


@pytest.mark.parametrize(
    ("answer", "faults"),
    [
        ((200, "[1]"), 0),
        ((400, '{"error": "candidate_labels"}'), 0),
        ((400, STOPPED), 1),
        ((424, STOPPED), 0),
    ],
)
def test_model_whose_process_has_ended_is_named(
    serve: Callable[[dict[str, tuple[int, str]]], str], answer: tuple[int, str], faults: int
) -> None:
    """The report calls each ready model, because only a call shows that its process has ended."""
    answers = {
        "/models?limit=100": (200, '{"models":[{"modelName":"a b","status":"READY"}]}'),
        "/models/a b": _model("READY"),
        "/models/a%20b": _model("READY"),
        "/models/a%20b/invoke": answer,
    }

    report = report_on(Server(name="x", url=serve(answers), token="t", pid=os.getpid()))

    assert len(report.faults) == faults
    assert all("a b is READY, but its process has ended" in fault for fault in report.faults)


@pytest.mark.parametrize(
    ("answer", "dtype"),
    [
        ((200, '{"passes": 3, "dtype": "fp16"}'), "fp16"),
        ((200, '[{"label": "good"}]'), None),
        ((200, '{"sequence": "a"}'), None),
        ((200, "no JSON"), None),
        ((400, '{"dtype": "not an answer"}'), None),
    ],
)
def test_a_models_number_format_is_the_one_that_its_load_chose(
    serve: Callable[[dict[str, tuple[int, str]]], str], answer: tuple[int, str], dtype: str | None
) -> None:
    """With dtype "auto" the report reads the chosen format from the counters of the batching handler."""
    answers = {
        "/models?limit=100": (200, '{"models":[{"modelName":"a","status":"READY"}]}'),
        "/models/a": _model("READY"),
        "/models/a/invoke": answer,
    }
    report = report_on(Server(name="x", url=serve(answers), token="t", pid=os.getpid()))
    assert (report.models[0].dtype, report.content()["models"][0]["dtype"]) == (dtype, dtype)


def test_model_that_is_not_ready_is_not_called(serve: Callable[[dict[str, tuple[int, str]]], str]) -> None:
    """The report does not call a model that is not ready, because the model has a fault already."""
    answers = {
        "/models?limit=100": (200, '{"models":[{"modelName":"a","status":"FAILED"}]}'),
        "/models/a": _model("FAILED"),
        "/models/a/invoke": (400, STOPPED),
    }

    assert report_on(Server(name="x", url=serve(answers), token="t", pid=os.getpid())).faults == ["a is FAILED"]


def test_more_than_the_instance_has_is_a_fault(
    programs: Programs, serve: Callable[[dict[str, tuple[int, str]]], str]
) -> None:
    """Memory of host or GPU above that of the catalog's instance type is a fault."""
    programs.install("docker", {"top c": {"out": "PID RSS COMMAND\n5 20971520 java\n"}})
    programs.install("nvidia-smi", {GPUS: {"out": "0, H200, 1, 143771\n"}, APPS: {"out": "5, 30000\n"}})
    url = serve({"/models?limit=100": (200, '{"models":[]}')})
    server = Server(name="docker", url=url, token="t", pid=1, container="c", instance_type="ml.g5.xlarge")
    assert report_on(server).faults == [
        "processes hold 20480 MiB, ml.g5.xlarge has 16384",
        "processes hold 30000 MiB of GPU memory, ml.g5.xlarge has 22888",
    ]


def test_a_server_that_does_not_answer_is_told_as_one(programs: Programs) -> None:
    """The error of a server that does not answer is one line with its name and address."""
    assert programs.calls == []
    with refused("engine-not-answering", "server x", kind=EngineError):
        report_on(Server(name="x", url="http://127.0.0.1:9", token="t", pid=1))
