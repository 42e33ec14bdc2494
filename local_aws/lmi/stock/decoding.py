"""From a request's bytes to the mapping that the stock handler reads, by content type.

Source: DJL Serving 0.36.0 (encode_decode), recorded (tests/data/djl_vectors/02v_tf590.json). Content types are matched
with regard to case, so that "APPLICATION/JSON" is taken for bytes, as there.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from local_aws.lmi.handler_api import Input

_CSV_COLUMNS = ("question", "context", "inputs")
_NO_CSV_HEADER = (
    "You need to provide the correct CSV with Header columns to use it with the inference toolkit default handler."
)


def decode(request: Input) -> Any:  # noqa: ANN401 - whatever JSON the caller sent
    """The request as {"inputs": …, …}, or any other JSON value where the caller sent one.

    Raises:
        ValueError: the bytes are not what the content type says (JSON, UTF-8, CSV with a header).
    """
    content_type = request.get_property("Content-Type")
    if not content_type:
        return request.get_as_json() if request.get_as_bytes() else {"inputs": ""}
    if "application/json" in content_type:
        return request.get_as_json()
    if "text/csv" in content_type:
        return _decode_csv(request.get_as_string())
    if "text/plain" in content_type:
        return {"inputs": [request.get_as_string()]}
    if content_type == "application/x-www-form-urlencoded":
        return {"inputs": request.get_as_string()}
    return {"inputs": request.get_as_bytes()}


def _decode_csv(text: str) -> dict[str, list[Any]]:
    header = text.splitlines()[0].lower()
    if not any(column in header for column in _CSV_COLUMNS):
        raise ValueError(_NO_CSV_HEADER)
    rows = list(csv.DictReader(io.StringIO(text)))
    return {"inputs": [row["inputs"] for row in rows] if "inputs" in rows[0] else rows}
