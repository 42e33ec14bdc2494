"""The plots of one run, from its raw samples and its numbers, and those that compare designs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cohost.report.charts import Axis, Chart
from cohost.report.formats import number, short
from cohost.report.samples import answered, failed, latency_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cohost.report.run import Run
    from cohost.report.summary import Line, RunSummary, Step


CURVE_POINTS = 240
TIME_BINS = 220
FAILED_COLOUR, TOTAL_COLOUR = 6, 7
CUT_OFF_NAME = "cut off by the end of the step"
KIND_COLOURS = (6, 1, 4, 3, 0, 5)

Plot = tuple[str, str, str]
"""Title, what it shows in one sentence, and the SVG."""


def plots_of(run: Run, summary: RunSummary) -> list[Plot]:
    """Return all plots for which the run has data, in reading order."""
    if not summary.steps:
        return []
    plots = [
        _distribution(run, summary),
        _over_time(run),
        _throughput(summary),
        _batches(summary),
        _failures(summary),
        _generator(run),
        _endpoint(run, summary),
    ]
    return [plot for plot in plots if plot is not None]


def _distribution(run: Run, summary: RunSummary) -> Plot | None:
    """Plot latency against the share of calls that were faster, for each model at the headline's step."""
    base = summary.headlines[0].step
    indexes = [
        index for index, phase in enumerate(run.record.phases) if phase.kind == "measured" and phase.name == base
    ]
    shares = np.concatenate([np.linspace(0, 0.99, CURVE_POINTS), 1 - np.geomspace(0.01, 1e-5, 60), [1.0]])
    curves = {}
    for position, model in enumerate(run.record.models):
        values = latency_s(answered(run.of_phase(indexes[0], position))) * 1000
        if len(values):
            curves[model.name] = (position, np.quantile(values, shares))
    if not curves:
        return None
    x = Axis.over([float(v) for _, values in curves.values() for v in (values[0], values[-1])], "latency, ms", log=True)
    chart = Chart(x, Axis(0, 101, "calls answered by then, %"), "Latency distribution for each model")
    for name, (position, values) in curves.items():
        chart.line(values.tolist(), (shares * 100).tolist(), position, name)
        for q in (50, 99):
            at = float(np.interp(q / 100, shares, values))
            chart.points([at], [q], position, [f"{name}: p{q} {number(at)} ms"])
    return (
        "Latency distribution",
        f"Step {base}: the share of calls answered within a time. Dots: p50 and p99.",
        chart.svg(),
    )


def _over_time(run: Run) -> Plot | None:
    """Plot latency over the run: the median and the slowest call of each moment, failures, and the steps."""
    good, start = answered(run.samples), run.record.started
    if not len(good):
        return None
    latencies = latency_s(good) * 1000
    seconds = max(1e-3, run.record.ended - start)
    chart = Chart(
        Axis(0, seconds, "seconds from the start"),
        Axis.over([float(latencies.min()), float(latencies.max())], "latency, ms", log=True),
        "Latency over time",
    )
    for phase in run.record.phases:
        name = phase.name if phase.kind == "measured" else phase.kind
        chart.span(phase.started - start, phase.ended - start, name, shaded=phase.kind != "measured")
    bins = np.clip(((good["planned"] - start) / seconds * TIME_BINS).astype(int), 0, TIME_BINS - 1)
    for position, model in enumerate(run.record.models):
        own = good["model"] == position
        used = np.unique(bins[own])
        middles = [(int(b) + 0.5) * seconds / TIME_BINS for b in used]
        of_bin = [latencies[own & (bins == b)] for b in used]
        chart.points(middles, [float(v.max()) for v in of_bin], position, size=1.6)
        chart.line(middles, [float(np.median(v)) for v in of_bin], position, model.name)
    bad = failed(run.samples)
    if len(bad):
        moments = np.unique(np.round(bad["planned"] - start, 1))
        chart.points(moments.tolist(), [chart.y.low * 1.05] * len(moments), FAILED_COLOUR, size=2.5)
        chart.legend("failed calls", FAILED_COLOUR)
    return (
        "Over time",
        "Lines: median of each moment; dots: its slowest call. Shaded: first calls and warm-up, in no number.",
        chart.svg(),
    )


def _throughput(summary: RunSummary) -> Plot | None:
    """Plot latency against calls per second over the steps of one batch size."""
    batches = [step.batch for step in summary.steps]
    batch = max(set(batches), key=lambda size: (batches.count(size), -size))
    steps = [step for step in summary.steps if step.batch == batch and step.total.latency_ms]
    if not steps:
        return None
    # In the order of the load, so that a target past its best shows as a line that turns back.
    steps.sort(key=lambda step: step.rate or step.concurrency)
    found = [(s.total.calls_per_s, s.total.latency_ms, s) for s in steps if s.total.latency_ms]
    rates = [rate for rate, _, _ in found]
    chart = Chart(
        Axis.over(rates, "calls answered a second"),
        Axis.over([value for _, d, _ in found for value in (d.p50, d.p99)], "latency, ms"),
        "Latency against throughput",
    )
    for colour, name in enumerate(("p50", "p95", "p99")):
        values = [float(getattr(d, name)) for _, d, _ in found]
        tips = [
            f"{s.name}: {name} {number(v)} ms at {short(r)} calls/s" for (r, _, s), v in zip(found, values, strict=True)
        ]
        chart.line(rates, values, colour, name)
        chart.points(rates, values, colour, tips)
    for rate, d, step in found:
        chart.text(rate, d.p99, f"{step.concurrency}" if step.rate is None else f"{step.rate:g}/s")
    what = f"{batch} {'text' if batch == 1 else 'texts'} a call; numbers at the points: callers, or the planned rate."
    return "Latency against throughput", what, chart.svg()


def _batches(summary: RunSummary) -> Plot | None:
    """Plot items per second against texts per call, at the callers of the headline's step."""
    callers = min(step.concurrency for step in summary.steps)
    steps = sorted((s for s in summary.steps if s.concurrency == callers), key=lambda step: step.batch)
    sizes = [float(step.batch) for step in steps]
    names = [model.name for model in summary.record.models]
    rates = {name: [_alone(line) for line in _lines(steps, name)] for name in names}
    most = [value for values in rates.values() for value in values] + [s.total.items_per_s for s in steps]
    chart = Chart(
        Axis(0, len(sizes), "texts a call"), Axis.over(most, "items a second"), "Items a second against batch size"
    )
    width = 0.8 / max(1, len(names))
    for colour, name in enumerate(names):
        for index, rate in enumerate(rates[name]):
            left = index + 0.1 + colour * width
            tip = f"{name}, {steps[index].batch} a call: {short(rate)} items/s"
            chart.bar(left, left + width * 0.92, 0, rate, colour, tip)
        chart.legend(name, colour)
    if len(names) > 1:
        middles = [index + 0.5 for index in range(len(sizes))]
        chart.line(middles, [step.total.items_per_s for step in steps], TOTAL_COLOUR, "the mix", dashed=True)
    what = f"{callers} {'caller' if callers == 1 else 'callers'}. Bars: each model by the time of its own calls."
    return "Batch size", what, chart.svg([(index + 0.5, f"{size:g}") for index, size in enumerate(sizes)])


def _failures(summary: RunSummary) -> Plot | None:
    """Plot the share of calls that failed, by kind, step by step."""
    kinds = sorted({kind for step in summary.steps for kind in step.total.failures})
    colours = {kind: KIND_COLOURS[index % len(KIND_COLOURS)] for index, kind in enumerate(kinds)}
    names = [(index + 0.5, step.name) for index, step in enumerate(summary.steps)]
    shares = [100 * (step.total.failed + step.total.cut_off) / max(1, step.total.calls) for step in summary.steps]
    chart = Chart(
        Axis(0, len(names), "step"), Axis.over([1.0, *shares], "share of calls, %"), "Share of calls that failed"
    )
    for index, step in enumerate(summary.steps):
        total, low = max(1, step.total.calls), 0.0
        parts = [(kind, step.total.failures.get(kind, 0), colour) for kind, colour in colours.items()]
        for kind, count, colour in [*parts, (CUT_OFF_NAME, step.total.cut_off, TOTAL_COLOUR)]:
            if count:
                high = low + 100 * count / total
                chart.bar(index + 0.2, index + 0.8, low, high, colour, f"{step.name}: {count} of {total} {kind}")
                chart.legend(kind, colour)
                low = high
    worst = sum(step.total.failed for step in summary.steps)
    calls = sum(step.total.calls for step in summary.steps)
    what = f"{worst} of {calls} calls failed." if worst else f"None of {calls} calls failed."
    return "Failures", what, chart.svg(_thinned(names))


def _generator(run: Run) -> Plot | None:
    """Plot the generator's use of its core, and how late its timers were."""
    if not len(run.ticks):
        return None
    start = run.record.started
    at = run.ticks["at"] - start
    chart = Chart(
        Axis.over([0.0, float(at.max())], "seconds from the start"),
        Axis.over([100.0, float(run.ticks["lag_mean"].max() * 1000)], "% of a core; ms"),
        "The generator itself",
    )
    for worker in np.unique(run.ticks["worker"]):
        own = run.ticks["worker"] == worker
        chart.line(at[own].tolist(), (run.ticks["cpu"][own] * 100).tolist(), int(worker), f"process {worker}, core %")
    lags = [(float(a), float(lag) * 1000) for a, lag in zip(at, run.ticks["lag_mean"], strict=True)]
    chart.line([a for a, _ in lags], [lag for _, lag in lags], FAILED_COLOUR, "timers late, ms", dashed=True)
    return (
        "The generator",
        "A generator at its limit measures itself; above 90 % of a core a run is invalid.",
        chart.svg(),
    )


def _endpoint(run: Run, summary: RunSummary) -> Plot | None:
    """Plot latency at the caller and inside SageMaker, minute by minute."""
    found = summary.metrics
    model, overhead = (found.find(name) if found else None for name in ("ModelLatency", "OverheadLatency"))
    good = answered(run.samples)
    if model is None or not len(good):
        return None
    minutes = sorted({point.at for point in model.points})
    caller = {m: latency_s(good[(good["planned"] >= m) & (good["planned"] < m + 60)]) * 1000 for m in minutes}
    shown = [m for m in minutes if len(caller[m])]
    rows = {"at the caller": [float(caller[m].mean()) for m in shown]}
    for name, metric in (("ModelLatency", model), ("OverheadLatency", overhead)):
        by_minute = {point.at: point.average for point in metric.points} if metric else {}
        rows[name] = [by_minute.get(m, 0.0) for m in shown]
    chart = Chart(
        Axis(0, max(1, len(shown)), "minute"),
        Axis.over([v for values in rows.values() for v in values], "mean latency, ms"),
        "Latency at the caller and inside SageMaker",
    )
    for colour, (name, values) in enumerate(rows.items()):
        for index, value in enumerate(values):
            left = index + 0.1 + colour * 0.27
            chart.bar(left, left + 0.25, 0, value, colour, f"{name}: {number(value)} ms")
        chart.legend(name, colour)
    names = [(index + 0.5, str(index + 1)) for index in range(len(shown))]
    return (
        "Caller and endpoint",
        "Means of the same minutes; the rest is network and connection.",
        chart.svg(_thinned(names)),
    )


def _lines(steps: Iterable[object], name: str) -> list[Line]:
    return [line for step in steps for line in getattr(step, "models", ()) if line.model == name]


def _alone(line: Line) -> float:
    return line.items_per_s if line.items_per_s_alone is None else line.items_per_s_alone


def _thinned(names: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return only as many names as fit side by side."""
    return list(names[:: max(1, -(-len(names) // 10))])


_PERCENTILES = ("p50", "p90", "p95", "p99")
_NAME_CHARACTERS = 24


def design_plots_of(summaries: Sequence[RunSummary]) -> list[Plot]:
    """Return all plots for which the runs have data, in reading order."""
    measured = [summary for summary in summaries if summary.headlines]
    if not measured:
        return []
    plots = [_latency(measured), _rate(measured), _design_batches(measured), _callers(measured), _cost(measured)]
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


def _design_batches(summaries: Sequence[RunSummary]) -> Plot | None:
    """Plot items per second over texts per call, at the fewest callers of each run."""
    lines = []
    for summary in summaries:
        callers = min(step.concurrency for step in summary.steps)
        steps = sorted((s for s in summary.steps if s.concurrency == callers), key=lambda step: step.batch)
        points = [(float(step.batch), step.total.items_per_s, step) for step in steps]
        lines.append((summary.record.label, points))
    tip = "{label}: {rate} items/s at {step.batch} a call"
    svg = _design_lines(lines, "texts a call", "items a second", tip)
    return None if svg is None else ("Batch size", "One caller; steeper is better at batches.", svg)


def _callers(summaries: Sequence[RunSummary]) -> Plot | None:
    """Plot the median over callers, at the fewest texts of each run."""
    lines = []
    for summary in summaries:
        texts = min(step.batch for step in summary.steps)
        steps = sorted((s for s in summary.steps if s.batch == texts), key=lambda step: step.concurrency)
        found = [(float(step.concurrency), step.total.latency_ms, step) for step in steps]
        lines.append((summary.record.label, [(x, latency.p50, step) for x, latency, step in found if latency]))
    tip = "{label}: p50 {rate} ms with {step.concurrency} callers"
    svg = _design_lines(lines, "callers at a time", "p50, ms", tip)
    return None if svg is None else ("Callers", "One text a call; flatter copes better with many callers.", svg)


def _design_lines(lines: list[tuple[str, list[tuple[float, float, Step]]]], x: str, y: str, tip: str) -> str | None:
    """Draw a line per design; None if none has two points."""
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
