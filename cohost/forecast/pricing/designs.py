"""Designs, which are ways to serve the encoders, with their measured rates and costs per million items.

Rates are items per second at batch 8 with the three multilingual encoders, texts of 512 tokens, us-east-1, 2026-08. The
CPU design's instance type was not recorded; its price follows from its measured cost and rate: 4.20 USD per million
items x 27 items/s x 3600 s / 1e6 = 0.408 USD per hour, which third-party copies of the price list give for
ml.c5.2xlarge (8 vCPUs). The design on GPU partitions is the exception: nobody has measured it, and its instance type
is the one of AWS's own example, with eight cards.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from cohost.catalog.serving import instance_bounds
from cohost.errors import PriceError
from cohost.forecast.pricing.price_list import DAYS_PER_MONTH, HOURS_PER_MONTH, Price
from cohost.forecast.pricing.running_hours import MEASURED_INSTANCE_TAIL_S, Service
from cohost.report.formats import usd_per_million
from cohost.routing import MULTI_MODEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cohost.catalog.models import Catalog
    from cohost.catalog.sections.scaling import Scaling
    from cohost.forecast.pricing.price_list import PriceList


MEASURED: Final = "2026-08"
HOURS_PER_DAY: Final = 24.0

INSTANCE_TAIL_HOURS: Final = MEASURED_INSTANCE_TAIL_S / 3600
SCALE_IN_TAIL_HOURS: Final = Service().tail_s("concurrency") / 3600 + INSTANCE_TAIL_HOURS
"""Hours that an endpoint is billed after its last call: until its last copy is removed and the instance is gone."""

CPU_PRICE: Final = Price(usd_per_hour=0.408, date=dt.date(2026, 8, 1), source="solved from the measured cost and rate")


@dataclass(frozen=True, kw_only=True)
class Design:
    """A design: instances of one type, and the items per second of one instance (None if not measured).

    `price`, if set, replaces the price list, for a design whose instance type is not known. With `scales_to_zero` a day
    is billed for its busy hours and for `idle_tail_hours` after them.
    """

    name: str
    instance_type: str | None
    items_per_second: float | None
    source: str
    instances: int = 1
    price: Price | None = None
    scales_to_zero: bool = False
    idle_tail_hours: float = SCALE_IN_TAIL_HOURS


@dataclass(frozen=True, kw_only=True)
class DesignCost:
    """The cost of a design in USD; None is unknown.

    `per_million` is the cost of a million items at full load all day, `per_million_busy` at full load in the busy hours
    of each day only.
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
    source=f"measured {MEASURED}, batch 8",
)
COMPONENTS: Final = Design(
    name="03 one component a model",
    instance_type="ml.g6.12xlarge",
    items_per_second=78,
    source=f"measured {MEASURED}, batch 8",
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
    source=f"measured {MEASURED}, batch 8",
    price=CPU_PRICE,
)
SCALE_TO_ZERO: Final = Design(
    name="04 scaled to zero",
    instance_type="ml.g5.xlarge",
    items_per_second=104,
    source=f"rate of 04, measured {MEASURED}, batch 8",
    scales_to_zero=True,
)
DESIGNS: Final = (ONE_ENDPOINT, COMPONENTS, PARTITIONS, CPU_ONNX, SCALE_TO_ZERO)

MEASURED_MODELS: Final = frozenset(
    {
        "MoritzLaurer/mDeBERTa-v3-base-xnli-multilingual-nli-2mil7",
        "MoritzLaurer/multilingual-MiniLMv2-L6-mnli-xnli",
        "joeddav/xlm-roberta-large-xnli",
    }
)


def is_measured(catalog: Catalog) -> bool:
    """Return True if the measured rates apply to the catalog's models and instance type."""
    models = {entry.model_id for entry in catalog.models.values()}
    return catalog.endpoint.instance_type == ONE_ENDPOINT.instance_type and models <= MEASURED_MODELS


def design_of(catalog: Catalog) -> Design:
    """Return the catalog's own design; its rate is known only for the measured models and instance type.

    A catalog with scaling counts with its minimum of instances, but with at least one, because an instance must serve
    while there are calls.
    """
    endpoint = catalog.endpoint
    least, _ = instance_bounds(catalog)
    measured = is_measured(catalog)
    # Both topologies run the same container on the same GPU, so they have the same rate.
    like = ONE_ENDPOINT if endpoint.topology == MULTI_MODEL else SCALE_TO_ZERO
    return Design(
        name="this catalog",
        instance_type=endpoint.instance_type,
        instances=max(least, 1),
        items_per_second=like.items_per_second if measured else None,
        source=like.source if measured else "not measured",
        scales_to_zero=least == 0,
        idle_tail_hours=idle_tail_hours(catalog.scaling),
    )


def idle_tail_hours(scaling: Scaling | None) -> float:
    """Return the billed hours after the last call, until the last copy is removed and its instance is gone."""
    if scaling is None:
        return SCALE_IN_TAIL_HOURS
    given_up_s = Service().tail_s(scaling.metric) if scaling.idle_minutes is None else scaling.idle_minutes * 60
    return given_up_s / 3600 + INSTANCE_TAIL_HOURS


def read_reports(path: Path) -> list[Design]:
    """Read the designs of a report file: the report.json of the load test, or one JSON object of another measurement.

    A report.json gives one design per run, with the rate at batch 8 over all models. Another measurement has the keys
    `items_per_second`, `instance_type` and `measured` (the date).

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
        source=f"{path.name}, {measured}",
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
    source = f"{path.name}, {dt.datetime.fromtimestamp(record['started'], dt.UTC).date()}, batch 8"
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
    """Return the costs of the catalog's design, of the measured designs, and of the reports' designs, in this order.

    Raises:
        PriceError: `busy_hours` is out of range or a report cannot be read.
    """
    designs = [design_of(catalog), *DESIGNS, *chain.from_iterable(map(read_reports, reports))]
    return [cost_of(design, prices, region, busy_hours=busy_hours) for design in designs]


def _billed_hours(design: Design, busy_hours: float) -> float:
    """Return the billed hours of one instance per month; a design that scales to zero has one idle tail per day."""
    if not design.scales_to_zero:
        return HOURS_PER_MONTH
    return min(busy_hours + design.idle_tail_hours, HOURS_PER_DAY) * DAYS_PER_MONTH
