"""Prices with a date, and the arithmetic from a price to a bill."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.errors import PriceError
from cohost.forecast.pricing.price_list import (
    Price,
    PriceList,
    bill_for,
    load_prices,
    money,
    price_note,
    today,
    write_prices,
)

if TYPE_CHECKING:
    from pathlib import Path

REGION = "us-east-1"


def price(usd: float, day: str = "2026-08-07") -> Price:
    """A price of that day."""
    return Price(usd_per_hour=usd, date=dt.date.fromisoformat(day), source="test")


def test_snapshot_holds_what_the_pricing_api_gave() -> None:
    """The price list has the two prices that were read from AWS, with the date."""
    prices = load_prices()
    for name, usd in (("ml.g5.xlarge", 1.408), ("ml.g6.12xlarge", 5.752)):
        found = prices.find(REGION, name)
        assert found is not None
        assert (found.usd_per_hour, str(found)) == (usd, "AWS Pricing API, 2026-08-07")


def test_one_to_three_instances_cost_three_times() -> None:
    """Three instances cost three times as much as one."""
    one, three = (bill_for(load_prices(), REGION, "ml.g5.xlarge", least=n) for n in (1, 3))
    assert one.per_hour == (1.408, 1.408)
    assert three.per_hour == pytest.approx((4.224, 4.224))
    assert money(three.per_month) == "3083.52"


def test_range_of_scaling_is_a_range_of_cost() -> None:
    """A scaling range gives a range of costs, from the fewest to the most instances."""
    bill = bill_for(load_prices(), REGION, "ml.g5.xlarge", least=0, most=2)
    assert money(bill.per_hour, 3) == "0.000..2.816"
    assert money(bill.per_month) == "0.00..2055.68"


def test_no_instance_of_a_known_type_is_free() -> None:
    """A count of 0 costs nothing, which is known."""
    assert bill_for(load_prices(), REGION, "ml.g5.xlarge", least=0).per_month == (0.0, 0.0)


@pytest.mark.parametrize(("region", "name"), [(REGION, "ml.g9.xlarge"), ("eu-central-9", "ml.g5.xlarge")])
@pytest.mark.parametrize("count", [0, 1])
def test_missing_type_or_region_is_unknown(region: str, name: str, count: int) -> None:
    """The price of a type or region outside the list is unknown, whatever the count, and never 0."""
    bill = bill_for(load_prices(), region, name, least=count)
    assert bill.per_hour is None
    assert bill.per_month is None
    assert money(bill.per_month) == "unknown"


def test_price_is_old_after_180_days() -> None:
    """A price is old from the 181st day on."""
    found = price(1.0, "2026-01-01")
    assert not found.is_stale(dt.date(2026, 6, 30))
    assert found.is_stale(dt.date(2026, 7, 1))


def test_missing_and_old_prices_are_told_with_the_command() -> None:
    """The note of a missing or old price names the type, the region and the command that updates it."""
    day = dt.date(2027, 6, 1)
    assert "no price of ml.x in r" in (price_note(None, "r", "ml.x", day) or "")
    assert "over 180 days old; fix: cohost prices refresh --region r" in (price_note(price(1), "r", "ml.x", day) or "")
    assert price_note(price(1, "2027-05-31"), "r", "ml.x", day) is None


def test_day_can_be_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """SOURCE_DATE_EPOCH fixes the date of a synth, and an invalid value is ignored."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert today() == dt.date(1970, 1, 1)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    assert today() > dt.date(2026, 1, 1)


def test_list_survives_being_written(tmp_path: Path) -> None:
    """A price list is read back unchanged, with one line per price."""
    path = tmp_path / "prices.json"
    write_prices(path, load_prices())
    assert load_prices(path) == load_prices()
    lines = path.read_text().splitlines()
    assert sum("usd_per_hour" in line for line in lines) == len(load_prices().regions[REGION])


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"{}",
        b'{"service": "", "unit": "", "regions": {"": {"": {"usd_per_hour": 0, "date": "2026-01-01", "source": ""}}}}',
        b'{"service": "s", "unit": "u", "regions": {"r": {"t": {"usd_per_hour": 1, "date": "soon", "source": "s"}}}}',
    ],
)
def test_damaged_list_is_told(tmp_path: Path, content: bytes) -> None:
    """A price list with a price of 0, without a date or without JSON is an error with the fix."""
    path = tmp_path / "prices.json"
    path.write_bytes(content)
    with refused("price-list-invalid", str(path), kind=PriceError):
        load_prices(path)


def test_list_of_ones_own_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """COHOST_PRICES names another price list, and a missing file is an error."""
    path = tmp_path / "mine.json"
    monkeypatch.setenv("COHOST_PRICES", str(path))
    with refused("price-list-unreadable", str(path), kind=PriceError):
        load_prices()
    write_prices(path, PriceList(service="s", unit="u", regions={"r": {"t": price(2.0)}}))
    assert load_prices().find("r", "t") == price(2.0)


def test_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A price list that cannot be written is an error of one line."""
    with refused("price-list-unwritable", kind=PriceError):
        write_prices(tmp_path / "nowhere" / "x.json", load_prices())
