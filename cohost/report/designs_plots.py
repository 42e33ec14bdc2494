"""The plots that hold designs against each other, from the numbers of their runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cohost.report.charts import Axis, Chart
from cohost.report.text import number, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cohost.report.plots import Plot
    from cohost.report.summary import RunSummary, Step

_PERCENTILES = ("p50", "p90", "p95", "p99")
_NAME_CHARACTERS = 24


def plots_of(summaries: Sequence[RunSummary]) -> list[Plot]:
    """All plots for which the runs have data, in the order to be read."""
    measured = [summary for summary in summaries if summary.headlines]
    if not measured:
        return []
    plots = [_latency(measured), _rate(measured), _batches(measured), _callers(measured), _cost(measured)]
    return [plot for plot in plots if plot is not None]


def _latency(summaries: Sequence[RunSummary]) -> Plot | None:
    found = [(s.record.label, s.headlines[0].latency_ms) for s in summaries]
    values = [getattr(latency, name) for _, latency in found if latency for name in _PERCENTILES]
    if not values:
        return None
    chart = Chart(Axis(0, len(found), "design"), Axis.over(values, "latency, ms"), "Latency of every design")
    width = 0.8 / len(_PERCENTILES)
    for index, (label, latency) in enumerate(found):
        for colour, name in enumerate(_PERCENTILES):
            if latency is not None:
                left, value = index + 0.1 + colour * width, float(getattr(latency, name))
                chart.bar(left, left + width * 0.92, 0, value, colour, f"{label}: {name} {number(value)} ms")
    for colour, name in enumerate(_PERCENTILES):
        chart.legend(name, colour)
    return "Latency", "One caller, one text a call, all models in turns.", chart.svg(_names(summaries))


def _rate(summaries: Sequence[RunSummary]) -> Plot | None:
    rates = [(s.record.label, s.headlines[0].items_per_s_at_8, s.headlines[0].batch_efficiency) for s in summaries]
    if not any(rate for _, rate, _ in rates):
        return None
    return (
        "Items a second at batch 8",
        "One caller, eight texts a call.",
        _bars(
            [
                (label, rate, f"{short(rate)} items/s" + (f", {efficiency:.1f}x batch 1" if efficiency else ""))
                for label, rate, efficiency in rates
            ],
            "items a second",
            _names(summaries),
        ),
    )


def _cost(summaries: Sequence[RunSummary]) -> Plot | None:
    costs = [(s.record.label, s.headlines[0].usd_per_million) for s in summaries]
    if not any(usd is not None for _, usd in costs):
        return None
    bars = [(label, usd, f"{number(usd, 2)} USD") for label, usd in costs]
    return (
        "USD for a million items",
        "The price of an hour over the items of an hour at batch 8, kept up all the time. No bar: no price is known.",
        _bars(bars, "USD", _names(summaries)),
    )


def _batches(summaries: Sequence[RunSummary]) -> Plot | None:
    """Items a second over texts a call, at the fewest callers of each run."""
    lines = []
    for summary in summaries:
        callers = min(step.concurrency for step in summary.steps)
        steps = sorted((s for s in summary.steps if s.concurrency == callers), key=lambda step: step.batch)
        points = [(float(step.batch), step.total.items_per_s, step) for step in steps]
        lines.append((summary.record.label, points))
    tip = "{label}: {rate} items/s at {step.batch} a call"
    svg = _lines(lines, "texts a call", "items a second", tip)
    return None if svg is None else ("Batch size", "One caller; steeper is better at batches.", svg)


def _callers(summaries: Sequence[RunSummary]) -> Plot | None:
    """The median over callers, at the fewest texts of each run."""
    lines = []
    for summary in summaries:
        texts = min(step.batch for step in summary.steps)
        steps = sorted((s for s in summary.steps if s.batch == texts), key=lambda step: step.concurrency)
        found = [(float(step.concurrency), step.total.latency_ms, step) for step in steps]
        lines.append((summary.record.label, [(x, latency.p50, step) for x, latency, step in found if latency]))
    tip = "{label}: p50 {rate} ms with {step.concurrency} callers"
    svg = _lines(lines, "callers at a time", "p50, ms", tip)
    return None if svg is None else ("Callers", "One text a call; flatter copes better with many callers.", svg)


def _lines(lines: list[tuple[str, list[tuple[float, float, Step]]]], x: str, y: str, tip: str) -> str | None:
    """A line for each design; None where none has two points."""
    if not any(len(points) > 1 for _, points in lines):
        return None
    xs = [px for _, points in lines for px, _, _ in points]
    ys = [py for _, points in lines for _, py, _ in points]
    chart = Chart(Axis.over(xs, x), Axis.over(ys, y), f"{y} against {x}")
    for colour, (label, points) in enumerate(lines):
        chart.line([px for px, _, _ in points], [py for _, py, _ in points], colour, label)
        tips = [tip.format(label=label, rate=short(py), step=step) for _, py, step in points]
        chart.points([px for px, _, _ in points], [py for _, py, _ in points], colour, tips)
    return chart.svg()


def _bars(bars: Sequence[tuple[str, float | None, str]], title: str, names: list[tuple[float, str]]) -> str:
    values = [value for _, value, _ in bars if value is not None]
    chart = Chart(Axis(0, len(bars), "design"), Axis.over(values, title), title)
    for index, (label, value, tip) in enumerate(bars):
        if value is not None:
            chart.bar(index + 0.25, index + 0.75, 0, value, index, f"{label}: {tip}")
    return chart.svg(names)


def _names(summaries: Sequence[RunSummary]) -> list[tuple[float, str]]:
    return [(index + 0.5, summary.record.label[:_NAME_CHARACTERS]) for index, summary in enumerate(summaries)]
