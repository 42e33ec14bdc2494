"""From a prediction to an answer, by what the caller accepts.

Source: DJL Serving 0.36.0 (encode_decode), recorded (tests/data/djl_vectors/02v_tf590.json).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from local_aws.lmi.handler_api import Input, Output

_JSON = "application/json"


def answer_format(request: Input) -> str:
    """The content type to answer with: what `Accept` says, JSON where it is absent or "*/*"."""
    accept = request.get_property("Accept")
    if accept:
        return _JSON if "*/*" in accept else str(accept)
    content_type = request.get_property("Content-Type") or _JSON
    return str(content_type) if content_type.startswith("tensor/") else _JSON


def encode(outputs: Output, prediction: Any, content_type: str, key: str | None) -> None:  # noqa: ANN401 - any JSON value
    """Adds the prediction as JSON.

    Raises:
        AttributeError: another format is asked for. The real handler breaks on these two ways, with these texts.
    """
    if _JSON in content_type:
        outputs.add_as_json(prediction, key=key)
        outputs.add_property("Content-Type", _JSON)
    elif "text/csv" in content_type:
        msg = "'Output' object has no attribute 'add_as_string'"
        raise AttributeError(msg)
    else:
        item = prediction[0] if isinstance(prediction, list) and prediction else prediction
        msg = f"'{type(item).__name__}' object has no attribute 'dtype'"
        raise AttributeError(msg)
