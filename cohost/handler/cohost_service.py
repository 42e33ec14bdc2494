"""The service of one worker: the first call loads the model, each later call is read, run and answered on its own.

Answers have the form that DJL Serving 0.36.0 requires of an asynchronous handler: `Output.binary_encode` of "data" and
"last"; an error's answer also has "code" and "error", which become the HTTP status and its reason.
"""

from __future__ import annotations

import asyncio
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .cohost_batches import Counters
from .cohost_device import DeviceMemory
from .cohost_engine import Engine, EngineSettings, ModelThread
from .cohost_errors import HandlerError, Output, refusal_of
from .cohost_forward import TokenSequence
from .cohost_loading import load
from .cohost_options import AUTO_BATCH_TOKENS, read_options
from .cohost_request import read_call, text_of
from .cohost_warm_up import warm_up
from .cohost_watchdog import LOST_DEVICE_CODE, Ending, Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
# The only header of a container's answer that SageMaker passes on (AWS: InvokeEndpoint, CustomAttributes).
_CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
_MOST_BATCHES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model that is loaded and warmed up, with the engine's settings and the limit of its memory."""

    loaded: Loaded
    settings: EngineSettings
    memory: DeviceMemory


@dataclass(frozen=True, slots=True)
class _Reply:
    text: str
    headers: dict[str, str]


class Service:
    """The service of one model.

    `output` is DJL Serving's class of answers; `last_resort` is passed on to `Watchdog`.
    """

    def __init__(
        self, output: type[Output], end_process: Callable[[int], None] = os._exit, *, last_resort: bool = False
    ) -> None:
        self._output = output
        self._last_resort = last_resort
        self._counters = Counters()
        # One thread, since a tokenizer is not thread-safe; the thread works while the model computes.
        self._helper = ThreadPoolExecutor(1, thread_name_prefix="cohost-tokenizer")
        self._thread = ModelThread()
        self._engine: Engine | None = None
        self._loaded: Loaded | None = None
        self._watchdog: Watchdog | None = None
        self._waiting = 0
        self._ending = Ending(lambda: self._waiting, end_process)

    async def handle(self, inputs: Input) -> Output:
        """Answer one call.

        Raises:
            ValueError: on the first call, if the options are wrong or the model cannot be served.
        """
        if self._engine is None or self._loaded is None:
            self.begin(self.prepare(inputs.get_properties()))
        if inputs.is_empty():
            return self._output()
        self._counters.requests += 1
        self._waiting += 1
        try:
            return self._answer(await self._reply(inputs))
        except HandlerError as error:
            self._counters.refused += 1
            return refusal_of(self._output, error)
        except asyncio.CancelledError:
            self._counters.cancelled += 1
            raise
        finally:
            self._waiting -= 1

    def prepare(self, properties: Mapping[str, Any]) -> Prepared:
        """Load the model and warm it up, in the thread that will run the model.

        Raises:
            ValueError: the options are wrong or the model cannot be served.
            Exception: any exception of transformers and torch about weights, memory or the device.
        """
        return self._thread.run(lambda: self._prepare(read_options(properties)))

    @staticmethod
    def _prepare(options: Options) -> Prepared:
        loaded = load(options)
        tokens = options.max_batch_tokens
        if tokens is None:
            tokens = AUTO_BATCH_TOKENS[loaded.device.type]
        measured = warm_up(loaded, options, tokens)
        memory = DeviceMemory(loaded.device, options.planned_mib)
        memory.settle()
        settings = EngineSettings(
            max_batch_tokens=measured.max_batch_tokens,
            max_batch_sequences=options.max_batch_sequences,
            floor_tokens=loaded.limit,
            pass_cost=measured.pass_cost,
            max_queued_sequences=options.max_queued_sequences,
            max_queue_time_s=options.max_queue_time_ms / 1000,
            log_interval_s=options.log_interval_s,
            pass_timeout_s=measured.pass_timeout_s,
            compiles=options.compile,
            compiled=measured.compiled,
        )
        logger.info("%s", settings)
        return Prepared(loaded, settings, memory)

    def begin(self, prepared: Prepared) -> None:
        """Start to serve the prepared model; called in the event loop."""
        self._loaded = prepared.loaded
        self._engine = Engine(
            prepared.loaded.forward,
            prepared.settings,
            self._counters,
            lambda: self._ending.begin(LOST_DEVICE_CODE),
            self._thread,
        )
        self._watchdog = Watchdog(
            self._engine,
            asyncio.get_running_loop(),
            self._ending,
            prepared.settings.pass_timeout_s,
            lambda: prepared.memory.tick(self._counters.passes),
            last_resort=self._last_resort,
        )

    def close(self) -> None:
        """End the service's threads, and refuse the waiting requests."""
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._engine is None:
            self._thread.close()
        else:
            self._engine.stop()
        self._helper.shutdown()

    async def _reply(self, inputs: Input) -> _Reply:
        assert self._engine is not None  # noqa: S101 - `handle` has started it
        assert self._loaded is not None  # noqa: S101 - as above
        if inputs.get_property(_COUNTERS_HEADER):
            return _Reply(text_of(self._counters.summary() | self._loaded.facts), {})
        plan = self._loaded.task.plan(read_call(inputs))
        loop = asyncio.get_running_loop()
        encoded = await loop.run_in_executor(self._helper, self._loaded.encode, plan.texts, plan.cut)
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


def _sequences(encoded: list[Encoded], plan: Plan) -> list[TokenSequence]:
    return [
        TokenSequence(one, max(len(one.ids), plan.cut.max_length if plan.cut.pad else 0), plan.want, index)
        for index, one in enumerate(encoded)
    ]


def _headers(cut: int, outcome: Outcome | None) -> dict[str, str]:
    """Return an answer's headers: the number of truncated texts and, on request, the batches of its sequences."""
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
