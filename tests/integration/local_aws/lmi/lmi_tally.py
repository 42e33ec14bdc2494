"""Sums over a set of recordings: equal answers, deliberate differences, and repeated replays.

`make conformance` prints them and holds the goals; the tests fill them in. `make test` replays a few recordings only.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from lmi_scenarios import Instead

T = TypeVar("T")

MOST_KINDS = 12
_FIRST_ERROR = 400

Outcome = dict[int, list[str]]


@dataclass
class Tally:
    """The sums of one set. `most` is the allowed share of deliberate differences; `again` names repeated replays."""

    most: float
    equal: int = 0
    deliberate: Counter[str] = field(default_factory=Counter)
    left_out: int = 0
    other_steps: int = 0
    deliberate_steps: Counter[str] = field(default_factory=Counter)
    kinder: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)

    @property
    def compared(self) -> int:
        """The number of answers that were compared."""
        return self.equal + self.deliberate.total()

    def add(
        self, name: str, found: Outcome, deliberate: Mapping[int, Instead], statuses: Mapping[int, int | None]
    ) -> None:
        """Count one recording or sequence; `statuses` are the recorded ones of its answers."""
        for index in found:
            if index not in statuses:
                self.other_steps += 1
                self.deliberate_steps.update([deliberate[index].reason] if index in deliberate else [])
            elif index not in deliberate:
                self.equal += not found[index]
            else:
                instead = deliberate[index]
                self.deliberate[instead.reason] += 1
                if _is_kinder(instead.status, statuses[index]):
                    self.kinder.append(f"{name} {index}")

    def lines(self, title: str) -> list[str]:
        """The sums as text."""
        lines = [
            f"{title}: {self.compared} answers replayed, {self.left_out} not compared",
            f"{title}: {self.equal} equal, {self.deliberate.total()} different on purpose: {_kinds(self.deliberate)}",
        ]
        if self.other_steps:
            differ = f"{self.deliberate_steps.total()} different on purpose: {_kinds(self.deliberate_steps)}"
            lines.append(f"{title}: {self.other_steps} counts of processes, bursts, starts and ends replayed, {differ}")
        return [*lines, f"{title}: replayed again because they differed: {', '.join(self.again) or 'nothing'}"]

    def breaches(self, title: str) -> list[str]:
        """List the goals that are missed."""
        share = self.deliberate.total() / max(self.compared + self.left_out, 1)
        found = [f"{title}: {where} is kinder than the real server" for where in self.kinder]
        if share > self.most:
            found.append(f"{title}: {share:.1%} of the answers differ on purpose; allowed: {self.most:.0%}")
        return found


TALLIES = pytest.StashKey[dict[str, Tally]]()


def cases(recordings: Iterable[T], few: Container[T], name: Callable[[T], str]) -> list[Any]:
    """Give the recordings as parameters of a test; only the few are not marked as exhaustive."""
    return [pytest.param(one, id=name(one), marks=() if one in few else pytest.mark.exhaustive) for one in recordings]


def selected(request: pytest.FixtureRequest, parameter: str) -> list[Any]:
    """Return the values of a parameter that the selected tests of the file have."""
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    return [call.params[parameter] for call in calls if call is not None and parameter in call.params]


def unlisted(found: Outcome, pins: Outcome, deliberate: Iterable[int]) -> Outcome:
    """List unexpected differences, and expected ones that are missing or not as pinned."""
    listed = set(deliberate)
    wrong = {index: texts for index, texts in found.items() if texts and index not in listed}
    for index in listed & found.keys():
        if not found[index]:
            wrong[index] = ["listed as different, but equal"]
        elif pins.get(index):
            wrong[index] = pins[index]
    return wrong


def named(name: str, wrong: Outcome | Exception) -> str:
    """Return a recording with the steps that have to be replayed, or the error of its replay."""
    return f"{name} for {type(wrong).__name__ if isinstance(wrong, Exception) else sorted(wrong)}"


def too_many_kinds(tallies: Sequence[Tally]) -> list[str]:
    """Return True if all sets have more kinds of deliberate difference than allowed."""
    kinds = {reason for tally in tallies for reason in (*tally.deliberate, *tally.deliberate_steps)}
    return [f"{len(kinds)} kinds of deliberate difference; allowed: {MOST_KINDS}"] if len(kinds) > MOST_KINDS else []


def _kinds(reasons: Counter[str]) -> str:
    return "; ".join(f"{count} because {reason}" for reason, count in reasons.most_common()) or "none"


def _is_kinder(here: int | None, recorded: int | None) -> bool:
    """Return True if an answer is a success although the real server rejected the request or did not answer."""
    return here is not None and here < _FIRST_ERROR and (recorded is None or recorded >= _FIRST_ERROR)
