"""Compare a deployed stack's costs with a catalog's costs, for `cohost diff` and the stack's outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cohost.catalog.serving import instance_bounds, instances_for
from cohost.endpoint.stack_outputs import describe_stack, outputs_of
from cohost.errors import MissingStackError
from cohost.forecast.pricing.designs import design_of, named_reports
from cohost.forecast.pricing.price_list import HOURS_PER_MONTH, money
from cohost.forecast.pricing.running_hours import Service
from cohost.report.formats import UNKNOWN, usd_per_million

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_cloudformation import CloudFormationClient

    from cohost.catalog.models import Catalog
    from cohost.forecast.pricing.price_list import PriceList


PER_HOUR: Final = "CostPerHourUsd"
PER_MONTH: Final = "CostPerMonthUsd"
PER_MILLION: Final = "CostPerMillionUsd"
FIRST_DEPLOY: Final = "CostFirstDeployUsd"
NAMES: Final = (PER_HOUR, PER_MONTH, PER_MILLION, FIRST_DEPLOY)

START_HOURS: Final = Service().growth_s / 3600
"""Hours from the decision to start a copy of the inference component until the copy answers."""


@dataclass(frozen=True, kw_only=True)
class CostLine:
    """The value of one cost output of a catalog's stack as text, and a description with the source of its figures."""

    value: str
    description: str


def planned_costs(catalog: Catalog, prices: PriceList, region: str) -> dict[str, CostLine]:
    """Return the cost outputs, by name, that a catalog's stack would have; a cost without a known price is "unknown".

    The cost per million items is unknown unless COHOST_REPORTS names a load test of the same catalog. An endpoint that
    scales to zero has one more output: the cost of its deploy, since a deploy always starts a copy.

    Raises:
        PriceError: a report that COHOST_REPORTS names cannot be read.
    """
    endpoint, design = catalog.endpoint, design_of(catalog, named_reports())
    price = prices.find(region, endpoint.instance_type)
    usd = None if price is None else price.usd_per_hour
    least, most = instance_bounds(catalog)
    origin = f"{endpoint.instance_type} in {region}: {price or 'no price known'}"
    bounds = f"{least} x {origin}" if least == most else f"{least} to {most} x {origin}"
    rate = "" if design.items_per_second is None else f"{design.items_per_second:g} items/s, "
    used = "730 hours, called or not" if least else "730 hours, from never called to all the time"
    started = instances_for(endpoint.copy_count, endpoint.instance_type)
    hours = START_HOURS + design.idle_tail_hours
    lines = {
        PER_HOUR: _line(usd, (least, most), bounds, digits=3),
        PER_MONTH: _line(usd, (least * HOURS_PER_MONTH, most * HOURS_PER_MONTH), f"{used}; {bounds}"),
        PER_MILLION: CostLine(
            value=money(usd_per_million(usd, design.items_per_second)),
            description=f"at full load, {rate}{design.source}; {origin}",
        ),
    }
    if not least:
        # The first copies start and, if no call comes, idle until they are removed.
        what = (
            f"new or changed models run {started} for {hours * 60:.0f} minutes without calls, by times published by "
            f"others; {origin}"
        )
        lines[FIRST_DEPLOY] = _line(usd, (started * hours, started * hours), what)
    return lines


def _line(usd: float | None, times: tuple[float, float], description: str, *, digits: int = 2) -> CostLine:
    amounts = None if usd is None else (usd * times[0], usd * times[1])
    return CostLine(value=money(amounts, digits), description=description)


def deployed_costs(cloudformation: CloudFormationClient, stack_name: str) -> dict[str, str]:
    """Return the cost outputs of a deployed stack by name; empty if the stack does not exist yet.

    Raises:
        StackError: CloudFormation refuses the call, or cannot be reached.
    """
    try:
        outputs = outputs_of(describe_stack(cloudformation, stack_name))
    except MissingStackError:
        return {}
    return {name: outputs[name] for name in NAMES if name in outputs}


def cost_changes(before: Mapping[str, str], after: Mapping[str, CostLine]) -> list[tuple[str, str, str, str]]:
    """Return a row per cost output: its name, the deployed value, the catalog's value, and the difference."""
    rows = []
    for name, line in after.items():
        now = before.get(name, "not deployed")
        rows.append((name, now, line.value, _difference(now, line.value)))
    return rows


def _difference(before: str, after: str) -> str:
    """Return the signed change of a cost's upper bound as text; "unknown" if a cost is not a number."""
    try:
        change = _most(after) - _most(before)
    except ValueError:
        return UNKNOWN
    return f"{change:+.2f}" if change else "none"


def _most(text: str) -> float:
    return float(text.rpartition("..")[2])
