"""A running container with real weights and workers, and the deaths of its processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from fakes.refusals import refused
from lmi_served import BATCH_ECHO, ECHO, Served

from local_aws.lmi.container import Container, ContainerError
from local_aws.lmi.models.hub import MINILM, Hub
from local_aws.testing.running import wait_for

if TYPE_CHECKING:
    import httpx

TEXTS = ["A man is eating food.", "A man eats something.", "The stock market fell sharply today."]
ONE_WORKER = "cpu.minWorkers=1\ncpu.maxWorkers=1\n"
LOOKS_AROUND = """
import os, pathlib, socket, sys, json
from djl_python import Output

SOCK_NAME = sys.argv[sys.argv.index("--sock-name") + 1]
PARENT = pathlib.Path(f"/proc/{os.getppid()}/cmdline").read_text().split(chr(0))
CONFIG_FILE = PARENT[PARENT.index("--config-file") + 1]
ADDRESS = pathlib.Path(CONFIG_FILE).read_text().strip().removeprefix("management_address=")

def handle(inputs):
    if inputs.is_empty():
        return None
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(ADDRESS.removeprefix("unix:"))
        server.sendall(b"GET /models HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
        answer = b"".join(iter(lambda: server.recv(65536), b""))
    models = json.loads(answer.partition(b"\\r\\n\\r\\n")[2])["models"]
    seen = {"sock_name": SOCK_NAME, "config_file": CONFIG_FILE, "address": ADDRESS, "models": models}
    return Output().add_as_json(seen)
"""
ASYNC_PLACE = """
import json, os, sys
from djl_python import Output

async def handle(inputs):
    if inputs.is_empty():
        return Output()
    place = sys.argv[sys.argv.index("--sock-name") + 1]
    body = json.dumps({"pid": os.getpid(), "parent": os.getppid(), "place": place})
    return Output().add(Output.binary_encode({"data": body, "last": True}))
"""
STARTS_A_PROCESS = """
import subprocess, sys
from djl_python import Output

CODE = "import time; held = bytearray(b'x' * 900 * 2**20); print('held', flush=True); time.sleep(600)"
CHILD = subprocess.Popen([sys.executable, "-c", CODE], start_new_session=True, stdout=subprocess.PIPE)
CHILD.stdout.readline()

def handle(inputs):
    if inputs.is_empty():
        return None
    return Output().add_as_json({"child": CHILD.pid})
"""
STARTS_A_CONTAINER = """
import asyncio, pathlib, sys
from local_aws.lmi.container import Container
from local_aws.lmi.models.hub import default_roots

async def main():
    folder = pathlib.Path(sys.argv[1])
    container = await Container.start(model_store=folder / "none", multi_model=True, hub_roots=default_roots(),
                                      log_file=folder / "child.log")
    print(container.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def _gone(pid: int) -> bool:
    """Return True if a process has ended, even if its parent has not waited for it."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_embeddings_equal_transformers_own(served: Served) -> None:
    """all-MiniLM-L6-v2 as feature-extraction answers as transformers' pipeline, to 1e-4."""
    from transformers import pipeline  # takes seconds

    option = f"option.model_id={MINILM}\noption.task=feature-extraction\ncpu.minWorkers=1\ncpu.maxWorkers=1\n"
    assert served.load("minilm", option).status_code == 200
    answer = served.run(served.invoke("minilm", {"inputs": TEXTS}))
    expected = pipeline("feature-extraction", model=str(Hub([]).resolve(MINILM)))(TEXTS)
    difference = max(
        abs(ours - theirs)
        for our_text, their_text in zip(answer.json(), expected, strict=True)
        for our_token, their_token in zip(our_text[0], their_text[0], strict=True)
        for ours, theirs in zip(our_token, their_token, strict=True)
    )
    assert difference < 1e-4


def test_concurrent_answers_are_not_mixed_up(served: Served) -> None:
    """Each of 400 requests over 32 connections to two workers gets its own answer."""

    async def one(number: int) -> bool:
        return bool((await served.invoke("echo", {"n": number})).json()["echo"] == {"n": number})

    async def many() -> list[bool]:
        limit = asyncio.Semaphore(32)

        async def limited(number: int) -> bool:
            async with limit:
                return await one(number)

        return await asyncio.gather(*map(limited, range(400)))

    assert all(served.run(many()))


def test_a_handler_sees_the_recorded_properties(served: Served) -> None:
    """A handler gets the recorded properties: header fields by their usual names, and the engine's additions."""
    properties = served.run(served.invoke("echo", {})).json()["properties"]
    assert properties["Content-Type"] == "application/json"
    assert (properties["handler"], properties["device_id"], properties["cluster_size"]) == ("handle", "-1", "1")
    assert properties["model_dir"] == str(served.folder / "echo")
    assert len(properties["requestId"]) == 36


def test_batches_are_counted_at_a_path_of_our_own(served: Served) -> None:
    """The emulator's counters have requests, batches and waits of a model, and lose them at its unloading."""
    # A batch is full before it is due, on a slow machine too.
    lines = "cpu.minWorkers=1\ncpu.maxWorkers=1\nbatch_size=4\nmax_batch_delay=10000\n"
    assert served.load("batched", lines, BATCH_ECHO).status_code == 200

    async def eight() -> list[httpx.Response]:
        return await asyncio.gather(*(served.invoke("batched", {"n": number}) for number in range(8)))

    assert {answer.status_code for answer in served.run(eight())} == {200}
    answer = served.run(served.client.get("/_cohost/metrics"))
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if 'Model="batched"' in line)
    assert samples['Response_2XX_total{Model="batched"}'] == "8"
    assert samples['QueueTime_count{Model="batched"}'] == samples['RequestLatency_count{Model="batched"}'] == "8"
    assert samples['cohost_batch_size_sum{Model="batched"}'] == "8"
    assert 2 <= int(samples['cohost_batches_total{Model="batched"}']) <= 4
    workers = [int(size) for name, size in samples.items() if name.startswith("cohost_worker_resident_bytes")]
    assert len(workers) == 1
    assert workers[0] > 1_000_000
    served.run(served.client.delete("/models/batched"))
    assert "batched" not in served.run(served.client.get("/_cohost/metrics")).text


def test_a_worker_killed_in_a_request_fails_its_model_alone(served: Served, tmp_path: Path) -> None:
    """A worker killed in a request gives 503 and a FAILED model, and other models lose no call (recorded: 25)."""
    assert served.load("doomed", ONE_WORKER, ECHO).status_code == 200
    mark = tmp_path / "mark"

    async def others() -> list[int]:
        return [(await served.invoke("nli", {"inputs": "a"})).status_code for _ in range(50)]

    async def scenario() -> tuple[httpx.Response, list[int]]:
        doomed = asyncio.create_task(served.invoke("doomed", {"sleep": 600, "mark": str(mark)}))
        beside = asyncio.create_task(others())
        await asyncio.to_thread(wait_for, lambda: mark.exists() and mark.read_text())
        os.kill(int(await asyncio.to_thread(mark.read_text)), signal.SIGKILL)
        return await doomed, await beside

    answer, statuses = served.run(scenario())
    assert answer.status_code == 503
    assert "Python worker disconnected" in answer.json()["message"]
    assert set(statuses) == {200}
    ping = served.run(served.client.get("/ping"))
    assert (ping.status_code, ping.json()["doomed"]) == (500, {"status": "FAILED"})
    assert served.run(served.invoke("doomed", {})).json()["message"] == "Model is not ready: doomed"
    served.run(served.client.delete("/models/doomed"))
    assert served.run(served.client.get("/ping")).status_code == 200
    assert served.load("doomed", ONE_WORKER, ECHO).status_code == 200
    assert served.run(served.invoke("doomed", {})).status_code == 200


def test_a_worker_killed_between_requests_is_missed_by_its_callers_alone(served: Served) -> None:
    """A worker killed while idle gives 400 for ever, while /ping is 200 and the state READY (recorded: 24)."""
    assert served.load("silent", ONE_WORKER, ECHO).status_code == 200
    pid = served.run(served.invoke("silent", {})).json()["pid"]
    os.kill(pid, signal.SIGKILL)
    # A call in the moment of its death would be one that the process had.
    wait_for(lambda: pid not in _processes_of(served, "silent"))
    for _ in range(3):
        answer = served.run(served.invoke("silent", {}))
        assert (answer.status_code, answer.json()["message"]) == (400, "Backend Python process is stopped.")
    ping = served.run(served.client.get("/ping"))
    assert (ping.status_code, ping.json()["silent"]) == (200, {"status": "Healthy"})
    served.run(served.client.delete("/models/silent"))


def test_after_a_killed_fork_server_models_can_be_loaded_again(served: Served) -> None:
    """After the fork server is killed all workers end, and loads work again with the next fork server."""
    container = psutil.Process(served.container.pid)
    (zygote,) = container.children()
    zygote.kill()
    wait_for(lambda: [child.pid for child in container.children()] not in ([], [zygote.pid]))
    wait_for(lambda: served.run(served.invoke("nli", {"inputs": "a"})).status_code != 200)
    for name in ("nli", "echo"):
        served.run(served.client.delete(f"/models/{name}"))
    served.load_usual_models()
    assert served.run(served.invoke("nli", {"inputs": "a"})).status_code == 200


@pytest.mark.parametrize(("fault", "status"), [("die", 400), ("lose_device", 424)])
def test_a_fault_can_be_put_into_a_worker(served: Served, fault: str, status: int) -> None:
    """The fault "die" ends the process of an idle model, and "lose_device" makes every forward pass raise."""
    option = "option.model_id=lmi-cohost/tiny-minilm-nli\noption.task=text-classification\n"
    assert served.load("victim", option + ONE_WORKER).status_code == 200
    wanted = {"model": "victim", "fault": fault}
    told = served.run(served.client.put("/_cohost/worker-faults", json=wanted)).json()
    assert wanted.items() <= told.items()
    wait_for(lambda: fault != "die" or _gone(told["pid"]))
    answer = served.run(served.invoke("victim", {"inputs": "a"}))
    assert answer.status_code == status
    assert ("an illegal memory access" in answer.text) is (fault == "lose_device")
    assert _gone(told["pid"]) is (fault == "die")
    served.run(served.client.delete("/models/victim"))


def test_a_pass_that_hangs_lasts_until_predict_timeout(served: Served) -> None:
    """The fault "hang" makes the next request of a synchronous model exceed predict_timeout (recorded: 26)."""
    option = "option.model_id=lmi-cohost/tiny-minilm-nli\noption.task=text-classification\n"
    assert served.load("hanging", f"{option}option.predict_timeout=2\n{ONE_WORKER}").status_code == 200
    served.run(served.client.put("/_cohost/worker-faults", json={"model": "hanging", "fault": "hang"}))
    answer = served.run(served.invoke("hanging", {"inputs": "a"}))
    assert (answer.status_code, answer.json()["message"]) == (503, "java.util.concurrent.TimeoutException")
    served.run(served.client.delete("/models/hanging"))


@pytest.mark.parametrize(
    ("wanted", "status"),
    [({"model": "nli", "fault": "x"}, 400), ({"fault": "die"}, 400), ({"model": "nobody", "fault": "die"}, 404)],
)
def test_a_fault_that_cannot_be_put_in_says_why(served: Served, wanted: dict[str, str], status: int) -> None:
    """A fault that cannot be caused is rejected with the reason, and changes no worker."""
    answer = served.run(served.client.put("/_cohost/worker-faults", json=wanted))
    assert answer.status_code == status
    assert served.run(served.invoke("nli", {"inputs": "a"})).status_code == 200


def test_a_handler_finds_the_server_as_it_finds_the_real_one(served: Served) -> None:
    """A worker's command line names its socket, and that of its parent a file with the management address.

    There every model is listed, to whoever may open the socket, which is in a folder of the user's own.
    """
    assert served.load("looks", ONE_WORKER, LOOKS_AROUND).status_code == 200
    seen = served.run(served.invoke("looks", {})).json()
    folder = Path(seen["config_file"]).parent
    assert Path(seen["sock_name"]).parent == folder
    assert seen["address"] == f"unix:{folder}/management.sock"
    assert (folder / "management.sock").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {"modelName": "looks", "modelUrl": str(served.folder / "looks"), "status": "READY"} in seen["models"]
    first = seen["sock_name"]
    assert served.load("looks2", ONE_WORKER, LOOKS_AROUND).status_code == 200
    assert served.run(served.invoke("looks2", {})).json()["sock_name"] != first
    for name in ("looks", "looks2"):
        served.run(served.client.delete(f"/models/{name}"))


def test_a_restarted_process_has_the_place_of_the_one_before(served: Served) -> None:
    """A restarted process has the --sock-name of its predecessor, by which the handler recognises a restart."""
    lines = f"option.async_mode=true\noption.entryPoint=model.py\nretry_threshold=5\n{ONE_WORKER}"
    assert served.load("again", lines, ASYNC_PLACE).status_code == 200
    first = served.run(served.invoke("again", {})).json()
    os.kill(first["pid"], signal.SIGKILL)
    wait_for(lambda: served.run(served.invoke("again", {})).json().get("pid") not in (None, first["pid"]))
    second = served.run(served.invoke("again", {})).json()
    assert (second["place"], second["parent"]) == (first["place"], first["parent"])
    served.run(served.client.delete("/models/again"))
    wait_for(lambda: len(_processes_of(served, "again")) == 1)
    assert _processes_of(served, "again") != [second["pid"]]


def _processes_of(served: Served, name: str) -> list[int]:
    processes = served.run(served.client.get("/_cohost/workers")).json()
    return [process["pid"] for process in processes if process["model_dir"] == str(served.folder / name)]


def test_the_budget_refuses_a_model_that_does_not_fit(served: Served) -> None:
    """A model that does not fit gets 507, and loads after another is deleted."""
    half = "required_memory_mb=9000\ncpu.minWorkers=1\ncpu.maxWorkers=1\n"
    assert served.load("big1", half, ECHO).status_code == 200
    refused = served.load("big2", "required_memory_mb=12000\ncpu.minWorkers=1\ncpu.maxWorkers=1\n", ECHO)
    assert (refused.status_code, refused.reason_phrase) == (507, "Insufficient Storage")
    assert refused.json()["type"] == "WlmOutOfMemoryException"
    served.run(served.client.delete("/models/big1"))
    assert served.load("big2", half, ECHO).status_code == 200
    served.run(served.client.delete("/models/big2"))


def test_a_process_that_a_worker_started_counts_as_used_memory(served: Served) -> None:
    """An engine process holds the weights of all shared models, and outlives the worker that started it."""
    assert served.load("starter", ONE_WORKER, STARTS_A_PROCESS).status_code == 200
    child = served.run(served.invoke("starter", {})).json()["child"]
    served.run(served.client.delete("/models/starter"))
    try:
        counters = served.run(served.client.get("/_cohost/metrics")).text
        workers = re.findall(r"cohost_worker_resident_bytes\{.*\} (\S+)", counters)
        free = 20_000 - sum(map(float, workers)) / 2**20
        nearly_all = f"required_memory_mb={free - 450:.0f}\n{ONE_WORKER}"
        assert served.load("large", nearly_all, ECHO).status_code == 507
    finally:
        os.kill(child, signal.SIGKILL)
    wait_for(lambda: _gone(child))
    assert served.load("large", nearly_all, ECHO).status_code == 200
    served.run(served.client.delete("/models/large"))


def test_a_deleted_model_takes_its_workers_along(served: Served) -> None:
    """Unloading a model ends its worker process."""
    served.load("short", "cpu.minWorkers=1\ncpu.maxWorkers=1\n", ECHO)
    pid = served.run(served.invoke("short", {})).json()["pid"]
    served.run(served.client.delete("/models/short"))
    wait_for(lambda: _gone(pid))


def test_the_container_ends_with_its_parent(tmp_path: Path) -> None:
    """The container and its workers end within seconds after kill -9 of the process that started it."""
    root = Path(__file__).parents[4]
    command = [sys.executable, "-c", STARTS_A_CONTAINER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
        parent.kill()
    wait_for(lambda: all(map(_gone, family)))


def test_workers_end_with_a_killed_container(tmp_path: Path) -> None:
    """All workers end after kill -9 of the server, even a worker that computes."""
    with asyncio.Runner() as runner:
        served = Served(runner, tmp_path)
        try:
            assert served.load("busy", "cpu.minWorkers=1\ncpu.maxWorkers=1\n", ECHO).status_code == 200
            family = psutil.Process(served.container.pid).children(recursive=True)
            os.kill(served.container.pid, signal.SIGKILL)
            assert len(family) >= 2
            wait_for(lambda: all(_gone(process.pid) for process in family))
            assert runner.run(served.container.ping()) is False
        finally:
            served.stop()
        served.run(served.container.stop())
        assert not served.container.alive


def test_a_container_that_cannot_start_says_where_to_look(tmp_path: Path) -> None:
    """The error of a failed start has the path of the log, which names the model."""
    model = tmp_path / "store" / "bad"
    model.mkdir(parents=True)
    (model / "serving.properties").write_text("engine=NoSuch\n")
    log_file = tmp_path / "container.log"
    start = Container.start(model_store=model.parent, multi_model=False, hub_roots=[], log_file=log_file)
    with refused("container-ended", kind=ContainerError) as caught:
        asyncio.run(start)
    assert str(log_file) in caught.value.fix
    assert "Deep learning engine not found: NoSuch" in log_file.read_text()


def test_a_container_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """A start-up time-out leaves no process behind."""
    model = tmp_path / "store" / "slow"
    model.mkdir(parents=True)
    (model / "serving.properties").write_text("engine=Python\ncpu.minWorkers=1\ncpu.maxWorkers=1\n")
    (model / "model.py").write_text("import time\n\ndef handle(inputs):\n    time.sleep(60)\n")
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    start = Container.start(
        model_store=model.parent, multi_model=False, hub_roots=[], log_file=tmp_path / "log", start_timeout_s=2
    )
    with refused("container-start-timeout", kind=ContainerError):
        asyncio.run(start)
    children = {process.pid for process in psutil.Process().children(recursive=True)} - before
    wait_for(lambda: all(map(_gone, children)))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """SIGTERM and Ctrl-C end the container with its workers, and delete its unpacked files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ready = tmp_path / "ready.json"
    command = [sys.executable, "-m", "local_aws.lmi", "--port", "0", "--model-store", str(tmp_path / "none")]
    with subprocess.Popen([*command, "--ready-file", str(ready)], cwd=Path(__file__).parents[4]) as process:
        wait_for(ready.exists)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        assert process.wait(60) in {0, -number}
    wait_for(lambda: all(_gone(child.pid) for child in children))
    assert [path for path in tmp_path.iterdir() if path.name.startswith("lmi-cache")] == []


def test_a_port_in_use_is_told_at_once(tmp_path: Path) -> None:
    """A used port is an error with a fix before heavy modules are imported."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "local_aws.lmi", "--port", port, "--model-store", str(tmp_path)]
        result = subprocess.run(
            command, cwd=Path(__file__).parents[4], capture_output=True, text=True, check=False, timeout=120
        )
    assert result.returncode == 1
    assert f"--port: {port} cannot be taken" in result.stderr


def test_worker_processes_import_no_http_server() -> None:
    """The process that workers are forked from does not import the HTTP server, which would take time and memory."""
    modules = ("workers.zygote", "workers.handler_runner", "stock.onnx")
    imports = "; ".join(f"import local_aws.lmi.{module}" for module in modules)
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; {imports}; print(*sys.modules)"],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    imported = set(result.stdout.split())
    assert "local_aws.lmi.workers.handler_runner" in imported
    assert imported.isdisjoint({"uvicorn", "starlette", "httpx", "h11", "local_aws.lmi.server"})


def test_every_worker_process_that_runs_is_listed(served: Served) -> None:
    """`/_cohost/workers` lists each running worker process with the folder of its model."""
    assert served.load("counted", "cpu.minWorkers=2\ncpu.maxWorkers=2\n", ECHO).status_code == 200
    pids = _processes_of(served, "counted")
    assert len(pids) == 2
    answer = served.run(served.invoke("counted", {}))
    assert answer.json()["pid"] in pids
    served.run(served.client.delete("/models/counted"))
    wait_for(lambda: _processes_of(served, "counted") == [])
