"""Trials while a model loads: each way that may run a forward pass faster is compared with the model's own way.

A way (compiled, packed or recorded as a CUDA graph) is not used if it is not available, gives other results or is
slower. A log line reports each way that is not used. The model's own way, padded batches, always works. A trial that
loses the device or ends the process is not repeated at the next start.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .cohost_device import largest_difference
from .cohost_errors import one_line
from .cohost_forward import CompiledModel, Forward, shortened
from .cohost_frames import TokenSequence
from .cohost_memory import is_lost_device, is_out_of_memory
from .cohost_packed import (
    DEBERTA,
    DISENTANGLED_FLASH,
    FLASH_DEBERTA,
    PackedByAttention,
    PackedDeberta,
    keep_relative_positions,
    use_flash_deberta,
)
from .cohost_stream import RecordedModel
from .cohost_tasks import Want

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .cohost_options import Options
    from .cohost_packed import PackedModel
    from .cohost_stream import HostStream
    from .cohost_tasks import Floats
    from .cohost_tokenizer import Encoded

logger = logging.getLogger(__name__)

_MARKERS = "cohost-trials"
_AUTO = "auto"
_FP32 = "fp32"
# The last bit of each format's fraction; for tf32 that of its products.
_PRECISION = {"fp16": 2**-10, "tf32": 2**-10, "bf16": 2**-7}
# The same sums in another order differ in the last bits of fp32.
_TOLERANCE = 1e-4
_TIMES_THE_USUAL_ERROR = 2
_COMPILE = "compile"
_PACKING = "packing"
_GRAPHS = "graphs"
# (Sequences, tokens per sequence) of small passes, for which the device waits for their launches.
_SMALL = ((1, 16), (4, 16))
_REPEATS = 3
# (Sequences of each length, the lengths in tokens) of each batch. A CPU takes seconds for a batch that fills a GPU.
_FEW_SIZES = ((1, (8, 8, 16, 64)), (1, (8, 12, 16, 48)))
_MANY_SIZES = ((16, (8, 16, 32, 64)), (4, (32, 64, 128, 512)))


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a forward pass, its outputs for the check texts, and its shortest time (s) for each batch."""

    forward: Forward
    outputs: list[Floats]
    seconds: list[float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """The results of the trials in a model's load, so that the same model loads again without trials.

    `dtype` is the chosen number format, `ways` the names of the chosen ways, and `recorded_tokens` the largest number
    of tokens in a recorded pass. `measured` has the values that the warm-up measured.
    """

    dtype: str
    ways: tuple[str, ...]
    recorded_tokens: int
    measured: Mapping[str, Any] | None = None


class Trial:
    """A marker file that exists while a way is tried; if the file remains, the process ended during the trial.

    `of` has the values that the trial's result depends on: model, version of torch, and device.
    """

    def __init__(self, name: str, of: Sequence[str]) -> None:
        self.folder = Path(tempfile.gettempdir(), _MARKERS)
        digest = hashlib.sha256("\n".join([name, *of]).encode()).hexdigest()[:16]
        self._prefix = f"trying-{name.rpartition(' ')[2]}-{digest}-"
        self._file = self.folder / f"{self._prefix}{os.getpid()}"

    def has_failed(self) -> bool:
        """Return True if a process that has ended left a marker of this trial; running processes do not count."""
        return any(not _runs_beside(int(file.name.rpartition("-")[2])) for file in self.folder.glob(f"{self._prefix}*"))

    def begin(self) -> None:
        """Write the marker file; without it, a way that ends the process would be tried again at every start."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self._file.touch()

    def end(self) -> None:
        """Remove the marker."""
        self._file.unlink(missing_ok=True)


def _runs_beside(process: int) -> bool:
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def seconds_of(forward: Forward, batch: Sequence[TokenSequence]) -> float:
    """Run a batch, and return the seconds that it takes."""
    return forward.timed(batch)


def _slowness(usual: Way, way: Way) -> str | None:
    """Return a message about the first batch that a way runs more slowly than the model's own way; None without one."""
    for number, (usual_s, way_s) in enumerate(zip(usual.seconds, way.seconds, strict=True)):
        if way_s > usual_s:
            return f"it takes {1000 * way_s:.1f} ms for batch {number}, and the usual way {1000 * usual_s:.1f} ms"
    return None


class Trials:
    """The trials of one model on the device of `stream`; `samples` are the check texts as sequences.

    The last sample has the model's full length. With `known`, the ways that an earlier load of the model chose are used
    without a trial. `ways` and `recorded_tokens` are the results of this load's trials.
    """

    def __init__(
        self,
        options: Options,
        *,
        stream: HostStream,
        padding_ids: tuple[int, int],
        limit: int,
        samples: list[Encoded],
        known: Findings | None = None,
    ) -> None:
        self.ways: list[str] = []
        self.recorded_tokens = 0
        self._known = known
        self._options = options
        self._stream = stream
        self._padding_ids = padding_ids
        self._limit = limit
        want = Want.MEAN if options.task == "feature-extraction" else Want.LOGITS
        self._samples = [TokenSequence(sample, len(sample.ids), want) for sample in samples]
        self._reference: list[Floats] | None = None
        self._sizes = _MANY_SIZES if self._stream.is_gpu else _FEW_SIZES

    def outputs_of(self, model: Any) -> list[Floats]:  # transformers has no types
        """Return the outputs of the model's own forward pass for the check texts.

        The model must be in fp32 in the first call, whose outputs are the reference for ways in other formats.
        """
        outputs = self._outputs(self._forward(model))
        self._reference = self._reference or outputs
        return outputs

    def fastest(self, model: Any, dtype: str, position_offset: int) -> Forward:
        """Try the ways that the options allow, and return the fastest forward pass whose results agree.

        Raises:
            Exception: a trial lost the device; the next start leaves out the way that was tried.
        """
        if self._stream.is_gpu:
            keep_relative_positions(model, self._limit)
        padded = self._forward(model)
        if self._options.attention == FLASH_DEBERTA:
            self._attend_by_flash_deberta(model, padded, dtype)
        if not (self._options.compile or self._options.packing or self._stream.is_gpu):
            return padded
        usual = self._usual(padded)
        ways: dict[str, Way] = {}
        if self._options.compile:
            self._try(ways, _COMPILE, usual, dtype, lambda: self._compiled(model))
        if self._options.packing:
            self._try(ways, _PACKING, usual, dtype, lambda: self._packed(model, position_offset))
        name, best = min(ways.items(), key=lambda item: sum(item[1].seconds), default=("", usual))
        for other in ways.keys() - {name}:
            logger.info("%s: not used, %s is faster", other, name)
        self.ways += [name] if name else []
        # A compiled program combines its launches by itself, so it is not recorded.
        return self._with_recordings(model, best, dtype) if self._stream.is_gpu and name != _COMPILE else best.forward

    def _with_recordings(self, model: Any, usual: Way, dtype: str) -> Forward:
        """Return the forward pass of `usual`; record small passes if that is faster and gives the same outputs."""
        sample, (large, *_) = self._samples[-1], self._batches()
        small = [[shortened(sample, min(self._limit, length))] * rows for rows, length in _SMALL]
        before = self._measured(usual.forward, small)
        # Up to this number of tokens the device waits for launches, so that filling up a batch costs nothing.
        most_tokens = int(usual.forward.tokens_of(large) * before.seconds[0] / usual.seconds[0])
        if self._known is not None:
            most_tokens = self._known.recorded_tokens
        parts = 2 if sample.encoded.segments is None else 3

        def recorded() -> Forward:
            with torch.inference_mode():
                run = self._forward(model).run_padded
                recordings = RecordedModel(run, self._stream, limit=self._limit, most_tokens=most_tokens, parts=parts)
            return usual.forward.with_recordings(recordings)

        ways: dict[str, Way] = {}
        self._try(ways, _GRAPHS, before, dtype, recorded, small)
        if ways:
            self.ways.append(_GRAPHS)
            self.recorded_tokens = most_tokens
        return ways[_GRAPHS].forward if ways else usual.forward

    def _try(
        self,
        ways: dict[str, Way],
        name: str,
        usual: Way,
        dtype: str,
        make: Callable[[], Forward],
        batches: Sequence[Sequence[TokenSequence]] = (),
    ) -> None:
        """Add a way to `ways` if it works, gives the outputs of the way `usual`, and is slower for no batch.

        If the results of an earlier load's trials are known, they decide, without a trial.
        """
        if self._known is not None:
            if name in self._known.ways:
                ways[name] = replace(usual, forward=make())
            return
        trial = self._begun(name)
        if trial is None:
            return
        try:
            way = self._measured(make(), batches)
            fault = way.forward.failure or self._fault(usual, way, dtype)
            if fault is None and _slowness(usual, way):
                # Other programs may have disturbed the measurement of either way.
                usual, way = (self._measured_again(one, batches) for one in (usual, way))
                fault = _slowness(usual, way)
        except Exception as error:
            if is_lost_device(error):
                # Every later call would fail too. The marker stays, so that the next start leaves this way out.
                raise
            # A kernel or a library that is not there may raise anything; memory may run out.
            fault = one_line(str(error))
        trial.end()
        if fault is None:
            ways[name] = way
        else:
            self._stream.free_memory()
            logger.log(self._level(name), "%s: not used, %s", name, fault)

    def _begun(self, name: str) -> Trial | None:
        """Return the begun trial of a way; None if an earlier trial of that way ended its process."""
        trial = Trial(name, (self._options.model, torch.__version__, self._stream.name))
        if trial.has_failed():
            logger.warning("%s: not used, a trial of it ended the process; remove %s to try again", name, trial.folder)
            return None
        trial.begin()
        return trial

    def _level(self, name: str) -> int:
        by_itself = name == _GRAPHS or (name == _PACKING and self._options.attention != DISENTANGLED_FLASH)
        return logging.INFO if by_itself else logging.WARNING

    def _attend_by_flash_deberta(self, model: Any, padded: Forward, dtype: str) -> None:
        usual, ways = self._usual(padded), dict[str, Way]()
        restore: list[Callable[[], None]] = []

        def replaced() -> Forward:
            restore.append(use_flash_deberta(model))
            return padded

        self._try(ways, f"attention: {FLASH_DEBERTA}", usual, dtype, replaced)
        if ways:
            logger.info("attention: %s", FLASH_DEBERTA)
            self.ways += ways
            return
        for put_back in restore:
            put_back()

    def _compiled(self, model: Any) -> Forward:
        return self._forward(model, compiled=CompiledModel(model, self._limit))

    def _packed(self, model: Any, position_offset: int) -> Forward:
        kind = PackedDeberta if self._wants_disentangled_flash(model) else PackedByAttention
        padding_token = self._padding_ids[0]
        return self._forward(
            model,
            kind(model, stream=self._stream, padding_token=padding_token, position_offset=position_offset),
        )

    def _wants_disentangled_flash(self, model: Any) -> bool:
        if self._options.attention == _AUTO:
            return bool(model.config.model_type == DEBERTA)
        return self._options.attention == DISENTANGLED_FLASH

    def _usual(self, padded: Forward) -> Way:
        """Measure the model's own way, on smaller batches if memory runs out; an error here fails the load."""
        try:
            return self._measured(padded)
        except Exception as error:
            if self._sizes == _FEW_SIZES or not is_out_of_memory(error):
                raise
        # After the `except` block, because the error's traceback keeps the tensors alive for which memory ran out.
        self._stream.free_memory()
        self._sizes = _FEW_SIZES
        return self._measured(padded)

    def _measured(self, forward: Forward, batches: Sequence[Sequence[TokenSequence]] = ()) -> Way:
        if self._known is not None:
            return Way(forward, [], [1.0] * len(batches or self._sizes))
        outputs = self._outputs(forward)
        return Way(forward, outputs, [self._least_seconds(forward, batch) for batch in batches or self._batches()])

    def _measured_again(self, way: Way, batches: Sequence[Sequence[TokenSequence]]) -> Way:
        again = [self._least_seconds(way.forward, batch) for batch in batches or self._batches()]
        return replace(way, seconds=[min(both) for both in zip(way.seconds, again, strict=True)])

    def _least_seconds(self, forward: Forward, batch: Sequence[TokenSequence]) -> float:
        return min(seconds_of(forward, batch) for _ in range(_REPEATS))

    def _batches(self) -> list[list[TokenSequence]]:
        """Return two batches, of shorter and of longer texts, each of several lengths; a GPU gets more texts."""
        full = self._samples[-1]
        return [
            [shortened(full, min(self._limit, size)) for size in lengths for _ in range(times)]
            for times, lengths in self._sizes
        ]

    def _fault(self, usual: Way, way: Way, dtype: str) -> str | None:
        """Return the fault in a way's outputs, compared with those of way `usual` or of fp32; None without a fault."""
        if self._reference is None or dtype == _FP32:
            difference, allowed = largest_difference(usual.outputs, way.outputs), _TOLERANCE
        else:
            # In half formats each way rounds differently, so both ways are compared with fp32.
            difference = largest_difference(self._reference, way.outputs)
            rounding = _PRECISION[dtype] * max(float(abs(one).max()) for one in self._reference)
            allowed = max(_TIMES_THE_USUAL_ERROR * largest_difference(self._reference, usual.outputs), rounding)
        # Written so that a difference that is not a number counts as a fault too.
        return None if difference <= allowed else f"it differs by {difference:.2g}, and {allowed:.2g} are allowed"

    def _forward(
        self,
        model: Any,
        packed: PackedModel | None = None,
        compiled: CompiledModel | None = None,
    ) -> Forward:
        return Forward(
            model,
            stream=self._stream,
            padding_ids=self._padding_ids,
            limit=self._limit,
            packed=packed,
            compiled=compiled,
        )

    def _outputs(self, forward: Forward) -> list[Floats]:
        return forward(self._samples[:-1]) + forward(self._samples[-1:])
