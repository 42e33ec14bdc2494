"""Designs with rates: published by others, or measured by this system's load test with exactly this catalog."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes.refusals import refused

from cohost.catalog.sections.scaling import Scaling
from cohost.catalog.serving import settings_of
from cohost.catalog_file import load_catalog
from cohost.errors import PriceError
from cohost.forecast.pricing.changes import planned_costs
from cohost.forecast.pricing.designs import (
    COMPONENTS,
    CPU_ONNX,
    CPU_PRICE,
    DESIGNS,
    ONE_ENDPOINT,
    PARTITIONS,
    PUBLISHED,
    SCALE_TO_ZERO,
    Design,
    compare,
    cost_of,
    design_of,
    read_reports,
)
from cohost.forecast.pricing.price_list import load_prices
from cohost.report.run import Mark, Model, RunRecord, Target
from cohost.report.summary import Headline, RunSummary

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog

REGION = "us-east-1"
ROOT = Path(__file__).parents[4]
ENCODERS = ROOT / "model_configs" / "encoders.yaml"


@pytest.mark.parametrize(("design", "reported"), [(CPU_ONNX, 4.20), (COMPONENTS, 20.48), (ONE_ENDPOINT, 3.76)])
def test_reported_costs_come_out_within_a_cent(design: Design, reported: float) -> None:
    """USD per million is the price of an hour over the items of an hour, for each design that was published."""
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


@pytest.mark.parametrize("name", ["encoders", "offline", "examples/encoders-batched"])
def test_a_published_rate_is_no_catalogs_own(name: str) -> None:
    """The published rates count for no catalog, and the design's source names the way to measure one."""
    design = design_of(load_catalog(ROOT / "model_configs" / f"{name}.yaml").catalog)
    assert design.items_per_second is None
    assert design.source.startswith("rate unknown: not measured with this catalog; measure with `cohost bench`")
    assert all(one.source.endswith(PUBLISHED) for one in DESIGNS if one is not PARTITIONS)
    assert "published by others (2026-08, an earlier system" in PUBLISHED


def measured_run(catalog: Catalog, *, tokens: tuple[int, int] | None = (512, 512), **changes: Any) -> dict[str, Any]:
    """Return the record of a load test of a catalog on AWS, as its report.json has it."""
    endpoint = catalog.endpoint
    target = {
        "kind": "sagemaker",
        "url": "https://runtime.sagemaker.us-east-1.amazonaws.com",
        "topology": endpoint.topology,
        "instance_type": endpoint.instance_type,
        "instance_count": 2,
        "image": f"763104351884.dkr.ecr.us-east-1.amazonaws.com/{endpoint.image}",
        "emulated": False,
    }
    models = [
        {"name": name, "task": entry.task, "settings": settings_of(entry, endpoint), "tokens": tokens}
        for name, entry in catalog.models.items()
    ]
    record = {"label": "mine", "started": 1796000000.0, "target": target, "models": models, "marks": []}
    for path, value in changes.items():
        *outer, last = path.split("__")
        place: Any = record
        for key in outer:
            place = place[int(key)] if key.isdecimal() else place[key]
        place[last] = value
    return record


def written(path: Path, record: dict[str, Any], rate: float | None = 90.0) -> Path:
    """Write a report.json with one run."""
    content = {"format": 1, "runs": [{"record": record, "headlines": [{"items_per_s_at_8": rate}]}]}
    path.write_text(json.dumps(content))
    return path


def test_a_load_test_of_the_same_setup_is_the_catalogs_rate(tmp_path: Path) -> None:
    """A rate names the date, system and lengths of its load test; one instance has half the rate of two."""
    catalog = load_catalog(ENCODERS).catalog
    report = written(tmp_path / "report.json", measured_run(catalog))

    costs = compare(catalog, load_prices(), REGION, busy_hours=24, reports=[report])

    design = costs[0].design
    assert (design.name, design.items_per_second) == ("this catalog", 45.0)
    assert design.source == ("measured 2026-11-30 by this system's load test (report.json), batch 8, 512 tokens a text")
    assert costs[0].per_million == pytest.approx(1.408 / (45 * 3600) * 1e6)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"target__instance_type": "ml.g5.2xlarge"}, "instance type ml.g5.2xlarge (catalog: ml.g5.xlarge)"),
        ({"target__instance_type": None}, "instance type unknown"),
        ({"target__topology": "cpu-onnx"}, "topology cpu-onnx (catalog: multi-model)"),
        ({"target__image": None}, "image unknown"),
        ({"target__image": "1.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.35.0-lmi17.0.0-cu128"}, "image 1.dkr"),
        ({"models__0__name": "other"}, "models other, minilm, xlmr-large (catalog: mdeberta"),
        ({"models__1__settings": None}, "settings of minilm unknown"),
        ({"models__0__settings__option.revision": "main"}, "mdeberta option.revision main (catalog: b5113eb"),
        ({"models__0__settings__option.model_id": "org/m"}, "mdeberta option.model_id org/m"),
        ({"models__0__settings__option.dtype": "fp16"}, "mdeberta option.dtype fp16 (catalog: not set)"),
        ({"models__2__settings__gpu.maxWorkers": "4"}, "xlmr-large gpu.maxWorkers 4 (catalog: 1)"),
        ({"models__2__settings__option.max_length": "128"}, "xlmr-large option.max_length 128 (catalog: not set)"),
        ({"models__1__settings__handler": "batched"}, "minilm handler batched (catalog: stock)"),
        ({"models__1__settings__packages": "x==1"}, "minilm packages x==1 (catalog: )"),
    ],
)
def test_a_load_test_of_another_setup_leaves_the_rate_unknown(
    changes: dict[str, Any], named: str, tmp_path: Path
) -> None:
    """Each difference between load test and catalog is named: models, their settings, instance type and image."""
    catalog = load_catalog(ENCODERS).catalog
    design = design_of(catalog, read_reports(written(tmp_path / "r.json", measured_run(catalog, **changes))))
    assert design.items_per_second is None
    assert f"the run 'mine' differs in 1 points, such as {named}" in design.source
    assert "measure with `cohost bench`" in design.source


def test_a_load_test_with_another_number_of_engine_processes_leaves_the_rate_unknown(tmp_path: Path) -> None:
    """The rate of two engine processes per device is not the rate of a catalog that states no number."""
    catalog = load_catalog(ROOT / "model_configs" / "examples" / "encoders-shared.yaml").catalog
    endpoint = catalog.endpoint.model_copy(update={"engines_per_device": 2})
    other = catalog.model_copy(update={"endpoint": endpoint})
    measured = read_reports(written(tmp_path / "r.json", measured_run(other)))
    assert design_of(other, measured).items_per_second == 45.0
    assert design_of(catalog, measured).items_per_second is None
    assert "mdeberta option.engines_per_device 2 (catalog: not set)" in design_of(catalog, measured).source


@pytest.mark.parametrize(
    ("rate", "changes"), [(None, {}), (90.0, {"target__emulated": True}), (90.0, {"models__0__tokens": None})]
)
def test_a_load_test_without_rate_or_lengths_is_no_measurement(
    rate: float | None, changes: dict[str, Any], tmp_path: Path
) -> None:
    """A load test without batch 8, on the emulator, or with texts of unknown length gives the catalog no rate."""
    catalog = load_catalog(ENCODERS).catalog
    report = written(tmp_path / "r.json", measured_run(catalog, **changes), rate)
    assert design_of(catalog, read_reports(report)).items_per_second is None


def test_the_stacks_outputs_take_the_reports_that_a_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stack's outputs and `cohost cost` read the reports that COHOST_REPORTS names, separated as in PATH."""
    catalog = load_catalog(ENCODERS).catalog
    good = written(tmp_path / "b.json", measured_run(catalog))
    other = written(tmp_path / "a.json", measured_run(catalog, target__instance_type="ml.g5.2xlarge"))
    monkeypatch.setenv("COHOST_REPORTS", f"{other}{os.pathsep}{good}")

    line = planned_costs(catalog, load_prices(), REGION)["CostPerMillionUsd"]

    assert line.value == "8.69"
    assert "45 items/s, measured 2026-11-30 by this system's load test (b.json)" in line.description
    costs = compare(catalog, load_prices(), REGION, busy_hours=24)
    assert [one.design.items_per_second for one in costs] == [45.0, 104, 78, None, 27, 104, 45.0, 45.0]


def test_a_wrong_file_in_the_variable_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path in COHOST_REPORTS that does not exist ends the synth."""
    monkeypatch.setenv("COHOST_REPORTS", str(tmp_path / "none.json"))
    with refused("report-unreadable", kind=PriceError):
        planned_costs(load_catalog(ENCODERS).catalog, load_prices(), REGION)


def test_reports_of_ones_own_are_compared(tmp_path: Path) -> None:
    """A measured rate of the user's own comes last in the comparison."""
    report = tmp_path / "mine.json"
    report.write_text(json.dumps({"items_per_second": 208, "instance_type": "ml.g5.xlarge", "measured": "2026-11-30"}))
    costs = compare(load_catalog(ENCODERS).catalog, load_prices(), REGION, busy_hours=24, reports=[report])
    assert costs[0].design.name == "this catalog"
    assert costs[-1].design.source == "as mine.json states, 2026-11-30"
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
    assert design.source == (
        "measured 2026-11-30 by this system's load test (report.json), batch 8, an unknown number of tokens a text"
    )


def test_fields_of_the_load_tests_report_are_the_ones_read() -> None:
    """The fields that pricing reads exist in the report's own model."""
    assert {"label", "started", "target", "marks", "models"} <= RunRecord.model_fields.keys()
    assert {"instance_type", "instance_count", "emulated", "topology", "image"} <= Target.model_fields.keys()
    assert {"name", "settings", "tokens"} <= Model.model_fields.keys()
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

    assert (design.instances, design.scales_to_zero) == (2, False)
