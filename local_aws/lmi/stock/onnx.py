"""The OnnxRuntime engine for text: it answers as DJL's Java translators do, from the same files and settings.

A worker calls `handle` like a Python handler. Only worker processes import the module `onnx`, which imports onnxruntime
and tokenizers. The emulated translators are those for text classification and text embedding; a request has one text or
a list of texts. Source: DJL 0.36.0 (TextPrompt, TextClassificationTranslator, TextEmbeddingTranslator, Classifications,
HuggingFaceTokenizer, Encoding, OrtModel, Predictor, which turns every fault into a TranslateException; DJL Serving
0.36.0 answers a TranslateException with 400).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnxruntime
import tokenizers  # type: ignore[import-untyped]

from local_aws.lmi.answers import compact, fault_text
from local_aws.lmi.errors import TranslateFault
from local_aws.lmi.handler_api import Input, Output

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Ids = npt.NDArray[np.int64]

_MODEL_MAX_LENGTH = 512
_TOP_K = 5
_SMALLEST = 1e-9
_SMALLEST_NORM = 1e-12


class Translator(Protocol):
    """The conversion of texts to answers for one task, as DJL's translators do it."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Load the model in the folder that the property `model_dir` names."""

    def answer(self, texts: Sequence[str]) -> list[Any]:
        """Return one answer per text.

        Raises:
            TranslateFault: the model cannot run on these texts.
        """


class _Runner:
    """The tokenizer and the onnxruntime session of one model folder."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        folder = Path(properties["model_dir"])
        self.config: dict[str, Any] = _object(folder / "config.json")
        self._tokenizer: Any = _tokenizer(folder, properties)
        self._segments = _flag(properties, "includeTokenTypes", default=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(properties.get("intraOpNumThreads", 0))
        options.inter_op_num_threads = int(properties.get("interOpNumThreads", 0))
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        file = str(folder / "model.onnx")
        self._session: Any = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def run(self, texts: Sequence[str]) -> tuple[Floats, Ids]:
        """Return the model's first output, with one row per text, and the attention mask, shaped (texts, tokens)."""
        encodings = self._tokenizer.encode_batch(list(texts))
        given = [
            np.array([encoding.ids for encoding in encodings], np.int64),
            np.array([encoding.attention_mask for encoding in encodings], np.int64),
        ]
        if self._segments:
            given.append(np.array([encoding.type_ids for encoding in encodings], np.int64))
        names = [one.name for one in self._session.get_inputs()]
        if len(names) != len(given):
            raise TranslateFault(f"java.lang.IllegalArgumentException: Input mismatch, looking for: {names}")
        try:
            output: Floats = self._session.run(None, dict(zip(names, given, strict=True)))[0]
        except Exception as error:
            raise TranslateFault(f"ai.djl.engine.EngineException: ai.onnxruntime.OrtException: {error}") from error
        return output, given[1]


class Classification:
    """The translator for text classification: the five most probable labels, `[{"className", "probability"}]`."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._runner = _Runner(properties)
        config = self._runner.config
        self._labels = [config["id2label"][str(index)] for index in range(len(config["id2label"]))]
        independent = config.get("problem_type") == "multi_label_classification" or len(self._labels) == 1
        self._function: Callable[[Floats], Floats] = sigmoid if independent else softmax

    def answer(self, texts: Sequence[str]) -> list[Any]:
        """Return for each text its five most probable labels, the most probable first."""
        logits, _ = self._runner.run(texts)
        return [self._classes(self._function(row)) for row in logits]

    def _classes(self, probabilities: Floats) -> list[dict[str, Any]]:
        order = np.argsort(-probabilities, kind="stable")[:_TOP_K]
        return [{"className": self._labels[index], "probability": float(probabilities[index])} for index in order]


class Embedding:
    """The translator for text embedding: one vector per text, the mean, maximum or first of its tokens' vectors.

    Vectors are normalized to length one unless the property `normalize` is false.

    Raises:
        ValueError: the property `pooling` is none of mean, max and cls.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        name = properties.get("pooling", "mean")
        if name not in _POOLINGS:
            raise ValueError(f"pooling: {name!r} is not part of this emulation; allowed: {', '.join(_POOLINGS)}")
        self._pool = _POOLINGS[name]
        self._normalize = _flag(properties, "normalize", default=True)
        self._runner = _Runner(properties)

    def answer(self, texts: Sequence[str]) -> list[Any]:
        """Return one vector per text, as a list of numbers."""
        hidden, mask = self._runner.run(texts)
        vectors = self._pool(hidden, mask[..., None].astype(np.float32))
        if self._normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), _SMALLEST_NORM)
        # Java writes a 32-bit float with the fewest digits that distinguish it from neighbouring floats.
        return [[float(str(number)) for number in vector] for vector in vectors.astype(np.float32)]


def _mean(hidden: Floats, mask: Floats) -> Floats:
    mean: Floats = (hidden * mask).sum(-2) / np.maximum(mask.sum(-2), _SMALLEST)
    return mean


def _maximum(hidden: Floats, mask: Floats) -> Floats:
    largest: Floats = np.where(mask > 0, hidden, -1 / _SMALLEST).max(-2)
    return largest


def _first(hidden: Floats, _: Floats) -> Floats:
    return hidden[:, 0]


_POOLINGS: Mapping[str, Callable[[Floats, Floats], Floats]] = {"mean": _mean, "max": _maximum, "cls": _first}


def softmax(logits: Floats) -> Floats:
    """Return the probabilities of mutually exclusive labels, which add up to one."""
    powers = np.exp(logits - logits.max())
    shares: Floats = powers / powers.sum()
    return shares


def sigmoid(logits: Floats) -> Floats:
    """Return the probability of each label, independent of the others."""
    return (1 / (1 + np.exp(-logits))).astype(np.float32)


def _tokenizer(folder: Path, properties: Mapping[str, Any]) -> Any:  # the package tokenizers has no type hints
    """Return the folder's tokenizer with the engine's truncation and padding instead of those of tokenizer.json."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    config = _object(folder / "tokenizer_config.json")
    longest = int(properties.get("modelMaxLength", config.get("model_max_length", _MODEL_MAX_LENGTH)))
    stated = None if tokenizer.truncation is None else tokenizer.truncation["max_length"]
    length = int(properties.get("maxLength", longest if stated is None else stated))
    tokenizer.no_truncation()
    if _flag(properties, "truncation", default=True):
        tokenizer.enable_truncation(min(length, longest))
    token, number = _padding(tokenizer, config)
    tokenizer.no_padding()
    if _flag(properties, "padding", default=True):
        tokenizer.enable_padding(pad_id=number, pad_token=token)
    return tokenizer


def _padding(tokenizer: Any, config: Mapping[str, Any]) -> tuple[str, int]:
    """Return the padding token and its id from tokenizer.json, or from tokenizer_config.json if the first has none."""
    if tokenizer.padding is not None:
        return tokenizer.padding["pad_token"], tokenizer.padding["pad_id"]
    token = config.get("pad_token", "[PAD]")
    text = str(token["content"] if isinstance(token, dict) else token)
    return text, tokenizer.token_to_id(text) or 0


def _flag(properties: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = properties.get(name)
    return default if value is None else str(value).lower() == "true"


def _object(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_bytes()) if file.is_file() else {}
    return content


_PACKAGE = "ai.djl.huggingface.translator."
_FACTORIES: Mapping[str, type[Translator]] = {
    f"{_PACKAGE}TextClassificationTranslatorFactory": Classification,
    f"{_PACKAGE}TextEmbeddingTranslatorFactory": Embedding,
}
_JSON = "application/json"


class OnnxEngine:
    """The OnnxRuntime engine of one model; the first call, which has no content, loads the model."""

    def __init__(self) -> None:
        self._translator: Translator | None = None

    def handle(self, inputs: Input) -> Output | None:
        """Load the model in the first call; answer one request in every later call.

        Raises:
            ValueError: in the first call, if the settings need a feature that is not emulated.
            Exception: in the first call, any error of onnxruntime or tokenizers for files that they cannot read.
        """
        if self._translator is None:
            self._translator = _translator_of(inputs.get_properties())
        if inputs.is_empty():
            return None
        try:
            texts = _texts(inputs)
            answers = self._translator.answer([texts] if isinstance(texts, str) else texts)
        except TranslateFault as fault:
            return _refusal(fault)
        output = Output()
        output.add_property("Content-Type", _JSON)
        return output.add(compact(answers[0] if isinstance(texts, str) else answers))


def _translator_of(properties: Mapping[str, Any]) -> Translator:
    factory = str(properties.get("translatorFactory"))
    if factory not in _FACTORIES:
        known = ", ".join(_FACTORIES)
        msg = f"translatorFactory: {factory!r} is not part of this emulation; allowed: {known}; fix: name one of these"
        raise ValueError(msg)
    return _FACTORIES[factory](properties)


def _texts(request: Input) -> str | list[str]:
    """Return a request's text, or its list of texts if the caller sent a list.

    Raises:
        TranslateFault: the request has neither, or is not JSON although its content type is.
    """
    text = request.get_as_string()
    if str(request.get_property("Content-Type") or "").partition(";")[0] != _JSON:
        return text
    try:
        body = json.loads(text)
    except ValueError as error:
        raise TranslateFault("Input is not a valid json.") from error
    inputs = body.get("inputs") if isinstance(body, dict) else body
    if isinstance(body, dict) and inputs is None:
        raise TranslateFault('Missing "inputs" in json.')
    if isinstance(inputs, list):
        return [_element(item) for item in inputs]
    if isinstance(inputs, dict) or inputs is None:
        kind = "JsonNull" if inputs is None else "JsonObject"
        raise TranslateFault(f"java.lang.UnsupportedOperationException: {kind}")
    return _element(inputs)


def _element(value: Any) -> str:
    """Return a JSON value as text; a number or boolean becomes its JSON text, as in Gson."""
    if isinstance(value, dict | list) or value is None:
        raise TranslateFault("Input is not a valid json.")
    return value if isinstance(value, str) else json.dumps(value)


def _refusal(fault: TranslateFault) -> Output:
    output = Output(code=fault.status, message="Bad Request")
    output.add_property("Content-Type", _JSON)
    return output.add(fault_text(fault))


_engine = OnnxEngine()


def handle(inputs: Input) -> Output | None:
    """Load this worker's model in the first call; answer one request in every later call."""
    return _engine.handle(inputs)
