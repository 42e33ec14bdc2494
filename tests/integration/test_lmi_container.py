"""A running container: real weights, real workers, and what happens when processes die."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from cloud_fixtures.running import wait_for
from lmi_served import BATCH_ECHO, ECHO, Served

from local_aws.hub import MINILM, Hub
from local_aws.lmi import Container, ContainerError

if TYPE_CHECKING:
    import httpx

TEXTS = ["A man is eating food.", "A man eats something.", "The stock market fell sharply today."]
STARTS_A_CONTAINER = """
import asyncio, pathlib, sys
from local_aws.hub import default_roots
from local_aws.lmi import Container

async def main():
    folder = pathlib.Path(sys.argv[1])
    container = await Container.start(model_store=folder / "none", multi_model=True, hub_roots=default_roots(),
                                      log_file=folder / "child.log")
    print(container.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def _gone(pid: int) -> bool:
    """Whether a process has ended; one that waits to be reaped has."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_embeddings_equal_transformers_own(served: Served) -> None:
    """all-MiniLM-L6-v2 as feature-extraction answers what transformers' own pipeline answers, to 1e-4."""
    from transformers import pipeline  # noqa: PLC0415 - takes seconds

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
    """400 requests over 32 connections to two workers: each answer is its own request's."""

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
    """As recorded (21_handler_properties): headers by their usual names, and what the engine adds."""
    properties = served.run(served.invoke("echo", {})).json()["properties"]
    assert properties["Content-Type"] == "application/json"
    assert (properties["handler"], properties["device_id"], properties["cluster_size"]) == ("handle", "-1", "1")
    assert properties["model_dir"] == str(served.folder / "echo")
    assert len(properties["requestId"]) == 36


def test_batches_are_counted_at_a_path_of_our_own(served: Served) -> None:
    """Eight requests at once to a model that batches: counters tell requests, batches and waits; unloading forgets."""
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


def test_a_killed_worker_fails_its_request_alone(served: Served, tmp_path: Path) -> None:
    """Killed under load: its request answers 503 at once, others go on, the model is whole again within 10 s.

    What takes longer on a machine that is busy with other things is tried up to three times.
    """
    tries = (_kill_a_worker(served, tmp_path / str(number)) for number in range(3))
    assert any(answered < 1 and whole < 10 for answered, whole in tries)


def _kill_a_worker(served: Served, mark: Path) -> tuple[float, float]:
    """Kill the worker of a request that sleeps; the seconds until that was answered, and until both workers serve."""

    async def others() -> list[int]:
        return [(await served.invoke("nli", {"inputs": "a"})).status_code for _ in range(50)]

    async def scenario() -> tuple[httpx.Response, float, list[int]]:
        doomed = asyncio.create_task(served.invoke("echo", {"sleep": 600, "mark": str(mark)}))
        beside = asyncio.create_task(others())
        await asyncio.to_thread(wait_for, lambda: mark.exists() and mark.read_text())
        pid = int(await asyncio.to_thread(mark.read_text))
        start = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        return await doomed, time.monotonic() - start, await beside

    answer, answered, statuses = served.run(scenario())
    assert answer.status_code == 503
    assert "Python worker disconnected" in answer.json()["message"]
    assert set(statuses) == {200}
    start = time.monotonic()
    wait_for(lambda: len({_pid(served) for _ in range(20)} - {None}) == 2)
    return answered, time.monotonic() - start


def test_a_killed_fork_server_is_replaced(served: Served) -> None:
    """The process that workers come from may die too: models answer again once a new one has imported torch."""
    container = psutil.Process(served.container.pid)
    (zygote,) = container.children()
    zygote.kill()
    wait_for(lambda: [child.pid for child in container.children()] not in ([], [zygote.pid]))
    wait_for(lambda: _status(served) == 200)


def _status(served: Served) -> int:
    return int(served.run(served.invoke("nli", {"inputs": "a"})).status_code)


def _pid(served: Served) -> int | None:
    """The worker that answered, or None where none could."""
    answer = served.run(served.invoke("echo", {"sleep": 0.005})).json()
    return answer.get("pid") if "pid" in answer else None


def test_the_budget_refuses_a_model_that_does_not_fit(served: Served) -> None:
    """507 as recorded, and room again once another model is deleted."""
    half = "required_memory_mb=9000\ncpu.minWorkers=1\ncpu.maxWorkers=1\n"
    assert served.load("big1", half, ECHO).status_code == 200
    refused = served.load("big2", "required_memory_mb=12000\ncpu.minWorkers=1\ncpu.maxWorkers=1\n", ECHO)
    assert (refused.status_code, refused.reason_phrase) == (507, "Insufficient Storage")
    assert refused.json()["type"] == "WlmOutOfMemoryException"
    served.run(served.client.delete("/models/big1"))
    assert served.load("big2", half, ECHO).status_code == 200
    served.run(served.client.delete("/models/big2"))


def test_a_deleted_model_takes_its_workers_along(served: Served) -> None:
    """Unloading frees the memory: the process is gone."""
    served.load("short", "cpu.minWorkers=1\ncpu.maxWorkers=1\n", ECHO)
    pid = served.run(served.invoke("short", {})).json()["pid"]
    served.run(served.client.delete("/models/short"))
    wait_for(lambda: _gone(pid))


def test_the_container_ends_with_its_parent(tmp_path: Path) -> None:
    """After kill -9 of the process that started it: the container and what it forked are gone within seconds."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", STARTS_A_CONTAINER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
        parent.kill()
    wait_for(lambda: all(map(_gone, family)))


def test_workers_end_with_a_killed_container(tmp_path: Path) -> None:
    """After kill -9 of the server there is no worker left, not even one that computes."""
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
    """A model of the store that fails is named in the log, whose path is in the message."""
    model = tmp_path / "store" / "bad"
    model.mkdir(parents=True)
    (model / "serving.properties").write_text("engine=NoSuch\n")
    log_file = tmp_path / "container.log"
    start = Container.start(model_store=model.parent, multi_model=False, hub_roots=[], log_file=log_file)
    with pytest.raises(ContainerError, match=f"exit code 1 while starting; see {log_file}"):
        asyncio.run(start)
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
    with pytest.raises(ContainerError, match="did not listen within 2 s"):
        asyncio.run(start)
    children = {process.pid for process in psutil.Process().children(recursive=True)} - before
    wait_for(lambda: all(map(_gone, children)))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """SIGTERM and Ctrl-C end the container with its workers, and its unpacked files are removed."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ready = tmp_path / "ready.json"
    command = [sys.executable, "-m", "local_aws.lmi", "--port", "0", "--model-store", str(tmp_path / "none")]
    with subprocess.Popen([*command, "--ready-file", str(ready)], cwd=Path(__file__).parents[2]) as process:
        wait_for(ready.exists)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        assert process.wait(60) in {0, -number}
    wait_for(lambda: all(_gone(child.pid) for child in children))
    assert [path for path in tmp_path.iterdir() if path.name.startswith("lmi-cache")] == []


def test_a_port_in_use_is_told_at_once(tmp_path: Path) -> None:
    """Before any heavy import, with the way out."""
    import socket  # noqa: PLC0415 - this test alone

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "local_aws.lmi", "--port", port, "--model-store", str(tmp_path)]
        result = subprocess.run(
            command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=120
        )
    assert result.returncode == 1
    assert f"--port: {port} cannot be taken" in result.stderr


def test_every_worker_process_that_runs_is_listed(served: Served) -> None:
    """`/_cohost/workers` names each process with the folder of its model, and drops it once it has ended."""

    def of_folder(name: str) -> list[int]:
        processes = served.run(served.client.get("/_cohost/workers")).json()
        return [process["pid"] for process in processes if process["model_dir"] == str(served.folder / name)]

    assert served.load("counted", "cpu.minWorkers=2\ncpu.maxWorkers=2\n", ECHO).status_code == 200
    pids = of_folder("counted")
    assert len(pids) == 2
    answer = served.run(served.invoke("counted", {}))
    assert answer.json()["pid"] in pids
    served.run(served.client.delete("/models/counted"))
    wait_for(lambda: of_folder("counted") == [])
