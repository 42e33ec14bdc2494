"""The workers of a pool are started, used, scaled and ended as by the real server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fake_workers import FakeStarter
from fakes.faults import faulted

from local_aws.lmi.answers import Unanswered
from local_aws.lmi.errors import BackendStopped, CapacityExceeded, EngineFailure, NotReady, NoWorkers, WorkerFailure
from local_aws.lmi.models.serving_properties import read_settings
from local_aws.lmi.settings import ModelSettings, ServerRules
from local_aws.lmi.workers.pool import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from local_aws.lmi.answers import Answer
    from local_aws.lmi.workers.jobs import Job

    Scenario = Callable[[WorkerPool, FakeStarter], Coroutine[Any, Any, Any]]

# The minute for which an ended worker keeps its place takes 0.06 s, and nothing else in these tests waits by the clock.
AT_ONCE = ServerRules(interpreter_s=0)
QUICK = replace(AT_ONCE, speed=1000)
ENGINE_FAILURE = (
    b'{"code":500,"message":"Inference Engine Failure","properties":{},"content":{"keys":[],"values":[]},'
    b'"cancelled":false}'
)


@pytest.fixture
def settings(tmp_path: Path) -> ModelSettings:
    """Return settings of one synchronous worker without batching."""
    (tmp_path / "serving.properties").write_text("option.model_id=a/b\ncpu.minWorkers=1\ncpu.maxWorkers=1\n")
    return replace(read_settings(tmp_path, {}), predict_timeout_s=10**6)


@pytest.fixture
def asynchronous(settings: ModelSettings) -> ModelSettings:
    """Return settings of one asynchronous worker."""
    return replace(settings, async_mode=True)


def _run(settings: ModelSettings, scenario: Scenario, rules: ServerRules | None = None) -> Any:
    async def run() -> Any:
        starter = FakeStarter()
        pool = WorkerPool("m", settings, rules or AT_ONCE, starter)  # type: ignore[arg-type]
        async with asyncio.timeout(60):
            try:
                return await scenario(pool, starter)
            finally:
                pool.end()
                await asyncio.sleep(0.01)

    return asyncio.run(run())


async def _ask(pool: WorkerPool) -> Answer:
    return await pool.submit({}, [("data", b"x")])


def _submit(pool: WorkerPool) -> asyncio.Task[Any]:
    return asyncio.create_task(_ask(pool))


async def _settled() -> None:
    """Wait until everything that needs no time has happened."""
    for _ in range(50):
        await asyncio.sleep(0)


async def _until(condition: Callable[[], Any]) -> None:
    """Wait until the pool has made a condition true."""
    while not condition():  # noqa: ASYNC110 - the pool tells nobody
        await asyncio.sleep(0.001)


async def _outcomes(pool: WorkerPool, count: int) -> list[str]:
    """Return the outcomes of this number of requests in turn: the answer or the error."""
    outcomes = []
    for _ in range(count):
        try:
            outcomes.append((await _ask(pool)).body.decode())
        except (BackendStopped, CapacityExceeded, NotReady, NoWorkers) as fault:
            outcomes.append(type(fault).__name__)
    return outcomes


async def _hang(pool: WorkerPool, starter: FakeStarter, count: int) -> list[asyncio.Task[Any]]:
    """Send requests that no process answers, and wait until the workers have taken them."""
    starter.hanging = True
    requests = [_submit(pool) for _ in range(count)]
    await _until(lambda: starter.batches)
    await _settled()
    starter.hanging = False
    return requests


def test_a_request_is_answered(settings: ModelSettings) -> None:
    """A pool with one worker answers a request."""

    async def scenario(pool: WorkerPool, _: FakeStarter) -> bytes:
        await pool.start()
        return (await _ask(pool)).body

    assert _run(settings, scenario) == b"ok"


# Synchronous workers


@pytest.mark.parametrize("threshold", [0, 3])
def test_a_process_that_dies_idle_is_missed_by_nobody_but_its_callers(settings: ModelSettings, threshold: int) -> None:
    """Recorded (24): READY, the worker listed, every call 400, and no process is started, whatever retry_threshold."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        starter.connections[0].die()
        outcomes = await _outcomes(pool, 3)
        return outcomes, pool.failed, [worker.running for worker in pool.workers], len(starter.connections)

    found = _run(replace(settings, retry_threshold=threshold), scenario)
    assert found == (["BackendStopped"] * 3, False, [True], 1)


def test_with_one_of_two_processes_dead_every_second_call_is_refused(settings: ModelSettings) -> None:
    """With one of two processes dead every second call gets 400 (recorded: 24)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> list[str]:
        await pool.start()
        await _settled()
        starter.connections[0].die()
        return await _outcomes(pool, 4)

    two = replace(settings, min_workers=2, max_workers=2)
    assert _run(two, scenario) == ["BackendStopped", "ok", "BackendStopped", "ok"]


def test_a_process_that_dies_in_a_call_fails_the_model_for_good(settings: ModelSettings) -> None:
    """A process that dies in a call gives 503, unanswered queued calls and a failed model (recorded: 25, 26)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        doomed, *queued = await _hang(pool, starter, 3)
        starter.connections[0].die()
        with faulted("WlmException", 503, "Python worker disconnected"):
            await doomed
        await _settled()
        states = [worker.running for worker in pool.workers]
        return pool.failed, states, pool.waiting, [task.done() for task in queued], await _outcomes(pool, 1)

    assert _run(settings, scenario) == (True, [False], 2, [False, False], ["NotReady"])


def test_the_caller_of_a_dead_process_waits_while_another_loads_in_vain(settings: ModelSettings) -> None:
    """The caller of a dead process waits while the server loads and ends another one (recorded: 25)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        (doomed,) = await _hang(pool, starter, 1)
        starter.loading.clear()
        starter.connections[0].die()
        await _until(lambda: len(starter.connections) == 2)
        await _settled()
        while_loading = pool.failed, doomed.done(), starter.alive
        starter.loading.set()
        await _until(doomed.done)
        await _settled()
        return while_loading, starter.alive, isinstance(doomed.exception(), WorkerFailure)

    assert _run(settings, scenario) == ((True, False, [1002]), [], True)


def test_a_call_over_predict_timeout_fails_the_model(settings: ModelSettings) -> None:
    """Recorded (06, 26): 503 with Java's exception name, the process is killed, the model is given up."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        starter.hanging = True
        with faulted("WlmException", 503, "java.util.concurrent.TimeoutException"):
            await _ask(pool)
        await _settled()
        return pool.failed, starter.alive

    assert _run(replace(settings, predict_timeout_s=0), scenario) == (True, [])


def test_within_retry_threshold_the_first_call_after_a_minute_starts_a_worker(settings: ModelSettings) -> None:
    """Within retry_threshold the first call after a minute gets 503 and starts a worker (recorded: 25, 26)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        doomed, queued = await _hang(pool, starter, 2)
        starter.connections[0].die()
        await _until(doomed.done)
        at_once = pool.failed, await _outcomes(pool, 2), starter.alive
        await asyncio.sleep(2 * QUICK.stale_s)
        back = await _outcomes(pool, 2), (await queued).body
        (doomed,) = await _hang(pool, starter, 1)
        starter.connections[-1].die()
        await _until(doomed.done)
        return at_once, back, pool.failed

    found = _run(replace(settings, retry_threshold=1), scenario, QUICK)
    refused = ["CapacityExceeded"]
    assert found == ((False, refused * 2, []), ([*refused, "ok"], b"ok"), True)


def test_the_other_worker_of_a_failed_model_finishes_what_was_queued(settings: ModelSettings) -> None:
    """The other worker of a failed model answers queued calls, and new ones are rejected (recorded: 25)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        await _settled()
        doomed = (await _hang(pool, starter, 1))[0]
        queued = [_submit(pool) for _ in range(2)]
        starter.connections[0].die()
        await _until(doomed.done)
        return [(await task).body for task in queued], await _outcomes(pool, 1)

    two = replace(settings, min_workers=2, max_workers=2)
    assert _run(two, scenario) == ([b"ok", b"ok"], ["NotReady"])


# What the container says about failures


@pytest.mark.parametrize(
    ("own", "rules", "failed"),
    [
        (None, ServerRules(), True),
        (None, ServerRules(retry_threshold=1), False),
        (0, ServerRules(retry_threshold=1), True),
        (1, ServerRules(), False),
        (None, ServerRules(health_check_override=True), False),
    ],
)
def test_the_models_threshold_goes_before_the_containers(
    settings: ModelSettings, own: int | None, rules: ServerRules, *, failed: bool
) -> None:
    """SERVING_RETRY_THRESHOLD is for models that say nothing; SERVING_HEALTH_CHECK_OVERRIDE denies every failure."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> bool:
        await pool.start()
        (doomed,) = await _hang(pool, starter, 1)
        starter.connections[0].die()
        await _until(doomed.done)
        return pool.failed

    assert _run(replace(settings, retry_threshold=own), scenario, rules) is failed


def test_under_fail_fast_a_failed_model_ends_the_server(settings: ModelSettings) -> None:
    """With SERVING_FAIL_FAST the next call or ping after a failure ends the server (recorded: 26, 27)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> list[bool]:
        await pool.start()
        before = pool.failures.ends_server
        (doomed,) = await _hang(pool, starter, 1)
        starter.connections[0].die()
        await _until(doomed.done)
        return [before, pool.failures.ends_server]

    assert _run(settings, scenario, ServerRules(fail_fast=True)) == [False, True]


# Asynchronous workers


def test_an_asynchronous_process_that_dies_fails_the_model(asynchronous: ModelSettings) -> None:
    """An asynchronous process that dies gives 500, then "not ready", and a useless new process (recorded: 27)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        doomed = await _hang(pool, starter, 2)
        starter.connections[0].die()
        answers = [await task for task in doomed]
        await _settled()
        texts = {(answer.code, answer.message, answer.body, *answer.properties) for answer in answers}
        return texts, pool.failed, await _outcomes(pool, 1), starter.alive, [worker.running for worker in pool.workers]

    found = _run(asynchronous, scenario)
    assert len(ENGINE_FAILURE) == 117
    assert found == ({(500, "OK", ENGINE_FAILURE)}, True, ["NotReady"], [1002], [True])


def test_within_retry_threshold_calls_are_refused_only_while_the_process_loads(asynchronous: ModelSettings) -> None:
    """Within retry_threshold calls get 400 until the new process is loaded (recorded: 27)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        rounds = []
        for _ in range(2):
            starter.loading.clear()
            starter.connections[-1].die()
            await _settled()
            meanwhile = await _outcomes(pool, 2)
            starter.loading.set()
            await _settled()
            rounds.append((meanwhile, await _outcomes(pool, 1)))
        starter.connections[-1].die()
        await _settled()
        return rounds, pool.failed, len(starter.alive)

    found = _run(replace(asynchronous, retry_threshold=2), scenario)
    assert found == ([(["BackendStopped"] * 2, ["ok"])] * 2, True, 1)


def test_unloading_an_asynchronous_model_leaves_a_process_behind(asynchronous: ModelSettings) -> None:
    """Unloading an asynchronous model leaves one unlisted process per worker (recorded: 28)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        await pool.close()
        await _settled()
        left = starter.alive, pool.alive
        pool.end()
        return left, pool.alive

    two = replace(asynchronous, min_workers=2, max_workers=2)
    assert _run(two, scenario) == (([1003, 1004], True), False)


def test_unloading_a_synchronous_model_leaves_nothing_behind(settings: ModelSettings) -> None:
    """Recorded (28), also after a process that died idle."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        starter.connections[1].die()
        await pool.close()
        await _settled()
        return starter.alive, len(starter.connections)

    assert _run(replace(settings, min_workers=2, max_workers=2), scenario) == ([], 2)


def test_scaling_an_asynchronous_model_down_leaks_a_process_and_fails_the_model(asynchronous: ModelSettings) -> None:
    """Scaling an asynchronous model down leaves an unlisted process and fails the model (recorded: 28)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        await pool.scale(1, 1)
        await _settled()
        scaled = starter.alive, pool.failed, [worker.running for worker in pool.workers]
        await pool.close()
        await _settled()
        return scaled, starter.alive

    two = replace(asynchronous, min_workers=2, max_workers=2)
    assert _run(two, scenario) == (([1001, 1003], True, [True, False]), [1004, 1005])


def test_a_temporary_asynchronous_worker_that_idles_out_fails_the_model(asynchronous: ModelSettings) -> None:
    """A temporary asynchronous worker that ends idle fails the model and is restarted unlisted (recorded: 28)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        first = await _outcomes(pool, 1)
        await _until(lambda: pool.failed)
        await _settled()
        return first, [worker.running for worker in pool.workers], len(starter.alive)

    none = replace(asynchronous, min_workers=0, max_workers=2, max_idle_s=0)
    assert _run(none, scenario) == (["CapacityExceeded"], [False], 1)


def test_a_restart_that_cannot_import_is_the_last(asynchronous: ModelSettings) -> None:
    """Recorded (31, d_once_import_rt3): READY and 400 for ever; unloading works and leaves nothing."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        starter.broken_imports = 1
        starter.connections[0].die()
        await _settled()
        outcomes = await _outcomes(pool, 2)
        await pool.close()
        await _settled()
        return outcomes, pool.failed, len(starter.connections), pool.alive

    found = _run(replace(asynchronous, retry_threshold=3), scenario)
    assert found == (["BackendStopped"] * 2, False, 1, False)


@pytest.mark.parametrize("exits", [True, False])
def test_a_restart_that_fails_in_its_first_call_locks_the_worker(asynchronous: ModelSettings, *, exits: bool) -> None:
    """A restart that fails in its first call blocks the worker: unloading is never answered (recorded: 31).

    After an exit every call is 400; after an error of the handler one call is never answered and ends the worker.
    """

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        starter.broken_loads, starter.exits = 1, exits
        starter.connections[0].die()
        await _settled()
        first = _submit(pool)
        await asyncio.sleep(0.05)
        outcome = type(first.exception()).__name__ if first.done() else "no answer"
        running = [worker.running for worker in pool.workers]
        unloading = asyncio.create_task(pool.close())
        await _settled()
        return outcome, running, starter.alive, unloading.done(), first.done()

    found = _run(replace(asynchronous, retry_threshold=3), scenario)
    assert found == (("BackendStopped", [True], [], False, True) if exits else ("no answer", [False], [], False, False))


def test_a_call_that_hangs_is_given_up_without_an_answer(asynchronous: ModelSettings) -> None:
    """Recorded (27): after 120 s the connection is closed; predict_timeout does nothing, and the worker stays READY."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        (hanging,) = await _hang(pool, starter, 1)
        with pytest.raises(Unanswered):
            await hanging
        return pool.failed, await _outcomes(pool, 1)

    assert _run(replace(asynchronous, predict_timeout_s=0), scenario, QUICK) == (False, ["ok"])


# Starts, queues and scaling


def test_a_worker_that_cannot_start_fails_the_load(settings: ModelSettings) -> None:
    """A worker that cannot start fails the load with its error, and no further worker starts."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        starter.broken_loads = 1
        with faulted("EngineException", 500, "Failed to initialize model"):
            await pool.start()
        await _settled()
        return pool.failed, len(starter.connections), starter.alive

    assert _run(replace(settings, min_workers=2, max_workers=2), scenario) == (True, 1, [])


@pytest.mark.parametrize("exits", [True, False])
def test_an_asynchronous_handler_that_fails_in_its_first_call_is_never_answered(
    asynchronous: ModelSettings, *, exits: bool
) -> None:
    """A load whose asynchronous handler fails in its first call hangs (tried on a real server)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        starter.broken_loads, starter.exits = 1, exits
        loading = asyncio.create_task(pool.start())
        await _settled()
        found = loading.done(), pool.failed, list(pool.workers), starter.alive
        await pool.close()
        await _settled()
        return *found, loading.done(), len(starter.connections)

    assert _run(asynchronous, scenario) == (False, not exits, [], [], False, 1)


def test_an_asynchronous_handler_that_cannot_be_imported_fails_the_load(asynchronous: ModelSettings) -> None:
    """A load whose asynchronous handler cannot be imported fails at once (tried on a real server)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> int:
        starter.broken_imports = 1
        with faulted("EngineException", 500, "Python stream closed unexpectedly"):
            await pool.start()
        await _settled()
        return len(starter.connections)

    assert _run(asynchronous, scenario) == 0


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
        pool.end()
        await asyncio.gather(*requests, return_exceptions=True)
        return len(requests) - len(refused)

    assert _run(replace(settings, queue_size=queue_size), scenario) == accepted


def test_requests_at_once_become_one_batch(settings: ModelSettings) -> None:
    """A handler gets at most batch_size requests in one call."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> list[int]:
        await pool.start()
        await asyncio.gather(*(_submit(pool) for _ in range(8)))
        return starter.batches

    assert _run(replace(settings, batch_size=4, max_batch_delay_ms=50), scenario) == [4, 4]


def test_a_batch_without_a_process_is_refused_whole(settings: ModelSettings) -> None:
    """Each request of a batch gets 400 if the process has stopped."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> list[str]:
        await pool.start()
        starter.connections[0].die()
        found = await asyncio.gather(*(_submit(pool) for _ in range(4)), return_exceptions=True)
        return [type(each).__name__ for each in found]

    batched = replace(settings, batch_size=4, max_batch_delay_ms=50)
    assert _run(batched, scenario) == ["BackendStopped"] * 4


def test_without_workers_the_first_request_starts_one_and_is_refused(settings: ModelSettings) -> None:
    """Recorded (09, min0): 503 first, then answers."""

    async def scenario(pool: WorkerPool, _: FakeStarter) -> Any:
        await pool.start()
        return await _outcomes(pool, 2), [worker.running for worker in pool.workers]

    none = replace(settings, min_workers=0, max_workers=2, max_idle_s=60)
    assert _run(none, scenario) == (["CapacityExceeded", "ok"], [True])


def test_requests_that_come_together_start_one_worker(settings: ModelSettings) -> None:
    """Requests that find no worker wait for one start and are rejected; only a long queue starts a second worker."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        found = await asyncio.gather(*(_submit(pool) for _ in range(3)), return_exceptions=True)
        return [type(each).__name__ for each in found], len(starter.connections)

    none = replace(settings, min_workers=0, max_workers=1)
    assert _run(none, scenario) == (["CapacityExceeded"] * 3, 1)


def test_a_worker_without_requests_ends_after_its_idle_time_and_keeps_its_place(settings: ModelSettings) -> None:
    """An idle worker ends, and for a minute no other starts in its place (recorded: 09, 10)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        first = await _outcomes(pool, 1)
        await _until(lambda: not any(worker.running for worker in pool.workers))
        return first, await _outcomes(pool, 2), len(starter.connections), starter.alive

    one = replace(settings, min_workers=0, max_workers=1, max_idle_s=0)
    assert _run(one, scenario) == (["CapacityExceeded"], ["CapacityExceeded"] * 2, 1, [])


def test_closing_answers_the_call_at_work_and_no_other(settings: ModelSettings) -> None:
    """Unloading a model answers the running call, and leaves queued ones unanswered (recorded: 25)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        at_work, *queued = await _hang(pool, starter, 3)
        await pool.close()
        await _settled()
        return str(at_work.exception()), [task.done() for task in queued]

    assert _run(settings, scenario) == ("Worker shutting down", [False, False])


def test_the_servers_end_leaves_no_call_waiting(settings: ModelSettings) -> None:
    """A call that would never be answered is cancelled at the end of the server."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> list[str]:
        await pool.start()
        requests = await _hang(pool, starter, 3)
        pool.end()
        found = await asyncio.gather(*requests, return_exceptions=True)
        return [type(each).__name__ for each in found]

    assert _run(settings, scenario) == ["WorkerFailure", "Unanswered", "Unanswered"]


@pytest.mark.parametrize("asynchronous_mode", [False, True])
def test_the_servers_end_leaves_no_load_waiting(settings: ModelSettings, *, asynchronous_mode: bool) -> None:
    """The server's end cancels all loads, even one whose worker is blocked."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> str:
        starter.broken_loads = 1 if asynchronous_mode else 0
        if not asynchronous_mode:
            starter.loading.clear()
        loading = asyncio.create_task(pool.start())
        await _until(lambda: starter.connections)
        await _settled()
        assert not loading.done()
        pool.end()
        (found,) = await asyncio.gather(loading, return_exceptions=True)
        return str(found)

    assert _run(replace(settings, async_mode=asynchronous_mode), scenario) == "Worker startup cancelled."


def test_a_caller_that_has_left_costs_no_call(settings: ModelSettings) -> None:
    """A queued request whose caller has left is skipped."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        jobs: list[Job] = []
        (at_work,) = await _hang(pool, starter, 1)
        leaving = asyncio.create_task(pool.submit({}, [("data", b"x")], jobs.append))
        staying = _submit(pool)
        await _settled()
        jobs[0].leave()
        with pytest.raises(Unanswered):
            await leaving
        waiting = pool.waiting
        starter.connections[0].asked[0].set_exception(EngineFailure("done"))
        await asyncio.gather(at_work, return_exceptions=True)
        return waiting, staying.done(), starter.batches

    waiting, _, batches = _run(settings, scenario)
    assert (waiting, batches) == (2, [1])


@pytest.mark.parametrize("unload", [True, False])
def test_a_busy_synchronous_worker_leaves_a_process_behind(settings: ModelSettings, *, unload: bool) -> None:
    """A synchronous worker that is unloaded in a call leaves a restarted process (tried on a real server)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        await _settled()
        requests = await _hang(pool, starter, 2)
        await (pool.close() if unload else pool.scale(1, 1))
        await _settled()
        return pool.failed, starter.alive, pool.alive, sum(task.done() for task in requests)

    two = replace(settings, min_workers=2, max_workers=2)
    assert _run(two, scenario) == (True, [1003, 1004] if unload else [1001, 1003], True, 2 if unload else 1)


def test_a_worker_that_starts_while_its_model_is_unloaded_stays(settings: ModelSettings) -> None:
    """The process of a model that is deleted during its load stays (tried on a real server)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        starter.loading.clear()
        loading = asyncio.create_task(pool.start())
        await _until(lambda: starter.connections)
        await pool.close()
        starter.loading.set()
        await loading
        return starter.alive, pool.alive

    assert _run(settings, scenario) == ([1001], True)


def test_scaling_starts_and_ends_workers(settings: ModelSettings) -> None:
    """PUT of other bounds starts or ends workers."""

    async def scenario(pool: WorkerPool, _: FakeStarter) -> tuple[int, int]:
        await pool.start()
        await pool.scale(3, 3)
        up = sum(worker.running for worker in pool.workers)
        await pool.scale(1, 3)
        return up, sum(worker.running for worker in pool.workers)

    assert _run(settings, scenario) == (3, 1)


def test_a_dead_process_cannot_be_scaled_away(settings: ModelSettings) -> None:
    """Scaling up and down does not remove a dead process (recorded: 24)."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> list[tuple[list[str], list[bool]]]:
        await pool.start()
        await _settled()
        starter.connections[0].die()
        found = []
        for bounds in ((2, 2), (1, 1), (0, 0), (1, 1)):
            await pool.scale(*bounds)
            await _settled()
            found.append((await _outcomes(pool, 2), [worker.running for worker in pool.workers]))
        return found

    assert _run(settings, scenario) == [
        (["BackendStopped", "ok"], [True, True]),
        (["BackendStopped"] * 2, [True, False]),
        (["NoWorkers"] * 2, [False, False]),
        (["CapacityExceeded"] * 2, [False, False]),
    ]


def test_a_fault_of_ours_ends_the_worker_and_its_call(
    settings: ModelSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception of the emulator in a worker is logged, and its caller gets an error."""

    async def scenario(pool: WorkerPool, starter: FakeStarter) -> Any:
        await pool.start()
        await _settled()
        monkeypatch.setattr(pool.metrics, "batch", _raise)
        with pytest.raises(WorkerFailure):
            await _ask(pool)
        await _settled()
        return [worker.running for worker in pool.workers], starter.alive

    assert _run(settings, scenario) == ([False], [])
    assert "serving worker" in caplog.text


def _raise(_: Any) -> None:
    msg = "a fault of ours"
    raise RuntimeError(msg)
