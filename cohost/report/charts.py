"""Charts as SVG text: axes, lines, areas, points and bars, coloured by the page's style sheet.

Drawn here and not by a chart library, so that a report has some ten kilobytes, needs no script, and prints as it looks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 14, 44
COLOURS = 8
MOST_TICKS, FEWEST_TICKS = 6, 3
_STEPS = (1, 2, 5, 10)
_LOG_STEPS = (1, 2, 5)


@dataclass(frozen=True)
class Axis:
    """One axis: the range of its values, its scale (linear or logarithmic), and its title with the unit."""

    low: float
    high: float
    title: str
    log: bool = False

    @classmethod
    def over(cls, values: Sequence[float], title: str, *, log: bool = False, from_zero: bool = True) -> Axis:
        """Return an axis that holds all values, with a little room above them."""
        found = [value for value in values if math.isfinite(value) and (value > 0 or not log)] or [1.0]
        low, high = min(found), max(found)
        if log:
            return cls(low / 1.15, max(high * 1.15, low * 1.5), title, log=True)
        low = min(0.0, low) if from_zero else low
        return cls(low, high + (high - low or abs(high) or 1.0) * 0.06, title)

    def share(self, value: float) -> float:
        """Return the position of a value between the ends, from 0 to 1."""
        if self.log:
            value = max(value, self.low)
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return round values along the axis."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            ticks = [step * 10.0**power for power in powers for step in _LOG_STEPS]
            inside = [tick for tick in ticks if self.low <= tick <= self.high]
            if len(inside) > 2 * MOST_TICKS:
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
    """One chart. Marks are drawn in the order in which they are added; `colour` is a number of the page's palette."""

    x: Axis
    y: Axis
    label: str
    _marks: list[str] = field(default_factory=list)
    _legend: list[tuple[str, int, str]] = field(default_factory=list)

    def line(
        self, xs: Sequence[float], ys: Sequence[float], colour: int, name: str | None = None, *, dashed: bool = False
    ) -> None:
        """Draw a line through points."""
        points = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in zip(xs, ys, strict=True))
        kind = "line dashed" if dashed else "line"
        self._marks.append(f'<polyline class="{kind} s{colour % COLOURS}" points="{points}"/>')
        if name is not None:
            self._legend.append((name, colour, kind))

    def area(self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float], colour: int) -> None:
        """Draw a band between two lines: uncertainty, or a range."""
        upper = [f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in zip(xs, highs, strict=True)]
        lower = [f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in zip(xs, lows, strict=True)]
        self._marks.append(f'<polygon class="area f{colour % COLOURS}" points="{" ".join(upper + lower[::-1])}"/>')

    def points(
        self, xs: Sequence[float], ys: Sequence[float], colour: int, tips: Sequence[str] = (), *, size: float = 3.5
    ) -> None:
        """Draw points, each with a text under the pointer if one is given."""
        for index, (x, y) in enumerate(zip(xs, ys, strict=True)):
            tip = f"<title>{escape(tips[index])}</title>" if tips else ""
            place = f'cx="{self._x(x):.1f}" cy="{self._y(y):.1f}" r="{size}"'
            self._marks.append(f'<circle class="point f{colour % COLOURS}" {place}>{tip}</circle>')

    def text(self, x: float, y: float, text: str) -> None:
        """Draw a small text beside a point."""
        self._marks.append(
            f'<text class="note" x="{self._x(x) + 6:.1f}" y="{self._y(y) - 6:.1f}">{escape(text)}</text>'
        )

    def span(self, start: float, end: float, name: str, *, shaded: bool) -> None:
        """Draw a stretch of the x axis with a name at its top: a step of a run."""
        left, right = self._x(max(start, self.x.low)), self._x(min(end, self.x.high))
        shade = "span shaded" if shaded else "span"
        box = f'x="{left:.1f}" y="{TOP}" width="{max(0.0, right - left):.1f}" height="{HEIGHT - TOP - BOTTOM}"'
        self._marks.append(f'<rect class="{shade}" {box}><title>{escape(name)}</title></rect>')
        if right - left > 7 * len(name):
            self._marks.append(f'<text class="note" x="{left + 4:.1f}" y="{TOP + 12}">{escape(name)}</text>')

    def bar(self, left: float, right: float, low: float, high: float, colour: int, tip: str) -> None:
        """Draw a bar between two values of x and two of y."""
        x0, x1, y0, y1 = self._x(left), self._x(right), self._y(low), self._y(high)
        box = f'x="{x0:.1f}" y="{y1:.1f}" width="{x1 - x0:.1f}" height="{max(0.0, y0 - y1):.1f}"'
        self._marks.append(f'<rect class="bar f{colour % COLOURS}" {box}><title>{escape(tip)}</title></rect>')

    def legend(self, name: str, colour: int) -> None:
        """Add a name to the legend, for marks that have none of their own."""
        self._legend.append((name, colour, "box"))

    def svg(self, names: Sequence[tuple[float, str]] | None = None) -> str:
        """Render the chart as SVG; `names` replace the numbers at values of x."""
        frame = f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.label)}">'
        return "".join([frame, *self._grid(names), *self._marks, "</svg>", self._key()])

    def _grid(self, names: Sequence[tuple[float, str]] | None) -> list[str]:
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        drawn = []
        for tick in self.y.ticks():
            y = self._y(tick)
            drawn.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            drawn.append(f'<text class="tick end" x="{LEFT - 6}" y="{y + 4:.1f}">{_number(tick)}</text>')
        for tick, name in names if names is not None else [(tick, _number(tick)) for tick in self.x.ticks()]:
            x = self._x(tick)
            if names is None:
                drawn.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
            drawn.append(f'<text class="tick middle" x="{x:.1f}" y="{bottom + 16}">{escape(name)}</text>')
        drawn.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        middle = (LEFT + right) / 2
        drawn.append(f'<text class="title middle" x="{middle}" y="{HEIGHT - 8}">{escape(self.x.title)}</text>')
        turned = f'transform="translate(14 {(TOP + bottom) / 2}) rotate(-90)"'
        drawn.append(f'<text class="title middle" {turned}>{escape(self.y.title)}</text>')
        return drawn

    def _key(self) -> str:
        entries = "".join(
            f'<span><i class="{kind} k{colour % COLOURS}"></i>{escape(name)}</span>'
            for name, colour, kind in dict.fromkeys(self._legend)
        )
        return f'<p class="legend">{entries}</p>' if entries else ""

    def _x(self, value: float) -> float:
        return LEFT + self.x.share(value) * (WIDTH - LEFT - RIGHT)

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - self.y.share(value) * (HEIGHT - TOP - BOTTOM)


def _number(value: float) -> str:
    """Format a tick's number, without decimals that add nothing."""
    return f"{value:,.10g}" if abs(value) < 1e6 else f"{value:.3g}"  # noqa: PLR2004 - longer numbers do not fit
