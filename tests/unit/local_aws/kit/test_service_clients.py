"""The calls and the background work of a service end with the service."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from local_aws.kit.background import BackgroundTasks
from local_aws.kit.clients import ServiceClients

if TYPE_CHECKING:
    import pytest


def test_closing_waits_for_calls_that_run() -> None:
    """Closing a service waits for its running calls."""
    started, go = threading.Event(), threading.Event()
    sent: list[str] = []

    def send() -> None:
        started.set()
        go.wait(60)
        sent.append("value")

    async def scene() -> None:
        clients = ServiceClients(lambda: "http://127.0.0.1:1", "us-east-1")
        call = asyncio.create_task(clients.run(send))
        await asyncio.to_thread(started.wait, 60)
        closing = asyncio.create_task(clients.close())
        # Were the call not waited for, this would return as soon as it is closed.
        done, _ = await asyncio.wait({closing}, timeout=0.1)
        assert not done
        go.set()
        await closing
        assert sent == ["value"]
        await call

    asyncio.run(scene())


def test_giving_up_waits_until_tasks_have_cleaned_up() -> None:
    """Cancelling a task waits for its clean-up."""
    steps: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    async def scene() -> None:
        tasks = BackgroundTasks()
        tasks.begin(work())
        await asyncio.sleep(0)
        await tasks.give_up()
        steps.append("given up")

    asyncio.run(scene())
    assert steps == ["cleaned up", "given up"]


def test_a_task_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The exception of a background task is logged; a cancelled task has none."""

    async def work() -> None:
        raise RuntimeError("a fault of the emulation")

    async def scene() -> None:
        tasks = BackgroundTasks()
        tasks.begin(work())
        tasks.begin(asyncio.sleep(60))
        for _ in range(3):
            await asyncio.sleep(0)
        await tasks.give_up()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scene())
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["a fault of the emulation"]
