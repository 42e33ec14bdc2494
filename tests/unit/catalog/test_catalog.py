"""The catalog: what is accepted, and what a faulty file's owner is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from cohost.archives.archive import server_name
from cohost.catalog.models import Catalog
from cohost.catalog_file import load_catalog
from cohost.errors import CatalogError

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[[str], Path]

ENDPOINT = """\
endpoint:
  name: lmi-cohost
  instance_type: ml.g5.xlarge
  image: djl-inference:0.36.0-lmi26.0.0-cu130
"""
MODEL = "  nli: {model_id: org/nli, task: text-classification}\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a catalog's text to a file and say where it is."""

    def to_file(text: str) -> Path:
        path = tmp_path / "catalog.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return to_file


def faults_of(path: Path) -> list[str]:
    """The faults of a file, without the file's name."""
    with pytest.raises(CatalogError) as caught:
        load_catalog(path)
    return [fault.removeprefix(f"{path}:") for fault in caught.value.faults]


def only_fault(write: Write, *, endpoint: str = "", model: str = "", rest: str = "") -> str:
    """The one fault of an otherwise right catalog with an addition to the endpoint, the model, or the file."""
    entry = f"  nli:\n    model_id: org/nli\n    task: text-classification\n{model}"
    faults = faults_of(write(f"{ENDPOINT}{endpoint}{rest}models:\n{entry}"))
    assert len(faults) == 1, faults
    return faults[0]


def test_smallest_catalog_has_the_documented_defaults(write: Write) -> None:
    """What is left out is one worker a model, one instance, and a bucket that goes with the stack."""
    catalog = load_catalog(write(f"{ENDPOINT}models:\n{MODEL}")).catalog

    assert catalog.endpoint.topology == "multi-model"
    assert catalog.endpoint.initial_instance_count == 1
    assert (catalog.storage.prefix, catalog.storage.on_destroy) == ("encoder-serving/lmi/04-lmi/", "delete")
    assert (catalog.models["nli"].gpu.min_workers, catalog.models["nli"].gpu.max_workers) == (1, 1)
    assert catalog.models["nli"].cpu is None


def test_catalog_knows_its_file(write: Write) -> None:
    """Messages elsewhere can name the file a catalog came from."""
    path = write(f"{ENDPOINT}models:\n{MODEL}")

    assert load_catalog(path).source == path


def test_catalog_cannot_be_changed(write: Write) -> None:
    """Nobody edits a catalog behind another's back."""
    catalog = load_catalog(write(f"{ENDPOINT}models:\n{MODEL}")).catalog

    with pytest.raises(ValidationError, match="frozen"):
        catalog.endpoint.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("name", ["encoders", "offline"])
def test_shipped_catalogs_are_right(name: str) -> None:
    """The catalogs that come with the project load, hold the three encoders, and warn of nothing."""
    catalog = load_catalog(_shipped(name)).catalog

    assert sorted(catalog.models) == ["mdeberta", "minilm", "xlmr-large"]
    assert catalog.endpoint.name == "lmi-cohost"
    assert catalog.endpoint.instance_type == "ml.g5.xlarge"
    assert catalog.warnings == ()


def test_product_catalog_pins_every_revision() -> None:
    """A Hub branch that moves cannot change what is deployed."""
    assert all(entry.revision for entry in load_catalog(_shipped("encoders")).catalog.models.values())


def test_all_faults_come_together_in_the_order_of_the_file(write: Write) -> None:
    """One run tells everything that is wrong, each with its line and field."""
    text = """\
endpoint:
  name: lmi cohost
  instance_typ: ml.g5.xlarge
  instance_type: ml.g5.xlarge
  image: djl-inference:0.36.0-cpu-full
models:
  nli:
    model_id: org/nli
    task: text-clasification
    revision: main
"""
    faults = faults_of(write(text))

    assert [fault.split(": ")[0:2] for fault in faults] == [
        ["2", "endpoint.name"],
        ["3", "endpoint.instance_typ"],
        ["9", "models.nli.task"],
        ["10", "models.nli.revision"],
    ]


def test_faults_between_sections_come_with_those_of_the_yaml_and_of_names(write: Write) -> None:
    """A rule between sections is one more line of the same error, with the line of the value to change."""
    text = f"""\
{ENDPOINT}scaling: {{min: 3, max: 2}}
expires: 8h
expires: 9h
models:
  nli: {{model_id: org/nli, task: text-classification}}
  n-li: {{model_id: org/nli, task: text-classification, handler: batched, max_idle_time: 60}}
"""
    faults = faults_of(write(text))

    assert [fault.split(": ")[0:2] for fault in faults] == [
        ["5", "scaling.min"],
        ["7", "expires"],
        ["10", "models.n-li"],
        ["10", "models.n-li.max_idle_time"],
    ]


def test_unknown_key_names_the_nearest_known_one(write: Write) -> None:
    """A misspelt key is refused, never ignored."""
    assert "did you mean 'batch_size'?" in only_fault(write, model="    batch_sise: 8\n")


def test_unknown_key_without_a_near_one_lists_what_is_known(write: Write) -> None:
    """A key from another world is refused with the whole list."""
    fault = only_fault(write, rest="zzz: 1\n")

    assert f"allowed: {', '.join(Catalog.model_fields)}; fix: take it out" in fault


def test_revision_must_be_a_commit(write: Write) -> None:
    """A branch or tag is no pin."""
    fault = only_fault(write, model="    revision: main\n")

    assert "'main' is not allowed; allowed: the 40 hexadecimal digits of a commit" in fault


def test_revision_of_weights_in_s3_is_refused(write: Write) -> None:
    """DJL ignores a revision beside s3://, so it must not look as if it did something."""
    entry = f"{{model_id: 's3://weights/nli/', task: text-classification, revision: {'a' * 40}}}"
    (fault,) = faults_of(write(f"{ENDPOINT}models:\n  nli: {entry}\n"))

    assert "leave revision out" in fault


@pytest.mark.parametrize(
    ("prefix", "part"),
    [
        ("models", "fix: write 'models/'"),
        ("/models/", "set apart by single /"),
        ("a//b/", "set apart by single /"),
        ("a/../b/", "set apart by single /"),
        ("models/é/", "set apart by single /"),
    ],
)
def test_prefix_must_be_one_that_archives_can_lie_below(write: Write, prefix: str, part: str) -> None:
    """SageMaker joins prefix and TargetModel as they stand, so a prefix without / would merge with a name."""
    assert part in only_fault(write, rest=f"storage: {{prefix: {prefix!r}}}\n")


def test_no_models_at_all_is_refused(write: Write) -> None:
    """An endpoint without models only costs."""
    assert faults_of(write(f"{ENDPOINT}models: {{}}\n")) == [
        "5: models: is empty; allowed: at least one model by name; fix: add an entry"
    ]


@pytest.mark.parametrize("name", ["xlmr-large", "Ab", "a-b-c", "1m", "x--y"])
def test_legal_name_reaches_the_server_as_a_name_of_its_own(write: Write, name: str) -> None:
    """Capitals, digits and hyphens are legal; the server's name for the folder fits a header field."""
    file = write(f"{ENDPOINT}models:\n  {name!r}: {{model_id: org/nli, task: text-classification}}\n")

    assert list(load_catalog(file).catalog.models) == [name]
    assert re.fullmatch(r"\w+", server_name(name), re.ASCII)


@pytest.mark.parametrize("name", ["../x", "-nli", "nli-", "n li", "a/b", "ü", "n" * 64, "nli.v1", "nli_v1"])
def test_model_name_must_suit_s3_sagemaker_and_djl(write: Write, name: str) -> None:
    """A name goes into an S3 key, a TargetModel, a URL path and a construct id."""
    (fault,) = faults_of(write(f"{ENDPOINT}models:\n  {name!r}: {{model_id: org/nli, task: text-classification}}\n"))

    assert f"the model name {name!r} is not allowed" in fault


@pytest.mark.parametrize(("first", "second"), [("nli", "NLI"), ("mini-lm", "minilm"), ("a1", "a-1"), ("a-b", "a--b")])
def test_names_that_become_equal_are_refused(write: Write, first: str, second: str) -> None:
    """CloudFormation's logical ids keep letters and digits only; people do not see case."""
    entry = "{model_id: org/nli, task: text-classification}"
    (fault,) = faults_of(write(f"{ENDPOINT}models:\n  {first}: {entry}\n  {second}: {entry}\n"))

    assert f"{first!r} and {second!r} differ in case or hyphens only" in fault


@pytest.mark.parametrize("second", ["a_b", "a.b", "a b"])
def test_name_that_the_server_would_make_equal_is_refused(write: Write, second: str) -> None:
    """`a-b` and `a_b` are one name to the server, which would not start with both (29): told with line and fix."""
    entry = "{model_id: org/nli, task: text-classification}"
    (fault,) = faults_of(write(f"{ENDPOINT}models:\n  a-b: {entry}\n  {second!r}: {entry}\n"))

    assert fault.startswith(f"7: models.{second}: the model name {second!r} is not allowed; allowed: 1 to 63 letters")
    assert fault.endswith("fix: rename the model")


def test_duplicate_model_is_refused_with_both_lines(write: Write) -> None:
    """YAML would silently keep the last of two."""
    (fault,) = faults_of(write(f"{ENDPOINT}models:\n{MODEL}{MODEL}"))

    assert fault == "7: models.nli: the key stands twice, first on line 6; fix: keep one of the two"


@pytest.mark.parametrize(
    ("properties", "part"),
    [
        ("{batch_sise: '8'}", "did you mean 'batch_size'?"),
        ("{option.engine: Python}", "did you mean 'engine'?"),
        ("{option.task: ner}", "fix: use that field"),
        ("{option.rolling_batch: auto}", "always disable for encoders"),
        ("{option.env: 'a=b '}", "has a blank at an end"),
        ("{option.env: 'a=값'}", "outside printable ASCII"),
        ('{option.env: "a\\nb"}', "outside printable ASCII"),
    ],
)
def test_escape_hatch_refuses_what_would_not_do_as_meant(write: Write, properties: str, part: str) -> None:
    """Misspelt, doubled, blank-ended and non-ASCII properties are told apart and refused."""
    assert part in only_fault(write, model=f"    properties: {properties}\n")


def test_escape_hatch_warns_of_keys_that_nothing_here_knows(write: Write) -> None:
    """A key of a newer server can be set, and the user hears that nobody checked it."""
    entry = "  nli: {model_id: org/nli, task: text-classification, properties: {option.zz_future_switch: 'on'}}\n"
    catalog = load_catalog(write(f"{ENDPOINT}models:\n{entry}")).catalog

    assert catalog.warnings == (
        "models.nli.properties.option.zz_future_switch: unknown to this version; written as it stands",
    )


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ("    handler: batched\n    batch_size: 8\n", "see max_batch_tokens under `batched`"),
        ("    batched: {max_length: 128}\n", "write handler: batched"),
        ("    dtype: auto\n", "allowed: fp32, fp16 or bf16"),
        ("    dtype: tf32\n", "allowed: fp32, fp16 or bf16"),
        ("    handler: batched\n    batched: {max_lenght: 128}\n", "did you mean 'max_length'?"),
        (
            "    handler: batched\n    batched: {attention: disentangled-flash, compile: true}\n",
            "leave packing and compile out",
        ),
        ("    handler: batched\n    batched: {max_queued_sequences: 10}\n", "raise max_queued_sequences"),
        ("    handler: fast\n", "allowed: stock or batched"),
    ],
)
def test_setting_of_another_handler_is_refused(write: Write, settings: str, part: str) -> None:
    """Nothing in an entry is a setting that its handler does not read."""
    assert part in only_fault(write, model=settings)


def test_union_typed_setting_out_of_range_is_one_fault(write: Write) -> None:
    """A value that is neither a number in range nor `auto` is told once, with both."""
    fault = only_fault(write, model="    handler: batched\n    batched: {max_length: 4}\n")

    assert "8 to 1000000 tokens, or auto" in fault


def test_worker_bounds_must_be_in_order(write: Write) -> None:
    """DJL Serving ends with an error at the first call otherwise."""
    fault = only_fault(write, model="    gpu: {minWorkers: 2, maxWorkers: 1}\n")

    assert "minWorkers 2 is over maxWorkers 1" in fault


@pytest.mark.parametrize(
    ("setting", "field", "fix"),
    [
        ("gpu: {minWorkers: 1, maxWorkers: 3}", "gpu.minWorkers", "fix: minWorkers: 3, or fewer for both"),
        ("cpu: {maxWorkers: 2}", "cpu.minWorkers", "fix: minWorkers: 2, or fewer for both"),
        ("max_idle_time: 60", "max_idle_time", "fix: take it out"),
    ],
)
def test_a_batched_model_has_no_worker_that_the_server_could_end(
    write: Write, setting: str, field: str, fix: str
) -> None:
    """The server leaks the process of an asynchronous worker that it ends; a stock model may have such workers."""
    fault = only_fault(write, model=f"    handler: batched\n    {setting}\n")

    assert f"10: models.nli.{field}: " in fault
    assert fault.endswith(fix)
    stock = f"  nli:\n    model_id: org/nli\n    task: text-classification\n    {setting}\n"
    assert load_catalog(write(f"{ENDPOINT}models:\n{stock}"))


@pytest.mark.parametrize(
    ("environment", "part"),
    [
        ("{HF_TOKEN: hf_x}", "no secrets"),
        ("{MY_API_KEY: x}", "no secrets"),
        (f"{{A: {'x' * 1025}}}", "1024 bytes"),
        ("{1A: x}", "not starting with a digit"),
        ("{A: 1}", "put the value in quotes"),
    ],
)
def test_environment_keeps_sagemakers_limits_and_no_secrets(write: Write, environment: str, part: str) -> None:
    """Whoever may describe the model can read the environment."""
    assert part in only_fault(write, endpoint=f"  environment: {environment}\n")


@pytest.mark.parametrize("count", ["0", "'1'", "1.0", "true"])
def test_instance_count_must_be_a_whole_number_from_one(write: Write, count: str) -> None:
    """A multi-model endpoint cannot start at zero, and YAML's look-alikes of numbers are no numbers."""
    assert "initial_instance_count" in only_fault(write, endpoint=f"  initial_instance_count: {count}\n")


def test_topology_that_is_not_there_is_refused(write: Write) -> None:
    """A topology is one that this version builds."""
    assert "allowed: multi-model" in only_fault(write, endpoint="  topology: serverless\n")


@pytest.mark.parametrize("tags", ["{aws:x: y}", "{'': y}", "{k: 'a;b'}", f"{{k: {'v' * 257}}}"])
def test_tags_keep_the_services_rules(write: Write, tags: str) -> None:
    """A tag that one service refuses would fail the deploy half-way."""
    assert "tag" in only_fault(write, rest=f"tags: {tags}\n")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("endpoint: [", "not readable as YAML"),
        ("a: b\n---\nc: d\n", "not readable as YAML"),
        ("- x\n", "the file: ['x'] is not a mapping"),
        ("", "endpoint: is missing"),
        ("1: x\n", "put the key in quotes"),
        ("? [a]\n: b\n", "put the key in quotes"),
    ],
)
def test_text_that_is_no_catalog_is_refused(write: Write, text: str, part: str) -> None:
    """Broken YAML and other documents end in one clear line, not in a traceback."""
    assert any(part in fault for fault in faults_of(write(text)))


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A wrong path says which."""
    with pytest.raises(CatalogError, match=r"nowhere\.yaml: cannot be read"):
        load_catalog(tmp_path / "nowhere.yaml")


def test_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    """Another encoding is told, with the place."""
    path = tmp_path / "catalog.yaml"
    path.write_bytes(b"endpoint: \xff")

    with pytest.raises(CatalogError, match="byte 10 is not UTF-8"):
        load_catalog(path)


def test_three_hundred_models_are_read(write: Write) -> None:
    """A catalog has no limit of its own; what one deploy can carry is checked where it is deployed."""
    entries = "".join(f"  model-{n}x: {{model_id: org/m{n}, task: text-classification}}\n" for n in range(300))

    catalog = load_catalog(write(f"{ENDPOINT}models:\n{entries}")).catalog

    assert isinstance(catalog, Catalog)
    assert len(catalog.models) == 300


def _shipped(name: str) -> Path:
    return Path(__file__).parents[3] / "model_configs" / f"{name}.yaml"
