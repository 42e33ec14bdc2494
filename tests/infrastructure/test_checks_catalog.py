"""The checks of models, memory, workers, revisions and prices, and their acknowledgement."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError
from synthesis import ROOT, make_catalog, make_stack

from cohost.catalog import check_ids
from cohost.catalog.faults import faults_of
from cohost.catalog.models import Catalog
from cohost.catalog_file import load_catalog
from cohost.forecast.plan.profiles import load_profiles, profiles_path
from cohost.forecast.pricing.price_list import load_prices
from cohost.hardware.images import parse_image
from constructs_lib.checks import catalog as fit_catalog
from constructs_lib.checks.catalog import catalog_misfits

if TYPE_CHECKING:
    from pathlib import Path

    from constructs_lib.checks.findings import Misfit

ENCODERS = ROOT / "model_configs" / "encoders.yaml"
REVISION = "0" * 40
XLMR: dict[str, Any] = {
    "model_id": "joeddav/xlm-roberta-large-xnli",
    "revision": REVISION,
    "task": "text-classification",
}
MDEBERTA = XLMR | {"model_id": "MoritzLaurer/mDeBERTa-v3-base-xnli-multilingual-nli-2mil7"}
MINILM = XLMR | {"model_id": "MoritzLaurer/multilingual-MiniLMv2-L6-mnli-xnli"}
CPU = {"image": "djl-inference:0.36.0-cpu-full", "instance_type": "ml.c7i.xlarge"}


def found(*, region: str = "us-east-1", **catalog: Any) -> dict[str, Misfit]:
    """The misfits of a catalog's models by name."""
    made = make_catalog(**catalog)
    misfits = catalog_misfits(
        made, parse_image(made.endpoint.image), load_profiles(profiles_path(ENCODERS)), load_prices(), region
    )
    return {misfit.name: misfit for misfit in misfits}


def workers(count: int) -> dict[str, int]:
    """Return the settings for up to `count` workers."""
    return {"minWorkers": 1, "maxWorkers": count}


def test_product_raises_nothing() -> None:
    """Three pinned models that fit an instance type with a known price cause no error and no warning."""
    assert found(models={"a": XLMR, "b": MDEBERTA, "c": MINILM}) == {}


def test_three_models_times_four_workers_on_sixteen_gigabytes() -> None:
    """Models that fit alone but not together give a warning for the GPU and one for the host, each with a change."""
    models = {name: entry | {"gpu": workers(4)} for name, entry in (("a", XLMR), ("b", MDEBERTA), ("c", MINILM))}
    misfits = found(models=models, endpoint={"instance_type": "ml.g4dn.xlarge"})
    assert set(misfits) == {"gpu-memory", "host-memory"}
    assert re.search(r"19,\d{3} of 14,920 MiB of one T4", misfits["gpu-memory"].message)
    assert "fix: models.a.gpu.maxWorkers: 2" in misfits["gpu-memory"].message


def test_one_model_that_can_never_fit_is_an_error() -> None:
    """A model that does not fit even if SageMaker unloads all others is an error."""
    misfits = found(models={"a": MDEBERTA | {"gpu": workers(2), "batch_size": 512}})
    assert misfits["model-memory"].level == "error"
    assert "; allowed: 22,589 MiB; fix: models.a.batch_size: 128" in misfits["model-memory"].message


def test_large_batches_on_a_small_card() -> None:
    """XLM-R large with batch 64 of 512 tokens and two workers does not fit a T4 beside other models."""
    models = {
        "a": XLMR | {"gpu": workers(2), "batch_size": 64},
        "b": MDEBERTA | {"gpu": workers(2), "batch_size": 8},
        "c": MINILM | {"gpu": workers(4), "batch_size": 64},
    }
    misfits = found(models=models, endpoint={"instance_type": "ml.g4dn.xlarge"})
    assert "gpu-memory" in misfits
    alone = found(models={"a": models["a"]}, endpoint={"instance_type": "ml.g4dn.xlarge"})
    assert alone == {}


def test_half_precision_makes_room() -> None:
    """Weights stored as fp32 and served as fp16 count as fp16."""
    models = {f"m{number}": XLMR for number in range(6)}
    halves = {name: entry | {"dtype": "fp16"} for name, entry in models.items()}
    endpoint = {"instance_type": "ml.g4dn.xlarge"}
    assert set(found(models=models, endpoint=endpoint)) == {"gpu-memory"}
    assert found(models=halves, endpoint=endpoint) == {}


def test_tight_memory_is_told() -> None:
    """Free memory below the plan's uncertainty gives a warning."""
    misfits = found(models={f"m{n}": XLMR for n in range(8)}, endpoint={"instance_type": "ml.g5.2xlarge"})
    assert set(misfits) == {"memory-tight"}


def test_models_without_profile_are_named_once() -> None:
    """Many models without a profile give one warning with some names and the command to inspect them."""
    unknown = {f"m{number}": XLMR | {"model_id": f"org/m{number}"} for number in range(20)}
    message = found(models=unknown)["memory-unknown"].message
    assert "m0, m1, m2, m3, m4 and 15 more" in message
    assert "cohost models inspect m0 --write" in message


def test_too_small_a_requirement_is_told() -> None:
    """A required_memory_mb below the need of the model on the GPU gives a warning."""
    misfits = found(models={"a": XLMR | {"required_memory_mb": 1024}})
    assert "fix: gpu.required_memory_mb: 2688" in misfits["required-memory"].message


@pytest.mark.parametrize(
    ("models", "names"),
    [
        ({"a": MINILM}, {"cpu-workers-unbound"}),
        ({"a": MINILM | {"handler": "batched"}}, set()),
        ({"a": MINILM | {"cpu": workers(1)}}, set()),
        ({f"m{n}": MINILM | {"cpu": workers(1)} for n in range(5)}, {"cpu-workers"}),
        ({f"m{n}": MINILM | {"handler": "shared", "cpu": workers(1)} for n in range(5)}, set()),
        (
            {f"m{n}": MINILM | {"handler": "shared"} for n in range(2)}
            | {f"n{n}": MINILM | {"cpu": workers(1)} for n in range(4)},
            {"cpu-workers"},
        ),
    ],
)
def test_workers_on_a_cpu(models: dict[str, Any], names: set[str]) -> None:
    """The number is stated (a batched model's always is) and not over that of vCPUs; shared models count as one."""
    assert set(found(models=models, endpoint=CPU)) - {"host-memory", "memory-tight"} == names


def test_missing_revisions_are_told() -> None:
    """Weights from the Hub without a revision give a warning; weights in S3 need none."""
    unpinned = {key: value for key, value in MINILM.items() if key != "revision"}
    assert "models: a without a revision" in found(models={"a": unpinned})["revision-not-pinned"].message
    in_s3 = unpinned | {"model_id": "s3://bucket/weights/"}
    assert "revision-not-pinned" not in found(models={"a": in_s3})


@pytest.mark.parametrize(("value", "told"), [("1", True), ("0", False)])
def test_hub_ids_need_the_hub(value: str, told: bool) -> None:  # noqa: FBT001 - a case
    """A model of the Hub is an error for containers that may not reach the Hub."""
    misfits = found(models={"a": MINILM}, endpoint={"environment": {"HF_HUB_OFFLINE": value}})
    assert ("hub-offline" in misfits) is told
    if told:
        assert misfits["hub-offline"].level == "error"


def test_unknown_price_is_told() -> None:
    """A type or region without a price gives a warning with the command that fetches prices."""
    by_region = found(models={"a": MINILM}, region="eu-central-1")["price-unknown"].message
    assert by_region.endswith("fix: cohost prices refresh --region eu-central-1")
    assert "price-unknown" in found(models={"a": MINILM}, endpoint={"instance_type": "ml.g6.xlarge"})


def test_old_price_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A price list causes a warning when it is older than 180 days."""
    monkeypatch.setattr(fit_catalog, "today", lambda: dt.date(2027, 6, 1))
    assert "2026-08-07, over 180 days old" in found(models={"a": MINILM})["price-old"].message


def test_every_message_is_one_line_with_a_way_out() -> None:
    """The message of each check is one line that names the change to make."""
    cases = [
        found(models={"a": MDEBERTA | {"gpu": workers(2), "batch_size": 512}}),
        found(models={f"m{n}": XLMR for n in range(8)}),
        found(models={"a": MINILM}, endpoint=CPU | {"environment": {"HF_HUB_OFFLINE": "1"}}, region="eu-west-9"),
        found(),
    ]
    for misfit in (misfit for case in cases for misfit in case.values()):
        assert misfit.message.startswith(("models", "endpoint.")), misfit.message
        assert "\n" not in misfit.message
        assert "fix: " in misfit.message or "fix: " in misfit.message, misfit.message


def messages(stack: Any, kind: str) -> list[str]:
    """The annotations of a stack."""
    return [entry.data for entry in stack.node.metadata if entry.type == f"aws:cdk:{kind}"]


def test_warning_is_accepted_by_id_and_reason(tmp_path: Path) -> None:
    """A warning that the catalog acknowledges is not printed again; other warnings are."""
    path = tmp_path / "mine.yaml"
    path.write_text(
        "endpoint: {name: e, instance_type: ml.g5.xlarge, image: 'djl-inference:0.36.0-lmi26.0.0-cu130'}\n"
        "acknowledge: {revision-not-pinned: pushed by our release only}\n"
        "models: {m: {model_id: org/m, task: text-classification}}\n"
    )
    warnings = messages(make_stack(load_catalog(path).catalog), "warning")
    assert [re.findall(r"lmi-cohost:[\w-]+", warning) for warning in warnings] == [["lmi-cohost:memory-unknown"]]


def test_error_carries_its_id() -> None:
    """The error of a check has the id that the documentation lists."""
    catalog = make_catalog(endpoint={"environment": {"HF_HUB_OFFLINE": "1"}})
    assert messages(make_stack(catalog), "error")[0].endswith("[lmi-cohost:hub-offline]")


@pytest.mark.parametrize(
    ("topology", "metric", "warned"),
    [
        ("multi-model", "concurrency", {"scaling-metric"}),
        ("multi-model", "invocations", set[str]()),
        ("scale-to-zero", "concurrency", set[str]()),
    ],
)
def test_concurrency_of_a_multi_model_endpoint_is_unverified(topology: str, metric: str, warned: set[str]) -> None:
    """The concurrency metric of a multi-model endpoint gives a warning: without values the endpoint would not scale."""
    scaling = {"min": 1, "max": 2, "metric": metric, "target": 8}
    assert (
        found(models={"a": MINILM}, endpoint={"topology": topology}, scaling=scaling).keys() & {"scaling-metric"}
        == warned
    )


def test_every_check_has_a_known_id_and_is_documented() -> None:
    """docs/checks.md lists exactly the ids of the sources under their levels, each with cause and fix."""
    text = (ROOT / "docs" / "checks.md").read_text()
    errors, _, warnings = text.partition("## Warnings")
    for ids, part in ((check_ids.ERRORS, errors), (check_ids.WARNINGS, warnings)):
        rows = re.findall(r"^\| `([\w-]+)` \| (.+) \| (.+) \|$", part, re.MULTILINE)
        assert sorted(row[0] for row in rows) == sorted(ids)


def test_every_check_in_the_sources_is_listed() -> None:
    """The ids are read from the code, so no new check is missing in the list."""
    sources = "".join(path.read_text() for path in (ROOT / "constructs_lib" / "checks").glob("*.py"))
    # What follows from the day of the synth is told by the stack itself.
    stacks = "".join(path.read_text() for path in (ROOT / "stacks").glob("*.py"))
    errors = set(re.findall(r'\berror\(\s*"([\w-]+)"', sources)) | set(re.findall(r"\[lmi-cohost:([\w-]+)\]", stacks))
    warnings = set(re.findall(r'\bwarning\(\s*"([\w-]+)"', sources)) | {"price-unknown", "price-old"}
    assert errors == set(check_ids.ERRORS)
    assert warnings == set(check_ids.WARNINGS)


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"model-memory": "x"}, "check-unknown"),
        ({"no-such-check": "x"}, "check-unknown"),
        ({"price-old": " "}, "value-empty"),
    ],
)
def test_only_known_warnings_are_accepted_and_only_with_a_reason(entry: dict[str, str], code: str) -> None:
    """Acknowledging an error, an unknown id or without a reason is a fault of the catalog."""
    data = make_catalog().model_dump(by_alias=True, exclude_none=True)
    with pytest.raises(ValidationError) as caught:
        Catalog.model_validate(data | {"acknowledge": entry})
    (fault,) = faults_of(caught.value, Catalog, {f"acknowledge.{next(iter(entry))}"})
    assert (fault.code, fault.field) == (code, f"acknowledge.{next(iter(entry))}")
