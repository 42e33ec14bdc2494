"""Draw charts as SVG text: axes, lines, areas, points and bars, coloured by the page's style sheet.

No chart library is used, so that a page has only some ten kilobytes, needs no script, and looks the same in print. One
unit of a chart is about one pixel on a phone and one and a half pixels on a desktop screen, for which the style sheet
sets smaller type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTH, LEFT, RIGHT, TOP = 360, 40, 10, 20
BOTTOM, FLAT_BOTTOM = 160, 56
"""The y position of a chart's x axis, in a chart with and without a y axis."""

LINE, CHARACTER, CHARACTER_ON_DESK = 11, 6.2, 4.8
LEAST_CHARACTERS, MOST_LINES = 4, 3
SERIES: Final = 8
BAD, GREY, PALE = -1, -2, -3
"""Numbers of the colours that belong to no series; the colours of series are numbered from 0 on and repeat."""

MOST_TICKS, MOST_LOG_TICKS, FEWEST_TICKS = 6, 8, 3
_STEPS, _LOG_STEPS = (1, 2, 5, 10), (1, 2, 5)

Bars = list[tuple[float | None, str]]
"""The bars of one series, each with its value (None: no bar) and its text under the pointer."""


@dataclass(frozen=True)
class Axis:
    """One axis of a chart: the range of its values, its scale (linear or logarithmic), and its title with the unit."""

    low: float
    high: float
    title: str
    log: bool = False

    @classmethod
    def over(cls, values: Sequence[float], title: str, *, log: bool = False) -> Axis:
        """Return an axis that holds all values, with a small margin above; a linear axis begins at 0 or below."""
        found = [value for value in values if math.isfinite(value) and (value > 0 or not log)] or [1.0]
        low, high = min(found), max(found)
        if log:
            return cls(low / 1.15, max(high * 1.15, low * 1.5), title, log=True)
        low = min(0.0, low)
        return cls(low, high + (high - low or 1.0) * 0.06, title)

    def share(self, value: float) -> float:
        """Return the position of a value on the axis, from 0 at its low end to 1 at its high end."""
        if self.log:
            value = max(value, self.low)
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return the round values at which the axis is labelled with numbers."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            ticks = [step * 10.0**power for power in powers for step in _LOG_STEPS]
            inside = [tick for tick in ticks if self.low <= tick <= self.high]
            if len(inside) > MOST_LOG_TICKS:
                return [tick for tick in inside if math.log10(tick).is_integer()]
            if len(inside) >= FEWEST_TICKS:
                return inside
        rough = (self.high - self.low) / MOST_TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in _STEPS if factor * power >= rough)
        first = math.ceil(self.low / step)
        return [index * step for index in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass
class Chart:
    """One chart, whose marks are drawn in the order in which they are added.

    If `y` is None, the chart is low and has no y axis, and its values of y are from 0 to 1. `names` has pairs of a
    value of x and a text; the texts replace the numbers of the x axis. `label` describes the chart for screen readers.
    """

    x: Axis
    y: Axis | None
    label: str
    names: Sequence[tuple[float, str]] | None = None
    _marks: list[str] = field(default_factory=list)
    _legend: list[tuple[str, int, str]] = field(default_factory=list)

    @classmethod
    def of_bars(
        cls,
        groups: Sequence[str],
        series: Mapping[str, Bars],
        titles: tuple[str, str],
        *,
        others: Sequence[float] = (),
        by_group: bool = False,
    ) -> Chart:
        """Return a chart with a group of bars for each name in `groups`; `titles` are the titles of the axes x and y.

        The y axis is long enough for the values in `others` too. If `by_group`, the bars are coloured by group instead
        of by series, and the chart has no legend.
        """
        values = [value for bars in series.values() for value, _ in bars if value is not None] + [*others]
        names = [(index + 0.5, name) for index, name in enumerate(groups)]
        chart = cls(
            Axis(0, max(1, len(groups)), titles[0]), Axis.over(values, titles[1]), " by ".join(titles[::-1]), names
        )
        width = 0.8 / len(series) if len(series) > 1 else 0.5
        for number, (name, bars) in enumerate(series.items()):
            for index, (value, tip) in enumerate(bars):
                left = index + 0.5 + (number - len(series) / 2) * width
                if value is not None:
                    chart.bar(left, left + width * 0.92, 0, value, index if by_group else number, tip)
            if not by_group:
                chart.legend(name, number)
        return chart

    def line(
        self, xs: Sequence[float], ys: Sequence[float], colour: int, name: str | None = None, *, dashed: bool = False
    ) -> None:
        """Draw a line through points; a `name` is added to the legend."""
        kind = "line dashed" if dashed else "line"
        self._marks.append(f'<polyline class="{kind} s{_shade(colour)}" points="{" ".join(self._places(xs, ys))}"/>')
        if name is not None:
            self._legend.append((name, colour, kind))

    def area(self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float], colour: int) -> None:
        """Draw a band between two lines, for an uncertainty or a range."""
        points = [*self._places(xs, highs), *self._places(xs, lows)[::-1]]
        self._marks.append(f'<polygon class="area f{_shade(colour)}" points="{" ".join(points)}"/>')

    def points(
        self, xs: Sequence[float], ys: Sequence[float], colour: int, tips: Sequence[str] = (), *, size: float = 2.2
    ) -> None:
        """Draw points, each with its tooltip if `tips` has texts."""
        for index, (x, y) in enumerate(zip(xs, ys, strict=True)):
            tip = f"<title>{escape(tips[index])}</title>" if tips else ""
            place = f'cx="{self._x(x):.1f}" cy="{self._y(y):.1f}" r="{size}"'
            self._marks.append(f'<circle class="point f{_shade(colour)}" {place}>{tip}</circle>')

    def text(self, x: float, y: float, text: str) -> None:
        """Draw a small text to the right of a point, or to its left near the chart's right end."""
        at, width = self._x(x), len(text) * CHARACTER + 4
        kind, at = ("note end", at - 4) if at + width > WIDTH else ("note", at + 4)
        self._marks.append(f'<text class="{kind}" x="{at:.1f}" y="{self._y(y) - 4:.1f}">{escape(text)}</text>')

    def span(self, start: float, end: float, name: str, *, shaded: bool) -> None:
        """Draw an interval of the x axis, such as a step of a run, with a name at its top."""
        left, right = self._x(max(start, self.x.low)), self._x(min(end, self.x.high))
        box = f'x="{left:.1f}" y="{TOP}" width="{max(0.0, right - left):.1f}" height="{self._bottom - TOP}"'
        shade = "span shaded" if shaded else "span"
        self._marks.append(f'<rect class="{shade}" {box}><title>{escape(name)}</title></rect>')
        room = (right - left) / (len(name) + 1)
        if room > CHARACTER_ON_DESK:
            kind = "note" if room > CHARACTER else "note roomy"
            self._marks.append(f'<text class="{kind}" x="{left + 2:.1f}" y="{TOP + 9}">{escape(name)}</text>')

    def bar(self, left: float, right: float, low: float, high: float, colour: int, tip: str) -> None:
        """Draw a bar between two values of x and two values of y, with a tooltip."""
        x0, x1, y0, y1 = self._x(left), self._x(right), self._y(low), self._y(high)
        box = f'x="{x0:.1f}" y="{y1:.1f}" width="{max(0.0, x1 - x0):.1f}" height="{max(0.0, y0 - y1):.1f}"'
        self._marks.append(f'<rect class="bar f{_shade(colour)}" {box}><title>{escape(tip)}</title></rect>')

    def limit(self, x: float, name: str) -> None:
        """Draw a vertical line at a value of x that is a limit, and add the limit's name to the legend."""
        at = f'x1="{self._x(x):.1f}" x2="{self._x(x):.1f}" y1="{TOP - 4}" y2="{self._bottom}"'
        self._marks.append(f'<line class="line s{_shade(BAD)}" {at}/>')
        self._legend.append((name, BAD, "line"))

    def legend(self, name: str, colour: int) -> None:
        """Add a name with its colour to the legend."""
        self._legend.append((name, colour, "box"))

    def svg(self) -> str:
        """Render the chart as SVG, and its legend as HTML below it."""
        columns, height = self._columns()
        frame = f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(self.label)}">'
        return "".join([frame, *self._rows(), *columns, *self._marks, "</svg>", self._key()])

    def _rows(self) -> list[str]:
        """Return the SVG of the y axis: its grid lines, numbers and title."""
        if self.y is None:
            return []
        drawn = [f'<text class="title" x="0" y="9">{escape(self.y.title)}</text>']
        for tick in self.y.ticks():
            y = self._y(tick)
            drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            drawn.append(f'<text class="tick end" x="{LEFT - 4}" y="{y + 3:.1f}">{_number(tick)}</text>')
        return drawn

    def _columns(self) -> tuple[list[str], float]:
        """Return the SVG of the x axis (line, grid, numbers or names, title), and the height of the whole chart."""
        bottom = self._bottom
        numbers = self.names is None
        names = [(tick, _number(tick)) for tick in self.x.ticks()] if self.names is None else self.names
        texts, every = _side_by_side([name for _, name in names])
        drawn = [f'<line class="axis" x1="{self._left}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>']
        for (value, _), lines in list(zip(names, texts, strict=True))[::every]:
            x = self._x(value)
            if numbers:
                drawn.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
            for number, line in enumerate(lines, start=1):
                y = bottom + 2 + LINE * number
                drawn.append(f'<text class="tick middle" x="{x:.1f}" y="{y}">{escape(line)}</text>')
        end = bottom + 4 + LINE * max(map(len, texts), default=0)
        if self.x.title:
            end += LINE + 2
            middle = (self._left + WIDTH - RIGHT) / 2
            drawn.append(f'<text class="title middle" x="{middle}" y="{end - 2}">{escape(self.x.title)}</text>')
        return drawn, end + 2

    def _key(self) -> str:
        entries = "".join(
            f'<span><i class="{kind} k{_shade(colour)}"></i>{escape(name)}</span>'
            for name, colour, kind in dict.fromkeys(self._legend)
        )
        return f'<p class="legend">{entries}</p>' if entries else ""

    @property
    def _bottom(self) -> float:
        return FLAT_BOTTOM if self.y is None else BOTTOM

    @property
    def _left(self) -> float:
        return RIGHT if self.y is None else LEFT

    def _places(self, xs: Sequence[float], ys: Sequence[float]) -> list[str]:
        return [f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in zip(xs, ys, strict=True)]

    def _x(self, value: float) -> float:
        return self._left + self.x.share(value) * (WIDTH - self._left - RIGHT)

    def _y(self, value: float) -> float:
        share = value if self.y is None else self.y.share(value)
        return self._bottom - share * (self._bottom - TOP)


def _shade(colour: int) -> int:
    """Return a colour's number in the style sheet; the colour is a series's number, `BAD`, `GREY` or `PALE`."""
    return colour % SERIES if colour >= 0 else SERIES - 1 - colour


def _side_by_side(names: Sequence[str]) -> tuple[list[list[str]], int]:
    """Return the names wrapped into short lines, and the smallest n such that every n-th name fits without overlap."""
    room = (WIDTH - LEFT - RIGHT) / max(1, len(names))
    width = max(LEAST_CHARACTERS, int(room / CHARACTER) - 1)
    lines = [wrap(name, width, max_lines=MOST_LINES, placeholder="…") for name in names]
    widest = max((len(line) + 1 for of_name in lines for line in of_name), default=1)
    return lines, math.ceil(max(1.0, widest * CHARACTER / room))


def _number(value: float) -> str:
    """Return the text of an axis's number, without trailing zeros."""
    return f"{value:,.10g}" if abs(value) < 1e6 else f"{value:.3g}"  # noqa: PLR2004 - longer numbers do not fit
