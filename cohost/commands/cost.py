"""The subcommands about costs: `cohost cost`, `cohost diff` and `cohost prices refresh`."""

from __future__ import annotations

import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import boto3
import typer
from rich.text import Text

from cohost.catalog.serving import instance_bounds
from cohost.commands import console
from cohost.commands.options import DEFAULT_CATALOG, CatalogOption, JsonOption, StackOption, load_with_warnings
from cohost.commands.plan import RegionOption
from cohost.deploy.cdk import cdk_command
from cohost.endpoint.stack_outputs import DEFAULT_REGION, DEFAULT_STACK
from cohost.errors import StackError
from cohost.forecast.pricing.changes import cost_changes, deployed_costs, planned_costs
from cohost.forecast.pricing.designs import HOURS_PER_DAY, compare
from cohost.forecast.pricing.price_list import (
    API_REGION,
    bill_for,
    fetch_prices,
    load_prices,
    money,
    price_note,
    prices_path,
    today,
    with_region,
    write_prices,
)
from cohost.hardware.instances import INSTANCES
from cohost.report.formats import markdown_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cohost.forecast.pricing.designs import DesignCost
    from cohost.forecast.pricing.price_list import Bill

_COLUMNS = ("design", "USD/hour", "USD/month", "USD per 1M", "with idle")

_NOT_COUNTED = "Not counted: bucket, function, logs and data transfer, together cents. USD per 1M is at full load."

prices_app = typer.Typer(help="The price list of instances, which the commands about costs read.", no_args_is_help=True)


def cost(
    catalog: CatalogOption = DEFAULT_CATALOG,
    region: RegionOption = DEFAULT_REGION,
    busy_hours: Annotated[
        float, typer.Option("--busy-hours", help="The hours with load per day, above 0 and up to 24.")
    ] = HOURS_PER_DAY,
    report: Annotated[
        list[Path] | None,
        typer.Option(
            "--report",
            help="A JSON report with measured items per second; may be repeated.",
        ),
    ] = None,
    max_monthly: Annotated[
        float | None,
        typer.Option("--max-monthly", min=0, help="End with exit code 2 above this cost in USD per month."),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the cost as a Markdown table for a pull request.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the cost of the catalog and of other designs: per hour, per month, per million items.

    With --max-monthly, an unknown price counts as over the budget.

    Example: cohost cost --busy-hours 8 --max-monthly 1100
    """
    loaded = load_with_warnings(catalog).catalog
    prices = load_prices()
    endpoint = loaded.endpoint
    least, most = instance_bounds(loaded)
    bill = bill_for(prices, region, endpoint.instance_type, least=least, most=most)
    costs = compare(loaded, prices, region, busy_hours=busy_hours, reports=report or ())
    if note := price_note(bill.price, region, endpoint.instance_type, today()):
        console.print_warning(note)
    if as_json:
        console.print_json({"region": region, "busy_hours": busy_hours, "designs": [_as_data(one) for one in costs]})
    elif markdown:
        lines = [markdown_table(_COLUMNS, map(_row, costs)), "", *(f"- {_origin(one)}" for one in costs)]
        console.out.print(Text("\n".join(lines)), soft_wrap=True)
    else:
        console.print_table(f"Costs in {region}, {busy_hours:g} busy hours a day", _COLUMNS, map(_row, costs))
        console.out.print(Text("\n".join([*map(_origin, costs), _NOT_COUNTED])), soft_wrap=True)
    _hold_to_budget(bill, max_monthly)


def diff(
    stack: StackOption = DEFAULT_STACK,
    catalog: CatalogOption = DEFAULT_CATALOG,
    region: RegionOption = DEFAULT_REGION,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the costs as a Markdown table for a pull request.")
    ] = False,
) -> None:
    """Run `cdk diff`, then show the effect of the change on the bill.

    Example: cohost diff --catalog model_configs/encoders.yaml
    """
    loaded = load_with_warnings(catalog).catalog
    after = planned_costs(loaded, load_prices(), region)
    before = deployed_costs(boto3.client("cloudformation", region_name=region), stack)
    ended = subprocess.run(  # noqa: S603 - the cdk command of this project
        cdk_command("diff", stack, catalog=catalog), check=False
    ).returncode
    rows = cost_changes(before, after)
    columns = ("cost", "now", "after", "change")
    if markdown:
        console.out.print(Text(markdown_table(columns, rows)), soft_wrap=True)
    else:
        console.print_table(f"What {stack} costs in {region}, USD", columns, rows)
    if ended:
        raise StackError(
            "cdk-failed",
            f"stack {stack}",
            f"cdk diff ended with exit code {ended}",
            fix="correct the fault that it printed",
        )


@prices_app.command("refresh")
def refresh(
    region: Annotated[
        list[str] | None, typer.Option("--region", help="A region whose prices are updated; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write (default: the price list in use).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Update the price list from the AWS Pricing API, which needs the right pricing:GetProducts.

    Example: cohost prices refresh --region us-east-1 --region eu-central-1
    """
    prices = load_prices()
    client = boto3.client("pricing", region_name=API_REGION)
    for name in region or list(prices.regions):
        fetched = fetch_prices(client, name, day=today(), instance_types=INSTANCES)
        prices = with_region(prices, name, fetched)
        console.err.print(Text(f"{name}: {len(fetched)} prices"), soft_wrap=True)
    path = out or prices_path()
    write_prices(path, prices)
    if as_json:
        console.print_json(prices.model_dump(mode="json"))
    else:
        console.out.print(Text(f"written: {path}"), soft_wrap=True)


def _hold_to_budget(bill: Bill, max_monthly: float | None) -> None:
    if max_monthly is None:
        return
    month = bill.per_month
    if month is not None and month[1] <= max_monthly:
        return
    console.print_fault(
        f"--max-monthly: {bill.most} x {bill.instance_type} in {bill.region} cost {money(month)} USD a month; "
        f"allowed: {money(max_monthly)}; fix: a cheaper instance_type, fewer instances, or a larger budget"
    )
    raise typer.Exit(console.EXIT_OVER_BUDGET)


def _row(one: DesignCost) -> Sequence[object]:
    return (
        *(one.design.name, money(one.per_hour, 3), money(one.per_month)),
        *(money(one.per_million), money(one.per_million_busy)),
    )


def _origin(one: DesignCost) -> str:
    """Return a line about the source of a design's figures: instances, measured rate and price."""
    design = one.design
    instance = f"{design.instances} x {design.instance_type or 'an unrecorded instance type'}"
    rate = "" if design.items_per_second is None else f"{design.items_per_second:g} items/s, "
    price = f"price: {one.price}" if one.price else "price: unknown"
    return f"{design.name}: {instance}, {rate}{design.source}; {price}"


def _as_data(one: DesignCost) -> dict[str, object]:
    data = asdict(one)
    price = one.price.model_dump(mode="json") if one.price else None
    design = {key: value for key, value in data.pop("design").items() if key != "price"}
    return {**design, **data, "price": price}
