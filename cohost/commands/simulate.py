"""The subcommand that forecasts costs and refused calls of scaling settings before a deploy: `cohost simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import track
from rich.text import Text

from cohost.commands import console
from cohost.commands.options import DEFAULT_CATALOG, CatalogOption, JsonOption, load_with_warnings
from cohost.commands.plan import RegionOption
from cohost.endpoint.stack_outputs import DEFAULT_REGION
from cohost.errors import SimulationError
from cohost.forecast.pricing.price_list import load_prices, price_note, today
from cohost.forecast.pricing.running_hours import PUBLISHED_RATE, Service
from cohost.forecast.simulation.compare import Callers, Comparison, marked, replay_all
from cohost.forecast.simulation.page import as_data, notes, page, tables
from cohost.forecast.simulation.rules import rules_of
from cohost.forecast.simulation.trace_files import read_trace
from cohost.forecast.simulation.traces import DEFAULT_DAYS, DEFAULT_RATE, DEFAULT_SEED, Pattern, make_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cohost.catalog.models import Catalog
    from cohost.forecast.simulation.traces import Trace

_MOST_DAYS = 5 * 365


def _list_option(name: str, what: str) -> Any:  # typer's own option type is private
    return typer.Option(name, help=f"{what}; a,b,c compares values.", metavar="A[,B…]", rich_help_panel="Scaling")


def _figure_option(name: str, what: str, least: float = 0) -> Any:
    return typer.Option(name, help=what, min=least, rich_help_panel="Figures of the service")


def simulate(
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="A file of requests: CSV, JSON, CloudWatch's exports or ALB logs."),
    ] = None,
    pattern: Annotated[
        Pattern | None, typer.Option("--pattern", help="Generate traffic of this pattern instead of reading --trace.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", help=f"Calls per second in a pattern's busy hours (default {DEFAULT_RATE:g})."),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option("--days", min=1, max=_MOST_DAYS, help=f"The pattern's length in days (default {DEFAULT_DAYS})."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help=f"The seed of a pattern's chance (default {DEFAULT_SEED}).")
    ] = None,
    callers: Annotated[
        Callers, typer.Option("--callers", help="What callers do while no copy runs: fail, wait, or both to compare.")
    ] = Callers.BOTH,
    least: Annotated[str | None, _list_option("--min", "The least instances or copies")] = None,
    most: Annotated[str | None, _list_option("--max", "The most instances or copies")] = None,
    metric: Annotated[str | None, _list_option("--metric", "Scale by invocations or concurrency")] = None,
    target: Annotated[str | None, _list_option("--target", "The target value of --metric")] = None,
    scale_in_cooldown: Annotated[str | None, _list_option("--scale-in-cooldown", "Seconds after a scale-in")] = None,
    scale_out_cooldown: Annotated[str | None, _list_option("--scale-out-cooldown", "Seconds after a scale-out")] = None,
    idle_minutes: Annotated[
        str | None, _list_option("--idle-minutes", "Minutes without a call before scaling to zero")
    ] = None,
    requests_per_second: Annotated[
        float | None, _figure_option("--requests-per-second", f"The most of one copy (default {PUBLISHED_RATE:g}).")
    ] = None,
    service_ms: Annotated[
        float | None, _figure_option("--service-ms", "Latency of a single caller (default 49.7).")
    ] = None,
    wake_seconds: Annotated[
        float | None,
        _figure_option("--wake-seconds", "From the first rejected call to the first answer (default 564).", 60),
    ] = None,
    start_seconds: Annotated[
        float | None, _figure_option("--start-seconds", "Any other start (default: --wake-seconds less a minute).")
    ] = None,
    tail_minutes: Annotated[
        float | None,
        _figure_option("--tail-minutes", "From the last call until tracking scales in (default 11, invocations 15)."),
    ] = None,
    instance_tail_minutes: Annotated[
        float | None,
        _figure_option("--instance-tail-minutes", "From the end of a copy to the end of its instance (default 12)."),
    ] = None,
    wake_timeout: Annotated[
        float | None, _figure_option("--wake-timeout", "The longest wait for a copy (default 900).")
    ] = None,
    catalog: CatalogOption = DEFAULT_CATALOG,
    region: RegionOption = DEFAULT_REGION,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write an HTML page with charts to this file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Replay traffic against both topologies, and show cost, rejected and delayed calls, cold starts and latencies.

    An option for scaling replaces the setting of the catalog. docs/scaling.md lists the assumptions of the replay.

    Example: cohost simulate --pattern office-hours --idle-minutes 5,15,60 --html scaling.html
    """
    calls = _trace(trace, pattern, {"rate": rate, "days": days, "seed": seed})
    loaded = load_with_warnings(catalog).catalog
    figures = {
        "requests_per_second": requests_per_second,
        "service_s": None if service_ms is None else service_ms / 1000,
        "wake_s": wake_seconds,
        "start_s": start_seconds,
        "idle_tail_s": None if tail_minutes is None else tail_minutes * 60,
        "instance_tail_s": None if instance_tail_minutes is None else instance_tail_minutes * 60,
        "wake_timeout_s": wake_timeout,
    }
    settings = {"min": least, "max": most, "metric": metric, "target": target, "idle_minutes": idle_minutes}
    settings |= {"scale_in_cooldown": scale_in_cooldown, "scale_out_cooldown": scale_out_cooldown}
    found = _compare(
        calls,
        loaded,
        overrides={name: _values(name, text) for name, text in settings.items() if text is not None},
        service=Service(**{name: value for name, value in figures.items() if value is not None}),
        callers=callers,
        region=region,
    )
    if requests_per_second is None:
        console.print_warning(
            f"{PUBLISHED_RATE:g} requests per second are published by others (2026-08, three encoders on one "
            "ml.g5.xlarge), not measured with this catalog; fix: measure your rate with cohost bench and pass it as "
            "--requests-per-second"
        )
    _show(found, html=html, as_json=as_json)


def _trace(file: Path | None, pattern: Pattern | None, options: Mapping[str, Any]) -> Trace:
    given = {name: value for name, value in options.items() if value is not None}
    if (file is None) == (pattern is None):
        raise SimulationError(
            "traffic-source",
            "--trace and --pattern",
            f"{'neither is' if file is None else 'both are'} given",
            allowed="one of the two",
            fix=f"--trace FILE, or --pattern with one of {', '.join(Pattern)}",
        )
    if pattern is not None:
        return make_trace(pattern, **given)
    if given:
        raise SimulationError(
            "pattern-option",
            f"--{next(iter(given))}",
            "has no effect on a trace",
            allowed="with --pattern only",
            fix="take it out",
        )
    assert file is not None  # noqa: S101 - one of the two is given
    return read_trace(file)


def _compare(
    trace: Trace,
    catalog: Catalog,
    *,
    overrides: Mapping[str, Sequence[Any]],
    service: Service,
    callers: Callers,
    region: str,
) -> Comparison:
    """Replay the trace of calls with each combination of `overrides`; all other scaling settings are the catalog's.

    A progress bar is drawn on a terminal.
    """
    combinations = rules_of(catalog, overrides)
    prices, instance_type = load_prices(), catalog.endpoint.instance_type
    price = prices.find(region, instance_type)
    if note := price_note(price, region, instance_type, today()):
        console.print_warning(note)
    shown = track(combinations, "Replaying", console=console.err, transient=True)
    outcomes = list(replay_all(trace, shown, service, callers=callers))
    return Comparison(
        trace=trace,
        service=service,
        instance_type=instance_type,
        region=region,
        price=price,
        swept=[name for name, values in overrides.items() if len(values) > 1],
        results=marked(outcomes),
    )


def _show(found: Comparison, *, html: Path | None, as_json: bool) -> None:
    if html is not None:
        console.write_page(html, page(found))
    if as_json:
        console.print_json(as_data(found))
        return
    for title, columns, rows in tables(found):
        console.print_table(title, columns, rows)
    star = ("* Pareto-optimal: no other line is cheaper and serves more calls at once.",) if found.swept else ()
    console.out.print(Text("\n".join([*star, *notes(found)])), soft_wrap=True)


def _values(name: str, text: str) -> list[Any]:
    """Return the converted values of a list option such as "5,15", without repetitions, in the given order."""
    convert = _CONVERTERS.get(name, int)
    try:
        return list(dict.fromkeys(convert(part.strip()) for part in text.split(",")))
    except ValueError as error:
        kind = {"target": "numbers", "idle_minutes": "whole numbers, or none"}.get(name, "whole numbers")
        option = f"--{name.replace('_', '-')}"
        raise SimulationError(
            "list-invalid", option, f"got {text!r}", allowed=f"{kind}, with commas between", fix=f"write {option} 5,15"
        ) from error


_CONVERTERS: Mapping[str, Callable[[str], Any]] = {
    "metric": str,
    "target": float,
    "idle_minutes": lambda part: None if part == "none" else int(part),
}
