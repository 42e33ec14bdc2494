"""Replays of recorded kills, hangs, unloads and waits with containers of their own.

A sequence is replayed on a clock of its own: the container's waits and the models' sleeps run `Sequence.speed` times
faster than recorded (COHOST_LMI_SPEED), and the replay waits as much less, but for waits under `LEAST_S`, in which
processes start and die.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from lmi_compare import differences, off_pin
from lmi_replay import Answer, Exchange, send
from lmi_sequences import Labels, as_told, lives

from local_aws.lmi.container import Container, ContainerError
from local_aws.lmi.models.hub import default_roots

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from lmi_scenarios import Instead
    from lmi_sequences import LifecycleFixture, Sequence
    from lmi_tally import Outcome

LEAST_S = 0.3  # a wait is not shortened below this

_STARTING_S = 180
# For what takes a moment when the machine is not busy, and for what takes some seconds then.
_PATIENCE_S = 20
_LOADING_S = 120
_ENDING_S = 10
_LATER_S = 1.0
_PAUSE_S = 0.05
_SETTLING_S = 0.5  # recorded seconds after a kill or another change in which processes still start and die
_POLL = re.compile(r"poll (\d+): ")
_NUMBERED = re.compile(r"(.*) \d+")
_GAVE_UP, _CLOSED = "no answer within the client's patience", "the connection was closed or refused without an answer"


class Replay:
    """One replay of a recorded sequence.

    `found` are the differences by step, no texts where a step is as recorded; `pins` those from what is said in
    `deliberate` to happen instead. `slower` times slower than the sequence's own clock it is, short waits included, for
    a busy machine. `starts` lets no more containers start at once than it has places.
    """

    def __init__(
        self,
        sequence: Sequence,
        fixture: LifecycleFixture,
        log_file: Path,
        *,
        slower: int = 1,
        deliberate: Mapping[int, Instead] | None = None,
        starts: asyncio.Semaphore | None = None,
    ) -> None:
        self.found: Outcome = {}
        self.pins: Outcome = {}
        self._deliberate = deliberate or {}
        self._starts = starts or asyncio.Semaphore()
        self._sequence, self._fixture, self._log_file = sequence, fixture, log_file
        self._speed, self._least_s = sequence.speed / slower, LEAST_S * slower
        self._container: Container | None = None
        self._client: httpx.AsyncClient | None = None
        self._exit_code: int | None = None
        self._labels = Labels()
        self._groups: dict[str, list[asyncio.Task[None]]] = {}
        self._loop = asyncio.get_running_loop()
        self._mark = self._last_end = self._loop.time()
        self._last_since = 0.0
        self._store = fixture.root
        self._temporary = Path(tempfile.mkdtemp(prefix="replay-"))

    async def run(self) -> tuple[Outcome, Outcome]:
        """Replay every step and return `found` and `pins`; the container has ended then."""
        try:
            for step in self._items():
                if isinstance(step, list):
                    await self._poll(step)
                else:
                    await self._step(step)
            for group in self._groups.values():
                await asyncio.gather(*group)
        finally:
            for task in (task for group in self._groups.values() for task in group):
                task.cancel()
            await self._stop()
            shutil.rmtree(self._temporary, ignore_errors=True)
        return self.found, self.pins

    def _items(self) -> Iterator[int | list[list[int]]]:
        """Return the steps in order, with the rounds of each poll as one list."""
        rounds: dict[str, list[int]] = {}
        for index, step in self._sequence.steps.items():
            if match := _POLL.match(step.get("name", "")):
                rounds.setdefault(match[1], []).append(index)
                continue
            if rounds:
                yield list(rounds.values())
                rounds = {}
            yield index
        if rounds:
            yield list(rounds.values())

    async def _step(self, index: int) -> None:
        step = self._sequence.steps[index]
        action = step.get("action")
        if action is None:
            await self._exchange(index, step)
        else:
            await _ACTIONS[action](self, index, step)
        self._last_end = self._loop.time()
        self._last_since = step.get("since_s") or self._last_since

    # Actions

    async def start_server(self, index: int, step: dict[str, Any]) -> None:
        """Start a container, and compare its first answer with the recording."""
        self._store = self._fixture.store(self._sequence, step["store_folders"])
        needs_torch = any("d_stock" in json.dumps(each) for each in self._sequence.steps.values())
        environment = {
            "COHOST_LMI_SPEED": str(self._speed),
            "COHOST_LMI_PRELOAD": str(needs_torch).lower(),
            "TMPDIR": str(self._temporary),
        }
        found = None
        try:
            async with self._starts:
                self._container = await Container.start(
                    model_store=self._store,
                    multi_model=step["load_models"] == "NONE",
                    hub_roots=default_roots(),
                    log_file=self._log_file,
                    environment=environment | step["env"],
                    start_timeout_s=_STARTING_S,
                )
        except ContainerError as error:
            match = re.search(r"exit code (-?\d+)", str(error))
            self._exit_code = int(match[1]) if match else None
            found = None if self._exit_code == step["result"]["exit_code"] else str(error)
        else:
            headers = getattr(self._container, "headers", {})
            self._client = httpx.AsyncClient(
                base_url=self._container.url, timeout=_PATIENCE_S, trust_env=False, headers=headers
            )
            found = None if step["result"]["answers"] else "it answers, recorded: it ends"
        self._note(index, found)

    async def stop_server(self, index: int, step: dict[str, Any]) -> None:  # noqa: ARG002 - as every action
        """End the container."""
        await self._stop()

    async def kill(self, index: int, step: dict[str, Any]) -> None:
        """Send a signal to a worker or to the server, and set the mark."""
        assert self._container is not None
        if step["target"] == "server":
            os.kill(self._container.pid, step["signal"])
        else:
            running = (await self._running()).get(step["target"].removeprefix("worker of "), [])
            pid = self._labels.pids.get(step["process"]) or dict(enumerate(running, 1)).get(step["worker"])
            assert pid is not None, f"step {index}: there is no {step['target']} to send a signal to"
            os.kill(pid, step["signal"])
        self.mark(index, step)

    def mark(self, index: int, step: dict[str, Any]) -> None:  # noqa: ARG002 - as every action
        """Set the mark, from which later steps are counted, to now."""
        self._mark = self._loop.time()
        self._last_since = 0.0

    async def set_mark(self, index: int, step: dict[str, Any]) -> None:
        """The action of that name."""
        self.mark(index, step)

    async def wait(self, index: int, step: dict[str, Any]) -> None:  # noqa: ARG002 - as every action
        """Wait on the clock of the sequence."""
        await asyncio.sleep(self._shortened(step["seconds"]))

    async def wait_until(self, index: int, step: dict[str, Any]) -> None:  # noqa: ARG002 - as every action
        """Wait until this number of seconds after the mark."""
        await self._wait_until(step["since_s"])

    async def join(self, index: int, step: dict[str, Any]) -> None:  # noqa: ARG002 - as every action
        """Wait for the requests of a group."""
        await asyncio.gather(*self._groups.get(step["group"], ()))

    async def burst(self, index: int, step: dict[str, Any]) -> None:
        """Send a request many times at once, and compare the number of answers per status."""
        exchange = self._filled(index, {**step, "name": "burst", "response": {"status": 0}})
        answers = await asyncio.gather(*(self._ask(exchange, _PATIENCE_S) for _ in range(step["count"])))
        statuses = dict(Counter(str(answer.status) for answer in answers))
        recorded = step["result"]["statuses"]
        self._note(index, None if statuses == recorded else f"statuses {statuses}, recorded {recorded}")

    async def server_exit(self, index: int, step: dict[str, Any]) -> None:
        """Compare the exit code of the server, if it ended; a signal N counts as 128 + N."""
        recorded, waited = step["result"]["exit_code"], step["result"]["seconds_waited"]
        limit_s = self._shortened(waited) if recorded is None else _ENDING_S
        for _ in range(math.ceil(limit_s / _PAUSE_S)):
            if self._container is None or not self._container.alive:
                break
            await asyncio.sleep(_PAUSE_S)
        code = self._exit_code if self._container is None else self._container.exit_code
        equal = code == recorded or (None not in {code, recorded} and as_told(code) == as_told(recorded))
        self._note(index, None if equal else f"exit code {code}, recorded {recorded}")

    async def count_workers(self, index: int, step: dict[str, Any]) -> None:
        """Compare the number of worker processes per folder, and their identity with earlier counts."""
        result = step["result"]
        if "processes" in result:  # the server is gone
            self._note(index, await self._survivors(set(result["processes"])))
            return
        later = self._settles_into(index)
        found: str | None = None
        deadline = self._loop.time() + (2.0 if later is None else 0.0)
        while True:
            running = await self._running()
            if later is None:
                found = self._labels.compare(result["by_model_folder"], running)
            else:
                most = [max(len(r.get(folder, ())) for r in (result["by_model_folder"], later)) for folder in running]
                numbers = [len(pids) for pids in running.values()]
                too_many = any(number > limit for number, limit in zip(numbers, most, strict=True))
                found = f"worker processes {running}, recorded {result}, then {later}" if too_many else None
            if found is None or self._loop.time() >= deadline:
                break
            await asyncio.sleep(0.05)
        self._note(index, found)

    async def nothing(self, index: int, step: dict[str, Any]) -> None:
        """A note or lines of a log, which are not compared."""

    # Exchanges

    async def _exchange(self, index: int, step: dict[str, Any]) -> None:
        if step.get("since_s") and step["since_s"] - self._last_since > 0.05:
            await self._wait_until(step["since_s"])
        if step.get("group") is None:
            await self._compare(index, step)
            return
        task = asyncio.create_task(self._compare(index, step))
        self._groups.setdefault(step["group"], []).append(task)
        # The next one of a group was sent a tenth of a second later, or at once.
        following = self._sequence.steps.get(index + 1, {})
        pause = (following.get("at_s") or 0) - step["at_s"]
        await asyncio.sleep(min(pause, 0.1) if pause > 0.05 else 0)

    async def _compare(self, index: int, step: dict[str, Any]) -> None:
        exchange = self._filled(index, step)
        gives_up = exchange.response.get("exception") == _GAVE_UP
        begun = self._loop.time()
        patience_s = 0 if gives_up else _LOADING_S if step["name"].startswith("load") else _PATIENCE_S
        limit_s = self._limit_s(step) + patience_s
        answer = await self._ask(exchange, limit_s)
        found = differences(exchange, answer)
        # What is only looked at may come a little later than recorded, when others use the machine too.
        while found and step["request"]["method"] == "GET" and self._loop.time() < begun + _LATER_S:
            await asyncio.sleep(_PAUSE_S)
            answer = await self._ask(exchange, limit_s)
            found = differences(exchange, answer)
        if found and any(not differences(other, answer) for other in self._alternatives(index)):
            found = []
        took_s = self._loop.time() - begun
        if exchange.response.get("exception") == _CLOSED and took_s < self._limit_s(step) / 2 - LEAST_S:
            found.append(f"after {took_s:.1f} s, recorded {step['elapsed_s']} s at {self._speed:.1f} times the speed")
        self.found[index] = found
        if index in self._deliberate:
            self.pins[index] = off_pin(self._deliberate[index], answer.status, answer.body.decode("utf-8", "replace"))

    def _limit_s(self, step: dict[str, Any]) -> float:
        return max(LEAST_S, float(step["elapsed_s"]) / self._speed)

    def _alternatives(self, index: int) -> Iterator[Exchange]:
        """Return other answers that a step may have, because a moment decides between them.

        Of requests that were sent at once and differ in a number only, the answer of each; of one request that is sent
        again and again while nothing else happens, the answer of another within a moment.
        """
        step = self._sequence.steps[index]
        match = _NUMBERED.fullmatch(step["name"])
        for other, candidate in self._sequence.steps.items():
            if other == index or "action" in candidate:
                continue
            sibling = _NUMBERED.fullmatch(candidate["name"])
            if step.get("group") and candidate.get("group") == step["group"]:
                if match and sibling and match[1] == sibling[1]:
                    yield self._filled(other, candidate)
            elif candidate["request"] == step["request"] and self._only_waits_between(index, other):
                apart_s = abs(candidate["since_s"] - step["since_s"])
                if apart_s <= max(LEAST_S * self._speed, 1.0):
                    yield self._filled(other, candidate)

    def _only_waits_between(self, index: int, other: int) -> bool:
        between = range(min(index, other) + 1, max(index, other))
        request = self._sequence.steps[index]["request"]
        steps = [self._sequence.steps[i] for i in between]
        same = [step for step in steps if "action" not in step]
        waits = [step for step in steps if step.get("action") == "wait_until"]
        return bool(waits) and len(same) + len(waits) == len(steps) and all(s["request"] == request for s in same)

    async def _poll(self, rounds: list[list[int]]) -> None:
        """Repeat a request until the last recorded round is answered; the number of earlier rounds may differ.

        The rounds that were recorded must come in their order, and no other.
        """
        steps = self._sequence.steps
        for index in (index for each in rounds for index in each):
            self.found[index] = []
        interval_s = self._interval_s(rounds)
        distinct = [each for i, each in enumerate(rounds) if i == 0 or not self._same(rounds[i - 1], each)]
        place = 0
        deadline = self._loop.time() + _PATIENCE_S + (steps[rounds[-1][0]]["since_s"] - self._last_since) / self._speed
        while True:
            begun = self._loop.time()
            exchanges = [self._filled(index, steps[index]) for index in distinct[place]]
            answers = [await self._ask(exchange, _PATIENCE_S) for exchange in exchanges]
            while (found := self._round(distinct[place], answers)) and place + 1 < len(distinct):
                if self._round(distinct[place + 1], answers):
                    break
                place += 1
            if found and self._round(distinct[place], answers):
                self.found |= found
                break
            if place + 1 == len(distinct):
                break
            if begun > deadline:
                self.found[rounds[-1][0]] = ["what was recorded last did not come"]
                break
            await asyncio.sleep(max(0.0, begun + interval_s - self._loop.time()))
        self._last_end = self._loop.time()
        self._last_since = steps[rounds[-1][-1]]["since_s"]

    def _interval_s(self, rounds: list[list[int]]) -> float:
        if len(rounds) == 1:
            return 0.1
        starts = [self._sequence.steps[each[0]]["since_s"] for each in rounds]
        return max(0.05, (starts[-1] - starts[0]) / (len(starts) - 1) / self._speed)

    def _same(self, one: list[int], other: list[int]) -> bool:
        steps = self._sequence.steps
        return [steps[i]["response"]["body"] for i in one] == [steps[i]["response"]["body"] for i in other]

    def _round(self, indices: list[int], answers: list[Answer]) -> dict[int, list[str]]:
        """List the differences of the answers from one recorded round."""
        pairs = zip(indices, answers, strict=True)
        found = {i: differences(self._filled(i, self._sequence.steps[i]), answer) for i, answer in pairs}
        return {index: texts for index, texts in found.items() if texts}

    def _filled(self, index: int, step: dict[str, Any]) -> Exchange:
        """Return the step as an exchange with filled placeholders and the token of the container."""
        filled = json.loads(self._fixture.fill(json.dumps(step), self._store))
        headers = filled["request"]["headers"]
        # Recorded as text; on the wire they are UTF-8.
        filled["request"]["headers"] = {name: value.encode().decode("latin-1") for name, value in headers.items()}
        response = filled["response"]
        if response["status"] is None:
            response["exception"] = _GAVE_UP if "gave up" in response["error"] else _CLOSED
        exchange = Exchange(index, step["name"], filled["request"], response)
        return exchange.with_headers(getattr(self._container, "headers", {}))

    async def _ask(self, exchange: Exchange, limit_s: float) -> Answer:
        assert self._container is not None
        try:
            return await send(int(self._container.url.rpartition(":")[2]), exchange.payload, limit_s)
        except TimeoutError:
            return Answer(None, _GAVE_UP, {}, b"")
        except (OSError, asyncio.IncompleteReadError):
            return Answer(None, _CLOSED, {}, b"")

    # Processes and time

    async def _running(self) -> dict[str, list[int]]:
        """The pids of worker processes by model folder, the oldest first."""
        assert self._client is not None
        running: dict[str, list[int]] = {}
        for process in sorted((await self._client.get("/_cohost/workers")).json(), key=lambda each: each["started"]):
            # The recorder read names from command lines, up to the first blank.
            running.setdefault(Path(process["model_dir"]).name.partition(" ")[0], []).append(process["pid"])
        return running

    async def _survivors(self, recorded: set[str]) -> str | None:
        """Compare the processes that outlive the server; all of them end later."""
        living: set[str] = set()
        for _ in range(math.ceil(_ENDING_S / _PAUSE_S)):
            living = {label for label, pid in self._labels.pids.items() if lives(pid)}
            if living in (recorded, set()):
                break
            await asyncio.sleep(_PAUSE_S)
        return None if living == recorded else f"{sorted(living)} outlive the server, recorded {sorted(recorded)}"

    def _settles_into(self, index: int) -> dict[str, list[str]] | None:
        """Return the next count if this one was taken while processes started and ended, else None."""
        steps = self._sequence.steps
        since_s = steps[index].get("since_s")
        if since_s is None or since_s > _SETTLING_S:
            return None
        for later in range(index + 1, max(steps) + 1):
            step = steps[later]
            if step.get("action") == "count_workers":
                folders: dict[str, list[str]] = step["result"].get("by_model_folder", {})
                return None if folders == steps[index]["result"]["by_model_folder"] else folders
            if step.get("action") in {"kill", "mark", "stop_server"}:
                return None
            if "action" not in step and step["name"].startswith(("load", "delete", "scale")):
                return None
        return None

    def _shortened(self, seconds: float) -> float:
        return max(seconds / self._speed, min(seconds, LEAST_S) / LEAST_S * self._least_s)

    async def _wait_until(self, since_s: float) -> None:
        """Wait for a moment after the mark, and at least a little after the step before, as recorded."""
        earliest = self._last_end + min(max(since_s - self._last_since, 0.0), LEAST_S) / LEAST_S * self._least_s
        moment = max(self._mark + since_s / self._speed, earliest)
        await asyncio.sleep(max(0.0, moment - self._loop.time()))

    def _note(self, index: int, difference: str | None) -> None:
        self.found[index] = [] if difference is None else [difference]
        if index in self._deliberate:
            self.pins[index] = off_pin(self._deliberate[index], None, difference or "")

    async def _stop(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None
        if self._container is not None:
            await self._container.stop()


_ACTIONS: Mapping[str, Callable[[Replay, int, dict[str, Any]], Awaitable[None]]] = {
    "start_server": Replay.start_server,
    "stop_server": Replay.stop_server,
    "kill": Replay.kill,
    "mark": Replay.set_mark,
    "wait": Replay.wait,
    "wait_until": Replay.wait_until,
    "join": Replay.join,
    "burst": Replay.burst,
    "server_exit": Replay.server_exit,
    "count_workers": Replay.count_workers,
    "log": Replay.nothing,
    "note": Replay.nothing,
}
