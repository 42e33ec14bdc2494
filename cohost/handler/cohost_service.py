"""One worker's service: the first call loads the model, each other one is read, run and answered on its own.

Answers have the form that DJL Serving 0.36.0 wants of an asynchronous handler: `Output.binary_encode` of "data" and
"last", and on an error of "code" and "error" too, which become the status and its reason.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .cohost_counters import Counters
from .cohost_engine import Engine, EngineSettings
from .cohost_errors import HandlerError, one_line
from .cohost_forward import TokenSequence
from .cohost_json import text_of
from .cohost_loading import load
from .cohost_options import read_options
from .cohost_request import read_call
from .cohost_tasks import Want
from .cohost_warm_up import bucket_shapes, measure_pass_cost, run_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .cohost_engine import Outcome
    from .cohost_loading import Loaded
    from .cohost_options import Options
    from .cohost_request import Input
    from .cohost_tasks import Plan
    from .cohost_tokenizer import Encoded

logger = logging.getLogger(__name__)

_BATCH_HEADER = "cohost-batch"
_TRUNCATED_HEADER = "cohost-truncated"
_COUNTERS_HEADER = "cohost-counters"
# The only header of a container's answer that SageMaker hands on (AWS: InvokeEndpoint, CustomAttributes).
_CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
_MOST_BATCHES_SHOWN = 20
# Ten texts of 512 tokens, under a second of a 6-layer model on two cores: large enough to be fast, small enough to wait
# for.
_CPU_BATCH_TOKENS = 5120
_GPU_BATCH_TOKENS = 16_384
_LEAST_PASS_COST = 64
_FLUSH_S = 0.5
_LOST_DEVICE_EXIT_CODE = 3


class Output(Protocol):
    """What this handler uses of `djl_python.Output`."""

    def add_property(self, key: str, val: Any) -> Any: ...  # noqa: ANN401, D102 - as the server's
    def add(self, value: Any) -> Any: ...  # noqa: ANN401, D102
    @staticmethod
    def binary_encode(data: Any) -> bytearray: ...  # noqa: ANN401, D102


@dataclass(frozen=True, slots=True)
class _Reply:
    text: str
    headers: dict[str, str]


class Service:
    """Serves one model; `output` is the server's class of answers."""

    def __init__(self, output: type[Output], exit_process: Callable[[int], None] = os._exit) -> None:
        self._output = output
        self._exit_process = exit_process
        self._counters = Counters()
        # One thread, since a tokenizer is not made for more; it works while the model does.
        self._helper = ThreadPoolExecutor(1, thread_name_prefix="cohost-tokenizer")
        self._engine: Engine | None = None
        self._loaded: Loaded | None = None

    async def handle(self, inputs: Input) -> Output:
        """Answers one call.

        Raises:
            ValueError: on the first call, when the options or the model are not fit to serve.
        """
        if self._engine is None or self._loaded is None:
            self._start(read_options(inputs.get_properties()))
        if inputs.is_empty():
            return self._output()
        self._counters.requests += 1
        try:
            return self._answer(await self._reply(inputs))
        except HandlerError as error:
            self._counters.refused += 1
            return self._refusal(error)
        except asyncio.CancelledError:
            self._counters.cancelled += 1
            raise

    def close(self) -> None:
        """Ends the threads; requests that wait are refused."""
        if self._engine is not None:
            self._engine.stop()
        self._helper.shutdown()

    def _start(self, options: Options) -> None:
        loaded = load(options)
        tokens = options.max_batch_tokens
        if tokens is None:
            tokens = _GPU_BATCH_TOKENS if loaded.device.type == "cuda" else _CPU_BATCH_TOKENS
        settings = EngineSettings(
            max_batch_tokens=tokens,
            max_batch_sequences=options.max_batch_sequences,
            floor_tokens=loaded.limit,
            pass_cost=_pass_cost(loaded, options, tokens),
            max_queued_sequences=options.max_queued_sequences,
            max_queue_time_s=options.max_queue_time_ms / 1000,
            log_interval_s=options.log_interval_s,
        )
        logger.info("%s", settings)
        self._loaded = loaded
        self._engine = Engine(loaded.forward, settings, self._counters, self._replace_process)

    async def _reply(self, inputs: Input) -> _Reply:
        assert self._engine is not None  # noqa: S101 - `handle` has started it
        assert self._loaded is not None  # noqa: S101 - as above
        if inputs.get_property(_COUNTERS_HEADER):
            return _Reply(text_of(self._counters.summary()), {})
        plan = self._loaded.task.plan(read_call(inputs))
        loop = asyncio.get_running_loop()
        encoded = await loop.run_in_executor(self._helper, self._loaded.tokenizer.encode, plan.texts, plan.cut)
        outcome = await self._engine.run(_sequences(encoded, plan))
        if plan.large:
            text = await loop.run_in_executor(self._helper, plan.answer, outcome.outputs)
        else:
            text = plan.answer(outcome.outputs)
        cut = sum(one.truncated for one in encoded)
        self._counters.truncated += cut
        return _Reply(text, _headers(cut, outcome if inputs.get_property(_BATCH_HEADER) else None))

    def _answer(self, reply: _Reply) -> Output:
        output = self._output()
        output.add_property("Content-Type", "application/json")
        for name, value in reply.headers.items():
            output.add_property(name, value)
        output.add(self._output.binary_encode({"data": reply.text, "last": True}))
        return output

    def _refusal(self, error: HandlerError) -> Output:
        output = self._output()
        output.add_property("Content-Type", "application/json")
        parts = {"data": "", "last": True, "code": error.status, "error": one_line(str(error))}
        output.add(self._output.binary_encode(parts))
        return output

    def _replace_process(self) -> None:
        """Ends the process, for the server to start another, once the answers that wait to be sent have left."""
        timer = threading.Timer(_FLUSH_S, self._exit_process, (_LOST_DEVICE_EXIT_CODE,))
        timer.daemon = True
        timer.start()


def _pass_cost(loaded: Loaded, options: Options, max_tokens: int) -> int:
    """Warms the model up, and measures what a pass costs unless the options say it."""
    want = Want.MEAN if options.task == "feature-extraction" else Want.LOGITS
    sample = loaded.samples[-1]
    if options.warm_up:
        for shape in _shapes_to_run(loaded, options, max_tokens):
            run_shape(loaded.forward, sample, shape, want)
    if options.pass_cost_tokens is not None:
        return options.pass_cost_tokens
    return max(_LEAST_PASS_COST, measure_pass_cost(loaded.forward, sample, loaded.limit, want))


def _shapes_to_run(loaded: Loaded, options: Options, max_tokens: int) -> Iterator[tuple[int, int]]:
    # A CPU has no memory to reserve and no clock to raise: one pass is enough, and batches would take seconds.
    most = (max_tokens, options.max_batch_sequences) if loaded.device.type == "cuda" else (1, 1)
    yield from bucket_shapes(loaded.limit, *most)
    if options.compile:
        # The compiler makes a program for one sequence of each length, and another for more.
        for _, length in bucket_shapes(loaded.limit, 1, 1):
            yield from ((1, length), (2, length))


def _sequences(encoded: list[Encoded], plan: Plan) -> list[TokenSequence]:
    return [
        TokenSequence(one, max(len(one.ids), plan.cut.max_length if plan.cut.pad else 0), plan.want, index)
        for index, one in enumerate(encoded)
    ]


def _headers(cut: int, outcome: Outcome | None) -> dict[str, str]:
    """What an answer says beside its body: how many texts were cut, and, when asked, which batches it was in."""
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
