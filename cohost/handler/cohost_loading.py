"""The loading of a model: weights, tokenizer, limit in tokens, number format; an error's text says why a load fails.

Weights are converted on the CPU. A number format is used only if the model's outputs for fixed texts agree with its
fp32 outputs on the same device. The dtype "auto" means the fastest format that agrees. A format in which the model
raises an error does not agree.
"""

from __future__ import annotations

import gc
import logging
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import transformers

from .cohost_device import (
    check_sequences,
    check_texts,
    device_of,
    disagreement,
    half_types,
    has_tf32,
    largest_difference,
    set_threads,
)
from .cohost_errors import BadInputError, fault, reason_of
from .cohost_facts import Facts, task_of, tokenizer_of
from .cohost_frames import TokenSequence
from .cohost_memory import free_device_memory, is_lost_device
from .cohost_request import LONGEST_FIRST, OFF, ONLY_FIRST, Cut
from .cohost_stream import stream_of
from .cohost_tasks import Want
from .cohost_texts import length_limit
from .cohost_tokenizer import Encoded, Tables, Tokenizer
from .cohost_trials import Findings, Trials

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cohost_forward import Forward
    from .cohost_options import Options
    from .cohost_stream import Alone
    from .cohost_tasks import Floats

    Outputs = Callable[[Any], list[Floats]]

logger = logging.getLogger(__name__)

_FEATURES = "feature-extraction"
_OWN_TOKENIZER = "put the tokenizer of these weights beside them"
_OF_TRANSFORMERS = ("sdpa", "eager")
_AUTO = "auto"
_FP32 = "fp32"
_TF32 = "tf32"
_CPU = torch.device("cpu")
_TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """A loaded model, ready to run.

    `text` is the tokenizer's JSON for the proxy process; None if only transformers can run `tokenizer` as its authors
    meant it. `packs` is true if sequences run packed (concatenated, without padding). `samples` are the fixed check
    texts as sequences, for the warm-up. `findings` are the trials' results, which the next load of the model reuses.
    """

    forward: Forward
    facts: Facts
    text: str | None
    tokenizer: Tokenizer | None
    device: torch.device
    packs: bool
    samples: list[Encoded]
    findings: Findings

    @property
    def limit(self) -> int:
        """Return the largest number of tokens in a sequence."""
        return self.facts.limit


def load(options: Options, alone: Alone = nullcontext, known: Findings | None = None) -> Loaded:
    """Load the model that the options name.

    Args:
        options: the model's settings.
        alone: keeps other models' passes away while this model is measured.
        known: the results of the trials in an earlier load of the same model with the same options; these trials are
            not repeated.

    Raises:
        ValueError: the model does not suit the task, the device does not exist, or the dtype is not accurate enough.
        Exception: any exception of transformers for weights that it cannot read.
    """
    device = device_of(options)
    stream = stream_of(device, alone)
    stream.enter()
    threads = set_threads(options, device)
    source = {"revision": options.revision, "trust_remote_code": options.trust_remote_code}
    raw = transformers.AutoTokenizer.from_pretrained(options.model, **source)
    tokenizer = Tokenizer(raw, options.model)
    weights = Weights(lambda: _read_weights(options), device)
    tables = _tables(weights.model, tokenizer, options)
    # A model that lacks a label of its task is refused before its weights are tried.
    facts = _facts(weights.model.config, raw, tokenizer, tables, labels=options.task != _FEATURES)
    task_of(facts, options)
    samples = _samples(tokenizer, tables, options.model)
    trials = Trials(
        options, stream=stream, padding_ids=tokenizer.padding_ids, limit=tables.limit, samples=samples, known=known
    )
    if known is None:
        dtype = Formats(options, device, trials.outputs_of, labels=options.task != _FEATURES).choose(weights)
    else:
        dtype = known.dtype
        weights.put(dtype)
    forward = trials.fastest(weights.model, dtype, _position_offset(weights.model))
    # torch's allocator still holds the memory that the trials used.
    forward.free_memory()
    logger.info(
        "%s: %s on %s, %s, %d threads, %d tokens", options.model, options.task, device, dtype, threads, tables.limit
    )
    facts = replace(facts, dtype=dtype, device=str(device))
    text = plain_text(raw, tokenizer, facts)
    return Loaded(
        forward=forward,
        facts=replace(facts, plain=text is not None),
        text=text,
        tokenizer=tokenizer if text is None else None,
        device=device,
        packs=forward.packs(TokenSequence(samples[0], len(samples[0].ids), Want.LOGITS)),
        samples=samples,
        findings=Findings(dtype=dtype, ways=tuple(trials.ways), recorded_tokens=trials.recorded_tokens),
    )


def _facts(config: Any, raw: Any, tokenizer: Tokenizer, tables: Tables, *, labels: bool) -> Facts:
    return Facts(
        limit=tables.limit,
        shortest=tokenizer.shortest,
        rows=tables.rows,
        segment_rows=tables.segment_rows,
        labels=[config.id2label[index] for index in range(config.num_labels)] if labels else [],
        label2id=dict(config.label2id) if labels else {},
        problem_type=config.problem_type if labels else None,
        dtype="",
        device="",
        padding=tokenizer.padding_ids,
        segments="token_type_ids" in raw.model_input_names,
        side=raw.truncation_side,
        plain=False,
    )


def plain_text(raw: Any, tokenizer: Tokenizer, facts: Facts) -> str | None:  # transformers has no types
    """Return a tokenizer's JSON if the package `tokenizers` gives the same sequences as transformers; otherwise None.

    Args:
        raw: the tokenizer of transformers.
        tokenizer: the same tokenizer, as this handler wraps it.
        facts: the facts that the JSON leaves out.
    """
    try:
        text: str = raw.backend_tokenizer.to_str()
        plain = tokenizer_of(facts, text, "")
    except Exception as error:  # noqa: BLE001 - a tokenizer may have parts in Python, which have no JSON
        logger.info("texts are turned into tokens in the engine process: %s", reason_of(error))
        return None
    for cut in _cuts(facts):
        if _numbers_of(tokenizer, cut) != _numbers_of(plain, cut):
            logger.info("texts are turned into tokens in the engine process, since transformers changes the tokenizer")
            return None
    return text


def _cuts(facts: Facts) -> list[Cut]:
    shorter = min(facts.limit, facts.shortest + 4)
    return [
        *(Cut(strategy, length) for strategy in (LONGEST_FIRST, ONLY_FIRST) for length in (facts.limit, shorter)),
        Cut(OFF, 1_000_000_000),
    ]


def _numbers_of(tokenizer: Tokenizer, cut: Cut) -> list[list[list[int]]] | str:
    """Return the token ids and segments of the check texts, or the text of the error that refuses them."""
    try:
        encoded = tokenizer.encode(check_texts(), cut)
    except BadInputError as error:
        return str(error)
    return [[one.ids.tolist(), [] if one.segments is None else one.segments.tolist()] for one in encoded]


def _read_weights(options: Options) -> Any:  # transformers has no types
    """Return the model in fp32, on the CPU."""
    kind = transformers.AutoModel if options.task == _FEATURES else transformers.AutoModelForSequenceClassification
    attention = {"attn_implementation": options.attention} if options.attention in _OF_TRANSFORMERS else {}
    return kind.from_pretrained(
        options.model,
        revision=options.revision,
        trust_remote_code=options.trust_remote_code,
        dtype=torch.float32,
        **attention,
    ).eval()


def _tables(model: Any, tokenizer: Tokenizer, options: Options) -> Tables:  # transformers has no types
    limit = length_limit(
        model=options.model,
        positions=_positions(model),
        offset=_position_offset(model),
        tokenizer_maximum=tokenizer.maximum,
        wanted=options.max_length,
    )
    tokens = model.get_input_embeddings()
    return Tables(
        rows=tokens.num_embeddings if isinstance(tokens, torch.nn.Embedding) else None,
        segment_rows=_rows_of(model, "token_type_embeddings"),
        limit=limit,
    )


def _samples(tokenizer: Tokenizer, tables: Tables, model: str) -> list[Encoded]:
    """Return the check texts as sequences, without the pairs if the model reads single texts only.

    Raises:
        ValueError: the tokenizer produces token ids for which the model has no vectors.
    """
    if tables.rows is not None and tokenizer.size > tables.rows:
        logger.warning(
            "%s: the tokenizer has %d tokens, and the model vectors for %d; texts with another token get 400",
            *(model, tokenizer.size, tables.rows),
        )
    if tables.rows is not None and tokenizer.padding_ids[0] >= tables.rows:
        raise ValueError(fault("model_id", f"{model} has no vector for padding", fix=_OWN_TOKENIZER))
    *samples, longest = check_sequences(tokenizer, tables.limit)
    try:
        # The longest sequence holds the words of all others, and is no pair.
        tables.check("an ordinary text", longest)
    except BadInputError as error:
        problem = str(error).partition(";")[0]
        raise ValueError(fault("model_id", f"{model}: {problem}", fix=_OWN_TOKENIZER)) from error
    if any(tables.lacks_segments(sample) for sample in samples):
        logger.warning("%s: the model knows single texts only; pairs get 400", model)
    return [sample for sample in samples if not tables.lacks_segments(sample)] + [longest]


def _positions(model: Any) -> int | None:  # transformers has no types
    """Return the number of positions by configuration or by the model's table, the lower one; None if both lack it."""
    stated = getattr(model.config, "max_position_embeddings", None)
    known = [stated if isinstance(stated, int) and stated > 0 else None, _rows_of(model, "position_embeddings")]
    return min((number for number in known if number is not None), default=None)


def _position_offset(model: Any) -> int:  # transformers has no types
    """Return the number of unused rows at the start of the model's position table, including the padding index."""
    table = _table(model, "position_embeddings")
    return 0 if table is None or table.padding_idx is None else table.padding_idx + 1


def _rows_of(model: Any, name: str) -> int | None:  # transformers has no types
    table = _table(model, name)
    return None if table is None else table.num_embeddings


def _table(model: Any, name: str) -> torch.nn.Embedding | None:  # transformers has no types
    tables = (module for path, module in model.named_modules() if path.endswith(name))
    return next((table for table in tables if isinstance(table, torch.nn.Embedding)), None)


class Weights:
    """The weights of the model that is being loaded: converts them, and moves them to `device`.

    `load` reads the weights in fp32, on the CPU. Only one copy of the weights exists at a time, and this object holds
    it.
    """

    def __init__(self, load: Callable[[], Any], device: torch.device) -> None:
        self._load = load
        self._device = device
        self.model = load()
        self._rounded = False

    def put(self, dtype: str) -> Any:  # transformers has no types
        """Return the model on the device, in the number format `dtype`.

        The weights are converted on the CPU, because a conversion on the device would need memory for both formats.
        """
        if self._rounded:
            # Rounded weights cannot be restored, and two models at a time may not fit into memory.
            self.model = None
            gc.collect()
        else:
            self.model.to(_CPU)
        free_device_memory()
        if self.model is None:
            self.model = self._load()
        self._rounded = dtype in _TYPES
        if self._rounded:
            self.model.to(_TYPES[dtype])
        _allow_tf32(self._device, allowed=dtype == _TF32)
        return self.model.to(self._device)


class Formats:
    """The choice of a model's number format. `outputs` runs the check texts; with `labels`, its results are logits."""

    def __init__(self, options: Options, device: torch.device, outputs: Outputs, *, labels: bool) -> None:
        self._options = options
        self._device = device
        self._outputs = outputs
        self._labels = labels

    def choose(self, weights: Weights) -> str:
        """Choose the number format, put the weights on the device in that format, and return its name.

        Raises:
            ValueError: the options' number format is inaccurate or not available, and no other format is allowed.
        """
        wanted = self._options.dtype
        formats = formats_of(self._device) if wanted == _AUTO else [wanted]
        if formats in ([], [_FP32]):
            weights.put(_FP32)
            return _FP32
        reference = self._outputs(weights.put(_FP32))
        for name in formats:
            problem = self._problem(name, weights, reference)
            if problem is None:
                return name
            if wanted != _AUTO and not self._options.dtype_fallback:
                fix = "write dtype auto, or dtype_fallback true to serve fp32 then"
                raise ValueError(fault("dtype", f"{name} is refused for {self._options.model}: {problem}", fix=fix))
            logger.warning("dtype: %s is refused for %s: %s; trying the next", name, self._options.model, problem)
        weights.put(_FP32)
        return _FP32

    def _problem(self, name: str, weights: Weights, reference: list[Floats]) -> str | None:
        if name == _TF32 and not has_tf32(self._device):
            return "it needs a GPU of compute capability 8.0 or higher"
        try:
            outputs = self._outputs(weights.put(name))
        except Exception as error:
            # A model may hold constants that stay in fp32, or torch may lack one of its operations in this format.
            if is_lost_device(error):
                raise
            return reason_of(error)
        problem = disagreement(reference, outputs, labels=self._labels)
        if problem is None:
            logger.info("%s differs from fp32 by %.2g at most", name, largest_difference(reference, outputs))
        return problem


def formats_of(device: torch.device) -> list[str]:
    """Return the number formats, fastest first, that may be faster than fp32 on a device."""
    return half_types(device) + ([_TF32] if has_tf32(device) else [])


def _allow_tf32(device: torch.device, *, allowed: bool) -> None:
    """For the whole process, allow or forbid TF32: matrix products on a GPU that round fp32 to 10 bits."""
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = allowed
