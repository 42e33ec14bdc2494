"""The batching handler inside the LMI container: statuses on the wire, clients that leave, processes that end."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import cohost.handler
import local_aws
from cohost.archives.properties import dumps
from local_aws.lmi.container import Container
from local_aws.testing import wait_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

HUB = Path(local_aws.__file__).parent / "data" / "hub"
SOURCE = Path(cohost.handler.__file__).parent
LONG = " ".join(["the movie was great and good"] * 100)

# Added to a copy of the shipped handler: a model that loses its device on a text, as a GPU does after an assertion.
POISON = """
_launch = Forward.launch

def _poisoned(self, sequences):
    if any(len(one.encoded.ids) == 17 for one in sequences):
        raise RuntimeError("CUDA error: device-side assert triggered")
    return _launch(self, sequences)

Forward.launch = _poisoned
"""


def write_model(folder: Path, **options: object) -> Path:
    """Write a model's folder as its unpacked archive."""
    folder.mkdir(parents=True)
    for file in SOURCE.glob("*.py"):
        if file.name != "__init__.py":
            shutil.copy(file, folder)
    given = {
        "engine": "Python",
        "option.model_id": "lmi-cohost/tiny-minilm-nli",
        "option.task": "text-classification",
        "option.rolling_batch": "disable",
        "option.async_mode": "true",
        "option.entryPoint": "model.py",
        "cpu.minWorkers": "1",
        "cpu.maxWorkers": "1",
        "retry_threshold": "10",
    } | {f"option.{name}": str(value) for name, value in options.items()}
    (folder / "serving.properties").write_text(dumps(given), encoding="ascii")
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the container's models, with its log."""
    return tmp_path_factory.mktemp("container")


@pytest.fixture(scope="module")
def container(root: Path) -> Iterator[Container]:
    """Start a container with five models that all tests share, because a start takes seconds."""
    (root / "store").mkdir()
    with (write_model(root / "poisoned") / "cohost_forward.py").open("a") as file:
        file.write(POISON)
    models = [
        root / "poisoned",
        write_model(root / "minilm"),
        write_model(root / "limited", max_texts_per_request=8),
        write_model(root / "killed"),
        write_model(root / "hanging", pass_timeout_s=1),
    ]
    log = root / "container.log"
    with asyncio.Runner() as runner:
        container = runner.run(
            Container.start(
                model_store=root / "store",
                multi_model=True,
                hub_roots=[HUB],
                log_file=log,
                environment={"SAGEMAKER_MULTI_MODEL": "true"},
            )
        )
        try:
            for model in models:
                body = {"model_name": model.name, "url": str(model)}
                loaded = httpx.post(
                    f"{container.url}/models", json=body, headers=container.headers, timeout=60, trust_env=False
                )
                assert loaded.status_code == 200, loaded.text + log.read_text()
            yield container
        finally:
            runner.run(container.stop())


def call(container: Container, scenario: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    """Lets a scenario call the container."""

    async def run() -> None:
        limits = httpx.Limits(max_connections=64)
        async with httpx.AsyncClient(
            base_url=container.url, headers=container.headers, timeout=60, trust_env=False, limits=limits
        ) as client:
            await scenario(client)

    asyncio.run(run())


async def invoke(client: httpx.AsyncClient, model: str, inputs: Any, **parameters: Any) -> httpx.Response:
    """A request's answer."""
    return await client.post(f"/models/{model}/invoke", json={"inputs": inputs, "parameters": parameters})


def test_each_request_has_a_status_of_its_own_on_the_wire(container: Container) -> None:
    """Simultaneous good and bad requests get 200 with the stock handler's text, or 400 or 413 with a reason."""

    async def scenario(client: httpx.AsyncClient) -> None:
        bodies: list[Any] = ["the movie was great", 3, ["a"] * 9, LONG] * 8
        answers = await asyncio.gather(*(invoke(client, "limited", body) for body in bodies))
        assert [answer.status_code for answer in answers] == [200, 400, 413, 200] * 8
        score = answers[0].json()[0]["score"]
        assert answers[0].text == f'[\n  {{\n    "label":"neutral",\n    "score":{score}\n  }}\n]'
        assert abs(score - 0.3472675383090973) < 1e-4
        assert answers[1].json()["error"].startswith("inputs: got 3; allowed: a text")
        assert answers[1].reason_phrase.startswith("inputs: got 3; allowed: a text")
        assert answers[3].headers["cohost-truncated"] == "1"
        assert answers[3].headers["x-amzn-sagemaker-custom-attributes"] == "cohost-truncated=1"
        attributes = {"X-Amzn-SageMaker-Custom-Attributes": "cohost-batch=true"}
        asked = await client.post("/models/minilm/invoke", json={"inputs": "a"}, headers=attributes)
        assert asked.headers["cohost-batch"].startswith("1/3 ")

    call(container, scenario)


def test_clients_that_leave_do_not_hold_others_up(container: Container) -> None:
    """If half of the clients close their connections, the requests of the other half are still answered."""

    async def scenario(client: httpx.AsyncClient) -> None:
        leaving = [asyncio.create_task(invoke(client, "minilm", [LONG] * 8)) for _ in range(12)]
        staying = [asyncio.create_task(invoke(client, "minilm", f"text {number}")) for number in range(12)]
        await asyncio.sleep(0.05)
        for task in leaving:
            task.cancel()
        answers = await asyncio.gather(*staying)
        assert [answer.status_code for answer in answers] == [200] * 12
        await asyncio.gather(*leaving, return_exceptions=True)
        assert (await invoke(client, "minilm", "after")).status_code == 200

    call(container, scenario)


async def workers(client: httpx.AsyncClient, model_dir: Path) -> list[int]:
    """Return the process ids of a model's workers, including unlisted ones."""
    answer = (await client.get("/_cohost/workers")).json()
    return [worker["pid"] for worker in answer if worker["model_dir"] == str(model_dir)]


async def left(client: httpx.AsyncClient, model_dir: Path, pid: int) -> None:
    """Wait until a process has ended; a process that ends itself first sends its answers for half a second."""
    while pid in await workers(client, model_dir):  # noqa: ASYNC110 - another process knows
        await asyncio.sleep(0.02)


async def recovered(client: httpx.AsyncClient, model: str) -> list[httpx.Response]:
    """Return the answers up to the first success of a model whose process is restarted."""
    answers = []
    for _ in range(600):
        answers.append(await invoke(client, model, "fine"))
        if answers[-1].status_code == 200:
            return answers
        assert answers[-1].status_code == 400, answers[-1].text
        assert answers[-1].json()["message"] == "Backend Python process is stopped."
        await asyncio.sleep(0.05)
    pytest.fail(answers[-1].text)


async def is_alone(client: httpx.AsyncClient, model_dir: Path, ended: int) -> None:
    """Assert that a recovered model has one new process, and that the server is healthy."""
    (pid,) = await workers(client, model_dir)
    assert pid != ended
    assert (await client.get("/ping")).status_code == 200


async def engine(client: httpx.AsyncClient, model: str) -> tuple[int, int]:
    """The process that runs a model, and how many there have been."""
    answer = await client.post(f"/models/{model}/invoke", content=b"{}", headers={"cohost-counters": "true"})
    return answer.json()["engine_pid"], answer.json()["engine_starts"]


async def notices_nothing(
    client: httpx.AsyncClient, root: Path, model: str, before: tuple[int, int], lives: int
) -> None:
    """The server's worker is the one that it started, and it has had so many engine processes more."""
    process, starts = await engine(client, model)
    assert (process == before[0], starts) == (False, before[1] + lives)
    assert len(await workers(client, root / model)) == 1
    assert (await client.get("/ping")).status_code == 200


def test_a_request_that_loses_the_device_twice_fails_alone(container: Container, root: Path) -> None:
    """It is tried again once, by itself; the texts that were with it are answered, and the server notices nothing."""

    async def scenario(client: httpx.AsyncClient) -> None:
        before = await engine(client, "poisoned")
        poison = " ".join(["movie"] * 15)
        answers = await asyncio.gather(*(invoke(client, "poisoned", text) for text in ("fine", poison, "good", "a")))
        assert [answer.status_code for answer in answers] == [200, 500, 200, 200]
        assert "ended twice while it ran this request" in answers[1].json()["error"]
        await notices_nothing(client, root, "poisoned", before, 2)

    call(container, scenario)


def test_a_killed_engine_process_loses_no_call(container: Container, root: Path) -> None:
    """Two ends in a row under load: every call is answered, by the process that follows."""

    async def scenario(client: httpx.AsyncClient) -> None:
        for _ in range(2):
            before = await engine(client, "killed")
            calls = [asyncio.create_task(invoke(client, "killed", f"text {n}")) for n in range(16)]
            await asyncio.sleep(0.01)
            os.kill(before[0], signal.SIGKILL)
            assert [answer.status_code for answer in await asyncio.gather(*calls)] == [200] * 16
            await notices_nothing(client, root, "killed", before, 1)

    call(container, scenario)


def test_a_killed_proxy_process_comes_back_and_calls_wait_while_it_loads(container: Container, root: Path) -> None:
    """The server starts it again; until its first call the server answers for it, then calls wait for the model."""

    async def scenario(client: httpx.AsyncClient) -> None:
        (before,) = await workers(client, root / "killed")
        os.kill(before, signal.SIGKILL)
        await left(client, root / "killed", before)
        answers = await recovered(client, "killed")
        assert answers[-1].json()[0]["label"] == "neutral"
        await is_alone(client, root / "killed", before)

    call(container, scenario)


def test_a_pass_that_hangs_loses_no_call(container: Container, root: Path) -> None:
    """The pass is ended after its time limit, with its process; those in it and behind it are answered by the next."""

    async def scenario(client: httpx.AsyncClient) -> None:
        before = await engine(client, "hanging")
        await client.put("/_cohost/worker-faults", json={"model": "hanging", "fault": "hang"})
        answers = await asyncio.gather(*(invoke(client, "hanging", f"text {n}") for n in range(4)))
        assert [answer.status_code for answer in answers] == [200] * 4
        await notices_nothing(client, root, "hanging", before, 1)

    call(container, scenario)


def test_unloading_leaves_no_process(container: Container, root: Path) -> None:
    """The process that the server starts for an unloaded model ends itself, also after an immediate reload."""
    folder, rounds = write_model(root / "unloaded"), 4

    async def scenario(client: httpx.AsyncClient) -> None:
        for _ in range(rounds):
            loaded = await client.post("/models", json={"model_name": "unloaded", "url": str(folder)})
            assert loaded.status_code == 200, loaded.text
            assert (await invoke(client, "unloaded", "fine")).status_code == 200
            assert (await client.delete("/models/unloaded")).status_code == 200
        log, line = root / "container.log", f"{folder} is unloaded, so this process"
        await asyncio.to_thread(wait_for, lambda: log.read_text().count(line) == rounds)
        for pid in await workers(client, folder):
            await left(client, folder, pid)

    call(container, scenario)


def test_a_model_that_cannot_be_loaded_is_answered_at_once_and_does_not_lock_the_server(
    container: Container, root: Path
) -> None:
    """A model that cannot be loaded is answered at once and leaves no process; other loads work."""
    bad, good = write_model(root / "bad", dtype="fp8"), write_model(root / "good")

    async def scenario(client: httpx.AsyncClient) -> None:
        refused = await client.post("/models", json={"model_name": "bad", "url": str(bad)})
        assert (refused.status_code, refused.json()["message"]) == (
            500,
            "Python stream closed unexpectedly, exit code: 1",
        )
        assert "dtype: got 'fp8'; allowed: one of" in (root / "container.log").read_text()
        assert not await workers(client, bad)
        assert (await client.post("/models", json={"model_name": "good", "url": str(good)})).status_code == 200
        assert (await client.delete("/models/good")).status_code == 200
        assert (await client.get("/ping")).status_code == 200

    call(container, scenario)


def test_hundreds_of_requests_at_once_are_batched_and_none_is_lost(container: Container) -> None:
    """Requests of 32 clients each get their own answer, in fewer passes than texts."""

    async def scenario(client: httpx.AsyncClient) -> None:
        texts = [" ".join(["movie", "great", "food"][n % 3] for _ in range(1 + n % 40)) for n in range(120)]
        alone = {text: (await invoke(client, "minilm", text)).json()[0]["score"] for text in texts}
        before = await counters(client)
        todo = iter(texts * 5)

        async def one_client() -> int:
            answered = 0
            for text in todo:
                answer = (await invoke(client, "minilm", text)).json()
                assert abs(answer[0]["score"] - alone[text]) < 1e-4
                answered += 1
            return answered

        assert sum(await asyncio.gather(*(one_client() for _ in range(32)))) == 600
        after = await counters(client)
        assert after["sequences"] - before["sequences"] == 600
        assert after["passes"] - before["passes"] < 600

    call(container, scenario)


async def counters(client: httpx.AsyncClient) -> dict[str, Any]:
    """The worker's sums."""
    answer = await client.post("/models/minilm/invoke", content=b"{}", headers={"cohost-counters": "true"})
    sums: dict[str, Any] = json.loads(answer.text)
    return sums
