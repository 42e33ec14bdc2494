"""Fetch prices from the AWS Pricing API (GetProducts), which is asked only when a user refreshes.

Query (AWS: Price List Query API): service AmazonSageMaker, product family "ML Instance", the region's code, and
"Hosting" as the kind of instance. The API is served in few regions, us-east-1 among them, for all regions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol

from cohost.pricing import Price, PriceError, PriceList

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import date

API_REGION: Final = "us-east-1"
SOURCE: Final = "AWS Pricing API"
_SERVICE: Final = "AmazonSageMaker"
_PAGE: Final = 100
_UNITS: Final = frozenset({"Hrs", "hours", "Hours"})


class PricingClient(Protocol):
    """What is asked of boto3's `pricing` client."""

    def get_products(self, **parameters: Any) -> Mapping[str, Any]:  # noqa: ANN401 - boto3's own
        """One page of products."""


def fetch_prices(client: PricingClient, region: str, *, day: date, instance_types: Iterable[str]) -> dict[str, Price]:
    """The hosting prices of a region, of those instance types that it has.

    Raises:
        PriceError: the API answers in a form that is not known here, or twice with different prices.
    """
    wanted = frozenset(instance_types)
    found: dict[str, float] = {}
    for product in _products(client, region):
        name = product["product"]["attributes"].get("instanceName", "")
        amount = _amount(product)
        if name not in wanted or amount is None:
            continue
        if found.setdefault(name, amount) != amount:
            raise PriceError(f"{region}: the Pricing API names two prices of {name}, {found[name]} and {amount}")
    return {name: Price(usd_per_hour=amount, date=day, source=SOURCE) for name, amount in sorted(found.items())}


def with_region(prices: PriceList, region: str, fetched: Mapping[str, Price]) -> PriceList:
    """The list with a region's prices renewed; a type that was not fetched keeps the price it had.

    Raises:
        PriceError: nothing was fetched, which is no reason to touch the list.
    """
    if not fetched:
        raise PriceError(f"region: the Pricing API has no hosting prices for {region!r}; fix: check the region's name")
    merged = {**prices.regions.get(region, {}), **fetched}
    return prices.model_copy(update={"regions": {**prices.regions, region: merged}})


def _products(client: PricingClient, region: str) -> Iterator[Mapping[str, Any]]:
    filters = {"productFamily": "ML Instance", "regionCode": region, "platoinstancetype": "Hosting"}
    parameters: dict[str, Any] = {
        "ServiceCode": _SERVICE,
        "Filters": [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in filters.items()],
        "MaxResults": _PAGE,
    }
    while True:
        page = client.get_products(**parameters)
        for text in page.get("PriceList", ()):
            yield _product(text)
        token = page.get("NextToken")
        if not token:
            return
        parameters["NextToken"] = token


def _product(text: str) -> Mapping[str, Any]:
    try:
        product: Mapping[str, Any] = json.loads(text)
        _ = product["product"]["attributes"]
    except (ValueError, KeyError, TypeError) as error:
        raise PriceError(
            "the Pricing API answered with a product of an unknown form; fix: edit the prices file by hand"
        ) from error
    return product


def _amount(product: Mapping[str, Any]) -> float | None:
    """USD per hour of a product's on-demand terms; None for one that is not sold by the hour, or is free."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            usd = dimension.get("pricePerUnit", {}).get("USD")
            if usd is not None and dimension.get("unit") in _UNITS and float(usd) > 0:
                return float(usd)
    return None
