"""One ONNX file as a model that answers a task's plan: tokenizes texts, runs batches, splits the output by sequence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from cohost.handler.cohost_classification import TextClassification
from cohost.handler.cohost_features import FeatureExtraction
from cohost.handler.cohost_request import LengthRule
from cohost.handler.cohost_tasks import Want
from cohost.handler.cohost_tokenizer import Tokenizer
from cohost.handler.cohost_zero_shot import ZeroShotClassification

from .onnx_tokenizer import tokenizer_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cohost.handler.cohost_options import Options
    from cohost.handler.cohost_tasks import Floats, Plan, Task
    from cohost.handler.cohost_tokenizer import Encoded

# On a CPU a batch saves little, and padding costs as much as text, so batches stay small.
_BATCH_TOKENS = 2048
_SEGMENTS = "token_type_ids"
_FEATURES = "feature-extraction"
_ZERO_SHOT = "zero-shot-classification"


class OnnxModel:
    """The model in the archive's folder; like its tokenizer, it may be used from one thread only.

    Raises:
        ValueError: the options or the model are not fit to serve.
        Exception: whatever onnxruntime raises on a file that it cannot read.
    """

    def __init__(self, options: Options) -> None:
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads or 0
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        file = Path(options.model, "model.onnx")
        self._session: Any = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
        self._inputs = {one.name for one in self._session.get_inputs()}
        fast = tokenizer_in(options.model, segments=_SEGMENTS in self._inputs)
        self._tokenizer = Tokenizer(fast, options.model)
        if options.max_length is None:
            raise ValueError("max_length: an ONNX file does not tell the model's limit; write option.max_length")
        config = json.loads(Path(options.model, "config.json").read_bytes())
        rule = LengthRule(options.max_length, self._tokenizer.shortest, options.truncation)
        self.task = _task_of(config, options, rule)

    def answer(self, plan: Plan) -> tuple[str, int]:
        """Return the answer to a plan as JSON text, and the number of its texts that were cut.

        Raises:
            BadInputError: a text is too long and may not be cut.
        """
        encoded = self._tokenizer.encode(plan.texts, plan.cut)
        least = plan.cut.max_length if plan.cut.pad else 0
        outputs: list[Floats] = [np.empty(0, np.float32)] * len(encoded)
        for batch in _batches(encoded, least):
            for index, part in zip(
                batch, self._run([encoded[index] for index in batch], least, plan.want), strict=True
            ):
                outputs[index] = part
        return plan.answer(outputs), sum(one.truncated for one in encoded)

    def _run(self, encoded: Sequence[Encoded], least: int, want: Want) -> Iterator[Floats]:
        arrays = self._filled(encoded, least)
        output = self._session.run(None, arrays)[0]
        mask = arrays["attention_mask"]
        for row, one in enumerate(encoded):
            yield _part(output[row], mask[row], max(len(one.ids), least), want)

    def _filled(self, encoded: Sequence[Encoded], least: int) -> Mapping[str, Any]:
        """Pad sequences to one length; return an array of shape (sequences, tokens) for each input name of the file."""
        shape = (len(encoded), max(least, *(len(one.ids) for one in encoded)))
        token, segment = self._tokenizer.padding_ids
        arrays = {
            "input_ids": np.full(shape, token, np.int64),
            "attention_mask": np.zeros(shape, np.int64),
            _SEGMENTS: np.full(shape, segment, np.int64),
        }
        for row, one in enumerate(encoded):
            size = len(one.ids)
            arrays["input_ids"][row, :size] = one.ids
            arrays["attention_mask"][row, :size] = 1
            if one.segments is not None:
                arrays[_SEGMENTS][row, :size] = one.segments
        return {name: array for name, array in arrays.items() if name in self._inputs}


def _batches(encoded: Sequence[Encoded], least: int) -> Iterator[list[int]]:
    """Yield batches (indices of sequences of similar length); only a single sequence may exceed the token limit."""
    batch: list[int] = []
    for index in sorted(range(len(encoded)), key=lambda index: len(encoded[index].ids)):
        longest = max(least, len(encoded[index].ids))
        if batch and (len(batch) + 1) * longest > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _part(output: Floats, mask: Any, length: int, want: Want) -> Floats:  # whole numbers, one per token
    """Return the part of one sequence's output that `want` names: mean, first vector, all vectors, or logits."""
    if want is Want.MEAN:
        mean: Floats = (output * mask[:, None]).sum(0) / mask.sum()
        return mean
    if want is Want.CLS:
        first: Floats = output[0]
        return first
    return output[:length] if want is Want.TOKENS else output


def _task_of(config: Mapping[str, Any], options: Options, rule: LengthRule) -> Task:
    if options.task == _FEATURES:
        return FeatureExtraction(options=options, rule=rule)
    labels = [str(config["id2label"][str(index)]) for index in range(len(config["id2label"]))]
    if options.task == _ZERO_SHOT:
        by_label = {label: index for index, label in enumerate(labels)}
        return ZeroShotClassification(label2id=by_label, model=options.model, options=options, rule=rule)
    return TextClassification(labels=labels, problem_type=config.get("problem_type"), options=options, rule=rule)
