"""A comparison as rows of a table and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from cohost.pricing import UNKNOWN, money
from cohost.routing import MULTI_MODEL
from cohost.scaling.waiting import minutes_and_seconds
from cohost.simulate.outcome import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cohost.simulate.compare import Comparison, Result
    from cohost.simulate.outcome import Outcome

COST_COLUMNS: Final = ("USD/day", "USD/month", "hours/day", "cold starts")
CALL_COLUMNS: Final = ("refused", "timed out", "delayed", "delay p50, p95, min:s")
LATENCY_COLUMNS: Final = tuple(f"p{quantile}" for quantile in QUANTILES)
_HUNDREDTH, _MINUTE = 0.0001, 60.0


def tables(comparison: Comparison) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Title, columns and rows of what it costs, of the calls that were not served at once, and of latencies."""
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
    """Design, and the swept settings in one cell. A star marks what nothing beats, where there is a choice."""
    star = " *" if result.efficient and comparison.swept else ""
    swept = ", ".join(setting(result.settings.get(name)) for name in comparison.swept)
    return (result.design + star, swept) if comparison.swept else (result.design,)


def setting(value: object) -> str:
    """The value of a setting; a dash for none."""
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _costs(outcome: Outcome, usd_per_hour: float | None) -> tuple[str, ...]:
    return (
        *(money(outcome.per_day(usd_per_hour)), money(outcome.per_month(usd_per_hour))),
        *(f"{outcome.hours_per_day:.2f}", f"{outcome.cold_starts:,}"),
    )


def _calls(outcome: Outcome) -> tuple[str, ...]:
    tally, delay = outcome.tally, outcome.delay_s
    shares = (share(number, outcome.trace.calls) for number in (tally.refused, tally.timed_out, tally.delayed))
    return (*shares, "-" if delay is None else ", ".join(minutes_and_seconds(delay[quantile]) for quantile in (50, 95)))


def _latencies(outcome: Outcome) -> tuple[str, ...]:
    return tuple(seconds((outcome.latency_s or {}).get(quantile)) for quantile in QUANTILES)


def share(part: int, whole: int) -> str:
    """A part of all calls in percent."""
    if not part:
        return "0"
    percent = part / whole
    return f"{percent:.2%}" if percent >= _HUNDREDTH else "<0.01%"


def seconds(value: float | None) -> str:
    """A time, in the unit that reads best; a dash for none."""
    if value is None:
        return "-"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < _MINUTE:
        return f"{value:.1f} s"
    return f"{minutes_and_seconds(value)} min".replace(":00", "")


def as_data(comparison: Comparison) -> dict[str, Any]:
    """The whole comparison for a script; times in seconds, money in USD, None for what is unknown."""
    trace, price = comparison.trace, comparison.price
    return {
        "trace": {
            "name": trace.name,
            "start": trace.start.isoformat(),
            "days": trace.days,
            "calls": trace.calls,
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
    """What the figures rest on, one sentence each."""
    service, price = comparison.service, comparison.price
    cost = UNKNOWN if price is None else f"{price.usd_per_hour:g} USD an hour ({price})"
    length = f"{comparison.trace.days:g} days from {comparison.trace.start:%Y-%m-%d %H:%M} UTC"
    rate = f"{service.requests_per_second:g} calls/s at most, and one alone in {seconds(service.service_s)}"
    starts = f"Waking takes {seconds(service.wake_s)}, any other start {seconds(service.growth_s)}"
    metric = comparison.results[0].outcome.rules.metric
    tail = f"after {seconds(service.tail_s(metric))} without a call where no idle time is set"
    return (
        f"{comparison.trace.name}: {comparison.trace.calls:,} calls in {length}.",
        f"{comparison.instance_type} in {comparison.region}: {cost}. A copy answers {rate}.",
        f"{starts}. The last copy goes {tail}, its instance {seconds(service.instance_tail_s)} later.",
        "An estimate, not a measurement: docs/scaling.md says what is left out.",
    )
