"""Read instance prices from a dated snapshot, refresh them from AWS, and compute bills from them.

An unknown price is None in the code and "unknown" to the user, never 0. Amounts are on-demand prices in USD before tax.
Prices come from the AWS Pricing API (GetProducts), which is called only when a user refreshes them. The query asks for
service AmazonSageMaker, product family "ML Instance", the region's code, and "Hosting" as the kind of instance (AWS:
Price List Query API). Only a few regions, such as us-east-1, have an endpoint of this API; each returns the prices of
all regions.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cohost.errors import PriceError
from cohost.report.formats import UNKNOWN
from cohost.waiting import now

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import date


HOURS_PER_MONTH: Final = 730.0
"""A twelfth of a year's hours, the same as in AWS's own calculator."""

DAYS_PER_MONTH: Final = HOURS_PER_MONTH / 24
STALE_AFTER: Final = dt.timedelta(days=180)
_SNAPSHOT: Final = Path(__file__).with_name("sagemaker_hosting.json")


class Price(BaseModel):
    """The price of one instance type in one region, with the day on which it was read, and its source."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    usd_per_hour: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    date: dt.date
    source: str

    def is_stale(self, today: dt.date) -> bool:
        """Return True if the price is older than 180 days."""
        return today - self.date > STALE_AFTER

    def __str__(self) -> str:
        """Return the source and the day of the price as text."""
        return f"{self.source}, {self.date}"


class PriceList(BaseModel):
    """A price list, with prices by region and instance type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    service: str
    unit: str
    regions: dict[str, dict[str, Price]]

    def find(self, region: str, instance_type: str) -> Price | None:
        """Return the price of an instance type in a region; None if the list does not have it."""
        return self.regions.get(region, {}).get(instance_type)


def prices_path() -> Path:
    """Return the price list's path: the variable COHOST_PRICES, else the snapshot that this version contains."""
    return Path(os.environ.get("COHOST_PRICES") or _SNAPSHOT)


def load_prices(path: Path | None = None) -> PriceList:
    """Read a price list; if `path` is None, read that of `prices_path()`.

    Raises:
        PriceError: the file cannot be read or has faults.
    """
    file = prices_path() if path is None else path
    try:
        return PriceList.model_validate_json(file.read_bytes())
    except OSError as error:
        raise PriceError(
            "price-list-unreadable", str(file), f"cannot be read ({error.strerror})", fix="cohost prices refresh"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise PriceError("price-list-invalid", str(file), problem, fix="cohost prices refresh") from error


def write_prices(path: Path, prices: PriceList) -> None:
    """Write a sorted price list, one line per price, so that a price change shows as one line in a review.

    Raises:
        PriceError: the file cannot be written.
    """
    regions = ",\n".join(
        f"    {json.dumps(region)}: {{\n"
        + ",\n".join(f"      {json.dumps(name)}: {json.dumps(price)}" for name, price in sorted(found.items()))
        + "\n    }"
        for region, found in sorted(prices.model_dump(mode="json")["regions"].items())
    )
    head = f'  "service": {json.dumps(prices.service)},\n  "unit": {json.dumps(prices.unit)},\n'
    try:
        path.write_text(f'{{\n{head}  "regions": {{\n{regions}\n  }}\n}}\n', encoding="utf-8")
    except OSError as error:
        raise PriceError(
            "price-list-unwritable", str(path), f"cannot be written ({error.strerror})", fix="name another file: --out"
        ) from error


@dataclass(frozen=True, kw_only=True)
class Bill:
    """The bill for at least `least` and at most `most` instances of one type. `price` is None if it is unknown."""

    instance_type: str
    region: str
    least: int
    most: int
    price: Price | None

    @property
    def per_hour(self) -> tuple[float, float] | None:
        """Return the cost in USD per hour with the fewest and with the most instances; None if the price is unknown."""
        if self.price is None:
            return None
        return self.least * self.price.usd_per_hour, self.most * self.price.usd_per_hour

    @property
    def per_month(self) -> tuple[float, float] | None:
        """Return the cost in USD of 730 hours with the fewest and with the most instances, whether called or not."""
        hour = self.per_hour
        return None if hour is None else (hour[0] * HOURS_PER_MONTH, hour[1] * HOURS_PER_MONTH)


def bill_for(prices: PriceList, region: str, instance_type: str, *, least: int, most: int | None = None) -> Bill:
    """Return the bill for `least` to `most` instances of a type in a region; if `most` is None, for exactly `least`."""
    return Bill(
        instance_type=instance_type,
        region=region,
        least=least,
        most=least if most is None else most,
        price=prices.find(region, instance_type),
    )


def money(amounts: tuple[float, float] | float | None, digits: int = 2) -> str:
    """Return an amount or a range of amounts as text; "unknown" for None."""
    if amounts is None:
        return UNKNOWN
    least, most = amounts if isinstance(amounts, tuple) else (amounts, amounts)
    low, high = f"{least:.{digits}f}", f"{most:.{digits}f}"
    return low if low == high else f"{low}..{high}"


def today() -> dt.date:
    """Return the day from which the age of prices is counted: SOURCE_DATE_EPOCH (for repeatable builds), else today."""
    return now().date()


def price_note(price: Price | None, region: str, instance_type: str, day: dt.date) -> str | None:
    """Return a warning if the price is missing or over 180 days old; None otherwise."""
    refresh = f"cohost prices refresh --region {region}"
    if price is None:
        return f"no price of {instance_type} in {region} is known to this version; fix: {refresh}"
    if price.is_stale(day):
        return f"the price of {instance_type} in {region} is of {price.date}, over 180 days old; fix: {refresh}"
    return None


API_REGION: Final = "us-east-1"
SOURCE: Final = "AWS Pricing API"
_SERVICE: Final = "AmazonSageMaker"
_PAGE: Final = 100
_UNITS: Final = frozenset({"Hrs", "hours", "Hours"})


def fetch_prices(client: Any, region: str, *, day: date, instance_types: Iterable[str]) -> dict[str, Price]:
    """Return a region's hosting prices by instance type, for those of the given types that the region offers.

    `client` is boto3's client of the service "pricing".

    Raises:
        PriceError: the API's answer has an unknown form, or has two different prices of one type.
    """
    wanted = frozenset(instance_types)
    found: dict[str, float] = {}
    for product in _products(client, region):
        name = product["product"]["attributes"].get("instanceName", "")
        amount = _amount(product)
        if name not in wanted or amount is None:
            continue
        if found.setdefault(name, amount) != amount:
            raise PriceError(
                "price-ambiguous",
                f"{name} in {region}",
                f"has two prices in the Pricing API, {found[name]:g} and {amount:g}",
                fix="write the one that you pay into the price list",
            )
    return {name: Price(usd_per_hour=amount, date=day, source=SOURCE) for name, amount in sorted(found.items())}


def with_region(prices: PriceList, region: str, fetched: Mapping[str, Price]) -> PriceList:
    """Return a price list with a region's fetched prices; an instance type that was not fetched keeps its price.

    Raises:
        PriceError: nothing was fetched, so the list is unchanged.
    """
    if not fetched:
        raise PriceError(
            "region-unpriced", "--region", f"the Pricing API has no hosting prices of {region!r}", fix="check its name"
        )
    merged = {**prices.regions.get(region, {}), **fetched}
    return prices.model_copy(update={"regions": {**prices.regions, region: merged}})


def _products(client: Any, region: str) -> Iterator[Mapping[str, Any]]:
    filters = {"productFamily": "ML Instance", "regionCode": region, "platoinstancetype": "Hosting"}
    pages = client.get_paginator("get_products").paginate(
        ServiceCode=_SERVICE,
        Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in filters.items()],
        PaginationConfig={"PageSize": _PAGE},
    )
    for page in pages:
        yield from map(_product, page.get("PriceList", ()))


def _product(text: str) -> Mapping[str, Any]:
    try:
        product: Mapping[str, Any] = json.loads(text)
        _ = product["product"]["attributes"]
    except (ValueError, KeyError, TypeError) as error:
        raise PriceError(
            "product-unknown", "Pricing API", "answered with a product of unknown form", fix="edit the price list"
        ) from error
    return product


def _amount(product: Mapping[str, Any]) -> float | None:
    """Return a product's on-demand price in USD per hour; None if the product is free or not sold by the hour."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            usd = dimension.get("pricePerUnit", {}).get("USD")
            if usd is not None and dimension.get("unit") in _UNITS and float(usd) > 0:
                return float(usd)
    return None
