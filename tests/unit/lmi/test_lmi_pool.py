"""Workers are started, used, replaced and ended; no request is left without an answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from local_aws.lmi.faults import CapacityExceeded, EngineFailure, NotReady, WorkerFailure
from local_aws.lmi.frames import Frame
from local_aws.lmi.model_settings import ModelSettings, read_settings
from local_aws.lmi.pool import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from local_aws.lmi.frames import Content


class FakeLink:
    """A worker that answers "ok", or not at all while it is told to hang."""

    def __init__(self, starter: FakeStarter, on_lost: Callable[[], None]) -> None:
        self._starter = starter
        self._on_lost = on_lost
        self._asked: list[asyncio.Future[Frame]] = []

    async def ask(self, properties: dict[str, str], contents: Sequence[Content]) -> Frame:
        """Takes a request; answers it unless told to hang."""
        self._starter.batches.append(int(properties.get("batch_size", "1")))
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._asked.append(future)
        if not self._starter.hanging:
            keys = [key for key, _ in contents]
            answers = [(key, b"ok") for key in keys]
            future.set_result(Frame({"id": 1, "code": 200, "message": "OK", "properties": {}}, answers))
        return await future

    def die(self) -> None:
        """Ends as a killed process does: calls fail, then the pool hears of it."""
        for future in self._asked:
            if not future.done():
                future.set_exception(WorkerFailure("Python worker disconnected."))
        self._on_lost()

    def close(self) -> None:
        """The pool's own way to end a worker."""
        self.die()


class FakeStarter:
    """Starts fake workers; fails the next `failures` starts."""

    def __init__(self) -> None:
        self.links: list[FakeLink] = []
        self.batches: list[int] = []
        self.failures = 0
        self.hanging = False

    async def start(self, on_lost: Callable[[], None]) -> tuple[int, FakeLink]:
        """A new worker, or the failure asked for."""
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise EngineFailure("Failed to initialize model: no")
        self.links.append(FakeLink(self, on_lost))
        return 1000 + len(self.links), self.links[-1]

    def kill(self, pid: int) -> None:
        """Kills by pid."""
        self.links[pid - 1001].die()


@pytest.fixture
def settings(tmp_path: Path) -> ModelSettings:
    """One worker, no batching."""
    (tmp_path / "serving.properties").write_text("option.model_id=a/b\ncpu.minWorkers=1\ncpu.maxWorkers=1\n")
    return read_settings(tmp_path, {})


def _run(settings: ModelSettings, scenario: Callable[[WorkerPool, FakeStarter], Coroutine[Any, Any, Any]]) -> Any:
    async def run() -> Any:
        starter = FakeStarter()
        pool = WorkerPool("m", settings, starter)  # type: ignore[arg-type]
        async with asyncio.timeout(60):
            try:
                return await scenario(pool, starter)
            finally:
                pool.close()
                await asyncio.sleep(0.01)

    return asyncio.run(run())


def _submit(pool: WorkerPool) -> asyncio.Task[Any]:
    return asyncio.create_task(pool.submit({}, [("data", b"x")]))


async def _settled() -> None:
    """Everything that waits for no time has happened: the workers of these tests answer at once."""
    for _ in range(50):
        await asyncio.sleep(0)


async def _until(condition: Callable[[], Any]) -> None:
    """What the pool does by itself has happened."""
    while not condition():  # noqa: ASYNC110 - the pool tells nobody
        await asyncio.sleep(0.001)


def _replaced(pool: WorkerPool) -> bool:
    """Whether no worker is gone or on its way."""
    return [worker.running for worker in pool.workers] == [True] and not pool._tasks


def test_a_request_is_answered(settings: ModelSettings) -> None:
    """The shortest way through a pool."""

    async def scenario(pool: WorkerPool, _: FakeStarter) -> bytes:
        await pool.start()
        return (await pool.submit({}, [("data", b"x")])).body

    assert _run(settings, scenario) == b"ok"


def test_a_dead_worker_is_replaced_and_its_request_fails_at_once(settings: ModelSettings) -> None:
    """The caller is told, the next one is served by a new worker."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> tuple[bytes, int]:
        await pool.start()
        starter.hanging = True
        doomed = _submit(pool)
        await _until(lambda: starter.batches)
        starter.hanging = False
        starter.links[0].die()
        with pytest.raises(WorkerFailure, match="disconnected"):
            await doomed
        await _until(lambda: _replaced(pool))
        return (await pool.submit({}, [("data", b"x")])).body, len(pool.workers)

    assert _run(settings, scenario) == (b"ok", 1)


def test_a_worker_that_dies_idle_is_replaced(settings: ModelSettings) -> None:
    """A worker killed between two requests costs none of them."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> bytes:
        await pool.start()
        starter.links[0].die()
        await _until(lambda: _replaced(pool))
        return (await pool.submit({}, [("data", b"x")])).body

    assert _run(settings, scenario) == b"ok"


def test_requests_that_wait_are_served_by_the_replacement(settings: ModelSettings) -> None:
    """Only the request that the worker had is lost with it."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> list[Any]:
        await pool.start()
        starter.hanging = True
        requests = [_submit(pool) for _ in range(4)]
        await _until(lambda: starter.batches)
        starter.hanging = False
        starter.links[0].die()
        return await asyncio.gather(*requests, return_exceptions=True)

    results = _run(settings, scenario)
    assert [isinstance(result, WorkerFailure) for result in results].count(True) == 1


def test_a_slow_worker_is_killed_and_replaced(settings: ModelSettings) -> None:
    """Longer than predict_timeout answers 503 with Java's exception name, as recorded (06)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> bytes:
        await pool.start()
        starter.hanging = True
        with pytest.raises(WorkerFailure, match=r"java\.util\.concurrent\.TimeoutException"):
            await pool.submit({}, [("data", b"x")])
        starter.hanging = False
        await _until(lambda: _replaced(pool))
        return (await pool.submit({}, [("data", b"x")])).body

    assert _run(replace(settings, predict_timeout_s=0), scenario) == b"ok"


def test_a_model_whose_workers_cannot_be_restarted_has_failed(settings: ModelSettings) -> None:
    """After a few tries the pool gives up and says so."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> bool:
        await pool.start()
        starter.failures = 99
        starter.links[0].die()
        await _until(lambda: pool.failed)
        with pytest.raises(NotReady, match="Model is not ready: m"):
            await pool.submit({}, [("data", b"x")])
        return pool.failed

    assert _run(settings, scenario)


def test_a_worker_that_cannot_start_fails_the_load(settings: ModelSettings) -> None:
    """The load's error is the worker's, and nothing is left running."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> bool:
        starter.failures = 1
        with pytest.raises(EngineFailure, match="Failed to initialize model"):
            await pool.start()
        return pool.failed and not any(worker.running for worker in pool.workers)

    assert _run(replace(settings, min_workers=2, max_workers=2), scenario)


@pytest.mark.parametrize(("queue_size", "accepted"), [(1, 1), (2, 2), (5, 5)])
def test_the_queue_takes_what_the_real_one_takes(settings: ModelSettings, queue_size: int, accepted: int) -> None:
    """Recorded (06): with a busy worker the last place of the queue stays free."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> int:
        await pool.start()
        starter.hanging = True
        requests = []
        for _ in range(8):
            requests.append(_submit(pool))
            await _settled()
        refused = [task for task in requests if task.done() and isinstance(task.exception(), CapacityExceeded)]
        pool.close()
        await asyncio.gather(*requests, return_exceptions=True)
        return len(requests) - len(refused)

    assert _run(replace(settings, queue_size=queue_size), scenario) == accepted


def test_requests_at_once_become_one_batch(settings: ModelSettings) -> None:
    """batch_size is the most that a handler gets in one call."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> list[int]:
        await pool.start()
        await asyncio.gather(*(_submit(pool) for _ in range(8)))
        return starter.batches

    assert _run(replace(settings, batch_size=4, max_batch_delay_ms=50), scenario) == [4, 4]


def test_without_workers_the_first_request_starts_one_and_is_refused(settings: ModelSettings) -> None:
    """Recorded (09, min0): 503 first, then answers."""

    async def scenario(pool: WorkerPool, _: FakeStarter) -> tuple[bytes, list[bool]]:
        await pool.start()
        with pytest.raises(CapacityExceeded):
            await pool.submit({}, [("data", b"x")])
        body = (await pool.submit({}, [("data", b"x")])).body
        await _settled()
        return body, [worker.running for worker in pool.workers]

    none = replace(settings, min_workers=0, max_workers=2, max_idle_s=60)
    assert _run(none, scenario) == (b"ok", [True])


def test_a_worker_without_requests_ends_after_its_idle_time_and_stays_listed(settings: ModelSettings) -> None:
    """Recorded (09, min0)."""

    async def scenario(pool: WorkerPool, _: FakeStarter) -> list[bool]:
        await pool.start()
        with pytest.raises(CapacityExceeded):
            await pool.submit({}, [("data", b"x")])
        await _until(lambda: not any(worker.running for worker in pool.workers))
        return [worker.running for worker in pool.workers]

    assert _run(replace(settings, min_workers=0, max_workers=2, max_idle_s=0), scenario) == [False]


def test_closing_answers_every_request(settings: ModelSettings) -> None:
    """Unloading a model under load leaves nobody waiting."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> list[Any]:
        await pool.start()
        starter.hanging = True
        requests = [_submit(pool) for _ in range(3)]
        await _until(lambda: starter.batches)
        pool.close()
        return await asyncio.gather(*requests, return_exceptions=True)

    results = _run(settings, scenario)
    assert [str(result) for result in results] == ["Worker shutting down"] * 3


def test_scaling_starts_and_ends_workers(settings: ModelSettings) -> None:
    """PUT changes the bounds and the workers follow."""

    async def scenario(pool: WorkerPool, _: FakeStarter) -> tuple[int, int]:
        await pool.start()
        await pool.scale(3, 3)
        up = sum(worker.running for worker in pool.workers)
        await pool.scale(1, 3)
        return up, sum(worker.running for worker in pool.workers)

    assert _run(settings, scenario) == (3, 1)


def test_a_fault_of_ours_does_not_leave_a_model_without_a_worker(
    settings: ModelSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Should serving a worker end by an exception, the worker is replaced and the next request answered."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> tuple[bytes, int]:
        await pool.start()
        await _settled()
        monkeypatch.setattr(pool.metrics, "batch", _raise_once(monkeypatch, pool))
        with pytest.raises(WorkerFailure):
            await pool.submit({}, [("data", b"x")])
        await _until(lambda: len(starter.links) == 2 and _replaced(pool))
        return (await pool.submit({}, [("data", b"x")])).body, len(starter.links)

    assert _run(settings, scenario) == (b"ok", 2)
    assert "serving worker" in caplog.text


def _raise_once(monkeypatch: pytest.MonkeyPatch, pool: WorkerPool) -> Callable[..., None]:
    def fail(_: Any) -> None:
        monkeypatch.undo()
        msg = "a fault of ours"
        raise RuntimeError(msg)

    assert pool.workers
    return fail
