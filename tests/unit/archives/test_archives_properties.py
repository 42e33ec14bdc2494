"""Java properties: written text is read back equal, by the rules of java.util.Properties."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.refusals import refused
from hypothesis import given
from hypothesis import strategies as st

from cohost.archives.properties import dumps, entries, loads

GOLDEN = Path(__file__).parents[2] / "data" / "archives"

MDEBERTA = {
    "engine": "Python",
    "option.model_id": "MoritzLaurer/mDeBERTa-v3-base-xnli-multilingual-nli-2mil7",
    "option.task": "text-classification",
    "option.rolling_batch": "disable",
    "gpu.minWorkers": "1",
    "gpu.maxWorkers": "1",
    "required_memory_mb": "2048",
    "option.revision": "b5113eb38ab63efdd7f280f8c144ea8b13f978ce",
    "option.tensor_parallel_degree": "1",
}
ESCAPED = {
    "engine": "Python",
    "option.model_id": "/models/mit leerem Namen\\v2: a=b #1!",
    "#hidden": "no comment",
    "!note": "  two in front ",
    "colon:equals=blank key": "x",
    "option.env": "GREETING=안녕 😀\ttab",
    "empty": "",
}

# Half surrogates are no text; hypothesis draws the characters that the rules turn on far more often than others.
CHARACTERS = st.one_of(st.sampled_from(" \t\f\r\n\\#!=:u\x00😀é"), st.characters(exclude_categories=("Cs",)))
TEXTS = st.text(CHARACTERS, max_size=20)


@pytest.mark.parametrize(
    ("properties", "file"),
    [(MDEBERTA, "mdeberta.serving.properties"), (ESCAPED, "escaped.serving.properties")],
)
def test_text_is_exactly_the_golden_file(properties: dict[str, str], file: str) -> None:
    """Properties are written in the given order, with only the necessary escapes, as in the golden file."""
    text = (GOLDEN / file).read_text(encoding="ascii")
    assert dumps(properties) == text
    assert loads(text) == properties


@given(st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=5))
def test_round_trip_gives_back_equal_properties(properties: dict[str, str]) -> None:
    """Any properties are read back equal and in order from the written ASCII text."""
    text = dumps(properties)
    assert list(loads(text).items()) == list(properties.items())
    assert text.isascii()
    assert all(line == line.rstrip() for line in text.split("\n"))
    assert text.count("\n") == len(properties)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b\n", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a \t=  = b", {"a": "= b"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("  a=b  ", {"a": "b  "}),
        ("# a=b\n  ! c=d\n\n \t\f\ne=f", {"e": "f"}),
        ("# no continuation \\\na=b", {"a": "b"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\r\n#c", {"a": "b#c"}),
        ("\\\n#c\na=b", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\n", {"a": "b"}),
        ("\\", {"": ""}),
        ("a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        ("a=\\t\\n\\f\\r\\q\\\\", {"a": "\t\n\f\rq\\"}),
        ("a=\\u0041\\uD83D\\uDE00", {"a": "A😀"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
    ],
)
def test_reader_follows_java(text: str, expected: dict[str, str]) -> None:
    """The reader returns for each text the value that java.util.Properties of Java 17 gives."""
    assert loads(text) == expected


def test_trailing_blank_of_a_value_is_kept() -> None:
    """A blank after a value is read as part of the value, as by Java, so a check can find it."""
    assert loads("engine=Python \n") == {"engine": "Python "}
    assert dumps({"engine": "Python "}) == "engine=Python\\u0020\n"


def test_entries_show_repeated_keys() -> None:
    """A repeated key is returned twice, so a check can find it."""
    assert entries("a=1\na=2") == [("a", "1"), ("a", "2")]


@pytest.mark.parametrize("text", ["a=\\u", "a=\\u12", "a=\\u12G4", "\\u=b"])
def test_broken_unicode_escape_is_refused_as_by_java(text: str) -> None:
    """A broken Unicode escape is rejected with the cause, as by Java."""
    with refused("property-escape"):
        loads(text)


@pytest.mark.parametrize(
    ("properties", "code"),
    [({"": "x"}, "property-key"), ({"a\ud800": "x"}, "property-surrogate"), ({"a": "\udfff"}, "property-surrogate")],
)
def test_what_cannot_be_meant_is_not_written(properties: dict[str, str], code: str) -> None:
    """An empty key or half a surrogate pair is rejected in one line with the fix."""
    with refused(code) as caught:
        dumps(properties)
    assert "\n" not in str(caught.value)
