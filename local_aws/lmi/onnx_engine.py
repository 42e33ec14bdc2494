"""The OnnxRuntime engine for text: what DJL's Java translators answer, from the same files and settings.

A worker calls `handle` as it does a Python handler. Of the translators there are those for text classification and text
embedding, with one text or a list of them a request. Source: DJL 0.36.0 (TextPrompt, TextClassificationTranslator,
TextEmbeddingTranslator, Classifications, HuggingFaceTokenizer, OrtModel, Predictor, which makes a TranslateException of
every fault; DJL Serving 0.36.0 answers that with 400).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from local_aws.lmi.faults import TranslateFault
from local_aws.lmi.handler_api import Input, Output
from local_aws.lmi.json_text import compact
from local_aws.lmi.onnx_translators import Classification, Embedding
from local_aws.lmi.replies import fault_reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_aws.lmi.onnx_translators import Translator

_PACKAGE = "ai.djl.huggingface.translator."
_FACTORIES: Mapping[str, type[Translator]] = {
    f"{_PACKAGE}TextClassificationTranslatorFactory": Classification,
    f"{_PACKAGE}TextEmbeddingTranslatorFactory": Embedding,
}
_JSON = "application/json"


class OnnxEngine:
    """One model's engine; the first call, which has no content, loads it."""

    def __init__(self) -> None:
        self._translator: Translator | None = None

    def handle(self, inputs: Input) -> Output | None:
        """Answers one request.

        Raises:
            ValueError: on the first call, when the settings ask for what is not part of this emulation.
            Exception: on the first call, whatever onnxruntime or tokenizers raise on files that they cannot read.
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
    """A request's text, or its texts where the caller sent a list.

    Raises:
        TranslateFault: it holds neither, or is no JSON although it says so.
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


def _element(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """A list's element as text; a number is read as its digits, as Gson does."""
    if isinstance(value, dict | list) or value is None:
        raise TranslateFault("Input is not a valid json.")
    return value if isinstance(value, str) else json.dumps(value)


def _refusal(fault: TranslateFault) -> Output:
    reply = fault_reply(fault)
    output = Output(code=reply.status, message="Bad Request")
    output.add_property("Content-Type", _JSON)
    return output.add(reply.body)


_engine = OnnxEngine()


def handle(inputs: Input) -> Output | None:
    """Answers one request of this worker's model."""
    return _engine.handle(inputs)
