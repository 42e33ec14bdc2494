"""`cohost plan` and `cohost models inspect` from the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes.refusals import refused
from typer.testing import CliRunner

from cohost import cli
from cohost.errors import CatalogError, HubAccessError, ReportError
from cohost.forecast.plan.profiles import profiles_path

if TYPE_CHECKING:
    from click.testing import Result

ROOT = Path(__file__).parents[4]
ENCODERS = str(ROOT / "model_configs" / "encoders.yaml")
TINY = ROOT / "local_aws" / "data" / "hub" / "lmi-cohost"


def run(*arguments: str) -> Result:
    """Run the command; faults come as exceptions."""
    return CliRunner().invoke(cli.app, arguments, catch_exceptions=False)


def test_json_predicts_the_measured_workers() -> None:
    """The JSON of the plan predicts three measured workers within 3 percent."""
    data = json.loads(run("plan", "--catalog", ENCODERS, "--json").stdout)
    idle = {name: model["gpu_worker"]["idle_mib"] for name, model in data["models"].items()}
    assert idle == {
        "mdeberta": pytest.approx(976, rel=0.03),
        "minilm": pytest.approx(852, rel=0.03),
        "xlmr-large": pytest.approx(2578, rel=0.03),
    }
    assert data["fits"] is True
    assert data["models"]["mdeberta"]["required_memory_mb"] == {"catalog": 2048, "planned": 1280}


def test_table_and_bars_name_every_model() -> None:
    """The table of `cohost plan` has every model, both memories and the free memory."""
    result = run("plan", "--catalog", ENCODERS)
    assert result.exit_code == 0
    assert all(result.stdout.count(name) >= 4 for name in ("mdeberta", "minilm", "xlmr-large"))
    assert "MiB free" in result.stdout
    assert "2048 (1280)" in result.stdout


@pytest.mark.parametrize(
    ("change", "words", "instances"),
    [
        ("  initial_instance_count: 3", "Each of the 3 instances holds all models", {"least": 3, "most": 3}),
        ("scaling: {min: 1, max: 4}", "Each of the 1 to 4 instances holds all models", {"least": 1, "most": 4}),
    ],
)
def test_plan_of_several_instances_says_that_each_holds_everything(
    tmp_path: Path, change: str, words: str, instances: dict[str, int]
) -> None:
    """The plan of several instances states that each instance must hold all models."""
    catalog = tmp_path / "encoders.yaml"
    shutil.copyfile(profiles_path(Path(ENCODERS)), profiles_path(catalog))
    one = "  initial_instance_count: 1\n"
    text = Path(ENCODERS).read_text()
    catalog.write_text(text.replace(one, f"{change}\n") if change.startswith(" ") else f"{text}{change}\n")
    assert words in run("plan", "--catalog", str(catalog)).stdout
    assert json.loads(run("plan", "--catalog", str(catalog), "--json").stdout)["instances"] == instances
    assert "Each of" not in run("plan", "--catalog", ENCODERS).stdout


def test_plan_that_does_not_fit_ends_with_1() -> None:
    """A plan that does not fit ends with exit code 1 and names the first change."""
    result = run("plan", "--catalog", ENCODERS, "--batch", "448", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["first_change"] == "models.mdeberta.batch_size: 28 (now 448)"
    assert "first change" in run("plan", "--catalog", ENCODERS, "--batch", "512").stderr


def test_html_is_written(tmp_path: Path) -> None:
    """`cohost plan --html` writes the page to the given file, and stdout has only data."""
    page = tmp_path / "plan.html"
    result = run("plan", "--catalog", ENCODERS, "--html", str(page), "--json")
    assert page.read_text().startswith("<!doctype html>")
    json.loads(result.stdout)


def test_fleet_compares_types() -> None:
    """`cohost plan --fleet` lists placements with their cost as a table and as JSON."""
    data = json.loads(run("plan", "--catalog", ENCODERS, "--fleet", "--region", "us-east-1", "--json").stdout)
    options = {option["instance_type"]: option for option in data["options"]}
    assert options["ml.g5.xlarge"]["usd_per_hour"] == 1.408
    assert "ml.g5.xlarge" in run("plan", "--catalog", ENCODERS, "--fleet").stdout


def test_fleet_takes_loads(tmp_path: Path) -> None:
    """A load file leads to more endpoints if the time of one GPU is not enough."""
    loads = tmp_path / "loads.yaml"
    loads.write_text("mdeberta: {replicas: 2}\n")
    data = json.loads(
        run("plan", "--catalog", ENCODERS, "--fleet", "--loads", str(loads), "--region", "us-east-1", "--json").stdout
    )
    assert {len(option["endpoints"]) for option in data["options"]} == {2}


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """Return the offline catalog in a folder without profiles."""
    return Path(shutil.copy(ROOT / "model_configs" / "offline.yaml", tmp_path / "mine.yaml"))


def test_unknown_models_are_named(catalog: Path) -> None:
    """The plan names each model without a profile, with the command that creates the profile."""
    result = run("plan", "--catalog", str(catalog))
    assert "cohost models inspect minilm --write" in result.stderr


def test_inspect_reads_a_folder_and_keeps_it(catalog: Path) -> None:
    """A profile saved by `cohost models inspect --write` is used by the next `cohost plan`."""
    folder = str(TINY / "tiny-mdeberta-nli")
    result = run("models", "inspect", "mdeberta", "--catalog", str(catalog), "--folder", folder, "--write", "--json")
    assert json.loads(result.stdout)["elements"] == {"fp32": 228739}
    data: dict[str, Any] = json.loads(run("plan", "--catalog", str(catalog), "--json").stdout)
    assert list(data["models"]) == ["mdeberta"]
    assert data["without_profile"] == ["minilm", "xlmr-large"]


def test_a_library_for_deberta_on_a_gpu_is_suggested(tmp_path: Path) -> None:
    """The plan suggests an attention library only for DeBERTa with the batching handler on a GPU."""
    path = ROOT / "model_configs" / "examples" / "encoders-batched.yaml"
    for suffix in (".yaml", ".profiles.yaml"):
        shutil.copyfile(path.with_suffix("").with_suffix(suffix), tmp_path / f"batched{suffix}")
    catalog = tmp_path / "batched.yaml"
    plain = run("plan", "--catalog", str(catalog))
    assert "models.mdeberta: without a library" in " ".join(plain.stderr.split())
    assert plain.stderr.count("disentangled-flash==1.1.1") == 1
    text = catalog.read_text(encoding="utf-8")
    entry = "\n  mdeberta:\n"
    assert entry in text
    catalog.write_text(text.replace(entry, f"{entry}    packages: [disentangled-flash==1.1.1]\n"), encoding="utf-8")
    assert "without a library" not in run("plan", "--catalog", str(catalog)).stderr
    assert "without a library" not in run("plan", "--catalog", ENCODERS).stderr


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """An HTML page that cannot be written is an error of one line with the option."""
    with refused("page-unwritable", "--html", kind=ReportError):
        run("plan", "--catalog", ENCODERS, "--html", str(tmp_path / "missing" / "plan.html"))


def test_inspect_shows_shape_and_size(catalog: Path) -> None:
    """A person sees architecture, parameters, weights."""
    result = run(
        "models", "inspect", "mdeberta", "--catalog", str(catalog), "--folder", str(TINY / "tiny-mdeberta-nli")
    )
    assert "228,739" in result.stdout
    assert "deberta-v2, 2 layers" in result.stdout


def test_inspect_asks_the_hub_it_is_told(catalog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cohost models inspect` calls the Hub at HF_ENDPOINT, and a missing Hub is an error of one line."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    field = "http://127.0.0.1:9/lmi-cohost/tiny-mdeberta-nli/resolve/main/"
    with refused("hub-unreachable", field, kind=HubAccessError):
        run("models", "inspect", "mdeberta", "--catalog", str(catalog))


def test_inspect_of_weights_in_s3_needs_a_folder(catalog: Path) -> None:
    """A model whose weights are not on the Hub can only be inspected from a folder."""
    catalog.write_text(catalog.read_text().replace("lmi-cohost/tiny-mdeberta-nli", "s3://bucket/weights/"))
    with refused("model-not-on-hub", "models.mdeberta.model_id", kind=CatalogError):
        run("models", "inspect", "mdeberta", "--catalog", str(catalog))
