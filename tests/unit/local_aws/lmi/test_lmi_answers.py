"""JSON texts and error bodies equal those of the real server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_aws.lmi.answers import compact, fault_text, pretty
from local_aws.lmi.errors import BadRequest, EngineFailure, Fault, ModelNotFound


def test_gson_escapes_what_html_would_take_amiss() -> None:
    """Recorded: angle brackets, apostrophes and equals signs are written as code points."""
    assert pretty({"a": "<'=&>"}) == '{\n  "a": "\\u003c\\u0027\\u003d\\u0026\\u003e"\n}\n'


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_json_text_reads_back(value: Any) -> None:
    """Escaping changes the text and never the value."""
    assert json.loads(pretty(value)) == json.loads(compact(value)) == value


@pytest.mark.parametrize(
    ("fault", "body"),
    [
        (ModelNotFound("m"), {"code": 404, "type": "ModelNotFoundException", "message": "m"}),
        (BadRequest("b"), {"code": 400, "type": "BadRequestException", "message": "b"}),
        (EngineFailure(), {"code": 500, "type": "EngineException"}),
    ],
)
def test_a_fault_becomes_code_type_and_message(fault: Fault, body: dict[str, Any]) -> None:
    """An error becomes code, type and message; without a message the member is missing (recorded: 07)."""
    assert json.loads(fault_text(fault)) == body
