"""The AWS Pricing API: requests, pages, and answers that cannot be used."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.stub import Stubber
from fakes.refusals import refused

from cohost.errors import PriceError
from cohost.forecast.pricing.price_list import fetch_prices, load_prices, with_region

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = dt.date(2026, 11, 30)
TYPES = ("ml.g5.xlarge", "ml.g6.xlarge")
FILTERS = [
    {"Type": "TERM_MATCH", "Field": "productFamily", "Value": "ML Instance"},
    {"Type": "TERM_MATCH", "Field": "regionCode", "Value": "eu-central-1"},
    {"Type": "TERM_MATCH", "Field": "platoinstancetype", "Value": "Hosting"},
]
QUERY: dict[str, Any] = {"ServiceCode": "AmazonSageMaker", "Filters": FILTERS, "MaxResults": 100}


def product(name: str, usd: str, *, unit: str = "Hrs") -> str:
    """A product in the form of the Pricing API."""
    dimension = {"unit": unit, "description": f"${usd} per Hosting {name} hour", "pricePerUnit": {"USD": usd}}
    return json.dumps(
        {
            "product": {
                "productFamily": "ML Instance",
                "attributes": {"instanceName": name, "regionCode": "eu-central-1", "platoinstancetype": "Hosting"},
                "sku": "ABC",
            },
            "serviceCode": "AmazonSageMaker",
            "terms": {"OnDemand": {"ABC.JRTCKXETXF": {"priceDimensions": {"ABC.JRTCKXETXF.6YS6EN2CT7": dimension}}}},
        }
    )


@pytest.fixture
def pricing() -> Iterator[tuple[Any, Stubber]]:
    """Return a client of the API with prepared answers."""
    client = boto3.client("pricing", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y")
    with Stubber(client) as stubber:
        yield client, stubber


def test_hosting_prices_of_a_region_are_asked_page_by_page(pricing: tuple[Any, Stubber]) -> None:
    """The request has AWS's documented filters, and every page is read."""
    client, stubber = pricing
    pages = [[product("ml.g5.xlarge", "1.7610000000")], [product("ml.g6.xlarge", "1.41"), product("ml.t2.xlarge", "1")]]
    stubber.add_response("get_products", {"PriceList": pages[0], "NextToken": "more"}, QUERY)
    stubber.add_response("get_products", {"PriceList": pages[1]}, QUERY | {"NextToken": "more"})
    found = fetch_prices(client, "eu-central-1", day=DAY, instance_types=TYPES)
    assert {name: (price.usd_per_hour, price.date, price.source) for name, price in found.items()} == {
        "ml.g5.xlarge": (1.761, DAY, "AWS Pricing API"),
        "ml.g6.xlarge": (1.41, DAY, "AWS Pricing API"),
    }
    stubber.assert_no_pending_responses()


@pytest.mark.parametrize(
    "text",
    [
        product("ml.g5.xlarge", "0.0000000000"),
        product("ml.g5.xlarge", "3", unit="Quantity"),
        json.dumps({"product": {"attributes": {"instanceName": "ml.g5.xlarge"}}, "terms": {"Reserved": {}}}),
    ],
)
def test_free_tiers_and_other_units_are_no_prices(pricing: tuple[Any, Stubber], text: str) -> None:
    """A free tier and a price in another unit than hours are ignored, so the price is unknown."""
    client, stubber = pricing
    stubber.add_response("get_products", {"PriceList": [text]}, QUERY)
    assert fetch_prices(client, "eu-central-1", day=DAY, instance_types=TYPES) == {}


def test_same_price_twice_is_one(pricing: tuple[Any, Stubber]) -> None:
    """Several products of a type with the same price give one price."""
    client, stubber = pricing
    stubber.add_response("get_products", {"PriceList": [product("ml.g5.xlarge", "2"), product("ml.g5.xlarge", "2.0")]})
    assert len(fetch_prices(client, "eu-central-1", day=DAY, instance_types=TYPES)) == 1


def test_two_prices_of_one_type_are_not_chosen_between(pricing: tuple[Any, Stubber]) -> None:
    """Two prices of one type are an error."""
    client, stubber = pricing
    stubber.add_response("get_products", {"PriceList": [product("ml.g5.xlarge", "2"), product("ml.g5.xlarge", "3")]})
    with refused("price-ambiguous", "ml.g5.xlarge in eu-central-1", kind=PriceError):
        fetch_prices(client, "eu-central-1", day=DAY, instance_types=TYPES)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"product": {}}', "null"])
def test_answers_of_another_form_are_told(pricing: tuple[Any, Stubber], text: str) -> None:
    """An answer of the Pricing API in another form is a clear error."""
    client, stubber = pricing
    stubber.add_response("get_products", {"PriceList": [text]})
    with refused("product-unknown", kind=PriceError):
        fetch_prices(client, "eu-central-1", day=DAY, instance_types=TYPES)


def test_other_regions_and_types_keep_their_prices(pricing: tuple[Any, Stubber]) -> None:
    """An update of one region keeps all other prices."""
    client, stubber = pricing
    stubber.add_response("get_products", {"PriceList": [product("ml.g5.xlarge", "9")]})
    before = load_prices()
    after = with_region(before, "us-east-1", fetch_prices(client, "us-east-1", day=DAY, instance_types=TYPES))
    renewed = after.find("us-east-1", "ml.g5.xlarge")
    assert renewed is not None
    assert renewed.usd_per_hour == 9
    assert after.find("us-east-1", "ml.g6.12xlarge") == before.find("us-east-1", "ml.g6.12xlarge")
    assert with_region(before, "eu-central-1", {"ml.g5.xlarge": renewed}).regions.keys() == {
        "us-east-1",
        "eu-central-1",
    }


def test_empty_answer_leaves_the_list_alone() -> None:
    """A region without prices is an error, and the price list stays."""
    with refused("region-unpriced", "--region", kind=PriceError):
        with_region(load_prices(), "eu-centrall-1", {})
