"""A restarted process: its first call never fails, callers wait for the model, a failure is told and tried again."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from handler_calls import MINILM, properties, reply, request

from cohost.handler import cohost_reload
from cohost.handler.cohost_memory import NoDeviceError
from cohost.handler.cohost_reload import Reloader, service_of
from cohost.handler.cohost_service import Service
from local_aws.lmi.handler_api import Input, Output

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from handler_calls import Reply


class SlowService:
    """A service that loads when `gate` opens, and fails as often as there are `failures`."""

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

    async def handle(self, _inputs: Any) -> Output:
        """Answer."""
        assert self.loaded is not None
        output = Output()
        output.add_property("Content-Type", "application/json")
        output.add(Output.binary_encode({"data": '"served"', "last": True}))
        return output


def first_call(**given: str) -> Input:
    """What the server sends to a process that it has started."""
    inputs = Input()
    inputs.properties = {"model_dir": "/m"} | given
    return inputs


def reloading(
    service: SlowService, scenario: Callable[[Callable[[], Awaitable[Reply]]], Awaitable[Any]], **keywords: Any
) -> Any:
    """Lets a scenario call a process after its first call."""
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
    """Waits for what another thread does."""
    while not condition():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.005)


def test_the_first_call_is_answered_before_the_model_is_there_and_others_wait_for_it() -> None:
    """No caller sees the restart but by the time that it takes; the properties are the first call's."""
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
    """Whoever waits gets the reason, and the model answers when an attempt succeeds; the process never ends for it."""
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
    start = "the model's process was started again and cannot load the model"
    assert reasons == {
        f"{start} (MemoryError: no room); it tries again within 0.1 s",
        f"{start} (OSError: weights gone); it tries again within 0.2 s",
    }
    assert exits == []


@pytest.mark.parametrize("error", [RuntimeError("CUDA error: unspecified launch failure"), NoDeviceError("no GPU")])
def test_a_lost_device_ends_the_process_once_callers_are_answered(error: Exception) -> None:
    """Only another process can get it back, and if none can, the server gives the model up after its last restart."""
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
    """SageMaker gives up after a minute, so the caller hears it before."""
    service = SlowService()

    async def scenario(call: Callable[[], Awaitable[Reply]]) -> Reply:
        answer = await call()
        service.gate.set()
        return answer

    answer = reloading(service, scenario, max_queue_time_ms="50")
    assert answer.status == 503
    assert "the model is not loaded after 0.05 s; send the request again" in answer.body["error"]


def test_no_more_calls_wait_than_the_server_itself_would_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their bodies take memory, which a loading model needs."""
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
    """Another one that waits for the same model is served."""
    service = SlowService()

    async def scenario(call: Callable[[], Awaitable[Reply]]) -> Reply:
        leaving, staying = asyncio.ensure_future(call()), asyncio.ensure_future(call())
        await asyncio.sleep(0.05)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        service.gate.set()
        return await staying

    assert reloading(service, scenario).status == 200


def test_the_handler_itself_is_loaded_behind_the_first_call() -> None:
    """The shipped service, with a real model; a first start serves it without a detour."""
    name = Service.__module__

    async def scenario() -> Reply:
        reloader = service_of(name, "Service", Output, restarted=True)
        first = Input()
        first.properties = properties(MINILM)
        await reloader.handle(first)
        answer = reply(await reloader.handle(request({"inputs": "the movie was great"})))
        reloader._service.close()
        return answer

    answer = asyncio.run(scenario())
    assert (answer.status, answer.body[0]["label"]) == (200, "neutral")
    assert isinstance(service_of(name, "Service", Output, restarted=False, end_process=os._exit), Service)
