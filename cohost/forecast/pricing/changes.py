"""Costs of a deployed stack next to those of a catalog, for `cohost diff` and the stack's outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cohost.catalog.serving import instance_bounds, instances_for
from cohost.endpoint.stack_outputs import describe_stack, outputs_of
from cohost.errors import MissingStackError
from cohost.forecast.pricing.designs import cost_of, design_of, idle_tail_hours
from cohost.forecast.pricing.price_list import UNKNOWN, bill_for, money
from cohost.forecast.pricing.running_hours import Service

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mypy_boto3_cloudformation import CloudFormationClient

    from cohost.catalog.models import Catalog
    from cohost.forecast.pricing.price_list import Price, PriceList


PER_HOUR: Final = "CostPerHourUsd"
PER_MONTH: Final = "CostPerMonthUsd"
PER_MILLION: Final = "CostPerMillionUsd"
FIRST_DEPLOY: Final = "CostFirstDeployUsd"
NAMES: Final = (PER_HOUR, PER_MONTH, PER_MILLION, FIRST_DEPLOY)

START_HOURS: Final = Service().growth_s / 3600
"""Hours from the decision to start a copy to its first answer."""


@dataclass(frozen=True, kw_only=True)
class CostLine:
    """One cost output of the stack: its value as text, and the source of its figures."""

    value: str
    description: str


def planned_costs(catalog: Catalog, prices: PriceList, region: str) -> dict[str, CostLine]:
    """Return the cost outputs of a catalog's stack by name; an unknown cost is "unknown" with the reason.

    An endpoint that scales to zero has one more: the cost of creating it, since that always starts a copy.
    """
    endpoint = catalog.endpoint
    least, most = instance_bounds(catalog)
    bill = bill_for(prices, region, endpoint.instance_type, least=least, most=most)
    design = design_of(catalog)
    cost = cost_of(design, prices, region)
    origin = f"{endpoint.instance_type} in {region}: {bill.price or 'no price known'}"
    count = f"{bill.least}" if bill.least == bill.most else f"{bill.least} to {bill.most}"
    per_second = "" if design.items_per_second is None else f"{design.items_per_second:g} items/s, "
    used = "730 hours, called or not" if least else "730 hours, from never called to all the time"
    lines = {
        PER_HOUR: CostLine(value=money(bill.per_hour, 3), description=f"{count} x {origin}"),
        PER_MONTH: CostLine(value=money(bill.per_month), description=f"{used}; {count} x {origin}"),
        PER_MILLION: CostLine(
            value=money(cost.per_million), description=f"at full load, {per_second}{design.source}; {origin}"
        ),
    }
    return lines if least else {**lines, FIRST_DEPLOY: _first_deploy(catalog, bill.price, origin)}


def _first_deploy(catalog: Catalog, price: Price | None, origin: str) -> CostLine:
    """Return the cost of starting the first copies and of their idle time, if no call comes, until they are removed."""
    endpoint = catalog.endpoint
    instances = instances_for(endpoint.copy_count, endpoint.instance_type)
    hours = START_HOURS + idle_tail_hours(catalog.scaling)
    return CostLine(
        value=money(None if price is None else instances * price.usd_per_hour * hours),
        description=f"new or changed models run {instances} for {hours * 60:.0f} minutes, uncalled; {origin}",
    )


def deployed_costs(cloudformation: CloudFormationClient, stack_name: str) -> dict[str, str]:
    """Return the cost outputs of a deployed stack; empty if there is no such stack yet.

    Raises:
        StackError: CloudFormation refuses, or cannot be reached.
    """
    try:
        outputs = outputs_of(describe_stack(cloudformation, stack_name))
    except MissingStackError:
        return {}
    return {name: outputs[name] for name in NAMES if name in outputs}


def cost_changes(before: Mapping[str, str], after: Mapping[str, CostLine]) -> list[tuple[str, str, str, str]]:
    """Return a row per cost: its name, the value now, the value after, and the difference if both are known."""
    rows = []
    for name, line in after.items():
        now = before.get(name, "not deployed")
        rows.append((name, now, line.value, _difference(now, line.value)))
    return rows


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in GitHub's Markdown; a bar within a value is escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    cells = [["-" if value is None else str(value).replace("|", "\\|") for value in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _difference(before: str, after: str) -> str:
    """Return the change of the upper bound, with its sign."""
    try:
        change = _most(after) - _most(before)
    except ValueError:
        return UNKNOWN
    return f"{change:+.2f}" if change else "none"


def _most(text: str) -> float:
    return float(text.rpartition("..")[2])
