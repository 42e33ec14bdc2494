"""Sums over a set of recordings: what is equal, what differs on purpose, and what had to be replayed again.

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
    """The sums of one set. `most` is the share of its answers that may differ on purpose; `again` names replays."""

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
        """Count one recording or sequence; `statuses` are those recorded, of its answers only."""
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
    """Give the values of a parameter for which tests of the file run, so that no other recording is replayed."""
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    return [call.params[parameter] for call in calls if call is not None and parameter in call.params]


def unlisted(found: Outcome, pins: Outcome, deliberate: Iterable[int]) -> Outcome:
    """List what differs and is not said to, and what is said to differ and does not, or otherwise than it is pinned."""
    listed = set(deliberate)
    wrong = {index: texts for index, texts in found.items() if texts and index not in listed}
    for index in listed & found.keys():
        if not found[index]:
            wrong[index] = ["listed as different, but equal"]
        elif pins.get(index):
            wrong[index] = pins[index]
    return wrong


def named(name: str, wrong: Outcome | Exception) -> str:
    """A recording or sequence with the steps for which it has to be replayed, or what kept it from being replayed."""
    return f"{name} for {type(wrong).__name__ if isinstance(wrong, Exception) else sorted(wrong)}"


def too_many_kinds(tallies: Sequence[Tally]) -> list[str]:
    """Tell whether there are more kinds of deliberate difference over all sets than allowed."""
    kinds = {reason for tally in tallies for reason in (*tally.deliberate, *tally.deliberate_steps)}
    return [f"{len(kinds)} kinds of deliberate difference; allowed: {MOST_KINDS}"] if len(kinds) > MOST_KINDS else []


def _kinds(reasons: Counter[str]) -> str:
    return "; ".join(f"{count} because {reason}" for reason, count in reasons.most_common()) or "none"


def _is_kinder(here: int | None, recorded: int | None) -> bool:
    """Tell whether an answer says that all is well where the real server refused, or did not answer at all."""
    return here is not None and here < _FIRST_ERROR and (recorded is None or recorded >= _FIRST_ERROR)
