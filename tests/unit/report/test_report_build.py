"""The files of a report."""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from botocore.exceptions import ClientError
from fakes.refusals import refused
from jsonschema import Draft202012Validator
from report_runs import START, calls, phase, record, table_run, target, ticks

from cohost.errors import ReportError
from cohost.report import frame
from cohost.report.charts import BAD, GREY, PALE, SERIES, Axis, Chart
from cohost.report.formats import markdown_table
from cohost.report.page import Report, Written, write_report
from cohost.report.run import ColdCall, Mark, Run, save_run
from cohost.report.samples import Outcome

if TYPE_CHECKING:
    from pathlib import Path


def written(tmp_path: Path, *runs: Run) -> Written[Report]:
    """The report on some runs."""
    for run in runs:
        save_run(run)
    return write_report([run.folder for run in runs], tmp_path / "report")


def test_markdown_has_the_columns_by_which_designs_are_compared(tmp_path: Path) -> None:
    """The Markdown table has the columns of the earlier measurement, and its row."""
    text = written(tmp_path, table_run(tmp_path / "a")).markdown.read_text()

    head = next(line for line in text.splitlines() if line.startswith("| run"))
    assert head.startswith("| run | model | p50 | p90 | p95 | p99 ms | calls | items/s at batch 8 | batch efficiency |")
    row = next(line for line in text.splitlines() if "| all models | 50.0" in line)
    assert re.search(r"\| 104 \| 5\.2x \| 3\.7\d \| ml\.g5\.xlarge \|$", row)
    assert "1.408 USD an hour (AWS Pricing API, 2026-08-07)" in text
    assert "djl-inference:0.36.0" in text
    assert "locust -f load_tests/encoders.py" in text


def test_an_unknown_price_is_said_to_be_unknown(tmp_path: Path) -> None:
    """An unknown price is printed as unknown, and neither as 0 nor left out."""
    text = written(tmp_path, table_run(tmp_path / "a", price=None)).markdown.read_text()

    assert "| 5.2x | unknown | ml.g5.xlarge |" in text
    assert "| price | unknown |" in text


def test_an_emulation_has_no_price(tmp_path: Path) -> None:
    """A result of the emulator has no price."""
    run = table_run(tmp_path / "a", price=None, target=target(emulated=True))

    text = written(tmp_path, run).markdown.read_text()

    assert "the emulator answered" in text
    assert "unknown" not in text.split("## ")[0]


def test_an_invalid_run_says_so_in_its_first_line(tmp_path: Path) -> None:
    """The first line of the report of an invalid load test has the mark."""
    marks = (Mark(code="generator-cpu", message="the generator used 99 % of its core", invalid=True),)

    text = written(tmp_path, table_run(tmp_path / "a", marks=marks)).markdown.read_text()

    assert "LMI <one GPU> (INVALID)" in text.split("## ")[0]
    assert "- **invalid**: the generator used 99 % of its core" in text


def test_json_follows_its_own_schema(tmp_path: Path) -> None:
    """A script can rely on the schema beside the file."""
    done = written(tmp_path, table_run(tmp_path / "a"), table_run(tmp_path / "b"))
    schema, data = json.loads(done.schema.read_text()), json.loads(done.json.read_text())

    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(data)
    assert len(data["runs"]) == 2
    assert data["runs"][0]["headlines"][0]["latency_ms"]["p50"] == pytest.approx(50, rel=1e-3)


def test_the_page_asks_nobody_for_anything(tmp_path: Path) -> None:
    """The page has no script and no address that a browser would fetch, and escapes every text."""
    cold = (ColdCall(model="a", first_s=8.0, second_s=0.1, refused=2),)
    page = written(tmp_path, table_run(tmp_path / "a", cold=cold), table_run(tmp_path / "b")).page.read_text()

    assert "<script" not in page
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    assert "@import" not in page
    assert "url(" not in page
    assert "LMI &lt;one GPU&gt;" in page
    assert "<one GPU>" not in page


def test_every_plot_is_well_formed_and_draws_something(tmp_path: Path) -> None:
    """Each SVG is well-formed XML with marks, and each coordinate is a number."""
    failing = calls(0, 1, 0.05)
    failing["outcome"][::7] = Outcome.THROTTLED
    samples = np.concatenate([failing, calls(1, 8, 0.1), calls(2, 1, 0.08, concurrency=4)])
    steps = (phase(0, 1), phase(1, 8), phase(2, 1, 4))
    page = written(tmp_path, Run(record(*steps), samples, ticks(30), tmp_path / "a")).page.read_text()

    drawn = re.findall(r"<svg.*?</svg>", page, re.DOTALL)

    assert len(drawn) == 6
    for svg in drawn:
        root = ET.fromstring(svg)  # noqa: S314 - our own text
        marks = [node for node in root.iter() if re.match(r"(line|point|bar|area) ?", node.get("class", ""))]
        assert marks, root.get("aria-label")
        assert not re.search(r"\b(nan|inf)\b", svg)


def test_a_run_in_which_everything_failed_is_reported(tmp_path: Path) -> None:
    """A load test in which every call failed has a report."""
    run = Run(record(phase(0, 1)), calls(0, 1, 0.1, outcome=Outcome.TIMED_OUT), ticks(2), tmp_path / "a")

    done = written(tmp_path, run)

    assert "timed out" in done.markdown.read_text()
    assert "100 of 100 calls failed" in done.page.read_text()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The option and the fix are named."""
    run = table_run(tmp_path / "a")
    save_run(run)
    (tmp_path / "file").write_text("")

    with refused("folder-not-writable", "--out", kind=ReportError):
        write_report([run.folder], tmp_path / "file")


class Watch:
    """A CloudWatch with only ModelLatency that counts its requests."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self._fault = fault

    def client(self, name: str, region_name: str) -> Watch:
        """Itself."""
        assert (name, region_name) == ("cloudwatch", "us-east-1")
        return self

    def get_metric_statistics(self, **arguments: Any) -> dict[str, Any]:
        """Return one minute of ModelLatency in microseconds."""
        self.asked.append(arguments)
        if self._fault is not None:
            raise self._fault
        point = {
            "Timestamp": datetime.fromtimestamp(START, UTC),
            "Average": 42_000.0,
            "Maximum": 50_000.0,
            "SampleCount": 9.0,
        }
        return {"Datapoints": [point] if arguments["MetricName"] == "ModelLatency" else []}


def test_the_endpoints_metrics_stand_beside_the_callers(tmp_path: Path) -> None:
    """The report has ModelLatency of the load test's minutes, and stores it for the next report."""
    run, watch = table_run(tmp_path / "a"), Watch()
    save_run(run)

    done = write_report([run.folder], tmp_path / "report", watch)

    text = done.markdown.read_text()
    assert "| ModelLatency | ms | 42.00 | 50.00 |" in text
    assert "| latency at the caller (measured steps) | ms |" in text
    assert "Caller and endpoint" in done.page.read_text()
    assert {a["MetricName"] for a in watch.asked} >= {"ModelLatency", "GPUUtilization", "LoadedModelCount"}
    assert "| ModelLatency |" in write_report([run.folder], tmp_path / "again").markdown.read_text()


def test_a_component_s_metrics_are_asked_by_its_name(tmp_path: Path) -> None:
    """The report reads a component's metrics by its name, and its instances' metrics by endpoint and variant."""
    run, watch = table_run(tmp_path / "a"), Watch()
    target = run.record.target.model_copy(update={"inference_component_name": "e-models"})
    run = dataclasses.replace(run, record=run.record.model_copy(update={"target": target}))
    save_run(run)

    done = write_report([run.folder], tmp_path / "report", watch)

    dimensions = {a["MetricName"]: {d["Name"]: d["Value"] for d in a["Dimensions"]} for a in watch.asked}
    assert dimensions["ModelLatency"] == dimensions["OverheadLatency"] == {"InferenceComponentName": "e-models"}
    assert set(dimensions["GPUUtilization"]) == {"EndpointName", "VariantName"}
    assert "LoadedModelCount" not in dimensions
    assert "inference component e-models" in done.markdown.read_text()


def test_without_the_right_to_ask_a_report_is_made(tmp_path: Path) -> None:
    """A report is written without metrics if the caller may not read them."""
    run = table_run(tmp_path / "a")
    save_run(run)
    denied = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetMetricStatistics")

    assert "ModelLatency" not in write_report([run.folder], tmp_path / "r", Watch(denied)).markdown.read_text()


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("values", [[0.5], [3, 3, 3], [1e-4, 9e5], [41.0, 47.0], []])
def test_axes_hold_their_values_and_have_ticks(values: list[float], log: bool) -> None:  # noqa: FBT001 - a parameter
    """Axes of one value, equal values, many powers of ten, a narrow range and no value have readable ticks."""
    axis = Axis.over(values, "ms", log=log)

    assert all(0 <= axis.share(value) <= 1 for value in values)
    assert 2 <= len(axis.ticks()) <= 13
    assert Chart(axis, axis, "label").svg().startswith("<svg")


def texts(chart: Chart, kind: str) -> list[str]:
    """Return the texts of a chart, in the order of the page."""
    svg = chart.svg()
    root = ET.fromstring(svg[: svg.index("</svg>") + len("</svg>")])  # noqa: S314 - our own text
    return [node.text or "" for node in root.iter("text") if kind in node.get("class", "").split()]


def test_every_group_of_bars_keeps_its_name() -> None:
    """Long names of bars take several lines, also on a phone."""
    names = ["02 CPU and ONNX, stock", "03 one component a model", "04 <co-hosted>"]
    chart = Chart.of_bars(names, {"p50": [(1.0, "a"), (None, ""), (3.0, "c")]}, ("", "ms"))

    told = " ".join(texts(chart, "middle"))
    assert set(" ".join(names).split()) <= set(told.split())
    assert chart.svg().count('class="bar ') == 2


def test_many_names_are_thinned() -> None:
    """An axis of sixty minutes has only some of their names."""
    names = [str(minute) for minute in range(60)]
    shown = texts(Chart.of_bars(names, {"x": [(1.0, "")] * 60}, ("minute", "ms")), "tick")

    assert 2 < len([name for name in shown if name in names]) < 30


def test_every_colour_of_a_chart_is_in_the_style_sheet() -> None:
    """Each colour of a chart is in the style sheet, and series beyond the palette repeat it."""
    style = frame.page("a", "b")
    used = []
    for colour in (*range(SERIES + 1), BAD, GREY, PALE):
        chart = Chart(Axis(0, 1, ""), None, "")
        chart.bar(0, 1, 0, 1, colour, "")
        used += re.findall(r'class="bar (f\d+)"', chart.svg())

    assert len(set(used)) == SERIES + 3
    for name in used:
        assert f".{name} {{ fill: var(--c{name[1:]}); }}" in style
        assert f"--c{name[1:]}: " in style


def test_a_table_in_markdown_escapes_its_bars() -> None:
    """The Markdown table escapes bars in values, and shows missing values as dashes."""
    assert markdown_table(("a", "b"), [("x|y", None), (1, "")]) == "| a | b |\n| --- | --- |\n| x\\|y | - |\n| 1 |  |"
