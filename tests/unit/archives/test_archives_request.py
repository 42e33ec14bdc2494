"""The event's properties: what is taken, and what each refusal says."""

from __future__ import annotations

from typing import Any

import pytest

from cohost.archives.errors import ArtifactError
from cohost.archives.handlers import handler_files, handler_version
from cohost.archives.request import Place, models_of, names_in, place_of

GOOD = {"Bucket": "b", "Prefix": "p/q/", "Models": {"m": {"engine": "Python"}}}


def test_good_properties_are_taken() -> None:
    """Place, files and requirements come out as the store needs them."""
    assert place_of(GOOD) == Place(bucket="b", prefix="p/q/")
    assert models_of(GOOD) == {"m": {"serving.properties": b"engine=Python\n"}}
    with_requirements = models_of({**GOOD, "Requirements": {"m": "torch\npeft"}})
    assert with_requirements["m"]["requirements.txt"] == b"torch\npeft\n"


def test_named_handler_s_code_is_packed() -> None:
    """A model whose handler is ours gets its files at the archive's root."""
    files = models_of({**GOOD, "Handlers": {"m": f"batched@{handler_version('batched')}"}})["m"]
    assert files == {"serving.properties": b"engine=Python\n", **handler_files("batched")}
    assert "model.py" in files


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"Bucket": ""}, r"Bucket: is ''; allowed .*; set it"),
        ({"Bucket": None}, r"Bucket: is None"),
        ({"Prefix": "p"}, r"Prefix: is 'p'; allowed .*; write it so"),
        ({"Prefix": "/p/"}, r"Prefix: is '/p/'"),
        ({"Prefix": "p//q/"}, r"Prefix: is"),
        ({"Prefix": "p/../q/"}, r"Prefix: is"),
        ({"Prefix": "../"}, r"Prefix: is"),
        ({"Prefix": ""}, r"Prefix: is ''"),
        ({"Prefix": ["p/"]}, r"Prefix: is \['p/'\]"),
    ],
)
def test_bad_place_is_refused(changed: dict[str, Any], message: str) -> None:
    """The field, the value, what is allowed and the fix, before anything is asked of S3."""
    with pytest.raises(ArtifactError, match=message) as caught:
        place_of({**GOOD, **changed})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"Models": None}, r"Models: is None; allowed .*; name a model"),
        ({"Models": {}}, r"Models: is \{\}"),
        ({"Models": ["m"]}, r"Models: is \['m'\]"),
        ({"Models": {"../x": {"engine": "Python"}}}, r"model name '\.\./x': is not allowed; .*; rename the model"),
        ({"Models": {"m": "x" * 99}}, r"Models\.m: is 'x+…; allowed is a map"),
        ({"Models": {"m": {}}}, r"Models\.m: is \{\}"),
        ({"Models": {"m": {"engine": ["Python"]}}}, r"Models\.m\.engine: is \['Python'\]; allowed is text"),
        ({"Models": {"m": {"engine": {"a": "b"}}}}, r"Models\.m\.engine: is"),
        ({"Models": {"m": {"": "x"}}}, r"property key: is empty"),
        ({"Handlers": {"m": "batched@000000000000"}}, r"Handlers\.m: is .*; deploy the stack from one checkout"),
        ({"Handlers": {"m": "fast@1"}}, r"handler 'fast': is unknown; allowed are batched"),
        ({"Handlers": {"n": "batched@1"}}, r"Handlers\.n: there is no such model"),
        ({"Handlers": "batched"}, r"Handlers: is 'batched'"),
        ({"Requirements": ["m"]}, r"Requirements: is \['m'\]"),
        ({"Requirements": {"n": "torch"}}, r"Requirements\.n: there is no such model"),
        ({"Requirements": {"m": ["torch"]}}, r"Requirements\.m: is \['torch'\]"),
    ],
)
def test_bad_models_are_refused(changed: dict[str, Any], message: str) -> None:
    """Whatever is not a map of text by key by name is named with its place."""
    with pytest.raises(ArtifactError, match=message) as caught:
        models_of({**GOOD, **changed})
    assert "\n" not in str(caught.value)


def test_all_faults_come_together() -> None:
    """One failed deployment tells everything."""
    with pytest.raises(ArtifactError, match=r"Models\.a\.x.* \| .*b_b.* \| .*Requirements\.c"):
        models_of({"Models": {"a": {"x": []}, "b_b": {"engine": "Python"}}, "Requirements": {"c": ""}})


@pytest.mark.parametrize("properties", [None, "x", {}, {"Models": None}, {"Models": ["a"]}])
def test_former_properties_of_any_shape_are_survived(properties: object) -> None:
    """A first version that was wrong must not block the second."""
    assert names_in(properties) == frozenset()
    assert names_in(GOOD) == {"m"}
