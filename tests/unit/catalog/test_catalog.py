"""The catalog: the accepted files, and the errors of faulty ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused
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
    """Write the text of a catalog to a file, and return its path."""

    def to_file(text: str) -> Path:
        path = tmp_path / "catalog.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return to_file


def faults_of(path: Path) -> list[tuple[int, str, str]]:
    """The line, code and field of each fault of a file."""
    with pytest.raises(CatalogError) as caught:
        load_catalog(path)
    return [(entry["line"], entry["code"], entry["field"]) for entry in caught.value.entries()]


def only_fault(write: Write, *, endpoint: str = "", model: str = "", rest: str = "") -> CatalogError:
    """Return the only fault of a valid catalog with an addition to endpoint, model or file."""
    entry = f"  nli:\n    model_id: org/nli\n    task: text-classification\n{model}"
    with pytest.raises(CatalogError) as caught:
        load_catalog(write(f"{ENDPOINT}{endpoint}{rest}models:\n{entry}"))
    assert not caught.value.further, caught.value
    return caught.value


def test_smallest_catalog_has_the_documented_defaults(write: Write) -> None:
    """The defaults are one worker per model, one instance, and a bucket that is deleted with the stack."""
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
    """A catalog object is frozen, so no part of the program can change it."""
    catalog = load_catalog(write(f"{ENDPOINT}models:\n{MODEL}")).catalog

    with pytest.raises(ValidationError, match="frozen"):
        catalog.endpoint.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("name", ["encoders", "offline"])
def test_shipped_catalogs_are_right(name: str) -> None:
    """The project's catalogs load without a warning and have the three encoders."""
    catalog = load_catalog(_shipped(name)).catalog

    assert sorted(catalog.models) == ["mdeberta", "minilm", "xlmr-large"]
    assert catalog.endpoint.name == "lmi-cohost"
    assert catalog.endpoint.instance_type == "ml.g5.xlarge"
    assert catalog.warnings == ()


def test_product_catalog_pins_every_revision() -> None:
    """The default catalog pins each model to a commit."""
    assert all(entry.revision for entry in load_catalog(_shipped("encoders")).catalog.models.values())


def test_all_faults_come_together_in_the_order_of_the_file(write: Write) -> None:
    """All faults of a catalog are reported in the order of the file, each with its line and field."""
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
    assert faults_of(write(text)) == [
        (2, "name-not-allowed", "endpoint.name"),
        (3, "key-unknown", "endpoint.instance_typ"),
        (9, "value-not-allowed", "models.nli.task"),
        (10, "value-not-allowed", "models.nli.revision"),
    ]


def test_faults_between_sections_come_with_those_of_the_yaml_and_of_names(write: Write) -> None:
    """A fault between sections is reported with the others, at the line of the value to change."""
    text = f"""\
{ENDPOINT}scaling: {{min: 3, max: 2}}
expires: 8h
expires: 9h
models:
  nli: {{model_id: org/nli, task: text-classification}}
  n-li: {{model_id: org/nli, task: text-classification, handler: batched, max_idle_time: 60}}
"""
    assert faults_of(write(text)) == [
        (5, "bounds-crossed", "scaling.min"),
        (7, "key-twice", "expires"),
        (10, "name-twice", "models.n-li"),
        (10, "setting-unused", "models.n-li.max_idle_time"),
    ]


def test_an_error_of_several_faults_has_each_with_its_place_and_way_out(write: Write) -> None:
    """`--json` has the parts of each fault: place, field, allowed values and fix."""
    path = write(f"{ENDPOINT}models:\n{MODEL}{MODEL}tags: 1\n")
    with refused("key-twice", "models.nli", kind=CatalogError) as caught:
        load_catalog(path)
    first, second = caught.value.entries()
    assert (first["file"], first["line"], first["fix"]) == (str(path), 7, "remove one")
    assert (second["code"], second["line"], second["message"]) == (
        "not-a-mapping",
        8,
        str(caught.value).splitlines()[1],
    )


@pytest.mark.parametrize("name", ["faulty", "contradictory"])
def test_texts_of_catalogs_full_of_faults_are_as_agreed(name: str) -> None:
    """Each error is `file:line: field: problem; allowed: …; fix: …`, as in the golden file."""
    folder = Path(__file__).parents[2] / "data" / "catalogs"
    with pytest.raises(CatalogError) as caught:
        load_catalog(folder / f"{name}.yaml")
    assert f"{caught.value}\n".replace(f"{folder}/", "") == (folder / f"{name}.txt").read_text(encoding="utf-8")


def test_unknown_key_names_the_nearest_known_one(write: Write) -> None:
    """A misspelt key is refused, never ignored."""
    fault = only_fault(write, model="    batch_sise: 8\n")
    assert (fault.code, fault.field) == ("key-unknown", "models.nli.batch_sise")
    assert "'batch_size'" in fault.fix


def test_unknown_key_without_a_near_one_lists_what_is_known(write: Write) -> None:
    """An unknown key without a near one is rejected with all known keys."""
    fault = only_fault(write, rest="zzz: 1\n")
    assert (fault.code, fault.allowed) == ("key-unknown", ", ".join(Catalog.model_fields))


def test_revision_must_be_a_commit(write: Write) -> None:
    """A branch or tag as revision is rejected."""
    fault = only_fault(write, model="    revision: main\n")
    assert (fault.code, fault.field) == ("value-not-allowed", "models.nli.revision")


def test_revision_of_weights_in_s3_is_refused(write: Write) -> None:
    """A revision beside an s3:// model id is rejected, because DJL ignores it."""
    entry = f"{{model_id: 's3://weights/nli/', task: text-classification, revision: {'a' * 40}}}"
    with refused("settings-conflict", "models.nli"):
        load_catalog(write(f"{ENDPOINT}models:\n  nli: {entry}\n"))


@pytest.mark.parametrize("prefix", ["models", "/models/", "a//b/", "a/../b/", "models/é/"])
def test_prefix_must_be_one_that_archives_can_lie_below(write: Write, prefix: str) -> None:
    """A prefix without a final slash is rejected, because SageMaker appends TargetModel unchanged."""
    fault = only_fault(write, rest=f"storage: {{prefix: {prefix!r}}}\n")
    assert (fault.code, fault.field) == ("value-not-allowed", "storage.prefix")


def test_no_models_at_all_is_refused(write: Write) -> None:
    """A catalog without models is rejected."""
    assert faults_of(write(f"{ENDPOINT}models: {{}}\n")) == [(5, "value-empty", "models")]


@pytest.mark.parametrize("name", ["xlmr-large", "Ab", "a-b-c", "1m", "x--y"])
def test_legal_name_reaches_the_server_as_a_name_of_its_own(write: Write, name: str) -> None:
    """Capitals, digits and hyphens are legal; the server's name for the folder fits a header field."""
    file = write(f"{ENDPOINT}models:\n  {name!r}: {{model_id: org/nli, task: text-classification}}\n")

    assert list(load_catalog(file).catalog.models) == [name]
    assert re.fullmatch(r"\w+", server_name(name), re.ASCII)


@pytest.mark.parametrize("name", ["../x", "-nli", "nli-", "n li", "a/b", "ü", "n" * 64, "nli.v1", "nli_v1"])
def test_model_name_must_suit_s3_sagemaker_and_djl(write: Write, name: str) -> None:
    """A model name must be valid in an S3 key, a TargetModel, a URL path and a construct id."""
    with refused("name-not-allowed", f"models.{name}"):
        load_catalog(write(f"{ENDPOINT}models:\n  {name!r}: {{model_id: org/nli, task: text-classification}}\n"))


@pytest.mark.parametrize(("first", "second"), [("nli", "NLI"), ("mini-lm", "minilm"), ("a1", "a-1"), ("a-b", "a--b")])
def test_names_that_become_equal_are_refused(write: Write, first: str, second: str) -> None:
    """CloudFormation's logical ids keep letters and digits only; people do not see case."""
    entry = "{model_id: org/nli, task: text-classification}"
    with refused("name-twice", f"models.{second}"):
        load_catalog(write(f"{ENDPOINT}models:\n  {first}: {entry}\n  {second}: {entry}\n"))


@pytest.mark.parametrize("second", ["a_b", "a.b", "a b"])
def test_name_that_the_server_would_make_equal_is_refused(write: Write, second: str) -> None:
    """Two names such as `a-b` and `a_b` are rejected, because the server makes them equal (recorded: 29)."""
    entry = "{model_id: org/nli, task: text-classification}"
    faults = faults_of(write(f"{ENDPOINT}models:\n  a-b: {entry}\n  {second!r}: {entry}\n"))

    assert faults == [(7, "name-not-allowed", f"models.{second}")]


def test_duplicate_model_is_refused_with_both_lines(write: Write) -> None:
    """A repeated model is rejected with both lines."""
    fault = only_fault(write, rest=f"models:\n{MODEL}")
    assert (fault.code, fault.line) == ("key-twice", 7)
    assert "line 5" in fault.problem


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ("{batch_sise: '8'}", "key-unknown"),
        ("{option.engine: Python}", "key-unknown"),
        ("{option.task: ner}", "key-not-allowed"),
        ("{option.rolling_batch: auto}", "key-not-allowed"),
        ("{option.shared: 'true'}", "key-not-allowed"),
        ("{option.engines_per_device: '2'}", "key-not-allowed"),
        ("{gpu.reserved_memory_mb: '2'}", "key-not-allowed"),
        ("{option.env: 'a=b '}", "value-not-allowed"),
        ("{option.env: 'a=값'}", "value-not-allowed"),
        ('{option.env: "a\\nb"}', "value-not-allowed"),
    ],
)
def test_escape_hatch_refuses_what_would_not_do_as_meant(write: Write, properties: str, code: str) -> None:
    """Misspelt, repeated, blank-ended and non-ASCII entries of `properties` are rejected at their keys."""
    fault = only_fault(write, model=f"    properties: {properties}\n")
    assert (fault.code, fault.field) == (code, f"models.nli.properties.{properties[1:].partition(':')[0]}")


def test_all_faulty_properties_and_variables_are_reported_at_their_lines(write: Write) -> None:
    """Each faulty property and environment variable is reported at its line."""
    entry = "{model_id: org/nli, task: text-classification, properties: {option.engine: x, engine: y}}"
    text = f"{ENDPOINT}  environment:\n    HF_TOKEN: x\n    1A: x\nmodels:\n  nli: {entry}\n"
    assert faults_of(write(text)) == [
        (6, "secret-not-allowed", "endpoint.environment.HF_TOKEN"),
        (7, "name-not-allowed", "endpoint.environment.1A"),
        (9, "key-unknown", "models.nli.properties.option.engine"),
        (9, "key-not-allowed", "models.nli.properties.engine"),
    ]


def test_escape_hatch_warns_of_keys_that_nothing_here_knows(write: Write) -> None:
    """An unknown key under `properties` gives a warning and is written."""
    entry = "  nli: {model_id: org/nli, task: text-classification, properties: {option.zz_future_switch: 'on'}}\n"
    catalog = load_catalog(write(f"{ENDPOINT}models:\n{entry}")).catalog

    assert catalog.warnings == (
        "models.nli.properties.option.zz_future_switch: unknown to this version; written unchanged",
    )


@pytest.mark.parametrize(
    ("settings", "code", "field"),
    [
        ("    handler: batched\n    batch_size: 8\n", "settings-conflict", ""),
        ("    batched: {max_length: 128}\n", "settings-conflict", ""),
        ("    dtype: auto\n", "settings-conflict", ""),
        ("    dtype: tf32\n", "settings-conflict", ""),
        ("    handler: batched\n    batched: {max_lenght: 128}\n", "key-unknown", ".batched.max_lenght"),
        (
            "    handler: batched\n    batched: {attention: disentangled-flash, compile: true}\n",
            "settings-conflict",
            ".batched",
        ),
        ("    handler: batched\n    batched: {max_queued_sequences: 10}\n", "bounds-crossed", ".batched"),
        ("    handler: fast\n", "value-not-allowed", ".handler"),
        ("    handler: shared\n    batched: {max_length: 128}\n", "settings-conflict", ""),
        ("    handler: batched\n    shared: {max_length: 128}\n", "settings-conflict", ""),
        ("    handler: shared\n    max_batch_delay: 8\n", "settings-conflict", ""),
        ("    handler: shared\n    dtype: tf32\n", "settings-conflict", ""),
        ("    handler: shared\n    trust_remote_code: true\n", "settings-conflict", ""),
        ("    handler: shared\n    tensor_parallel_degree: 2\n", "settings-conflict", ""),
        ("    handler: shared\n    shared: {threads: 2}\n", "settings-conflict", ".shared"),
        ("    handler: shared\n    shared: {share: 0}\n", "value-not-allowed", ".shared.share"),
        ("    handler: shared\n    shared: {max_queued_sequences: 10}\n", "bounds-crossed", ".shared"),
    ],
)
def test_setting_of_another_handler_is_refused(write: Write, settings: str, code: str, field: str) -> None:
    """An entry is rejected if it has a setting that its handler does not read."""
    fault = only_fault(write, model=settings)
    assert (fault.code, fault.field) == (code, f"models.nli{field}")


@pytest.mark.parametrize("value", ["4", "1000001", "none"])
def test_handlers_limits_hold_and_a_union_typed_setting_is_one_fault(write: Write, value: str) -> None:
    """A value that is neither in range nor `auto` is reported once."""
    fault = only_fault(write, model=f"    handler: batched\n    batched: {{max_length: {value}}}\n")
    assert (fault.code, fault.field) == ("value-not-allowed", "models.nli.batched.max_length")


def test_worker_bounds_must_be_in_order(write: Write) -> None:
    """A minimum of workers above the maximum is rejected, because DJL Serving would fail at the first call."""
    fault = only_fault(write, model="    gpu: {minWorkers: 2, maxWorkers: 1}\n")
    assert (fault.code, fault.field) == ("bounds-crossed", "models.nli.gpu")


@pytest.mark.parametrize(
    ("setting", "code", "field"),
    [
        ("gpu: {minWorkers: 1, maxWorkers: 3}", "worker-bounds-differ", "gpu.minWorkers"),
        ("cpu: {maxWorkers: 2}", "worker-bounds-differ", "cpu.minWorkers"),
        ("max_idle_time: 60", "setting-unused", "max_idle_time"),
    ],
)
def test_a_batched_model_has_no_worker_that_the_server_could_end(
    write: Write, setting: str, code: str, field: str
) -> None:
    """A batched model must have equal minWorkers and maxWorkers, because the server leaks ended processes."""
    fault = only_fault(write, model=f"    handler: batched\n    {setting}\n")

    assert (fault.line, fault.code, fault.field) == (10, code, f"models.nli.{field}")
    stock = f"  nli:\n    model_id: org/nli\n    task: text-classification\n    {setting}\n"
    assert load_catalog(write(f"{ENDPOINT}models:\n{stock}"))


@pytest.mark.parametrize(
    ("setting", "code", "field"),
    [
        ("gpu: {minWorkers: 2, maxWorkers: 2}", "workers-of-shared", "gpu.maxWorkers"),
        ("gpu: {maxWorkers: 3}", "workers-of-shared", "gpu.maxWorkers"),
        ("cpu: {minWorkers: 2, maxWorkers: 2}", "workers-of-shared", "cpu.maxWorkers"),
        ("max_idle_time: 60", "setting-unused", "max_idle_time"),
    ],
)
def test_a_shared_model_has_one_worker_per_device(write: Write, setting: str, code: str, field: str) -> None:
    """A second proxy process would hand on to the same engine process; the bounds of one worker may be stated."""
    fault = only_fault(write, model=f"    handler: shared\n    {setting}\n")

    assert (fault.line, fault.code, fault.field) == (10, code, f"models.nli.{field}")
    one = "  nli: {model_id: org/nli, task: text-classification, handler: shared, cpu: {minWorkers: 1, maxWorkers: 1}}"
    assert load_catalog(write(f"{ENDPOINT}models:\n{one}\n")).catalog.models["nli"].handler == "shared"


def test_engines_per_device_needs_a_shared_model(write: Write) -> None:
    """Nothing else would read the setting."""
    fault = only_fault(write, endpoint="  engines_per_device: 2\n", model="    handler: batched\n")
    assert (fault.code, fault.field) == ("setting-unused", "endpoint.engines_per_device")


def test_metrics_of_each_model_need_a_handler_that_counts(write: Write) -> None:
    """The server's own handler logs nothing that a metric could be made of."""
    fault = only_fault(write, rest="monitoring: {model_metrics: true}\n")
    assert (fault.code, fault.field) == ("setting-unused", "monitoring.model_metrics")


def test_shared_models_have_the_same_packages(write: Write) -> None:
    """One process imports them once for all models; a batched model beside may have others."""
    entries = [
        f"  {name}: {{model_id: org/{name}, task: text-classification, handler: {handler}, packages: [{packages}]}}\n"
        for name, handler, packages in (
            ("first", "shared", "a==1, b==2"),
            ("alike", "shared", "b==2, a==1"),
            ("own", "batched", "c==3"),
            ("other", "shared", "a==1"),
        )
    ]
    assert faults_of(write(f"{ENDPOINT}models:\n{''.join(entries)}")) == [
        (9, "shared-packages-differ", "models.other.packages")
    ]
    assert load_catalog(write(f"{ENDPOINT}models:\n{''.join(entries[:3])}"))


@pytest.mark.parametrize(
    ("environment", "code"),
    [
        ("{HF_TOKEN: hf_x}", "secret-not-allowed"),
        ("{MY_API_KEY: x}", "secret-not-allowed"),
        (f"{{A: {'x' * 1025}}}", "value-too-large"),
        ("{" + ", ".join(f"A{n}: {'x' * 1000}" for n in range(40)) + "}", "value-too-large"),
        ("{1A: x}", "name-not-allowed"),
        ("{A: 1}", "value-not-allowed"),
    ],
    ids=["token", "key", "value", "all-values", "name", "number"],
)
def test_environment_keeps_sagemakers_limits_and_no_secrets(write: Write, environment: str, code: str) -> None:
    """The environment rejects secrets, because every principal that may describe the SageMaker model can read it."""
    fault = only_fault(write, endpoint=f"  environment: {environment}\n")
    assert fault.code == code
    assert fault.field.startswith("endpoint.environment")


@pytest.mark.parametrize("count", ["0", "'1'", "1.0", "true"])
def test_instance_count_must_be_a_whole_number_from_one(write: Write, count: str) -> None:
    """A multi-model endpoint cannot start at zero, and YAML's look-alikes of numbers are no numbers."""
    fault = only_fault(write, endpoint=f"  initial_instance_count: {count}\n")
    assert (fault.code, fault.field) == ("value-not-allowed", "endpoint.initial_instance_count")


def test_topology_that_is_not_there_is_refused(write: Write) -> None:
    """An unknown topology is rejected."""
    fault = only_fault(write, endpoint="  topology: serverless\n")
    assert (fault.code, fault.field) == ("value-not-allowed", "endpoint.topology")


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        ("{aws:x: y}", "name-not-allowed"),
        ("{'': y}", "name-not-allowed"),
        ("{k: 'a;b'}", "value-not-allowed"),
        (f"{{k: {'v' * 257}}}", "value-not-allowed"),
        (f"{{{', '.join(f'k{n}: v' for n in range(50))}}}", "value-too-large"),
    ],
)
def test_tags_keep_the_services_rules(write: Write, tags: str, code: str) -> None:
    """A tag that one AWS service would reject is rejected before the deploy."""
    assert only_fault(write, rest=f"tags: {tags}\n").code == code


@pytest.mark.parametrize(
    ("text", "code", "field"),
    [
        ("endpoint: [", "yaml-unreadable", "the file"),
        ("a: b\n---\nc: d\n", "yaml-unreadable", "the file"),
        ("- x\n", "not-a-mapping", "the file"),
        ("", "field-missing", "endpoint"),
        ("1: x\n", "key-not-text", "the file"),
        ("? [a]\n: b\n", "key-not-text", "the file"),
    ],
)
def test_text_that_is_no_catalog_is_refused(write: Write, text: str, code: str, field: str) -> None:
    """Invalid YAML and other documents give one clear line and no traceback."""
    assert (1, code, field) in [(1, *fault[1:]) for fault in faults_of(write(text))]


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The error of a missing catalog file has its path as the field."""
    path = tmp_path / "nowhere.yaml"
    with refused("catalog-unreadable", str(path), kind=CatalogError):
        load_catalog(path)


def test_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    """A catalog in another encoding than UTF-8 is rejected with the place of the first wrong byte."""
    path = tmp_path / "catalog.yaml"
    path.write_bytes(b"endpoint: \xff")

    with refused("catalog-not-utf8", str(path), kind=CatalogError) as caught:
        load_catalog(path)
    assert "byte 10" in caught.value.problem


def test_three_hundred_models_are_read(write: Write) -> None:
    """A catalog may have three hundred models; the limit of one deploy is checked at synth."""
    entries = "".join(f"  model-{n}x: {{model_id: org/m{n}, task: text-classification}}\n" for n in range(300))

    catalog = load_catalog(write(f"{ENDPOINT}models:\n{entries}")).catalog

    assert isinstance(catalog, Catalog)
    assert len(catalog.models) == 300


def _shipped(name: str) -> Path:
    return Path(__file__).parents[3] / "model_configs" / f"{name}.yaml"
