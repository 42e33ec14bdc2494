"""Write a comparison of scaling settings as rows of tables, JSON, plots, and one HTML page.

The plots show traffic, copies and lost calls over time, and cost against calls not served at once. The page is a single
file without scripts and fonts, and causes no requests.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from cohost.forecast.pricing.price_list import money
from cohost.forecast.pricing.running_hours import Service
from cohost.forecast.simulation.outcome import QUANTILES
from cohost.report import frame
from cohost.report.charts import GREY, Axis, Chart
from cohost.report.formats import UNKNOWN, Table
from cohost.report.frame import Plot
from cohost.routing import MULTI_MODEL, SCALE_TO_ZERO
from cohost.waiting import minutes_and_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cohost.forecast.simulation.compare import Comparison, Result
    from cohost.forecast.simulation.outcome import Outcome, Steps
    from cohost.forecast.simulation.traces import Trace


COST_COLUMNS: Final = ("USD/day", "USD/month", "hours/day", "cold starts")
CALL_COLUMNS: Final = ("refused", "timed out", "delayed", "delay p50, p95, min:s")
LATENCY_COLUMNS: Final = tuple(f"p{quantile}" for quantile in QUANTILES)
EXTRAPOLATED: Final = "~"
"""The mark of an amount per day or month that repeats a trace of less than a day."""

_HUNDREDTH, _MINUTE = 0.0001, 60.0


def tables(comparison: Comparison) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Return title, columns and rows of each table of a comparison: costs, calls not served at once, latencies."""
    names = ("design", *([", ".join(comparison.swept).replace("_", " ")] if comparison.swept else []))
    kinds: tuple[tuple[str, tuple[str, ...], Callable[[Result], tuple[str, ...]]], ...] = (
        ("What it costs", COST_COLUMNS, lambda result: _costs(result.outcome, comparison.usd_per_hour)),
        ("Calls that were not served at once", CALL_COLUMNS, lambda result: _calls(result.outcome)),
        ("Time to an answer", LATENCY_COLUMNS, lambda result: _latencies(result.outcome)),
    )
    return [
        (title, (*names, *columns), [(*_names(comparison, one), *cells(one)) for one in comparison.results])
        for title, columns, cells in kinds
    ]


def _names(comparison: Comparison, result: Result) -> tuple[str, ...]:
    """Return the first cells of a result's row: its design, with a star if Pareto-optimal, and its swept settings."""
    star = " *" if result.efficient and comparison.swept else ""
    swept = ", ".join(setting(result.settings.get(name)) for name in comparison.swept)
    return (result.design + star, swept) if comparison.swept else (result.design,)


def setting(value: object) -> str:
    """Return the value of a scaling setting as text; a dash for None."""
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _costs(outcome: Outcome, usd_per_hour: float | None) -> tuple[str, ...]:
    amounts = (
        *(money(outcome.per_day(usd_per_hour)), money(outcome.per_month(usd_per_hour))),
        f"{outcome.hours_per_day:.2f}",
    )
    mark = EXTRAPOLATED if outcome.trace.is_short else ""
    return (*(amount if amount == UNKNOWN else mark + amount for amount in amounts), f"{outcome.cold_starts:,}")


def _calls(outcome: Outcome) -> tuple[str, ...]:
    tally, delay = outcome.tally, outcome.delay_s
    shares = (share(number, outcome.trace.calls) for number in (tally.refused, tally.timed_out, tally.delayed))
    return (*shares, "-" if delay is None else ", ".join(minutes_and_seconds(delay[quantile]) for quantile in (50, 95)))


def _latencies(outcome: Outcome) -> tuple[str, ...]:
    return tuple(seconds((outcome.latency_s or {}).get(quantile)) for quantile in QUANTILES)


def share(part: int, whole: int) -> str:
    """Return a part of a whole in percent, as text."""
    if not part:
        return "0"
    percent = part / whole
    return f"{percent:.2%}" if percent >= _HUNDREDTH else "<0.01%"


def seconds(value: float | None) -> str:
    """Return a number of seconds as text, in ms, seconds or minutes; a dash for None."""
    if value is None:
        return "-"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < _MINUTE:
        return f"{value:.1f} s"
    return f"{minutes_and_seconds(value)} min".replace(":00", "")


def as_data(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as data for JSON: times in seconds, money in USD, None for unknown values."""
    trace, price = comparison.trace, comparison.price
    return {
        "trace": {
            "name": trace.name,
            "start": trace.start.isoformat(),
            "days": trace.days,
            "calls": trace.calls,
            "extrapolated": trace.is_short,
        },
        "instance_type": comparison.instance_type,
        "region": comparison.region,
        "price": None if price is None else price.model_dump(mode="json"),
        "service": asdict(comparison.service) | {"start_s": comparison.service.growth_s},
        "results": [_result_data(result, comparison.usd_per_hour) for result in comparison.results],
    }


def _result_data(result: Result, usd_per_hour: float | None) -> dict[str, Any]:
    outcome, tally = result.outcome, result.outcome.tally
    return {
        "topology": outcome.rules.topology,
        "callers": None if outcome.rules.topology == MULTI_MODEL else "wait" if outcome.patient else "fail",
        "scaling": _scaling_data(outcome),
        "efficient": result.efficient,
        "usd_per_day": outcome.per_day(usd_per_hour),
        "usd_per_month": outcome.per_month(usd_per_hour),
        "instance_hours": outcome.instance_hours,
        "instance_hours_per_day": outcome.hours_per_day,
        "cold_starts": outcome.cold_starts,
        "scale_outs": outcome.grown,
        "scale_ins": outcome.shrunk,
        "answered": tally.answered,
        "delayed": tally.delayed,
        "refused": tally.refused,
        "timed_out": tally.timed_out,
        "still_waiting": outcome.unanswered,
        "latency_s": _percentiles(outcome.latency_s),
        "delay_s": _percentiles(outcome.delay_s),
    }


def _scaling_data(outcome: Outcome) -> dict[str, Any]:
    data = asdict(outcome.rules)
    data["schedule"] = [entry.model_dump(exclude_unset=True) for entry in outcome.rules.schedule]
    return {name: value for name, value in data.items() if name not in {"topology", "per_instance"}}


def _percentiles(found: Mapping[int, float] | None) -> dict[str, float] | None:
    return None if found is None else {f"p{share}": round(value, 4) for share, value in found.items()}


def notes(comparison: Comparison) -> Sequence[str]:
    """Return the assumptions behind a comparison's figures as lines of text."""
    service, price = comparison.service, comparison.price
    cost = UNKNOWN if price is None else f"{price.usd_per_hour:g} USD an hour ({price})"
    trace = comparison.trace
    length = f"{trace.days:.4g} days" if not trace.is_short else f"{len(trace.counts)} minutes"
    length = f"{length} from {trace.start:%Y-%m-%d %H:%M} UTC"
    if trace.is_short:
        length += f"; {EXTRAPOLATED} marks amounts per day and month that repeat these minutes"
    rate = f"{service.requests_per_second:g} calls/s at most, and one alone in {seconds(service.service_s)}"
    starts = f"Waking takes {seconds(service.wake_s)}, any other start {seconds(service.growth_s)}"
    metric = next(r.metric for one in comparison.results if (r := one.outcome.rules).topology == SCALE_TO_ZERO)
    tail = f"after {seconds(service.tail_s(metric))} without a call where no idle time is set"
    return (
        f"{trace.name}: {trace.calls:,} calls in {length}.",
        f"{comparison.instance_type} in {comparison.region}: {cost}. A copy answers {rate}.",
        f"{starts}. The last copy is removed {tail}, its instance {seconds(service.instance_tail_s)} later.",
        *_published(service),
        "An estimate, not a measurement: docs/scaling.md lists its simplifications.",
    )


def _published(service: Service) -> Sequence[str]:
    """Return a line that names the figures that are published defaults, not the user's own; () if there are none."""
    default = Service()
    names = {
        "calls/s": (service.requests_per_second, default.requests_per_second),
        "latency": (service.service_s, default.service_s),
        "waking": (service.wake_s, default.wake_s),
        "end of an instance": (service.instance_tail_s, default.instance_tail_s),
    }
    taken = ", ".join(name for name, (used, published) in names.items() if used == published)
    return [f"Published by others of ml.g5.xlarge, not measured with this catalog: {taken}."] if taken else []


MOST_BINS: Final = 480
_MOST_NAMES: Final = 8
_NICE_HOURS: Final = (1, 2, 3, 6, 12, 24, 48, 7 * 24, 14 * 24, 31 * 24, 61 * 24, 92 * 24, 366 * 24)
_DAY: Final = 24 * 60
_NICE_MINUTES: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, _DAY, 2 * _DAY, 7 * _DAY)


def plots_of(comparison: Comparison) -> list[Plot]:
    """Return all plots in reading order; a plot over time shows the first combination of settings only."""
    bins = _Bins(comparison.trace)
    results = comparison.of_first_settings()
    copies = [_copies(result, colour, bins) for colour, result in enumerate(results)]
    plots = [_traffic(comparison.trace, bins), _lost(results, bins), *copies]
    return [_trade(comparison), *plots] if comparison.swept else plots


class _Bins:
    """The intervals of equal length in whole minutes, 480 at most, into which a trace is divided for plots."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        fitting = (nice for nice in _NICE_MINUTES if len(trace.counts) <= nice * MOST_BINS)
        self.minutes = next(fitting, _NICE_MINUTES[-1])
        self.count = -(-len(trace.counts) // self.minutes)
        self.middles = [(index + 0.5) * self.minutes for index in range(self.count)]

    def chart(self, values: Sequence[float], title: str, label: str) -> Chart:
        """Return an empty chart: its x axis is the trace's minutes, and its y axis holds all `values`."""
        time = Axis(0, max(1, len(self._trace.counts)), f"time, UTC, from {self._trace.start:%Y-%m-%d %H:%M}")
        return Chart(time, Axis.over(values, title), label, self.names())

    def names(self) -> list[tuple[float, str]]:
        """Return the labels of the time axis (days or times of day), each with its minute of the trace."""
        hours = len(self._trace.counts) / 60
        step = next((nice for nice in _NICE_HOURS if hours / nice <= _MOST_NAMES), _NICE_HOURS[-1])
        start = self._trace.start
        first = start.replace(minute=0) if step < 24 else start.replace(hour=0, minute=0)  # noqa: PLR2004 - a day
        shape = "%H:%M" if step < 24 else "%a %d %b"  # noqa: PLR2004 - as above
        moments = (first + dt.timedelta(hours=step * index) for index in range(_MOST_NAMES + 2))
        places = [((moment - start).total_seconds() / 60, f"{moment:{shape}}") for moment in moments]
        return [(at, name) for at, name in places if 0 <= at < len(self._trace.counts)]

    def sums(self, by_minute: Mapping[int, int]) -> list[float]:
        """Return the average calls per minute in each interval, from the calls by minute."""
        sums = [0.0] * self.count
        for minute, calls in by_minute.items():
            sums[min(minute // self.minutes, self.count - 1)] += calls / self.minutes
        return sums

    def extremes(self) -> tuple[list[float], list[float], list[float]]:
        """Return the calls per minute in each interval: of the quietest, the average and the busiest minute."""
        counts, width = self._trace.counts, self.minutes
        parts = [counts[index * width : (index + 1) * width] for index in range(self.count)]
        return [float(min(p)) for p in parts], [sum(p) / len(p) for p in parts], [float(max(p)) for p in parts]

    def means(self, steps: Steps) -> list[float]:
        """Return the mean, in each interval, of a number that changes over time."""
        width, sums = self.minutes * 60.0, [0.0] * self.count
        end = width * self.count
        for (at, number), (until, _) in pairwise([*steps, (end, 0)]):
            while at < min(until, end):
                index = int(at // width)
                stop = min(until, (index + 1) * width)
                sums[index] += number * (stop - at) / width
                at = stop  # noqa: PLW2901 - goes through the stretches of one step
        return sums


def _traffic(trace: Trace, bins: _Bins) -> Plot:
    low, mean, high = bins.extremes()
    chart = bins.chart([1.0, *high], "calls a minute", "Calls a minute over time")
    chart.area(bins.middles, low, high, GREY)
    chart.line(bins.middles, mean, GREY, "mean")
    what = f"{trace.calls:,} calls; the band: quietest to busiest minute within {_length(bins.minutes)}."
    return Plot("Traffic", what, chart)


def _copies(result: Result, colour: int, bins: _Bins) -> Plot:
    outcome = result.outcome
    bills = bins.means(outcome.instances)
    chart = bins.chart([1.0, *bills], "copies, instances", f"Copies over time, {result.design}")
    chart.area(bins.middles, [0.0] * bins.count, bills, colour)
    chart.line(bins.middles, bills, GREY, "instances that bill", dashed=True)
    chart.line(bins.middles, bins.means(outcome.serving), colour, "copies that answer")
    what = f"{outcome.hours_per_day:.2f} instance hours a day. Means over {_length(bins.minutes)}."
    return Plot(f"Copies, {result.design}", what, chart)


def _lost(results: Sequence[Result], bins: _Bins) -> Plot:
    """Plot refused, timed-out and delayed calls over time; omit a design that has none."""
    found: list[tuple[str, int, list[float], bool]] = []
    for colour, result in enumerate(results):
        tally = result.outcome.tally
        found.append((f"{result.design}: refused or timed out", colour, bins.sums(tally.lost), False))
        found.append((f"{result.design}: answered late", colour, bins.sums(tally.late), True))
    most = [value for _, _, values, _ in found for value in values]
    chart = bins.chart([1.0, *most], "calls a minute", "Refused and delayed calls over time")
    for name, colour, values, dashed in found:
        if any(values):
            chart.line(bins.middles, values, colour, name, dashed=dashed)
    what = "Refused: no copy ran, the caller gave up, or time-out. Answered late: waited for a cold start."
    if not any(most):
        what = "None: every call was answered at once."
    return Plot("Refused and delayed calls", what, chart)


def _trade(comparison: Comparison) -> Plot:
    """Plot cost against the share of calls that were not served at once, with one point per result."""
    price = comparison.usd_per_hour
    unit, factor = ("instance hours a day", 1.0) if price is None else ("USD a day", price)
    points = [(100 * r.outcome.unserved_share, r.outcome.hours_per_day * factor, r) for r in comparison.results]
    x = Axis.over([1.0, *(x for x, _, _ in points)], "calls refused or delayed, %")
    chart = Chart(x, Axis.over([y for _, y, _ in points], unit), "Cost against calls that were not served at once")
    best = sorted({(x, y) for x, y, result in points if result.efficient})
    chart.line([x for x, _ in best], [y for _, y in best], GREY, "what nothing beats", dashed=True)
    for colour, design in enumerate(dict.fromkeys(result.design for _, _, result in points)):
        own = [point for point in points if point[2].design == design]
        tips = [f"{design}, {_settings(r, comparison.swept)}: {y:.2f} {unit}, {x:.2f} %" for x, y, r in own]
        chart.points([x for x, _, _ in own], [y for _, y, _ in own], colour, tips, size=3)
        chart.legend(design, colour)
    return Plot("Cost against service", "Lower left is better; hover over a point for its settings.", chart)


def _settings(result: Result, swept: Iterable[str]) -> str:
    return ", ".join(f"{name} {setting(result.settings.get(name))}" for name in swept)


def _length(minutes: int) -> str:
    if minutes < 60:  # noqa: PLR2004 - an hour
        return "a minute" if minutes == 1 else f"{minutes} minutes"
    if minutes < _DAY:
        return "an hour" if minutes == 60 else f"{minutes // 60} hours"  # noqa: PLR2004 - as above
    return "a day" if minutes == _DAY else f"{minutes // _DAY} days"


def page(comparison: Comparison) -> str:
    """Return the HTML page of a comparison, in the style of the load test's report."""
    star = "A star marks Pareto-optimal lines: no other line is cheaper, or as cheap, and serves more calls at once."
    text = frame.paragraphs(*notes(comparison), star if comparison.swept else "")
    grids = (frame.table(Table(*table)) for table in tables(comparison))
    plots = frame.plots(plots_of(comparison))
    return frame.page("Scaling simulation", comparison.trace.name, frame.card(text), plots, *grids)
