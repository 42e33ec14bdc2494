"""Compute the costs of designs, which are alternative ways to serve the encoders, from their measured rates.

The rates in `DESIGNS` were published by others: items per second at batch 8, measured in 2026-08 in us-east-1 on an
earlier system, with three multilingual encoders and texts of 512 tokens. The models' revisions, the dtype, the workers
and the image were not published, and two of the three model ids are inferred, so these rates are never used as the rate
of a catalog. The CPU design's instance type was not published; its price follows from its published cost and rate: 4.20
USD per million items x 27 items/s x 3600 s / 1e6 = 0.408 USD per hour, which third-party copies of the price list give
for ml.c5.2xlarge (8 vCPUs).

The design on GPU partitions has no rate, because nobody has measured it. The instance type of that design, with eight
GPUs, is the one in AWS's own example.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cohost.catalog.serving import instance_bounds
from cohost.errors import PriceError
from cohost.forecast.pricing.measured import (
    HOW_TO_MEASURE,
    MOST_DIFFERENCES,
    differences,
    recorded_lengths,
    recorded_setup,
    setup_of,
)
from cohost.forecast.pricing.price_list import DAYS_PER_MONTH, HOURS_PER_MONTH, Price
from cohost.forecast.pricing.running_hours import PUBLISHED_INSTANCE_TAIL_S, Service
from cohost.report.formats import usd_per_million

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cohost.catalog.models import Catalog
    from cohost.catalog.sections.scaling import Scaling
    from cohost.forecast.pricing.measured import Setup
    from cohost.forecast.pricing.price_list import PriceList


PUBLISHED: Final = "published by others (2026-08, an earlier system, three encoders, batch 8, 512 tokens)"
HOURS_PER_DAY: Final = 24.0

INSTANCE_TAIL_HOURS: Final = PUBLISHED_INSTANCE_TAIL_S / 3600
SCALE_IN_TAIL_HOURS: Final = Service().tail_s("concurrency") / 3600 + INSTANCE_TAIL_HOURS
"""Hours that an endpoint is billed after its last call: until its last copy is removed and the instance is gone."""

CPU_PRICE: Final = Price(usd_per_hour=0.408, date=dt.date(2026, 8, 1), source="solved from the published cost and rate")


@dataclass(frozen=True, kw_only=True)
class Design:
    """A way to serve the encoders: instances of one type, and one instance's items per second (None if not measured).

    `source` says who measured the rate, when, and how. `setup` is the setup of the load test that measured the rate;
    None for a rate from elsewhere. `price`, if set, is used instead of the price list, for a design whose instance type
    is not known. If `scales_to_zero`, each day is billed for its busy hours and for the `idle_tail_hours` after them.
    """

    name: str
    instance_type: str | None
    items_per_second: float | None
    source: str
    setup: Setup | None = None
    instances: int = 1
    price: Price | None = None
    scales_to_zero: bool = False
    idle_tail_hours: float = SCALE_IN_TAIL_HOURS


@dataclass(frozen=True, kw_only=True)
class DesignCost:
    """The cost of a design in USD; None if it is unknown.

    `per_million` is the cost of a million items if the load is full all day; `per_million_busy` is that cost if the
    load is full only in the busy hours of each day.
    """

    design: Design
    price: Price | None
    per_hour: float | None
    per_month: float | None
    per_million: float | None
    per_million_busy: float | None


ONE_ENDPOINT: Final = Design(
    name="04 co-hosted on one GPU",
    instance_type="ml.g5.xlarge",
    items_per_second=104,
    source=PUBLISHED,
)
COMPONENTS: Final = Design(
    name="03 one component a model",
    instance_type="ml.g6.12xlarge",
    items_per_second=78,
    source=PUBLISHED,
)
PARTITIONS: Final = Design(
    name="03 on partitions of one card",
    instance_type="ml.p4d.24xlarge",
    items_per_second=None,
    source="never measured; only on cards with MIG (A100, H100, H200), not on ml.g5, ml.g6 or ml.g6e",
)
CPU_ONNX: Final = Design(
    name="02 CPU and ONNX",
    instance_type=None,
    items_per_second=27,
    source=PUBLISHED,
    price=CPU_PRICE,
)
SCALE_TO_ZERO: Final = Design(
    name="04 scaled to zero",
    instance_type="ml.g5.xlarge",
    items_per_second=104,
    source=f"rate of 04, {PUBLISHED}",
    scales_to_zero=True,
)
DESIGNS: Final = (ONE_ENDPOINT, COMPONENTS, PARTITIONS, CPU_ONNX, SCALE_TO_ZERO)


def design_of(catalog: Catalog, measured: Sequence[Design] = ()) -> Design:
    """Return the catalog's own design, with the rate of the first design in `measured` that has the same setup.

    For a catalog with scaling, the number of instances is scaling's minimum, but at least one, because calls need an
    instance.
    """
    least, _ = instance_bounds(catalog)
    own = setup_of(catalog)
    like = next((one for one in measured if one.setup is not None and not differences(own, one.setup)), None)
    return Design(
        name="this catalog",
        instance_type=catalog.endpoint.instance_type,
        instances=max(least, 1),
        items_per_second=None if like is None else like.items_per_second,
        source=_why_unknown(own, measured) if like is None else like.source,
        setup=None if like is None else like.setup,
        scales_to_zero=least == 0,
        idle_tail_hours=idle_tail_hours(catalog.scaling),
    )


def _why_unknown(own: Setup, measured: Sequence[Design]) -> str:
    """Return the reason why no measured rate applies to the catalog, and the commands that measure one."""
    found = [(one.name, differences(own, one.setup)) for one in measured if one.setup is not None]
    reasons = [
        f"the run {name!r} differs in {len(texts)} points, such as {', '.join(texts[:MOST_DIFFERENCES])}"
        for name, texts in found
    ]
    return "; ".join(["rate unknown: not measured with this catalog", *reasons, HOW_TO_MEASURE])


def idle_tail_hours(scaling: Scaling | None) -> float:
    """Return the hours that are billed after the last call, until the last copy is removed and its instance is gone."""
    if scaling is None:
        return SCALE_IN_TAIL_HOURS
    given_up_s = Service().tail_s(scaling.metric) if scaling.idle_minutes is None else scaling.idle_minutes * 60
    return given_up_s / 3600 + INSTANCE_TAIL_HOURS


def named_reports() -> list[Design]:
    """Return the designs in the report files that the variable COHOST_REPORTS lists (separated as in PATH).

    Raises:
        PriceError: a file cannot be read.
    """
    paths = filter(None, os.environ.get("COHOST_REPORTS", "").split(os.pathsep))
    return [design for path in paths for design in read_reports(Path(path))]


def read_reports(path: Path) -> list[Design]:
    """Read the designs in a load test's report.json, or the one design in a JSON object of another measurement.

    Each run in a report.json gives one design, with the rate at batch 8 of all models together. Another measurement has
    the keys `items_per_second`, `instance_type` and `measured` (the date).

    Raises:
        PriceError: the file cannot be read, has neither form, or holds a run that is marked as invalid.
    """
    try:
        report: dict[str, Any] = json.loads(path.read_bytes())
        return [_of_run(run, path) for run in report["runs"]] if "runs" in report else [_of_rate(report, path)]
    except OSError as error:
        raise PriceError(
            "report-unreadable", str(path), f"cannot be read ({error.strerror})", fix="name a report that exists"
        ) from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise PriceError(
            "report-invalid",
            str(path),
            f"is not a report ({type(error).__name__}: {error})",
            allowed="the load test's report.json, or a JSON object with items_per_second, instance_type and measured",
            fix="name such a file",
        ) from error


def _of_rate(report: Mapping[str, Any], path: Path) -> Design:
    rate, instance_type, measured = (report[key] for key in ("items_per_second", "instance_type", "measured"))
    if not float(rate) > 0:
        raise PriceError(
            "rate-range", str(path), f"items_per_second is {rate}", allowed="above 0", fix="write the measured rate"
        )
    return Design(
        name=path.stem,
        instance_type=str(instance_type),
        items_per_second=float(rate),
        source=f"as {path.name} states, {measured}",
    )


def _of_run(run: Mapping[str, Any], path: Path) -> Design:
    """Return the design of a load test run, from its first headline, which covers all models and all instances."""
    record, target = run["record"], run["record"]["target"]
    if marks := [mark["message"] for mark in record["marks"] if mark["invalid"]]:
        raise PriceError(
            "run-invalid",
            str(path),
            f"the run {record['label']!r} is invalid: {marks[0]}",
            fix="measure again, or leave the report out",
        )
    instances = int(target["instance_count"] or 1)
    rate = run["headlines"][0]["items_per_s_at_8"] if run["headlines"] else None
    tokens = recorded_lengths(record)
    source = (
        f"measured {dt.datetime.fromtimestamp(record['started'], dt.UTC).date()} by this system's load test "
        f"({path.name}), batch 8, {f'{tokens} tokens' if tokens else 'an unknown number of tokens'} a text"
    )
    if target["emulated"]:
        rate, source = None, "measured on the local AWS emulator, so it is not the rate of an instance type"
    elif rate is None:
        source = "no step at batch 8"
    return Design(
        name=str(record["label"]),
        instance_type=target["instance_type"],
        instances=instances,
        items_per_second=None if rate is None else float(rate) / instances,
        source=source,
        setup=None if rate is None or tokens is None else recorded_setup(record),
    )


def cost_of(design: Design, prices: PriceList, region: str, *, busy_hours: float = HOURS_PER_DAY) -> DesignCost:
    """Return the cost of a design in a region if the design serves calls for `busy_hours` of each day.

    Raises:
        PriceError: `busy_hours` is not above 0 and up to 24.
    """
    if not 0 < busy_hours <= HOURS_PER_DAY:
        raise PriceError(
            "hours-range",
            "--busy-hours",
            f"got {busy_hours:g}",
            allowed="above 0 and up to 24",
            fix="write for example 8",
        )
    price = design.price or (prices.find(region, design.instance_type) if design.instance_type else None)
    hour = None if price is None else design.instances * price.usd_per_hour
    month = None if hour is None else hour * _billed_hours(design, busy_hours)
    busy_hour = None if month is None else month / (busy_hours * DAYS_PER_MONTH)
    rate = None if design.items_per_second is None else design.instances * design.items_per_second
    return DesignCost(
        design=design,
        price=price,
        per_hour=hour,
        per_month=month,
        per_million=usd_per_million(hour, rate),
        per_million_busy=usd_per_million(busy_hour, rate),
    )


def compare(
    catalog: Catalog, prices: PriceList, region: str, *, busy_hours: float, reports: Sequence[Path] = ()
) -> list[DesignCost]:
    """Return the costs of the catalog's design, then of the published designs, then of the designs in report files.

    Raises:
        PriceError: `busy_hours` is out of range or a report cannot be read.
    """
    measured = [*named_reports(), *chain.from_iterable(map(read_reports, reports))]
    designs = [design_of(catalog, measured), *DESIGNS, *measured]
    return [cost_of(design, prices, region, busy_hours=busy_hours) for design in designs]


def _billed_hours(design: Design, busy_hours: float) -> float:
    """Return one instance's billed hours per month; if scaled to zero, only busy hours and idle tails count."""
    if not design.scales_to_zero:
        return HOURS_PER_MONTH
    return min(busy_hours + design.idle_tail_hours, HOURS_PER_DAY) * DAYS_PER_MONTH
