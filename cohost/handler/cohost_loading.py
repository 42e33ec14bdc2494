"""Loads a model: weights, tokenizer, true limit, number format. What fails here fails the load, with a reason."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import transformers

from .cohost_classification import TextClassification
from .cohost_device import device_of, half_types, set_threads
from .cohost_features import FeatureExtraction
from .cohost_forward import Forward, TokenSequence
from .cohost_length import length_limit
from .cohost_parameters import LengthRule
from .cohost_precision import check_sequences, disagreement, largest_difference
from .cohost_tasks import Task, Want
from .cohost_tokenizer import Tokenizer
from .cohost_zero_shot import ZeroShotClassification

if TYPE_CHECKING:
    from .cohost_options import Options
    from .cohost_tasks import Floats
    from .cohost_tokenizer import Encoded

logger = logging.getLogger(__name__)

_FEATURES = "feature-extraction"
_ZERO_SHOT = "zero-shot-classification"
_AUTO = "auto"
_FP32 = "fp32"
_TYPES = {_FP32: torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """A model ready to run: `limit` in tokens, `dtype` as chosen, `samples` as sequences to warm up with."""

    forward: Forward
    tokenizer: Tokenizer
    task: Task
    device: torch.device
    limit: int
    dtype: str
    samples: list[Encoded]


def load(options: Options) -> Loaded:
    """Loads what the options name.

    Raises:
        ValueError: the model does not suit the task, the device is not there, or the dtype is not good enough.
        Exception: whatever transformers raises on weights that it cannot read.
    """
    device = device_of(options)
    threads = set_threads(options, device)
    source = {"revision": options.revision, "trust_remote_code": options.trust_remote_code}
    tokenizer = Tokenizer(transformers.AutoTokenizer.from_pretrained(options.model, **source), options.model)
    model = _weights(options, device)
    limit = length_limit(
        model=options.model,
        positions=_positions(model.config),
        offset=_position_offset(model),
        tokenizer_maximum=tokenizer.maximum,
        wanted=options.max_length,
    )
    samples = check_sequences(tokenizer, limit)
    task = _task_of(model.config, options, LengthRule(limit, tokenizer.shortest, options.truncation))

    def forward_of(model: Any) -> Forward:  # noqa: ANN401 - transformers has no types
        return Forward(model, device=device, padding_ids=tokenizer.padding_ids, limit=limit)

    dtype = _Choice(options, device, forward_of, samples).of(model)
    logger.info(
        "%s: %s on %s, %s, %d threads, %d tokens", options.model, options.task, device, dtype.name, threads, limit
    )
    return Loaded(
        forward=dtype.forward,
        tokenizer=tokenizer,
        task=task,
        device=device,
        limit=limit,
        dtype=dtype.name,
        samples=samples,
    )


@dataclass(frozen=True, slots=True)
class _Chosen:
    name: str
    forward: Forward


class _Choice:
    """The choice of a number format."""

    def __init__(self, options: Options, device: torch.device, forward_of: Any, samples: list[Encoded]) -> None:  # noqa: ANN401
        self._options = options
        self._device = device
        self._forward_of = forward_of
        want = Want.MEAN if options.task == _FEATURES else Want.LOGITS
        self._samples = [TokenSequence(sample, len(sample.ids), want) for sample in samples]
        self._labels = want is Want.LOGITS

    def of(self, model: Any) -> _Chosen:  # noqa: ANN401 - transformers has no types
        """Takes the model as loaded in fp32."""
        wanted = self._options.dtype
        formats = half_types(self._device) if wanted == _AUTO else [wanted]
        if formats and formats != [_FP32]:
            reference = self._outputs(self._forward_of(model))
            for name in formats:
                forward = self._forward_of(model.to(_TYPES[name]))
                problem = self._problem(name, reference, forward)
                if problem is None:
                    return _Chosen(name, forward)
                # Rounded weights stay rounded, so fp32 starts from the files again.
                model = _weights(self._options, self._device)
        return _Chosen(_FP32, self._forward_of(model))

    def _problem(self, name: str, reference: list[Floats], forward: Forward) -> str | None:
        """What is wrong with a format, logged.

        Raises:
            ValueError: the format is wrong, and the catalog names it without allowing another.
        """
        outputs = self._outputs(forward)
        problem = disagreement(reference, outputs, labels=self._labels)
        if problem is None:
            logger.info("%s differs from fp32 by %.2g at most", name, largest_difference(reference, outputs))
            return None
        message = f"dtype: {name} is refused for {self._options.model}: {problem}"
        if self._options.dtype != _AUTO and not self._options.dtype_fallback:
            raise ValueError(f"{message}; write dtype fp32, or dtype_fallback true")
        logger.warning("%s; trying the next", message)
        return problem

    def _outputs(self, forward: Forward) -> list[Floats]:
        return forward(self._samples[:-1]) + forward(self._samples[-1:])


def _weights(options: Options, device: torch.device) -> Any:  # noqa: ANN401 - transformers has no types
    kind = transformers.AutoModel if options.task == _FEATURES else transformers.AutoModelForSequenceClassification
    attention = {} if options.attention == _AUTO else {"attn_implementation": options.attention}
    model = kind.from_pretrained(
        options.model,
        revision=options.revision,
        trust_remote_code=options.trust_remote_code,
        dtype=torch.float32,
        **attention,
    )
    return model.eval().to(device)


def _task_of(config: Any, options: Options, rule: LengthRule) -> Task:  # noqa: ANN401 - transformers has no types
    if options.task == _FEATURES:
        return FeatureExtraction(options=options, rule=rule)
    if options.task == _ZERO_SHOT:
        return ZeroShotClassification(label2id=config.label2id, model=options.model, options=options, rule=rule)
    labels = [config.id2label[index] for index in range(config.num_labels)]
    return TextClassification(labels=labels, problem_type=config.problem_type, options=options, rule=rule)


def _positions(config: Any) -> int | None:  # noqa: ANN401 - transformers has no types
    positions = getattr(config, "max_position_embeddings", None)
    return positions if isinstance(positions, int) and positions > 0 else None


def _position_offset(model: Any) -> int:  # noqa: ANN401 - transformers has no types
    """How many positions lie unused at the start of the model's table: the padding index and those before it."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return int(module.padding_idx) + 1
    return 0
