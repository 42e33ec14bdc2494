"""The service of one worker, in the proxy process: read a call, tokenise, run the sequences, write the answer.

The model itself is in an engine process. If the engine process crashes or hangs, a new one replaces it, and DJL Serving
does not notice. A proxy process imports neither torch nor transformers, so it starts at once and takes about 40 MB.

Answers have the form that DJL Serving 0.36.0 requires of an asynchronous handler: `Output.binary_encode` of "data" and
"last"; an error's answer also has "code" and "error", which become the HTTP status and its reason.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .cohost_batches import Counters, RequestLog
from .cohost_errors import BadInputError, HandlerError, Output, fault, refusal_of
from .cohost_facts import checked, task_of, tokenizer_of
from .cohost_frames import Level, TokenSequence
from .cohost_link import Link
from .cohost_options import read_options
from .cohost_request import read_call, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .cohost_facts import Facts
    from .cohost_frames import Outcome
    from .cohost_options import Options
    from .cohost_request import Cut, Input
    from .cohost_tasks import Plan, Task
    from .cohost_texts import Text
    from .cohost_tokenizer import Encoded, Tokenizer

logger = logging.getLogger(__name__)

_BATCH_HEADER = "cohost-batch"
_TRUNCATED_HEADER = "cohost-truncated"
_COUNTERS_HEADER = "cohost-counters"
_PRIORITY_HEADER = "cohost-priority"
_PRIORITIES = {"usual": Level.USUAL, "bulk": Level.BULK}
# The only header of a container's call and answer that SageMaker passes on (AWS: InvokeEndpoint, CustomAttributes).
_CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
_MOST_BATCHES_SHOWN = 20
_UNANSWERED = 0
# Characters and numbers that take less than a millisecond: handing them to another thread would take longer.
_SMALL_TEXT = 2000
_SMALL_ANSWER = 2000


class Backend(Protocol):
    """The connection to the engine process that has the model, or a substitute for it."""

    starts: int

    def load(self, properties: Mapping[str, Any], options: Options) -> tuple[Facts, str]:
        """Load the model, and return its facts and its tokenizer's JSON; called in a thread."""

    def begin(self) -> None:
        """Begin to serve the loaded model; called in the event loop."""

    async def run(self, sequences: Sequence[TokenSequence], *, level: Level, limit_s: float) -> Outcome:
        """Run the sequences of one request within `limit_s` seconds."""

    async def encode(self, texts: Sequence[Text], cut: Cut, limit_s: float) -> list[Encoded]:
        """Return texts as sequences; called only if `plain` is False in the model's facts."""

    async def summary(self, limit_s: float) -> dict[str, Any]:
        """Return the model's counters, and data of the engine process."""

    def close(self) -> None:
        """Drop the model."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A loaded model: options, facts, task, and the tokenizer; None if only the engine process can tokenise."""

    options: Options
    facts: Facts
    task: Task
    tokenizer: Tokenizer | None


@dataclass(frozen=True, slots=True)
class _Reply:
    text: str
    headers: dict[str, str]


@dataclass(slots=True)
class _Seen:
    """The data of one request: arrival (monotonic clock, seconds), HTTP status, tokens, seconds in the queue."""

    arrived: float
    status: int = 200
    tokens: int = 0
    queue_s: float = 0.0


class Service:
    """The service of one model.

    `output` is DJL Serving's class of answers. `backend` runs the model; by default, it is the `Link` to an engine
    process.
    """

    def __init__(self, output: type[Output], backend: Backend | None = None) -> None:
        self._output = output
        self._backend = backend or Link(Path(__file__).parent)
        self._counters = Counters()
        # For large requests and answers, so that small ones do not wait for them.
        self._helper = ThreadPoolExecutor(1, thread_name_prefix="cohost-tokenizer")
        self._prepared: Prepared | None = None
        self._requests: RequestLog | None = None

    async def handle(self, inputs: Input) -> Output:
        """Answer one call.

        Raises:
            ValueError: on the first call, if the options are wrong or the model cannot be served.
        """
        if self._prepared is None:
            self.begin(await asyncio.to_thread(self.prepare, inputs.get_properties()))
        if inputs.is_empty():
            return self._output()
        self._counters.requests += 1
        seen = _Seen(time.monotonic())
        try:
            return self._answer(await self._reply(inputs, seen))
        except HandlerError as error:
            self._counters.refused += 1
            seen.status = error.status
            return refusal_of(self._output, error)
        except asyncio.CancelledError:
            self._counters.cancelled += 1
            seen.status = _UNANSWERED
            raise
        finally:
            self._log(seen)

    def prepare(self, properties: Mapping[str, Any]) -> Prepared:
        """Load the model in the backend: the engine process, or a test's stand-in for it.

        Raises:
            ValueError: the options are wrong or the model cannot be served.
            Exception: any other reason for which the model cannot be loaded.
        """
        options = read_options(properties)
        facts, text = self._backend.load(properties, options)
        tokenizer = tokenizer_of(facts, text, options.model) if facts.plain else None
        return Prepared(options, facts, task_of(facts, options), tokenizer)

    def begin(self, prepared: Prepared) -> None:
        """Start to serve the prepared model; called in the event loop."""
        self._prepared = prepared
        self._backend.begin()

    def close(self) -> None:
        """Drop the model, and end the service's thread."""
        self._backend.close()
        self._helper.shutdown()

    async def _reply(self, inputs: Input, seen: _Seen) -> _Reply:
        assert self._prepared is not None  # noqa: S101 - `handle` has prepared it
        prepared = self._prepared
        limit_s = prepared.options.max_queue_time_ms / 1000
        if inputs.get_property(_COUNTERS_HEADER):
            return _Reply(text_of(await self._summary(limit_s)), {})
        level = _level_of(inputs)
        plan = prepared.task.plan(read_call(inputs))
        encoded = await self._encoded(plan, limit_s)
        left_s = limit_s - (time.monotonic() - seen.arrived)
        outcome = await self._backend.run(_sequences(encoded, plan), level=level, limit_s=left_s)
        seen.tokens, seen.queue_s = sum(len(one.ids) for one in encoded), outcome.queue_s
        if plan.large and sum(output.size for output in outcome.outputs) > _SMALL_ANSWER:
            text = await asyncio.get_running_loop().run_in_executor(self._helper, plan.answer, outcome.outputs)
        else:
            text = plan.answer(outcome.outputs)
        cut = sum(one.truncated for one in encoded)
        self._counters.truncated += cut
        return _Reply(text, _headers(cut, outcome if inputs.get_property(_BATCH_HEADER) else None))

    async def _encoded(self, plan: Plan, limit_s: float) -> list[Encoded]:
        assert self._prepared is not None  # noqa: S101 - as above
        tokenizer, tables = self._prepared.tokenizer, self._prepared.facts.tables
        if tokenizer is None:
            return await self._backend.encode(plan.texts, plan.cut, limit_s)
        if sum(len(text.first) + len(text.second or "") for text in plan.texts) <= _SMALL_TEXT:
            return checked(tokenizer, tables, plan.texts, plan.cut)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._helper, checked, tokenizer, tables, plan.texts, plan.cut)

    async def _summary(self, limit_s: float) -> dict[str, Any]:
        """Return both processes' counters: requests as counted here, passes as counted in the engine process."""
        assert self._prepared is not None  # noqa: S101 - as above
        theirs = await self._backend.summary(limit_s)
        own = {name: number for name, number in asdict(self._counters).items() if name in _COUNTED_HERE}
        counters = Counters(**{**theirs["counters"], **own})
        engine = {f"engine_{name}": value for name, value in theirs["engine"].items()}
        return {**counters.summary(), **self._prepared.facts.shown, **engine, "engine_starts": self._backend.starts}

    def _log(self, seen: _Seen) -> None:
        """Count a request for the model's log line, which is written `log_interval_s` after the first such request."""
        assert self._prepared is not None  # noqa: S101 - as above
        options = self._prepared.options
        if options.catalog_name is None or seen.status == _UNANSWERED:
            return
        if self._requests is None:
            self._requests = RequestLog(options.catalog_name)
            asyncio.get_running_loop().call_later(options.log_interval_s, self._write_log)
        latency_s = time.monotonic() - seen.arrived
        self._requests.add(status=seen.status, tokens=seen.tokens, latency_s=latency_s, queue_s=seen.queue_s)

    def _write_log(self) -> None:
        if self._requests is not None:
            # Not by a logger: the server and its emulator put the process and the model in front of each line.
            print(self._requests.line(), flush=True)  # noqa: T201
            self._requests = None

    def _answer(self, reply: _Reply) -> Output:
        output = self._output()
        output.add_property("Content-Type", "application/json")
        for name, value in reply.headers.items():
            output.add_property(name, value)
        output.add(self._output.binary_encode({"data": reply.text, "last": True}))
        return output


_COUNTED_HERE = {"requests", "refused", "cancelled", "truncated"}


def _level_of(inputs: Input) -> Level:
    """Return the level that a request asks for, in the header for levels or in SageMaker's custom attributes.

    Raises:
        BadInputError: the priority is none of the known ones.
    """
    given = inputs.get_property(_PRIORITY_HEADER)
    for part in str(inputs.get_property(_CUSTOM_ATTRIBUTES) or "").split(";"):
        name, _, value = part.partition("=")
        if name.strip().lower() == _PRIORITY_HEADER:
            given = value
    if given is None:
        return Level.USUAL
    level = _PRIORITIES.get(str(given).strip().lower())
    if level is None:
        raise BadInputError(fault(_PRIORITY_HEADER, f"got {str(given)!a:.60}", allowed="usual or bulk"))
    return level


def _sequences(encoded: list[Encoded], plan: Plan) -> list[TokenSequence]:
    return [
        TokenSequence(one, max(len(one.ids), plan.cut.max_length if plan.cut.pad else 0), plan.want, index)
        for index, one in enumerate(encoded)
    ]


def _headers(cut: int, outcome: Outcome | None) -> dict[str, str]:
    """Return an answer's headers: the number of truncated texts and, if requested, the sizes of its batches."""
    headers = {_TRUNCATED_HEADER: str(cut)} if cut else {}
    if outcome is not None:
        shown = outcome.batches[:_MOST_BATCHES_SHOWN]
        more = len(outcome.batches) - len(shown)
        sizes = ",".join(f"{sequences}/{tokens}" for sequences, tokens in shown) + (f",+{more}" if more else "")
        headers[_BATCH_HEADER] = (
            f"{sizes} queue {1000 * outcome.queue_s:.1f} ms forward {1000 * outcome.forward_s:.1f} ms"
        )
    if headers:
        headers[_CUSTOM_ATTRIBUTES] = ";".join(f"{name}={value}" for name, value in headers.items())
    return headers
