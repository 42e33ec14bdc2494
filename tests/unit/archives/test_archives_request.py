"""The properties of an event: the accepted ones, and the error of each rejected one."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.refusals import refused

from cohost.archives.errors import RequestError
from cohost.archives.handlers import handler_files, handler_version
from cohost.archives.request import Place, models_of, names_in, place_of

GOOD = {"Bucket": "b", "Prefix": "p/q/", "Models": {"m": {"engine": "Python"}}}


def test_good_properties_are_taken() -> None:
    """Valid properties give the place, files and requirements of the model store."""
    assert place_of(GOOD) == Place(bucket="b", prefix="p/q/")
    assert models_of(GOOD) == {"m": {"serving.properties": b"engine=Python\n"}}
    with_requirements = models_of({**GOOD, "Requirements": {"m": "torch\npeft"}})
    assert with_requirements["m"]["requirements.txt"] == b"torch\npeft\n"


def test_named_handler_s_code_is_packed() -> None:
    """A model with the batching handler has the handler's files at the root of its archive."""
    files = models_of({**GOOD, "Handlers": {"m": f"batched@{handler_version('batched')}"}})["m"]
    assert files == {"serving.properties": b"engine=Python\n", **handler_files("batched")}
    assert "model.py" in files


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"Bucket": ""}, "Bucket"),
        ({"Bucket": None}, "Bucket"),
        ({"Prefix": "p"}, "Prefix"),
        ({"Prefix": "/p/"}, "Prefix"),
        ({"Prefix": "p//q/"}, "Prefix"),
        ({"Prefix": "p/../q/"}, "Prefix"),
        ({"Prefix": "../"}, "Prefix"),
        ({"Prefix": ""}, "Prefix"),
        ({"Prefix": ["p/"]}, "Prefix"),
    ],
)
def test_bad_place_is_refused(changed: dict[str, Any], field: str) -> None:
    """An invalid bucket or prefix is rejected in one line with field, value, allowed values and fix."""
    with refused("request-property", field) as caught:
        place_of({**GOOD, **changed})
    assert caught.value.problem == f"got {changed[field]!a}"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "code", "field"),
    [
        ({"Models": None}, "request-property", "Models"),
        ({"Models": {}}, "request-property", "Models"),
        ({"Models": ["m"]}, "request-property", "Models"),
        ({"Models": {"../x": {"engine": "Python"}}}, "model-name", "model name '../x'"),
        ({"Models": {"m": "x" * 99}}, "request-property", "Models.m"),
        ({"Models": {"m": {}}}, "request-property", "Models.m"),
        ({"Models": {"m": {"engine": ["Python"]}}}, "request-property", "Models.m.engine"),
        ({"Models": {"m": {"engine": {"a": "b"}}}}, "request-property", "Models.m.engine"),
        ({"Models": {"m": {"": "x"}}}, "property-key", "property key"),
        ({"Handlers": {"m": "batched@000000000000"}}, "code-of-another-checkout", "Handlers.m"),
        ({"Handlers": {"m": "fast@1"}}, "handler-unknown", "handler 'fast'"),
        ({"Handlers": {"n": "batched@1"}}, "request-model-unknown", "Handlers.n"),
        ({"Handlers": "batched"}, "request-property", "Handlers"),
        ({"Requirements": ["m"]}, "request-property", "Requirements"),
        ({"Requirements": {"n": "torch"}}, "request-model-unknown", "Requirements.n"),
        ({"Requirements": {"m": ["torch"]}}, "request-property", "Requirements.m"),
    ],
)
def test_bad_models_are_refused(changed: dict[str, Any], code: str, field: str) -> None:
    """Each property that is not a map of text by key by name is reported with its path, in one line."""
    with refused(code, field) as caught:
        models_of({**GOOD, **changed})
    assert "\n" not in str(caught.value)


def test_all_faults_come_together() -> None:
    """All faults of an event are reported together, in the one line of CloudFormation's reason."""
    with refused("request-property", kind=RequestError) as caught:
        models_of({"Models": {"a": {"x": []}, "b_b": {"engine": "Python"}}, "Requirements": {"c": ""}})
    assert [entry["field"] for entry in caught.value.entries()] == ["Models.a.x", "model name 'b_b'", "Requirements.c"]
    assert str(caught.value).count(" | ") == 2


@pytest.mark.parametrize("properties", [None, "x", {}, {"Models": None}, {"Models": ["a"]}])
def test_former_properties_of_any_shape_are_survived(properties: object) -> None:
    """Old properties of any form are accepted, so a wrong first version does not block the second."""
    assert names_in(properties) == frozenset()
    assert names_in(GOOD) == {"m"}
