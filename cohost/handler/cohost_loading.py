"""Loading of a model: weights, tokenizer, true limit, number format. An error here fails the load, with a reason."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import transformers

from .cohost_classification import TextClassification
from .cohost_device import check_sequences, device_of, set_threads
from .cohost_features import FeatureExtraction
from .cohost_forward import TokenSequence
from .cohost_request import LengthRule
from .cohost_stream import stream_of
from .cohost_tasks import Want
from .cohost_texts import length_limit
from .cohost_tokenizer import Tokenizer
from .cohost_trials import Trials
from .cohost_zero_shot import ZeroShotClassification

if TYPE_CHECKING:
    from .cohost_forward import Forward
    from .cohost_options import Options
    from .cohost_tasks import Task
    from .cohost_tokenizer import Encoded

logger = logging.getLogger(__name__)

_FEATURES = "feature-extraction"
_ZERO_SHOT = "zero-shot-classification"
_OF_TRANSFORMERS = ("sdpa", "eager")


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """A model ready to run: `limit` in tokens, `dtype` and `packs` as chosen, `samples` for its warm-up."""

    forward: Forward
    tokenizer: Tokenizer
    task: Task
    device: torch.device
    limit: int
    dtype: str
    packs: bool
    samples: list[Encoded]


def load(options: Options) -> Loaded:
    """Load the model that the options name.

    Raises:
        ValueError: the model does not suit the task, the device does not exist, or the dtype is not accurate enough.
        Exception: whatever transformers raises on weights that it cannot read.
    """
    device = device_of(options)
    stream_of(device).enter()
    threads = set_threads(options, device)
    source = {"revision": options.revision, "trust_remote_code": options.trust_remote_code}
    tokenizer = Tokenizer(transformers.AutoTokenizer.from_pretrained(options.model, **source), options.model)
    model = _weights(options, device)
    offset = _position_offset(model)
    limit = length_limit(
        model=options.model,
        positions=_positions(model.config),
        offset=offset,
        tokenizer_maximum=tokenizer.maximum,
        wanted=options.max_length,
    )
    task = _task_of(model.config, options, LengthRule(limit, tokenizer.shortest, options.truncation))
    samples = check_sequences(tokenizer, limit)
    trials = Trials(
        options,
        device=device,
        weights=lambda: _weights(options, device),
        padding_ids=tokenizer.padding_ids,
        limit=limit,
        samples=samples,
    )
    dtype, model = trials.with_dtype(model)
    forward = trials.fastest(model, dtype, offset)
    # torch's allocator still holds the memory of the fp32 weights.
    forward.free_memory()
    logger.info("%s: %s on %s, %s, %d threads, %d tokens", options.model, options.task, device, dtype, threads, limit)
    return Loaded(
        forward=forward,
        tokenizer=tokenizer,
        task=task,
        device=device,
        limit=limit,
        dtype=dtype,
        packs=forward.packs(TokenSequence(samples[0], len(samples[0].ids), Want.LOGITS)),
        samples=samples,
    )


def _weights(options: Options, device: torch.device) -> Any:  # transformers has no types
    kind = transformers.AutoModel if options.task == _FEATURES else transformers.AutoModelForSequenceClassification
    attention = {"attn_implementation": options.attention} if options.attention in _OF_TRANSFORMERS else {}
    model = kind.from_pretrained(
        options.model,
        revision=options.revision,
        trust_remote_code=options.trust_remote_code,
        dtype=torch.float32,
        **attention,
    )
    return model.eval().to(device)


def _task_of(config: Any, options: Options, rule: LengthRule) -> Task:  # transformers has no types
    if options.task == _FEATURES:
        return FeatureExtraction(options=options, rule=rule)
    if options.task == _ZERO_SHOT:
        return ZeroShotClassification(label2id=config.label2id, model=options.model, options=options, rule=rule)
    labels = [config.id2label[index] for index in range(config.num_labels)]
    return TextClassification(labels=labels, problem_type=config.problem_type, options=options, rule=rule)


def _positions(config: Any) -> int | None:  # transformers has no types
    positions = getattr(config, "max_position_embeddings", None)
    return positions if isinstance(positions, int) and positions > 0 else None


def _position_offset(model: Any) -> int:  # transformers has no types
    """Return the number of unused positions at the start of the model's table, including the padding index."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return int(module.padding_idx) + 1
    return 0
