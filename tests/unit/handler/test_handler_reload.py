"""The first call of a process never blocks the server: a failure is raised at import, or sent to callers."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from handler_calls import MINILM, InProcess, properties, reply, request

from cohost.handler import cohost_reload
from cohost.handler.cohost_errors import ModelError
from cohost.handler.cohost_memory import NoDeviceError
from cohost.handler.cohost_reload import EarlyLoad, FirstStart, Reloader, early_properties, has_weights, service_of
from cohost.handler.cohost_service import Service
from local_aws.lmi.handler_api import Input, Output

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from handler_calls import Reply


class SlowService:
    """A service that loads when `gate` opens, and fails as many times as `failures` has entries."""

    def __init__(self, *failures: Exception) -> None:
        self.gate = threading.Event()
        self.failures = list(failures)
        self.attempts = 0
        self.loaded: dict[str, Any] | None = None

    def prepare(self, given: Any) -> dict[str, Any]:
        """Load, in the thread that calls."""
        self.attempts += 1
        self.gate.wait(60)
        if self.failures:
            raise self.failures.pop(0)
        return dict(given)

    def begin(self, prepared: dict[str, Any]) -> None:
        """Serve, in the event loop."""
        asyncio.get_running_loop()
        self.loaded = prepared

    async def handle(self, inputs: Any) -> Output:
        """Answer, as the handler does."""
        assert self.loaded is not None
        output = Output()
        if inputs.is_empty():
            return output
        output.add_property("Content-Type", "application/json")
        output.add(Output.binary_encode({"data": '"served"', "last": True}))
        return output


def first_call(**given: str) -> Input:
    """Make the server's first call to a process that it has started."""
    inputs = Input()
    inputs.properties = {"model_dir": "/m"} | given
    return inputs


def reloading(
    service: SlowService, scenario: Callable[[Callable[[], Awaitable[Reply]]], Awaitable[Any]], **keywords: Any
) -> Any:
    """Run a scenario with a process after its first call."""
    given = {name: keywords.pop(name) for name in ("max_queue_time_ms",) if name in keywords}

    async def run() -> Any:
        reloader = Reloader(Output, lambda: service, **keywords)

        async def call() -> Reply:
            return reply(await reloader.handle(request({"inputs": "a"})))

        output = await reloader.handle(first_call(**given))
        assert (output.code, output.content.size()) == (200, 0)
        return await asyncio.wait_for(scenario(call), 60)

    return asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    """Wait until another thread has made a condition true."""
    while not condition():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.005)


def test_the_first_call_is_answered_before_the_model_is_there_and_others_wait_for_it() -> None:
    """A restarted process answers its first call at once, and later calls wait for the model."""
    service = SlowService()

    async def scenario(call: Callable[[], Awaitable[Reply]]) -> list[Reply]:
        await until(lambda: service.attempts == 1)
        waiting = [asyncio.ensure_future(call()) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)
        service.gate.set()
        return [*await asyncio.gather(*waiting), await call()]

    answers = reloading(service, scenario)
    assert [(answer.status, answer.body) for answer in answers] == [(200, "served")] * 4
    assert service.loaded == {"model_dir": "/m"}
    assert service.attempts == 1


def test_a_load_that_fails_is_told_to_callers_and_tried_again() -> None:
    """Waiting callers get the reason of a failed load, and the model answers once a later attempt succeeds."""
    service, exits = SlowService(MemoryError("no room"), OSError("weights\ngone")), []

    async def scenario(call: Callable[[], Awaitable[Reply]]) -> list[Reply]:
        waiting = asyncio.ensure_future(call())
        await asyncio.sleep(0.05)
        service.gate.set()
        answers = [await waiting]
        while answers[-1].status != 200:
            answers.append(await call())
            await asyncio.sleep(0.01)
        return answers

    answers = reloading(service, scenario, pauses_s=(0.1, 0.2), end_process=exits.append)
    assert {answer.status for answer in answers} == {503, 200}
    reasons = {answer.body["error"] for answer in answers[:-1]}
    start = "the model's process was started again, and the model cannot be loaded"
    assert reasons == {
        f"{start} (MemoryError: no room); the process tries again within 0.1 s",
        f"{start} (OSError: weights gone); the process tries again within 0.2 s",
    }
    assert exits == []


@pytest.mark.parametrize("error", [RuntimeError("CUDA error: unspecified launch failure"), NoDeviceError("no GPU")])
def test_a_lost_device_ends_the_process_once_callers_are_answered(error: Exception) -> None:
    """A load that loses the device ends the process after callers are answered; only a new process may help."""
    service, exits = SlowService(error), []
    service.gate.set()

    async def scenario(call: Callable[[], Awaitable[Reply]]) -> list[Reply]:
        answers = [await call()]
        await until(lambda: bool(exits))
        return [*answers, await call()]

    answers = reloading(service, scenario, lost_device_pause_s=0.05, end_process=exits.append)
    assert [answer.status for answer in answers] == [503, 503]
    assert f"the GPU failed ({type(error).__name__}: {error}), so the model's process ends" in answers[0].body["error"]
    assert exits == [3]
    assert service.attempts == 1


def test_a_call_waits_no_longer_than_the_queue_allows() -> None:
    """A call waits for the model up to max_queue_time_ms, which is less than the minute of SageMaker."""
    service = SlowService()

    async def scenario(call: Callable[[], Awaitable[Reply]]) -> Reply:
        answer = await call()
        service.gate.set()
        return answer

    answer = reloading(service, scenario, max_queue_time_ms="50")
    assert answer.status == 503
    assert "the model is not loaded after 0.05 s; fix: send the request again" in answer.body["error"]


def test_no_more_calls_wait_than_the_server_itself_would_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of waiting calls is limited as in the server's queue, because their bodies take memory."""
    monkeypatch.setattr(cohost_reload, "_MOST_WAITING", 2)
    service = SlowService()

    async def scenario(call: Callable[[], Awaitable[Reply]]) -> list[Reply]:
        calls = [asyncio.ensure_future(call()) for _ in range(3)]
        refused, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result().status for task in refused] == [503]
        service.gate.set()
        return await asyncio.gather(*calls)

    assert [answer.status for answer in reloading(service, scenario)] == [200, 200, 503]


def test_a_caller_that_leaves_disturbs_nobody() -> None:
    """If a waiting caller leaves, another that waits for the same model is served."""
    service = SlowService()

    async def scenario(call: Callable[[], Awaitable[Reply]]) -> Reply:
        leaving, staying = asyncio.ensure_future(call()), asyncio.ensure_future(call())
        await asyncio.sleep(0.05)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        service.gate.set()
        return await staying

    assert reloading(service, scenario).status == 200


def first_start(
    early: EarlyLoad[Any] | None, service: Any, *calls: Input, multi_model: bool = True, given: Any = None
) -> list[Reply]:
    """Return the answers to the first call of a first start, and to further calls."""

    async def run() -> list[Reply]:
        first = FirstStart(early, tells_callers=multi_model)
        reloader: Reloader[Any] = Reloader(Output, lambda: service, first=first, pauses_s=(60,))
        output = await reloader.handle(first_call(**(given or {})))
        assert (output.code, output.content.size()) == (200, 0)
        return [reply(await reloader.handle(call)) for call in calls]

    return asyncio.run(run())


def test_a_first_start_answers_its_first_call_when_the_model_is_there() -> None:
    """At a first start the first call is answered when the model is loaded."""
    service = SlowService()
    threading.Timer(0.2, service.gate.set).start()

    (answer,) = first_start(None, service, request({"inputs": "a"}))

    assert (answer.body, service.attempts) == ("served", 1)


def test_a_load_that_fails_in_the_first_call_is_told_to_callers_of_a_multi_model_endpoint() -> None:
    """On a multi-model endpoint a failed load answers the first call, and later calls get the reason."""
    service = SlowService(OSError("no such weights"))
    service.gate.set()

    (answer,) = first_start(None, service, request({"inputs": "a"}))

    assert answer.status == 503
    assert answer.body["error"] == (
        "the model cannot be loaded (OSError: no such weights); the process tries again within 60 s"
    )


def test_a_load_that_fails_in_the_first_call_keeps_a_start_up_from_being_ready() -> None:
    """At start-up a failed load in the first call is not answered, so the server does not get ready."""
    service = SlowService(OSError("no such weights"))
    service.gate.set()

    with pytest.raises(ModelError, match="no such weights"):
        first_start(None, service, multi_model=False)


def test_what_was_loaded_at_import_is_served_if_the_first_call_asks_for_it() -> None:
    """A first call with the options of the import uses the loaded model, and with other options loads it again."""
    for first, loads in (({"dtype": "fp16"}, 1), ({"dtype": "bf16"}, 2)):
        service = SlowService()
        service.gate.set()
        early = EarlyLoad(service, {"model_dir": "/m", "dtype": "fp16"})
        early.wait(60)

        (answer,) = first_start(early, service, request({"inputs": "a"}), given=first)

        assert answer.body == "served"
        assert service.attempts == loads
        assert service.loaded == {"model_dir": "/m"} | first


def test_a_load_that_takes_longer_than_the_import_may_goes_on_in_the_first_call() -> None:
    """A load over the time limit of an import continues in the first call."""
    service = SlowService()
    early = EarlyLoad(service, {"model_dir": "/m"})
    early.wait(0.05)
    threading.Timer(0.1, service.gate.set).start()

    assert first_start(early, service, request({"inputs": "a"}))[0].body == "served"
    assert service.attempts == 1


def test_what_fails_at_import_is_raised_there() -> None:
    """A failure at import raises an error, and the server answers the load at once."""
    service = SlowService(OSError("no such weights"))
    service.gate.set()

    with pytest.raises(OSError, match="no such weights"):
        EarlyLoad(service, {"model_dir": "/m"}).wait(60)


def test_the_first_call_is_foreseen_from_the_folder_and_the_command_line(tmp_path: Path) -> None:
    """The options of the first call are read from folder and command line unless the server may differ."""
    arguments = ["engine.py", "--device-id", "1"]
    file = tmp_path / "serving.properties"
    assert early_properties(tmp_path, arguments) is None
    file.write_text("# a comment\nengine=Python\noption.model_id=org/name\ncpu.maxWorkers = 2\n")
    assert early_properties(tmp_path, arguments) == {
        "engine": "Python",
        "model_id": "org/name",
        "cpu.maxWorkers": "2",
        "device_id": "1",
        "model_dir": str(tmp_path),
    }
    assert early_properties(tmp_path, ["engine.py"]) is None
    for text in (
        "option.model_id=org\\:name\n",
        "engine Python\n",
        "engine=P\u00e9\n",
    ):
        file.write_text(text, encoding="utf-8")
        assert early_properties(tmp_path, arguments) is None, text


def test_weights_that_only_the_server_can_find_are_waited_for(tmp_path: Path) -> None:
    """Weights that the server fetches from S3 are loaded in the first call, which names their folder."""
    beside = {"model_dir": str(tmp_path)}
    assert has_weights(beside)
    assert has_weights(beside | {"model_id": "org/name"})
    assert not has_weights(beside | {"model_id": "s3://bucket/m/"})
    assert has_weights(beside | {"model_id": str(tmp_path)})
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert not has_weights(beside | {"model_id": "org/name"})


@pytest.mark.parametrize("restarted", [True, False], ids=["restart", "first start"])
def test_the_handler_itself_is_served(tmp_path: Path, *, restarted: bool) -> None:
    """The packed handler serves a real model, which is loaded once however often model.py is imported."""
    name = Service.__module__

    async def scenario() -> Reply:
        reloader = service_of(tmp_path, name, "Service", Output, restarted=restarted, backend=InProcess())
        assert service_of(tmp_path, name, "Service", Output, restarted=restarted) is reloader
        first = Input()
        first.properties = properties(MINILM)
        await reloader.handle(first)
        answer = reply(await reloader.handle(request({"inputs": "the movie was great"})))
        reloader._service.close()
        return answer

    answer = asyncio.run(scenario())
    assert (answer.status, answer.body[0]["label"]) == (200, "neutral")
