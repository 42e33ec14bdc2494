"""The models of an engine process, and the parts that they share: scheduler, watchdog, device memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import json
import logging
import os
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .cohost_batches import Counters
from .cohost_device import DeviceMemory, device_of, set_threads
from .cohost_engine import Engine, EngineSettings
from .cohost_facts import checked
from .cohost_frames import Level
from .cohost_loading import load
from .cohost_memory import free_device_memory, return_free_memory
from .cohost_options import AUTO_BATCH_TOKENS, read_options
from .cohost_scheduler import Lanes, Scheduler
from .cohost_stream import stream_of
from .cohost_trials import Findings
from .cohost_warm_up import Measured, warm_up
from .cohost_watchdog import LOST_DEVICE_CODE, Watchdog, Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .cohost_facts import Facts
    from .cohost_frames import Outcome, TokenSequence
    from .cohost_loading import Loaded
    from .cohost_options import Options
    from .cohost_request import Cut
    from .cohost_texts import Text
    from .cohost_tokenizer import Encoded

logger = logging.getLogger(__name__)

_LANES_ON_A_CPU = 2
# A measurement on load is a single pass or recording; compiling takes minutes.
_MEASUREMENT_S = 120.0
_COMPILATION_S = 900.0
_LOOP_LIMIT_S = 20.0


class Home:
    """The part of an engine process that its models share.

    `end` ends the process with an exit code. `journal` and `last_resort` are passed on to `Scheduler` and `Watchdog`.
    With `shared`, models on a CPU run at the same time in two threads. `findings` keeps the results of each load's
    trials (number format, fastest variant) for later loads.
    """

    def __init__(
        self,
        end: Callable[[int], None],
        journal: Callable[[Sequence[str]], None] = lambda _: None,
        *,
        findings: FindingsStore | None = None,
        shared: bool = False,
        last_resort: bool = False,
    ) -> None:
        self._end = end
        self._journal = journal
        self._shared = shared
        self._last_resort = last_resort
        self._memory: DeviceMemory | None = None
        self._watchdog: Watchdog | None = None
        self._models: set[Hosted] = set()
        self.scheduler: Scheduler | None = None
        self.findings = findings or FindingsStore()

    @property
    def watched(self) -> list[Watched]:
        """Return the passes and measurements that the device is running now."""
        return [] if self.scheduler is None else self.scheduler.watched

    def watch(self, loop: asyncio.AbstractEventLoop) -> Watchdog:
        """Start the watchdog and return it; it also covers the measurements of the first load."""
        if self._watchdog is None:
            self._watchdog = Watchdog(self, loop, self._end, _LOOP_LIMIT_S, self._turn, last_resort=self._last_resort)
        return self._watchdog

    def prepare(self, options: Options) -> None:
        """Create the scheduler for the device that the first model names; all models of a process use the same device.

        Raises:
            NoDeviceError: the options name a GPU, and torch finds no GPU.
        """
        if self.scheduler is None:
            device = device_of(options)
            self.scheduler = Scheduler(self._lanes(device, set_threads(options, device)), self._journal)
            self._memory = DeviceMemory(device, None if self._shared else options.planned_mib)

    def alone(self, options: Options) -> AbstractContextManager[None]:
        """Return a context in which no model's passes run, for one measurement of a model that is being loaded."""
        limit_s = _COMPILATION_S if options.compile else max(_MEASUREMENT_S, options.pass_timeout_s)
        return nullcontext() if self.scheduler is None else self.scheduler.alone(Watched(limit_s))

    def settle(self) -> None:
        """After a load, take the device memory in use as the amount that this process keeps.

        With `shared`, first give back the memory of the warm-up's largest pass, since DJL Serving checks that this
        amount of memory is free before it loads the next model.
        """
        if self._shared:
            free_device_memory()
        if self._memory is not None:
            self._memory.settle()

    def add(self, hosted: Hosted, limit_s: float) -> None:
        """Begin to watch a model's passes; called in the event loop."""
        self._models.add(hosted)
        self.watch(asyncio.get_running_loop()).tighten(limit_s)

    def remove(self, hosted: Hosted) -> None:
        """Forget a dropped model, and give its memory back to the device and to the operating system."""
        self._models.discard(hosted)
        gc.collect()
        free_device_memory()
        return_free_memory()

    def lose_device(self) -> None:
        """End the process, because every later call on the device would fail."""
        self._end(LOST_DEVICE_CODE)

    def close(self) -> None:
        """End all threads."""
        if self._watchdog is not None:
            self._watchdog.stop()
        if self.scheduler is not None:
            self.scheduler.close()

    def _turn(self) -> None:
        models = list(self._models)
        for model in models:
            model.expire()
        if self._memory is not None:
            self._memory.tick(sum(model.counters.passes for model in models))

    def _lanes(self, device: torch.device, threads: int) -> Lanes:
        stream = stream_of(device)

        def prepare() -> None:
            stream.enter()
            torch.set_num_threads(threads)

        if device.type == "cuda":
            return Lanes(depth=stream.depth, prepare=prepare)
        count = _LANES_ON_A_CPU if self._shared and threads > 1 else 1
        use_threads = torch.set_num_threads if count > 1 else lambda _: None
        return Lanes(count=count, depth=count, threads=threads, prepare=prepare, use_threads=use_threads)


class FindingsStore:
    """The results of loads' trials, in files `<name>.*.findings` of `folder`; without a folder, none are kept.

    Only the engine processes of one server share these files, since the trials' results hold only for its machine,
    image and handler version.
    """

    def __init__(self, folder: str | None = None, name: str = "") -> None:
        self._folder = None if folder is None else Path(folder)
        self._name = name

    def known(self, properties: Mapping[str, Any]) -> Findings | None:
        """Return the trials' results of an earlier load with the same properties; None if no such load succeeded."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            data = json.loads(self._file(properties).read_bytes())
            return Findings(**{**data, "ways": tuple(data["ways"])})
        return None

    def keep(self, properties: Mapping[str, Any], findings: Findings) -> None:
        """Write the results of a load's trials to a file; if that fails, the next load repeats all trials."""
        with contextlib.suppress(OSError):
            file = self._file(properties)
            temporary = file.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps(asdict(findings)), encoding="ascii")
            temporary.replace(file)

    def _file(self, properties: Mapping[str, Any]) -> Path:
        if self._folder is None:
            raise FileNotFoundError
        text = json.dumps({name: str(value) for name, value in properties.items()}, sort_keys=True)
        return self._folder / f"{self._name}.{hashlib.sha256(text.encode()).hexdigest()[:16]}.findings"


def _measured(loaded: Loaded, options: Options, known: Findings | None) -> Measured:
    if known is not None and known.measured is not None:
        return Measured.of(known.measured)
    tokens = options.max_batch_tokens
    return warm_up(loaded, options, AUTO_BATCH_TOKENS[loaded.device.type] if tokens is None else tokens)


class Hosted:
    """One model of an engine process: loads and runs the model, and keeps its counters."""

    def __init__(self, home: Home) -> None:
        self.counters = Counters()
        self.tokenizer_text: str | None = None
        self._home = home
        self._loaded: Loaded | None = None
        self._settings: EngineSettings | None = None
        self._share = 1
        self._engine: Engine | None = None

    def load(self, properties: Mapping[str, Any]) -> Facts:
        """Load the model, warm it up, and return its facts; called in a thread of its own.

        Raises:
            ValueError: the options are wrong or the model cannot be served.
            Exception: any exception of transformers and torch about weights, memory or the device.
        """
        options = read_options(properties)
        self._share = options.share
        started = time.monotonic()
        self._home.prepare(options)
        known = self._home.findings.known(properties)
        loaded = load(options, lambda: self._home.alone(options), known)
        measured = _measured(loaded, options, known)
        self._home.settle()
        self._home.findings.keep(properties, replace(loaded.findings, measured=measured.as_data()))
        self._settings = EngineSettings(
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
        self._loaded, self.tokenizer_text = loaded, loaded.text
        logger.info("%s: loaded in %.1f s, %s", options.model, time.monotonic() - started, self._settings)
        return loaded.facts

    def begin(self) -> None:
        """Begin to serve the loaded model; called in the event loop."""
        assert self._loaded is not None  # noqa: S101 - `load` has returned
        assert self._settings is not None  # noqa: S101 - as above
        assert self._home.scheduler is not None  # noqa: S101 - as above
        self._engine = Engine(
            self._loaded.forward,
            self._settings,
            self.counters,
            self._home.lose_device,
            self._home.scheduler,
            self._share,
        )
        self._home.add(self, self._settings.pass_timeout_s)

    async def run(
        self, sequences: Sequence[TokenSequence], *, level: Level = Level.USUAL, age_s: float = 0.0, mark: str = ""
    ) -> Outcome:
        """Run the sequences of one request; see `Engine.run`."""
        assert self._engine is not None  # noqa: S101 - `begin` has created it
        return await self._engine.run(sequences, level=level, age_s=age_s, mark=mark)

    def encode(self, texts: Sequence[Text], cut: Cut) -> list[Encoded]:
        """Return texts as sequences; call it from one thread only.

        Raises:
            BadInputError: a text is too long and may not be truncated, or needs a vector that the model lacks.
        """
        assert self._loaded is not None  # noqa: S101 - `load` has returned
        assert self._loaded.tokenizer is not None  # noqa: S101 - the facts say that the proxy has none
        return checked(self._loaded.tokenizer, self._loaded.facts.tables, texts, cut)

    def expire(self) -> None:
        """Refuse the requests that have waited too long."""
        if self._engine is not None:
            self._engine.expire()

    def close(self) -> None:
        """Refuse the waiting requests, and drop the model when its running passes have ended."""
        if self._engine is not None:
            self._engine.stop()
        self._engine = self._loaded = None
        self._home.remove(self)
