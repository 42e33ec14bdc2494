"""The measured designs: the costs that were reported come out of prices and rates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.refusals import refused

from cohost.catalog.sections.scaling import Scaling
from cohost.catalog_file import load_catalog
from cohost.errors import PriceError
from cohost.forecast.pricing.designs import (
    COMPONENTS,
    CPU_ONNX,
    CPU_PRICE,
    ONE_ENDPOINT,
    SCALE_TO_ZERO,
    Design,
    compare,
    cost_of,
    design_of,
    read_reports,
)
from cohost.forecast.pricing.price_list import load_prices
from cohost.report.run import Mark, RunRecord, Target
from cohost.report.summary import Headline, RunSummary

REGION = "us-east-1"
ROOT = Path(__file__).parents[4]
ENCODERS = ROOT / "model_configs" / "encoders.yaml"


@pytest.mark.parametrize(("design", "reported"), [(CPU_ONNX, 4.20), (COMPONENTS, 20.48), (ONE_ENDPOINT, 3.76)])
def test_reported_costs_come_out_within_a_cent(design: Design, reported: float) -> None:
    """USD per million is the price of an hour over the items of an hour, for each design that was measured."""
    assert cost_of(design, load_prices(), REGION).per_million == pytest.approx(reported, abs=0.01)


def test_cpu_price_follows_from_its_own_row() -> None:
    """The CPU design's price of 0.408 USD per hour follows from its published cost and rate."""
    assert round(4.20 * 27 * 3600 / 1e6, 3) == CPU_PRICE.usd_per_hour == 0.408


def test_idle_hours_are_paid_for() -> None:
    """With eight busy hours a day a million items cost three times as much on an endpoint that always runs."""
    cost = cost_of(ONE_ENDPOINT, load_prices(), REGION, busy_hours=8)
    assert cost.per_month == pytest.approx(1.408 * 730)
    assert cost.per_million_busy == pytest.approx(3 * 3.7607, abs=0.001)


def test_scale_to_zero_pays_busy_hours_and_the_tail() -> None:
    """Scale-to-zero with eight busy hours pays for these and 27 idle minutes."""
    cost = cost_of(SCALE_TO_ZERO, load_prices(), REGION, busy_hours=8)
    assert cost.per_month == pytest.approx(1.408 * (8 + 27 / 60) * 730 / 24)
    assert cost.per_million_busy == pytest.approx(3.7607 * (8 + 27 / 60) / 8, abs=0.001)


def test_scale_to_zero_saves_nothing_when_always_busy() -> None:
    """With 24 busy hours scale-to-zero costs as much as a permanent endpoint."""
    always = cost_of(SCALE_TO_ZERO, load_prices(), REGION)
    assert always.per_month == pytest.approx(cost_of(ONE_ENDPOINT, load_prices(), REGION).per_month)


@pytest.mark.parametrize("hours", [0, -1, 24.5, float("nan")])
def test_busy_hours_are_those_of_a_day(hours: float) -> None:
    """Busy hours of 0 and of over 24 are rejected."""
    with refused("hours-range", "--busy-hours", kind=PriceError):
        cost_of(ONE_ENDPOINT, load_prices(), REGION, busy_hours=hours)


def test_unknown_price_makes_all_of_it_unknown() -> None:
    """An unknown price makes all costs unknown, and never 0."""
    cost = cost_of(
        Design(name="x", instance_type="ml.g9.xlarge", items_per_second=1, source="s"), load_prices(), REGION
    )
    assert (cost.per_hour, cost.per_month, cost.per_million, cost.per_million_busy) == (None, None, None, None)


def test_no_instances_cost_nothing_and_do_nothing() -> None:
    """A count of 0: no cost, and no cost per million either."""
    design = Design(name="x", instance_type="ml.g5.xlarge", items_per_second=104, source="s", instances=0)
    cost = cost_of(design, load_prices(), REGION)
    assert (cost.per_hour, cost.per_month, cost.per_million) == (0.0, 0.0, None)


def test_more_instances_leave_the_cost_of_a_million() -> None:
    """Three instances answer three times as much for three times the price, so a million costs the same."""
    three = Design(name="x", instance_type="ml.g5.xlarge", items_per_second=104, source="s", instances=3)
    assert cost_of(three, load_prices(), REGION).per_million == pytest.approx(3.76, abs=0.01)


def test_rate_is_claimed_for_what_was_measured_only() -> None:
    """The product has a rate; another type, or other models, have none."""
    catalog = load_catalog(ENCODERS).catalog
    assert design_of(catalog).items_per_second == 104
    other_type = catalog.endpoint.model_copy(update={"instance_type": "ml.g6.12xlarge"})
    assert design_of(catalog.model_copy(update={"endpoint": other_type})).items_per_second is None
    assert design_of(load_catalog(ROOT / "model_configs" / "offline.yaml").catalog).items_per_second is None


def test_reports_of_ones_own_are_compared(tmp_path: Path) -> None:
    """A measured rate of the user's own comes last in the comparison."""
    report = tmp_path / "mine.json"
    report.write_text(json.dumps({"items_per_second": 208, "instance_type": "ml.g5.xlarge", "measured": "2026-11-30"}))
    costs = compare(load_catalog(ENCODERS).catalog, load_prices(), REGION, busy_hours=24, reports=[report])
    assert costs[0].design.name == "this catalog"
    assert costs[-1].design.source == "mine.json, 2026-11-30"
    assert costs[-1].per_million == pytest.approx(1.88, abs=0.01)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *((text, "report-invalid") for text in ("{", "[]", "{}", '{"items_per_second": "fast"}')),
        ('{"items_per_second": 0, "instance_type": "x", "measured": "y"}', "rate-range"),
    ],
)
def test_wrong_reports_are_told(tmp_path: Path, text: str, code: str) -> None:
    """A file that is no report is an error with the form of a report."""
    path = tmp_path / "r.json"
    path.write_text(text)
    with refused(code, str(path), kind=PriceError):
        read_reports(path)
    with refused("report-unreadable", kind=PriceError):
        read_reports(tmp_path / "none.json")


def run_report(*, rate: float | None = 90.0, marks: tuple[str, ...] = (), emulated: bool = False) -> str:
    """Return the report.json of a load test with one run on two instances."""
    record = {
        "label": "mine",
        "started": 1796000000.0,
        "target": {"instance_type": "ml.g5.xlarge", "instance_count": 2, "emulated": emulated},
        "marks": [{"code": "c", "message": message, "invalid": True} for message in marks],
    }
    return json.dumps({"format": 1, "runs": [{"record": record, "headlines": [{"items_per_s_at_8": rate}]}]})


def test_report_of_the_load_test_is_read(tmp_path: Path) -> None:
    """Each load test of a report is a design with its rate per instance."""
    path = tmp_path / "report.json"
    path.write_text(run_report())
    (design,) = read_reports(path)
    assert (design.name, design.instances, design.items_per_second) == ("mine", 2, 45.0)
    assert design.source == "report.json, 2026-11-30, batch 8"


def test_fields_of_the_load_tests_report_are_the_ones_read() -> None:
    """The fields that pricing reads exist in the report's own model."""
    assert {"label", "started", "target", "marks"} <= RunRecord.model_fields.keys()
    assert {"instance_type", "instance_count", "emulated"} <= Target.model_fields.keys()
    assert {"message", "invalid"} <= Mark.model_fields.keys()
    assert {"record", "headlines"} <= RunSummary.model_fields.keys()
    assert "items_per_s_at_8" in Headline.model_fields


def test_emulated_run_has_no_cost_per_million(tmp_path: Path) -> None:
    """A result of the emulator has no price per million items, because it tells nothing about the speed on AWS."""
    path = tmp_path / "report.json"
    path.write_text(run_report(emulated=True))
    (design,) = read_reports(path)
    assert design.items_per_second is None
    assert "emulator" in design.source


def test_run_without_batch_8_has_no_cost_per_million(tmp_path: Path) -> None:
    """A result without the measured batch size 8 has an unknown price per million items."""
    path = tmp_path / "report.json"
    path.write_text(run_report(rate=None))
    assert cost_of(read_reports(path)[0], load_prices(), REGION).per_million is None


def test_invalid_run_is_not_priced(tmp_path: Path) -> None:
    """An invalid load test has no price per million."""
    path = tmp_path / "report.json"
    path.write_text(run_report(marks=("the generator was too slow",)))
    with refused("run-invalid", str(path), kind=PriceError) as caught:
        read_reports(path)
    assert "the generator was too slow" in caught.value.problem


def test_catalog_that_scales_to_zero_bills_busy_hours_and_its_idle_time() -> None:
    """Eight busy hours and the tail of the metric; an idle time of the catalog's own replaces target tracking's."""
    catalog = load_catalog(ENCODERS).catalog
    endpoint = catalog.endpoint.model_copy(update={"topology": "scale-to-zero"})

    def per_month(**scaling: Any) -> float | None:
        scaled = {"endpoint": endpoint, "scaling": Scaling(min=0, max=1, **scaling)}
        design = design_of(catalog.model_copy(update=scaled))
        return cost_of(design, load_prices(), "us-east-1", busy_hours=8).per_month

    days = 730 / 24
    assert per_month() == pytest.approx(1.408 * (8 + 27 / 60) * days)
    assert per_month(metric="invocations", target=100) == pytest.approx(1.408 * (8 + 27 / 60) * days)
    assert per_month(idle_minutes=60) == pytest.approx(1.408 * (8 + 72 / 60) * days)


def test_catalog_that_keeps_a_copy_bills_all_hours() -> None:
    """Scaling with a minimum of one bills all hours for the fewest instances."""
    catalog = load_catalog(ENCODERS).catalog.model_copy(update={"scaling": Scaling(min=2, max=4)})

    design = design_of(catalog)

    assert (design.instances, design.scales_to_zero, design.items_per_second) == (2, False, 104)
