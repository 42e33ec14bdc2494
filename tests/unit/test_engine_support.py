"""The backends that can serve a model, and the output of `cohost engines`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

from cohost import cli
from cohost.archives.model_checks import means_entailment
from cohost.catalog.models import Catalog
from cohost.catalog_file import load_catalog
from cohost.engine_support import BACKENDS, Verdict, judge
from cohost.forecast.plan.profiles import Profile, load_profiles, profiles_path
from cohost.handler.cohost_zero_shot import entailment_index

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
ENCODERS = ROOT / "model_configs/encoders.yaml"
LMI, CPU_FULL = "djl-inference:0.36.0-lmi26.0.0-cu130", "djl-inference:0.36.0-cpu-full"
TRTLLM = "djl-inference:0.33.0-tensorrtllm0.21.0-cu128"
VLLM = "vllm:0.26.0-gpu-py312-cu130-ubuntu22.04-sagemaker"
BERT = {"model_type": "bert", "architectures": ["BertModel"]}
DISTILBERT = {"model_type": "distilbert", "architectures": ["DistilBertModel"]}


def catalog_of(entry: Mapping[str, Any], **changes: Any) -> Catalog:
    """Return a catalog of one model, `m`."""
    endpoint = {"name": "lmi-cohost", "instance_type": "ml.g5.xlarge", "image": LMI}
    endpoint |= changes.pop("endpoint", {})
    model = {"model_id": "org/name", "task": "feature-extraction", **entry}
    return Catalog.model_validate({"endpoint": endpoint, "models": {"m": model}, **changes})


def verdicts(
    config: dict[str, Any] | None, entry: Mapping[str, Any] | None = None, **changes: Any
) -> dict[str, Verdict]:
    """The verdicts on that model by backend."""
    profiles = {} if config is None else {"org/name": Profile(source="a test", elements={"fp32": 1}, config=config)}
    (found,) = judge(catalog_of(entry or {}, **changes), profiles, ["m"])
    return found.backends


def words(found: Mapping[str, Verdict]) -> dict[str, str]:
    """Return each verdict as a word."""
    return {backend: verdict.word for backend, verdict in found.items()}


def test_the_three_encoders_take_the_transformers_path_or_onnx() -> None:
    """The three encoders can be served by transformers or ONNX, and not by TensorRT-LLM."""
    loaded = load_catalog(ENCODERS).catalog
    found = judge(loaded, load_profiles(profiles_path(ENCODERS)), loaded.models)
    for judged in found:
        expected = {"stock": "yes", "batched": "yes", "shared": "yes", "onnx": "yes", "vllm": "no", "trtllm": "no"}
        assert words(judged.backends) == expected, judged.model.name
    against = [reason.text for reason in found[0].backends["vllm"].against]
    assert "vLLM has no DeBERTa" in against


def test_vectors_of_a_bert_are_what_vllm_can_do() -> None:
    """The vectors of a BERT can be served by vLLM with the lmi image on a GPU, and with no other image."""
    assert words(verdicts(BERT))["vllm"] == "yes"
    on_cpu = verdicts(BERT, endpoint={"image": CPU_FULL, "instance_type": "ml.c7i.xlarge"})["vllm"]
    assert on_cpu.word == "other image"
    assert len(on_cpu.place) == 2


@pytest.mark.parametrize(
    ("image", "topology", "expected"),
    [
        (LMI, "multi-model", ("yes", "yes", "yes", "yes", "yes", "no")),
        (TRTLLM, "multi-model", ("yes", "yes", "yes", "yes", "other image", "no")),
        (VLLM, "multi-model", ("other image", "other image", "other image", "yes", "other image", "no")),
        (VLLM, "scale-to-zero", ("other image", "other image", "other image", "yes", "yes", "no")),
    ],
)
def test_the_image_decides_what_is_there(image: str, topology: str, expected: tuple[str, ...]) -> None:
    """The backends of an image are known: the vLLM image has no DJL, the TensorRT-LLM image no vLLM."""
    endpoint = {"image": image, "topology": topology}
    assert tuple(words(verdicts(BERT, endpoint=endpoint)).values()) == expected


def test_the_label_matters_to_a_multi_model_endpoint_alone() -> None:
    """The multi-model label of an image is only needed for a multi-model endpoint."""
    shared = verdicts(BERT, endpoint={"image": VLLM})["vllm"]
    assert ["lacks the multi-model label" in reason.text for reason in shared.place] == [True]
    assert verdicts(BERT, endpoint={"image": VLLM, "topology": "scale-to-zero"})["vllm"].place == ()


def test_an_onnx_design_in_an_image_without_the_engine_is_told() -> None:
    """The image of the ONNX design must have the engine, whatever the endpoint's image is."""
    found = verdicts(BERT, designs={"cpu-onnx": {"image": TRTLLM}})["onnx"]
    assert found.word == "other image"
    assert found.place[0].text.startswith("designs.cpu-onnx.image")


def test_what_is_not_known_is_unknown() -> None:
    """A verdict without enough facts is "unknown", with the command that finds them."""
    found = verdicts(None)
    assert words(found) == {**dict.fromkeys(BACKENDS, "unknown"), "trtllm": "no"}
    assert "cohost models inspect m --write" in found["stock"].against[0].text


def test_an_architecture_that_nobody_tried_is_left_open() -> None:
    """An untested architecture has the verdict "unknown" for ONNX and vLLM."""
    found = words(verdicts(DISTILBERT))
    assert (found["stock"], found["onnx"], found["vllm"]) == ("yes", "unknown", "unknown")


def test_a_missing_head_keeps_every_transformers_backend_out() -> None:
    """A model without a trained head is rejected for every backend that uses transformers."""
    found = words(verdicts(BERT, {"task": "text-classification"}))
    assert (found["stock"], found["batched"], found["onnx"]) == ("no", "no", "no")


def test_code_of_its_own_is_not_exported() -> None:
    """The exporter loads no remote code, and a shared engine process runs none."""
    found = words(verdicts(BERT, {"trust_remote_code": True}))
    assert (found["onnx"], found["shared"], found["batched"]) == ("no", "no", "yes")


def test_cpu_full_installs_packages_and_says_so() -> None:
    """A note says that the cpu-full image installs packages."""
    found = verdicts(BERT, endpoint={"image": CPU_FULL, "instance_type": "ml.c7i.xlarge"})["stock"]
    assert found.word == "yes"
    assert "no Python packages" in found.notes[0].text


def test_every_reason_has_a_source() -> None:
    """Each reason has a source."""
    cases = [verdicts(config, {"task": task}, endpoint={"image": image})
             for config in (None, BERT, DISTILBERT) for task in ("text-classification", "feature-extraction")
             for image in (LMI, CPU_FULL, VLLM)]  # fmt: skip
    reasons = {r for case in cases for v in case.values() for r in (*v.against, *v.place, *v.notes)}
    assert len(reasons) > 10
    assert all(reason.source for reason in reasons)


@pytest.mark.parametrize("label", ["entailment", "ENTAILED", "entail", "not_entailment", "contradiction", ""])
def test_a_label_means_entailment_here_as_in_the_handler(label: str) -> None:
    """The check and the handler agree on the labels that mean entailment."""
    try:
        found = entailment_index({label: 0}, "m") == 0
    except ValueError:
        found = False
    assert means_entailment(label) is found


def test_a_local_config_wins_over_the_profile(tmp_path: Path) -> None:
    """A local config.json overrides the profile."""
    folder = tmp_path / "org/name"
    folder.mkdir(parents=True)
    labels = {"0": "joy", "1": "anger"}
    config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "id2label": labels}
    (folder / "config.json").write_text(json.dumps(config))
    (found,) = judge(catalog_of({"task": "zero-shot-classification"}), {}, ["m"], [tmp_path])
    assert found.model.source == str(folder / "config.json")
    assert found.backends["stock"].word == "no"
    assert "2 labels means entailment" in found.backends["stock"].against[0].text


def test_the_command_shows_a_table_and_its_sources(tmp_path: Path) -> None:
    """`cohost engines` prints one line per model, and each reason once with its models and source."""
    content = yaml.safe_load(ENCODERS.read_text())
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(content))
    profiles_path(file).write_text(profiles_path(ENCODERS).read_text())

    shown = CliRunner().invoke(cli.app, ["engines", "--catalog", str(file)], catch_exceptions=False)

    assert shown.exit_code == 0
    assert shown.stdout.count("vLLM has no DeBERTa") == 1
    assert "mdeberta: vLLM has no DeBERTa [vLLM: vllm/model_executor/models/registry.py" in shown.stdout

    chosen = CliRunner().invoke(cli.app, ["engines", "minilm", "--json", "--catalog", str(file)])
    (model,) = json.loads(chosen.stdout)["models"]
    assert model["architecture"] == "XLMRobertaForSequenceClassification"
    assert model["backends"]["stock"]["here"] is True
    assert model["backends"]["vllm"]["against"][0]["source"].startswith("DJL Serving 0.36.0")
