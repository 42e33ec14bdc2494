"""Whether the price is known, and within the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cohost.preflight.finding import Finding, failed, passed, unknown
from cohost.pricing import bill_for, money
from cohost.scaling.instance_bounds import instance_bounds

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog
    from cohost.pricing import PriceList

PRICE: Final = "price"


def check_price(catalog: Catalog, prices: PriceList, region: str) -> Finding:
    """Hold the bill of the most instances against the catalog's budget, where it states one."""
    least, most = instance_bounds(catalog)
    bill = bill_for(prices, region, catalog.endpoint.instance_type, least=least, most=most)
    if (month := bill.per_month) is None:
        fix = f"fix: cohost prices refresh --region {region}"
        return unknown(PRICE, f"no price of {bill.instance_type} in {region} is known; {fix}")
    text = f"{money(bill.per_hour, 3)} USD an hour, {money(month)} USD a month"
    if catalog.budget is None:
        return passed(PRICE, f"{text}; the catalog states no budget")
    limit = catalog.budget.monthly_usd
    if month[1] > limit:
        fix = "a cheaper instance_type, fewer instances, or a larger budget.monthly_usd"
        return failed(PRICE, f"{text}; allowed: {money(limit)} USD a month; fix: {fix}")
    return passed(PRICE, f"{text}, within the budget of {money(limit)}")
