"""CUDA graphs: few shapes, filled up batches, equal answers, and no graphs without a gain."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch
from handler_calls import EMBED, MDEBERTA, MINILM, XLMR, properties

from cohost.handler import cohost_loading, cohost_trials
from cohost.handler.cohost_facts import tokenizer_of
from cohost.handler.cohost_frames import TokenSequence
from cohost.handler.cohost_loading import Loaded, load
from cohost.handler.cohost_options import read_options
from cohost.handler.cohost_request import LONGEST_FIRST, Cut
from cohost.handler.cohost_stream import HostStream, RecordedModel
from cohost.handler.cohost_tasks import Want
from cohost.handler.cohost_texts import Text

if TYPE_CHECKING:
    from collections.abc import Callable

CPU = torch.device("cpu")


class RecordingStream(HostStream):
    """A fake GPU stream on a CPU: a graph runs its function again, into the same tensor."""

    is_gpu = True

    def __init__(self) -> None:
        super().__init__(CPU)
        self.recorded = 0
        self.repeated = 0

    def record(self, run: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """Record as the driver does: the output keeps its place in memory."""
        self.recorded += 1
        output = run().clone()

        def replay() -> None:
            self.repeated += 1
            output.copy_(run())

        return replay, output


def loaded(monkeypatch: pytest.MonkeyPatch, stream: HostStream, model: str, small_s: float, **given: Any) -> Loaded:
    """Load a model on this device; passes of a graph take the given time, other passes a second."""

    def seconds_of(forward: Any, batch: Any) -> float:
        return small_s if forward._recorded_shape(batch) else 1.0

    monkeypatch.setattr(cohost_loading, "stream_of", lambda *_: stream)
    monkeypatch.setattr(cohost_trials, "seconds_of", seconds_of)
    return load(read_options(properties(model, warm_up="false", **given)))


def outputs(of: Loaded, want: Want) -> list[list[float]]:
    """Return a model's outputs for texts of different lengths, in batches of one to five."""
    texts = [Text("good"), Text("the movie was great"), Text("food and city"), Text("a b", "c d"), Text("bad " * 15)]
    assert of.text is not None
    encoded = tokenizer_of(of.facts, of.text, "").encode(texts, Cut(LONGEST_FIRST, of.limit))
    sequences = [TokenSequence(one, len(one.ids), want) for one in encoded]
    batches = [sequences[:1], sequences[:2], sequences, sequences[4:]]
    return [output.ravel().tolist() for batch in batches for output in of.forward(batch)]


@pytest.mark.parametrize(
    ("model", "task", "want"),
    [
        (MINILM, "text-classification", Want.LOGITS),
        (XLMR, "text-classification", Want.LOGITS),
        (MDEBERTA, "text-classification", Want.LOGITS),
        (EMBED, "feature-extraction", Want.MEAN),
        (EMBED, "feature-extraction", Want.TOKENS),
    ],
)
def test_recorded_passes_answer_the_same(monkeypatch: pytest.MonkeyPatch, model: str, task: str, want: Want) -> None:
    """A batch that is filled up to the shape of a graph gets the same answers."""
    expected = outputs(load(read_options(properties(model, task, packing="false"))), want)
    stream = RecordingStream()
    got = loaded(monkeypatch, stream, model, 0.1, task=task)
    stream.repeated = 0
    for one, other in zip(outputs(got, want), expected, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    assert stream.repeated == 4


def test_a_batch_counts_with_what_fills_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The header and the token budget count the tokens that fill up a batch."""
    forward = loaded(monkeypatch, RecordingStream(), MINILM, 0.1).forward
    (sample,) = load(read_options(properties(MINILM))).samples[:1]
    assert forward.tokens_of([TokenSequence(sample, len(sample.ids), Want.LOGITS)] * 3) == 4 * 16


@pytest.mark.parametrize(("small_s", "used"), [(0.9, True), (1.1, False)])
def test_recordings_that_do_not_pay_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    small_s: float,
    used: bool,  # noqa: FBT001
) -> None:
    """CUDA graphs that are not faster during the load are not used."""
    caplog.set_level(logging.INFO)
    stream = RecordingStream()
    forward = loaded(monkeypatch, stream, MINILM, small_s).forward
    assert (forward._recorded is not None) is used
    assert ("graphs: not used, it takes 1100.0 ms" in caplog.text) is not used
    assert stream.recorded > 0


def test_memory_that_runs_out_for_a_trials_batch_does_not_fail_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the batch of a trial does not fit, the load continues with smaller passes and trials."""
    sizes: list[int] = []

    def seconds_of(_: Any, batch: Any) -> float:
        sizes.append(len(batch))
        if len(batch) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 1.0

    monkeypatch.setattr(cohost_loading, "stream_of", lambda *_: RecordingStream())
    monkeypatch.setattr(cohost_trials, "seconds_of", seconds_of)
    assert load(read_options(properties(MINILM))).packs
    assert (sizes[0], max(sizes[1:])) == (64, 4)


def test_a_cpu_records_nothing() -> None:
    """On a CPU no CUDA graph is recorded, because a CPU has no launches to save."""
    assert load(read_options(properties(MINILM))).forward._recorded is None


def test_shapes_are_few_and_no_larger_than_the_device_waits_for() -> None:
    """Graphs have doubling lengths and four batch sizes, and the smallest that holds a batch is used."""
    made = RecordedModel(lambda numbers: numbers.float(), RecordingStream(), limit=512, most_tokens=1024, parts=2)
    assert len(made._recordings) == 15
    assert [made.shape_of(*size) for size in ((1, 3), (2, 17), (5, 60), (17, 16), (4, 200))] == [
        (1, 16),
        (4, 32),
        (16, 64),
        (64, 16),
        (4, 256),
    ]
    assert (made.shape_of(17, 17), made.shape_of(1, 513), made.shape_of(65, 1)) == (None, None, None)
    with pytest.raises(ValueError, match="a pass of 15 tokens fills the device"):
        RecordedModel(lambda numbers: numbers, RecordingStream(), limit=512, most_tokens=15, parts=2)
