"""The checks of the replays find unlisted differences, wrong pins and mixed-up processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lmi_compare import off_pin
from lmi_scenarios import LIFECYCLE_DELIBERATE, SCENARIOS, Instead
from lmi_sequences import Labels, Sequence, sequences
from lmi_tally import MOST_KINDS, Tally, named, too_many_kinds, unlisted

PIN = Instead("why", 503, '{"message": "...is not ready"}')


@pytest.mark.parametrize(
    ("found", "pins", "wrong"),
    [
        ({1: [], 2: ["other"]}, {2: []}, {}),
        ({1: ["other"], 2: ["other"]}, {2: []}, {1: ["other"]}),
        ({1: [], 2: []}, {2: []}, {2: ["listed as different, but equal"]}),
        ({1: [], 2: ["other"]}, {2: ["not as pinned"]}, {2: ["not as pinned"]}),
    ],
)
def test_what_is_not_as_listed_is_found(
    found: dict[int, list[str]], pins: dict[int, list[str]], wrong: dict[int, list[str]]
) -> None:
    """An unlisted difference, a missing listed one, and one that is not as pinned are found."""
    assert unlisted(found, pins, [2]) == wrong


@pytest.mark.parametrize(
    ("status", "body", "texts"),
    [(503, '{"message": "q8 is not ready"}', 0), (404, '{"message": "q8 is not ready"}', 1), (503, "{}", 1)],
)
def test_a_pin_holds_status_and_body(status: int, body: str, texts: int) -> None:
    """Three dots in a pinned answer stand for any text, and other characters only for themselves."""
    assert len(off_pin(PIN, status, body)) == texts


def _tally(instead: Instead, recorded: int | None) -> Tally:
    tally = Tally(most=0.5)
    tally.add("file", {0: [], 1: ["other"], 2: []}, {1: instead}, {0: 200, 1: recorded})
    return tally


@pytest.mark.parametrize(
    ("status", "recorded", "missed"),
    [(200, 500, 1), (200, None, 1), (503, 500, 0), (200, 200, 0), (None, None, 0)],
)
def test_a_success_where_the_real_server_refused_is_a_missed_goal(
    status: int | None, recorded: int | None, missed: int
) -> None:
    """A success is a missed goal if the real server refused the request or gave no answer."""
    breaches = _tally(Instead("why", status, ""), recorded).breaches("set")
    assert breaches == ["set: file 1 is kinder than the real server"] * missed


def test_sums_count_answers_and_other_steps_apart() -> None:
    """Only answers are counted, and deliberate differences by reason up to the allowed share."""
    tally = _tally(PIN, 404)
    assert (tally.equal, tally.deliberate, tally.other_steps, tally.compared) == (1, {"why": 1}, 1, 2)
    assert "1 because why" in tally.lines("set")[1]
    tally.most = 0.1
    assert tally.breaches("set") == ["set: 50.0% of the answers differ on purpose; allowed: 10%"]
    tally.deliberate.update({str(number): 1 for number in range(MOST_KINDS)})
    assert too_many_kinds([tally]) == ["13 kinds of deliberate difference; allowed: 12"]


def test_what_is_replayed_again_says_for_which_steps() -> None:
    """A repeated replay names its steps, or the exception of its first attempt."""
    assert named("24-135", {160: ["other"], 142: ["other"]}) == "24-135 for [142, 160]"
    assert named("06_x.json", TimeoutError()) == "06_x.json for TimeoutError"


def test_a_label_stays_with_its_process() -> None:
    """The comparison of process ids requires equal labels for equal processes and other labels for others."""
    labels = Labels()
    assert labels.compare({"m": ["P1", "P2"]}, {"m": [11, 12]}) is None
    assert labels.compare({"m": ["P2"]}, {"m": [12]}) is None
    assert labels.compare({"m": ["P2", "P3"]}, {"m": [12, 13]}) is None
    assert "recorded ['P3']" in str(labels.compare({"m": ["P3"]}, {"m": [12]}))
    assert "recorded ['P4']" in str(labels.compare({"m": ["P4"]}, {"m": [13]}))
    assert (
        labels.compare({"m": ["P2"]}, {"m": [12], "n": [14]}) == "worker processes {'m': 1, 'n': 1}, recorded {'m': 1}"
    )


def test_every_pin_names_a_step_that_was_recorded() -> None:
    """Each pinned answer belongs to a recorded step."""
    for file, pins in LIFECYCLE_DELIBERATE.items():
        steps = {index for sequence in sequences(file) for index in sequence.steps}
        assert pins.keys() <= steps
    assert not SCENARIOS.keys() & LIFECYCLE_DELIBERATE.keys()


def test_a_long_sequence_is_replayed_faster_and_a_short_one_as_it_was() -> None:
    """A long sequence is replayed with a fast clock in about 20 s, and a short one at its own speed."""

    def lasting(seconds: float) -> Sequence:
        steps: dict[int, dict[str, Any]] = {0: {"at_s": 0.0, "action": "start_server"}, 1: {"at_s": seconds}}
        return Sequence(Path("24_x.json").name, "title", steps)

    assert lasting(100.0).speed == 5.0
    assert lasting(3.0).speed == 1.0
    assert lasting(3.0).exchanges == [1]
