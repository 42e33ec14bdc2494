"""The comparison of designs by results: table, page, and incomparable results."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fakes.refusals import refused
from jsonschema import Draft202012Validator
from report_runs import calls, phase, record, table_run, target, ticks
from typer.testing import CliRunner

from cohost import cli
from cohost.errors import ReportError
from cohost.report.comparison import COLUMNS, Comparison, write_comparison
from cohost.report.page import Written, write_report
from cohost.report.run import Machine, Mark, Model, Price, Run, save_run

if TYPE_CHECKING:
    from pathlib import Path

DESIGNS = {
    "04": {"topology": "multi-model", "instance_type": "ml.g5.xlarge"},
    "02": {"topology": "cpu-onnx", "instance_type": "ml.c7i.2xlarge"},
    "03": {"topology": "inference-components", "instance_type": "ml.g6.12xlarge"},
}
PRICE_OF_03 = Price(usd_per_hour=5.752, source="AWS Pricing API", date="2026-08-07")


def measured(folder: Path, label: str, **changes: Any) -> Path:
    """Return the folder of a load test of one design, by default on AWS."""
    facts = {**DESIGNS[label[:2]], **changes.pop("target", {})}
    save_run(table_run(folder, label=label, target=target(**facts), **changes))
    return folder


def three(tmp_path: Path, **changes: Any) -> list[Path]:
    """A run of each design; the CPU's price is not known."""
    prices = {"02": None, "03": PRICE_OF_03}
    return [
        measured(tmp_path / label, label, **({"price": prices[label]} if label in prices else {}), **changes)
        for label in DESIGNS
    ]


def emulated(tmp_path: Path) -> list[Path]:
    """Return the load tests of the three designs on the local AWS emulator."""
    return [
        measured(tmp_path / label, label, price=None, target={"emulated": True, "url": "http://127.0.0.1:1"})
        for label in DESIGNS
    ]


def weights(written: Written[Comparison]) -> list[str]:
    """Return the severity of each note."""
    return [weight for weight, _ in written.content.notes]


def test_the_table_has_the_columns_of_the_earlier_measurement(tmp_path: Path) -> None:
    """The table has one row per design in the given order, with "unknown" for an unknown price."""
    written = write_comparison(three(tmp_path), tmp_path / "out")

    lines = written.markdown.read_text().splitlines()
    head = lines.index("| " + " | ".join(COLUMNS) + " |")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[head + 2 : head + 5]]
    assert [row[0] for row in rows] == ["04", "02", "03"]
    assert [row[-1] for row in rows] == ["ml.g5.xlarge", "ml.c7i.2xlarge", "ml.g6.12xlarge"]
    assert [row[1] for row in rows] == ["50.0"] * 3
    assert [row[5:7] for row in rows] == [["104", "5.2x"]] * 3
    assert float(rows[0][7]) == pytest.approx(1.408 / (104 * 3600) * 1e6, rel=0.01)
    assert rows[1][7] == "unknown"
    assert float(rows[2][7]) == pytest.approx(5.752 / (104 * 3600) * 1e6, rel=0.01)
    assert written.content.notes == ()


def test_an_emulation_has_this_machines_numbers_and_no_price(tmp_path: Path) -> None:
    """Page and text say that the numbers are this machine's, and the table has no price."""
    written = write_comparison(emulated(tmp_path), tmp_path / "out")

    for file in (written.markdown, written.page):
        before = file.read_text().split("p50")[0]
        assert "All numbers are those of this machine (here, 2 x CPU), where the local AWS emulator answered" in before
        assert "no item has a price" in before
    assert {row[-2:] for row in written.rows} == {("-", "emulation on this machine")}
    assert "ml.g6.12xlarge, emulated on this machine" in written.markdown.read_text()
    assert "USD for a million items" not in written.page.read_text()


def test_a_price_given_by_hand_for_an_emulation_is_called_that(tmp_path: Path) -> None:
    """A price that was given by hand for the emulator is marked, so nobody takes it for a measurement."""
    runs = [*emulated(tmp_path)[:2], measured(tmp_path / "x", "03", price=PRICE_OF_03, target={"emulated": True})]
    assert "the price of 03 was given by hand" in write_comparison(runs, tmp_path / "out").content.measured


def test_aws_and_an_emulation_are_not_compared(tmp_path: Path) -> None:
    """A table with results of AWS and of the emulator has a mark that it must not be used."""
    runs = [*three(tmp_path)[:2], measured(tmp_path / "local", "03", target={"emulated": True}, price=None)]
    written = write_comparison(runs, tmp_path / "out")
    assert weights(written) == ["invalid"]
    assert written.content.measured.startswith("The numbers of 03 are those of this machine")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"models": (Model(name="c", task="text-classification"),)}, "different models"),
        ({"payloads": "texts of a file"}, "different texts"),
        (
            {"machine": Machine(host="there", system="Linux", processor="CPU", cores=8, processes=1)},
            "machines that called",
        ),
    ],
)
def test_what_differs_beside_the_design_is_told(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    """Designs with other models, texts or callers get a note."""
    runs = [measured(tmp_path / "a", "04"), measured(tmp_path / "b", "02", **changes)]
    notes = write_comparison(runs, tmp_path / "out").content.notes
    assert [told in text for _, text in notes] == [True]


def test_marks_of_a_run_come_along(tmp_path: Path) -> None:
    """An invalid load test is marked in its row, and the worst note comes first."""
    late = Mark(code="generator-lag", message="the generator was late", invalid=True)
    runs = [measured(tmp_path / "a", "04"), measured(tmp_path / "b", "02", payloads="others", marks=(late,))]
    written = write_comparison(runs, tmp_path / "out")
    assert weights(written) == ["invalid", "warning"]
    assert written.rows[1][0] == "02 (INVALID)"


def test_a_run_without_batch_8_is_told(tmp_path: Path) -> None:
    """A load test without batch size 8 is no standard test, and has no price per million."""
    save_run(Run(record(phase(0, 1), label="02"), calls(0, 1, 0.05), ticks(10), tmp_path / "a"))
    notes = write_comparison([tmp_path / "a"], tmp_path / "out").content.notes
    assert any("no step at batch 8" in text for _, text in notes)


def test_reports_are_as_good_as_samples(tmp_path: Path) -> None:
    """A report.json gives the same table as the samples."""
    runs = three(tmp_path)
    reported = write_report(runs, tmp_path / "report").json
    sent = write_comparison([reported], tmp_path / "a").content
    assert sent == write_comparison(runs, tmp_path / "b").content


def test_json_follows_its_own_schema(tmp_path: Path) -> None:
    """A script can rely on the schema beside the file."""
    written = write_comparison(three(tmp_path), tmp_path / "out")
    data = json.loads(written.json.read_text())
    Draft202012Validator(json.loads(written.schema.read_text())).validate(data)
    assert [design["design"] for design in data["designs"]] == [
        "co-hosted on one endpoint",
        "CPU and ONNX",
        "one component a model",
    ]


def test_the_page_asks_nobody_and_every_plot_draws_something(tmp_path: Path) -> None:
    """The page is one file without addresses to fetch, and each SVG is well-formed XML with marks."""
    steps = (phase(0, 1), phase(1, 8), phase(2, 1, 8))
    samples = np.concatenate([calls(0, 1, 0.05), calls(1, 8, 0.1), calls(2, 1, 0.2, concurrency=8)])
    for label, facts in DESIGNS.items():
        save_run(Run(record(*steps, label=label, target=target(**facts)), samples, ticks(30), tmp_path / label))
    page = write_comparison([tmp_path / label for label in DESIGNS], tmp_path / "out").page.read_text()

    assert "<script" not in page
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    drawn = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert re.findall(r'<article class="card plot"><h3>(.*?)</h3>', page) == [
        "Latency",
        "Items a second at batch 8",
        "Batch size",
        "Callers",
        "USD for a million items",
    ]
    for svg in drawn:
        root = ET.fromstring(svg)  # noqa: S314 - our own text
        assert [node for node in root.iter() if re.match(r"(line|point|bar) ?", node.get("class", ""))]
        assert not re.search(r"\b(nan|inf)\b", svg)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "result-unreadable"),
        ("{}", "result-damaged"),
        ("no json", "result-damaged"),
        ('{"runs": []}', "no-runs"),
    ],
)
def test_what_is_no_result_is_told(tmp_path: Path, content: str | None, code: str) -> None:
    """A path without a result is rejected with the allowed ones and the fix."""
    file = tmp_path / "report.json"
    if content is not None:
        file.write_text(content)
    with refused(code, "RESULT" if code == "no-runs" else str(file), kind=ReportError):
        write_comparison([file], tmp_path / "out")


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The option and the fix are named."""
    (tmp_path / "file").write_text("")
    with refused("folder-not-writable", "--out", kind=ReportError):
        write_comparison(three(tmp_path), tmp_path / "file")


def test_the_command_prints_table_place_and_warnings(tmp_path: Path) -> None:
    """The command prints the table, the source of its numbers, and the path of the page."""
    runs = [str(path) for path in emulated(tmp_path)]
    shown = CliRunner().invoke(cli.app, ["compare", *runs, "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "Designs compared" in shown.stdout
    assert "are those of this machine" in shown.stderr
    assert str(tmp_path / "out" / "compare.html") in shown.stderr

    as_json = CliRunner().invoke(cli.app, ["compare", *runs, "--out", str(tmp_path / "out"), "--json"])
    assert [design["emulated"] for design in json.loads(as_json.stdout)["designs"]] == [True] * 3
