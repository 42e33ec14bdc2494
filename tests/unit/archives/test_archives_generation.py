"""The choice of the generation that an update goes to, and the changes inside that generation."""

from __future__ import annotations

import pytest
from fakes.refusals import refused
from hypothesis import given
from hypothesis import strategies as st

from cohost.archives.generation import (
    FOREIGN,
    Generation,
    changes,
    check_name,
    choose,
    generation_id,
    is_generation_id,
)

DIGESTS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("123"), max_size=4)


def generation(
    id_: str, models: dict[str, str] | None = None, removed: dict[str, set[str]] | None = None
) -> Generation:
    """A generation with digest by name."""
    return Generation(id=id_, models=models or {}, removed=removed or {})


@given(DIGESTS, DIGESTS)
def test_id_follows_from_the_models_alone(one: dict[str, str], other: dict[str, str]) -> None:
    """Equal models give equal 12-digit ids in any order, and other models another id."""
    assert (generation_id(one) == generation_id(other)) == (one == other)
    assert generation_id(dict(reversed(one.items()))) == generation_id(one)
    assert is_generation_id(generation_id(one))


def test_taken_id_gives_way_to_another() -> None:
    """An id whose folder has other objects is not used."""
    first = generation_id({"a": "1"})
    second = generation_id({"a": "1"}, taken={first})
    assert second not in {first, generation_id({"a": "1"}, taken={first, second})}


@pytest.mark.parametrize(
    ("models", "removed", "agrees"),
    [
        ({}, {}, True),
        ({"a": "1"}, {}, True),
        ({"a": "2"}, {}, False),
        ({"a": FOREIGN}, {}, False),
        ({"x": "9"}, {"x": {"8"}}, True),
        ({}, {"a": {"1"}}, True),
        ({}, {"a": {"2"}}, False),
        ({"a": "1"}, {"a": {"1", "2"}}, False),
    ],
)
def test_agreement(models: dict[str, str], removed: dict[str, set[str]], *, agrees: bool) -> None:
    """A generation fits unless one of its archives or tombstones has other content for a wanted name."""
    assert generation("0" * 12, models, removed).agrees({"a": "1"}) is agrees


def test_current_generation_comes_first() -> None:
    """An added or removed model stays in the current generation, even if another one fits exactly."""
    current = generation("c", {"a": "1"})

    def others() -> object:
        pytest.fail("read without need")
        yield

    assert choose({"a": "1", "b": "2"}, current, others()) is current  # type: ignore[arg-type]


def test_exact_names_come_before_ids() -> None:
    """A generation with exactly the wanted names is preferred, and of several the lowest id."""
    current = generation("c", {"a": "2"})
    part, exact, same = generation("1", {"b": "1"}), generation("3", {"a": "1"}), generation("2", {"a": "1"})
    assert choose({"a": "1"}, current, [part, exact, same]) is same
    assert choose({"a": "1"}, current, [part]) is part


def test_no_agreement_asks_for_a_new_generation() -> None:
    """Changed content needs a new generation, and an empty folder is none."""
    current = generation("c", {"a": "2"})
    assert choose({"a": "1"}, current, [generation("1", {"a": "3"}), generation("2")]) is None
    assert choose({"a": "1"}, None, []) is None


def test_changes_leave_pushed_and_foreign_names_alone() -> None:
    """An update removes only names that the old properties had, the new ones lack, and this project wrote."""
    now = generation("c", {"keep": "1", "gone": "2", "pushed": "3", "theirs": FOREIGN})
    todo = changes({"keep": "1", "new": "4"}, now, {"keep", "gone", "theirs", "never-there"})
    assert todo.write == ("new",)
    assert todo.remove == {"gone": "2"}


@pytest.mark.parametrize("name", ["mdeberta", "XLMR-large", "a", "7b", "a" * 63])
def test_legal_names_pass(name: str) -> None:
    """Names that are legal in S3, SageMaker and the server pass unchanged."""
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-a", "a.b", "a_b", "ä", "a b", "a" * 64, "a\n"])
def test_illegal_names_are_refused(name: str) -> None:
    """A model name that would leave its folder or break an address is rejected in one line."""
    with refused("model-name") as caught:
        check_name(name)
    assert "\n" not in str(caught.value)
