"""Draw the plots of one run, from its raw samples and its summary, and the plots that compare runs or designs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cohost.report.charts import BAD, GREY, Axis, Chart
from cohost.report.formats import number, short
from cohost.report.frame import Plot
from cohost.report.samples import answered, failed, latency_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cohost.report.charts import Bars
    from cohost.report.run import Run
    from cohost.report.summary import Headline, RunSummary, Step

CURVE_POINTS = 240
TIME_BINS = 220
CUT_OFF = "cut off by the end of the step"
FAILURE_COLOURS = (5, 1, 6, 3, 0, 4)
PERCENTILES = ("p50", "p90", "p95", "p99")


def plots_of(run: Run, summary: RunSummary) -> list[Plot]:
    """Return all plots of one run for which the run has data, in reading order."""
    if not summary.steps:
        return []
    plots = (
        _distribution(run, summary),
        _over_time(run),
        _throughput(summary),
        _batches(summary),
        _failures(summary),
        _generator(run),
        _endpoint(run, summary),
    )
    return [plot for plot in plots if plot is not None]


def _distribution(run: Run, summary: RunSummary) -> Plot | None:
    """Plot the share of calls answered within a latency, per model, in the step that the headline numbers are from."""
    base = summary.headlines[0].step
    index = next(i for i, phase in enumerate(run.record.phases) if (phase.kind, phase.name) == ("measured", base))
    shares = np.concatenate([np.linspace(0, 0.99, CURVE_POINTS), 1 - np.geomspace(0.01, 1e-5, 60), [1.0]])
    latencies = [latency_s(answered(run.of_phase(index, model))) * 1000 for model in range(len(run.record.models))]
    curves = {position: np.quantile(values, shares) for position, values in enumerate(latencies) if len(values)}
    if not curves:
        return None
    ends = [float(value) for values in curves.values() for value in (values[0], values[-1])]
    y = Axis(0, 101, "calls answered by then, %")
    chart = Chart(Axis.over(ends, "latency, ms", log=True), y, "Latency distribution for each model")
    for position, values in curves.items():
        name = run.record.models[position].name
        chart.line(values.tolist(), (shares * 100).tolist(), position, name)
        found = [float(np.interp(q / 100, shares, values)) for q in (50, 99)]
        tips = [f"{name}: p{q} {number(at)} ms" for q, at in zip((50, 99), found, strict=True)]
        chart.points(found, [50, 99], position, tips)
    what = f"Step {base}: the share of calls answered within a time. Dots: p50 and p99."
    return Plot("Latency distribution", what, chart)


def _over_time(run: Run) -> Plot | None:
    """Plot latency over a run's time: median and slowest call of each short interval, failures, and steps."""
    good, start = answered(run.samples), run.record.started
    if not len(good):
        return None
    latencies = latency_s(good) * 1000
    seconds = max(1e-3, run.record.ended - start)
    y = Axis.over([float(latencies.min()), float(latencies.max())], "latency, ms", log=True)
    chart = Chart(Axis(0, seconds, "seconds from the start"), y, "Latency over time")
    for phase in run.record.phases:
        name = phase.name if phase.kind == "measured" else phase.kind
        chart.span(phase.started - start, phase.ended - start, name, shaded=phase.kind != "measured")
    bins = np.clip(((good["planned"] - start) / seconds * TIME_BINS).astype(int), 0, TIME_BINS - 1)
    for position, model in enumerate(run.record.models):
        own = good["model"] == position
        used = np.unique(bins[own])
        middles = [(int(b) + 0.5) * seconds / TIME_BINS for b in used]
        of_bin = [latencies[own & (bins == b)] for b in used]
        chart.points(middles, [float(v.max()) for v in of_bin], position, size=1)
        chart.line(middles, [float(np.median(v)) for v in of_bin], position, model.name)
    bad = failed(run.samples)
    if len(bad):
        moments = np.unique(np.round(bad["planned"] - start, 1))
        chart.points(moments.tolist(), [y.low * 1.05] * len(moments), BAD, size=1.4)
        chart.legend("failed calls", BAD)
    what = "Lines: median of each moment; dots: its slowest call. Shaded: first calls and warm-up, in no number."
    return Plot("Over time", what, chart)


def _throughput(summary: RunSummary) -> Plot | None:
    """Plot latency against calls per second, for the batch size with the most steps, one point per step."""
    batches = [step.batch for step in summary.steps]
    batch = max(set(batches), key=lambda size: (batches.count(size), -size))
    # The steps are in the order of the load, so that the line of an overloaded target turns back.
    steps = sorted((s for s in summary.steps if s.batch == batch), key=lambda step: step.rate or step.concurrency)
    found = [(s.total.calls_per_s, s.total.latency_ms, s) for s in steps if s.total.latency_ms]
    if not found:
        return None
    rates = [rate for rate, _, _ in found]
    y = Axis.over([value for _, d, _ in found for value in (d.p50, d.p99)], "latency, ms")
    chart = Chart(Axis.over(rates, "calls answered a second"), y, "Latency against throughput")
    for colour, name in enumerate(("p50", "p95", "p99")):
        values = [float(getattr(d, name)) for _, d, _ in found]
        places = zip(found, values, strict=True)
        tips = [f"{s.name}: {name} {number(v)} ms at {short(r)} calls/s" for (r, _, s), v in places]
        chart.line(rates, values, colour, name)
        chart.points(rates, values, colour, tips)
    for rate, d, step in found:
        chart.text(rate, d.p99, f"{step.concurrency}" if step.rate is None else f"{step.rate:g}/s")
    what = f"{batch} {'text' if batch == 1 else 'texts'} a call; numbers at the points: callers, or the planned rate."
    return Plot("Latency against throughput", what, chart)


def _batches(summary: RunSummary) -> Plot:
    """Plot items per second against texts per call, from the steps with the fewest callers."""
    steps = _batch_steps(summary)
    callers = steps[0].concurrency
    series: dict[str, Bars] = {}
    for index, model in enumerate(summary.record.models):
        rates = [step.models[index].own_rate for step in steps]
        tips = [f"{model.name}, {step.batch} a call: {short(r)} items/s" for step, r in zip(steps, rates, strict=True)]
        series[model.name] = list(zip(rates, tips, strict=True))
    mix = [(at + 0.5, step.total.items_per_s) for at, step in enumerate(steps) if step.total.items_per_s is not None]
    totals = [rate for _, rate in mix]
    titles = ("texts a call", "items a second")
    chart = Chart.of_bars([str(step.batch) for step in steps], series, titles, others=totals)
    if len(series) > 1:
        chart.line([at for at, _ in mix], totals, GREY, "the mix", dashed=True)
    what = f"{callers} {'caller' if callers == 1 else 'callers'}. Bars: each model by the time of its own calls."
    return Plot("Batch size", what, chart)


def _failures(summary: RunSummary) -> Plot:
    """Plot the share of calls that failed in each step, by kind of failure."""
    totals = [step.total for step in summary.steps]
    kinds = [*sorted({kind for total in totals for kind in total.failures}), CUT_OFF]
    shares = [100 * (total.failed + total.cut_off) / max(1, total.calls) for total in totals]
    names = [(index + 0.5, step.name) for index, step in enumerate(summary.steps)]
    y = Axis.over([1.0, *shares], "share of calls, %")
    chart = Chart(Axis(0, len(names), "step"), y, "Share of calls that failed", names)
    for index, step in enumerate(summary.steps):
        counts, calls, low = {**step.total.failures, CUT_OFF: step.total.cut_off}, max(1, step.total.calls), 0.0
        for position, kind in enumerate(kinds):
            if count := counts.get(kind, 0):
                high, colour = (
                    low + 100 * count / calls,
                    GREY if kind == CUT_OFF else FAILURE_COLOURS[position % len(FAILURE_COLOURS)],
                )
                chart.bar(index + 0.2, index + 0.8, low, high, colour, f"{step.name}: {count} of {calls} {kind}")
                chart.legend(kind, colour)
                low = high
    worst, calls = sum(total.failed for total in totals), sum(total.calls for total in totals)
    what = f"{worst} of {calls} calls failed." if worst else f"None of {calls} calls failed."
    return Plot("Failures", what, chart)


def _generator(run: Run) -> Plot | None:
    """Plot the share of a CPU core that each process of the load generator used, and the delay of its timers."""
    if not len(run.ticks):
        return None
    at, late_ms = run.ticks["at"] - run.record.started, run.ticks["lag_mean"] * 1000
    y = Axis.over([100.0, float(late_ms.max())], "% of a core; ms")
    chart = Chart(Axis.over([float(at.max())], "seconds from the start"), y, "The generator itself")
    for worker in np.unique(run.ticks["worker"]):
        own = run.ticks["worker"] == worker
        chart.line(at[own].tolist(), (run.ticks["cpu"][own] * 100).tolist(), int(worker), f"process {worker}, core %")
    chart.line(at.tolist(), late_ms.tolist(), BAD, "timers late, ms", dashed=True)
    return Plot(
        "The generator", "A generator at its limit measures itself; above 90 % of a core a run is invalid.", chart
    )


def _endpoint(run: Run, summary: RunSummary) -> Plot | None:
    """Plot the mean latency that callers and SageMaker measured, minute by minute."""
    found = summary.metrics
    model, overhead = (found.find(name) if found else None for name in ("ModelLatency", "OverheadLatency"))
    good = answered(run.samples)
    if model is None or not len(good):
        return None
    minutes = sorted({point.at for point in model.points})
    caller = {m: latency_s(good[(good["planned"] >= m) & (good["planned"] < m + 60)]) * 1000 for m in minutes}
    shown = [m for m in minutes if len(caller[m])]
    means = {"at the caller": [float(caller[m].mean()) for m in shown]}
    for name, metric in (("ModelLatency", model), ("OverheadLatency", overhead)):
        by_minute = {point.at: point.average for point in metric.points} if metric else {}
        means[name] = [by_minute.get(m, 0.0) for m in shown]
    series: dict[str, Bars] = {
        name: [(value, f"{name}: {number(value)} ms") for value in values] for name, values in means.items()
    }
    chart = Chart.of_bars([str(index + 1) for index in range(len(shown))], series, ("minute", "mean latency, ms"))
    return Plot("Caller and endpoint", "Means of the same minutes; the rest is network and connection.", chart)


def _batch_steps(summary: RunSummary) -> list[Step]:
    """Return the steps with the fewest callers, in the order of batch size."""
    callers = min(step.concurrency for step in summary.steps)
    return sorted((s for s in summary.steps if s.concurrency == callers), key=lambda step: step.batch)


def latencies(summaries: Sequence[RunSummary], names: Sequence[str] = PERCENTILES) -> Chart | None:
    """Draw latency percentiles side by side, from the first headline of each run; None if no run has a latency."""
    found = [(s.record.label, s.headlines[0].latency_ms if s.headlines else None) for s in summaries]
    if not any(latency for _, latency in found):
        return None
    series: dict[str, Bars] = {
        name: [
            (float(getattr(latency, name)), f"{label}: {name} {number(getattr(latency, name))} ms")
            if latency
            else (None, "")
            for label, latency in found
        ]
        for name in names
    }
    return Chart.of_bars([label for label, _ in found], series, ("", "latency, ms"))


def design_plots_of(summaries: Sequence[RunSummary]) -> list[Plot]:
    """Return all plots of a comparison for which the runs have data, in reading order."""
    measured = [summary for summary in summaries if summary.headlines]
    if not measured:
        return []
    drawn = (
        ("Latency", "One caller, one text a call, all models in turns.", latencies(measured)),
        ("Items a second at batch 8", "One caller, eight texts a call.", _bars(measured, "items a second", _rate)),
        ("Batch size", "One caller; steeper is better at batches.", _by_batch(measured)),
        ("Callers", "One text a call; flatter copes better with many callers.", _by_callers(measured)),
        (
            "USD for a million items",
            "Price of an hour over the items of an hour at batch 8, kept up all the time. No bar: no price is known.",
            _bars(measured, "USD", lambda head: (head.usd_per_million, f"{number(head.usd_per_million, 2)} USD")),
        ),
    )
    return [Plot(title, what, chart) for title, what, chart in drawn if chart is not None]


def _bars(
    summaries: Sequence[RunSummary], title: str, value_of: Callable[[Headline], tuple[float | None, str]]
) -> Chart | None:
    """Draw one bar per design, with the value from the design's first headline; None if no design has a value."""
    labels = [summary.record.label for summary in summaries]
    bars = [value_of(summary.headlines[0]) for summary in summaries]
    if all(value is None for value, _ in bars):
        return None
    points = [(value, f"{label}: {tip}") for label, (value, tip) in zip(labels, bars, strict=True)]
    return Chart.of_bars(labels, {title: points}, ("", title), by_group=True)


def _rate(head: Headline) -> tuple[float | None, str]:
    more = f", {head.batch_efficiency:.1f}x batch 1" if head.batch_efficiency else ""
    return head.items_per_s_at_8, f"{short(head.items_per_s_at_8)} items/s{more}"


def _rates(summary: RunSummary) -> list[tuple[Step, float]]:
    """Return the steps with the fewest callers, if a call was answered in them, each with its items per second."""
    found = ((step, step.total.items_per_s) for step in _batch_steps(summary))
    return [(step, rate) for step, rate in found if rate is not None]


def _by_batch(summaries: Sequence[RunSummary]) -> Chart | None:
    """Draw items per second against texts per call, from each run's steps with the fewest callers."""
    lines = [
        [(step.batch, rate, f"{short(rate)} items/s at {step.batch} a call") for step, rate in _rates(summary)]
        for summary in summaries
    ]
    return _lines(summaries, lines, "texts a call", "items a second")


def _by_callers(summaries: Sequence[RunSummary]) -> Chart | None:
    """Draw the median latency against the number of callers, from each run's steps with the fewest texts per call."""
    lines = []
    for summary in summaries:
        texts = min(step.batch for step in summary.steps)
        steps = sorted((s for s in summary.steps if s.batch == texts), key=lambda step: step.concurrency)
        found = [(s.concurrency, s.total.latency_ms.p50) for s in steps if s.total.latency_ms]
        lines.append([(callers, p50, f"p50 {short(p50)} ms with {callers} callers") for callers, p50 in found])
    return _lines(summaries, lines, "callers at a time", "p50, ms")


def _lines(
    summaries: Sequence[RunSummary], lines: Sequence[Sequence[tuple[float, float, str]]], x: str, y: str
) -> Chart | None:
    """Draw a line with points for each design; None if no design has two points."""
    if not any(len(points) > 1 for points in lines):
        return None
    every = [point for points in lines for point in points]
    chart = Chart(Axis.over(_nth(every, 0), x), Axis.over(_nth(every, 1), y), f"{y} against {x}")
    for colour, (summary, points) in enumerate(zip(summaries, lines, strict=True)):
        label = summary.record.label
        chart.line(_nth(points, 0), _nth(points, 1), colour, label)
        chart.points(_nth(points, 0), _nth(points, 1), colour, [f"{label}: {tip}" for _, _, tip in points])
    return chart


def _nth(points: Iterable[tuple[float, float, str]], index: int) -> list[float]:
    return [float(point[index]) for point in points]
