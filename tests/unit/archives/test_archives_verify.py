"""`cohost verify` finds and names every fault of an archive; a hostile archive costs neither memory nor time."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import tarfile
import tracemalloc
import zipfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cohost.archives import inventory
from cohost.archives.archive import model_files, pack
from cohost.archives.handlers import handler_files
from cohost.archives.verify import Fault, verify
from cohost.catalog.models import BatchedSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

GOOD = {
    "engine": "Python",
    "option.model_id": "org/name",
    "option.task": "text-classification",
    "option.rolling_batch": "disable",
    "gpu.minWorkers": "1",
    "gpu.maxWorkers": "1",
    "option.tensor_parallel_degree": "1",
}
LOCAL = {key: value for key, value in GOOD.items() if key != "option.model_id"}
CONFIG = json.dumps({"architectures": ["BertForSequenceClassification"], "label2id": {"entailment": 0}}).encode()
MODEL = {"model.safetensors": b"w", "config.json": CONFIG, "tokenizer.json": b"{}"}


def text(properties: Mapping[str, str]) -> bytes:
    """Return properties as a careless writer writes them."""
    return "".join(f"{key}={value}\n" for key, value in properties.items()).encode()


def tarred(path: Path, members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> Path:
    """Return a tar.gz of exactly these entries."""
    with tarfile.open(path, "w:gz") as tar:
        for member, data in members:
            tar.addfile(member, io.BytesIO(data))
    return path


def entry(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, target: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    """Return one entry of a tar file."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    member.size = len(data)
    return member, data


@pytest.fixture
def codes(tmp_path: Path) -> Callable[..., set[str]]:
    """The codes of all faults of an archive with these files, given as bytes by path."""

    def run(files: Mapping[str, bytes], *more: tuple[tarfile.TarInfo, bytes]) -> set[str]:
        faults = verify(tarred(tmp_path / "m.tar.gz", [*(entry(name, data) for name, data in files.items()), *more]))
        check_wording(faults)
        return {fault.code for fault in faults}

    return run


def check_wording(faults: list[Fault]) -> None:
    """Assert that each fault has two printable lines: the problem and the fix."""
    for fault in faults:
        assert fault.message.isprintable(), fault
        assert fault.fix.isprintable(), fault
        assert fault.message
        assert fault.fix
        assert fault.severity in {"error", "warning"}


def test_own_archives_have_no_fault(tmp_path: Path) -> None:
    """Archives of the catalog's entries pass `cohost verify`, also with weights inside or requirements."""
    path = tmp_path / "m.tar.gz"
    for data in (
        pack(model_files(GOOD)),
        pack(model_files(GOOD, ["torch"])),
        pack({"serving.properties": text(LOCAL), **MODEL}),
    ):
        path.write_bytes(data)
        assert verify(path) == []


def test_names_with_leading_dot_are_the_root(codes: Callable[..., set[str]]) -> None:
    """`./serving.properties`, which `tar -C folder .` writes, is a file at the root."""
    assert codes({"./serving.properties": text(GOOD)}, entry("./", kind=tarfile.DIRTYPE)) == set()


def test_all_faults_of_an_archive_come_together(codes: Callable[..., set[str]]) -> None:
    """One run of `cohost verify` names all faults of an archive."""
    found = codes(
        {
            "serving.properties": b"engine=Python \noption.engine=Python\nbatch_sise=8\ngpu.minWorkers=2\n"
            b"gpu.maxWorkers=1\noption.rolling_batch=auto\noption.task=text-classification\n",
            "model.safetensors": b"w",
            "pytorch_model.bin": b"w",
            "requirements.txt": b"# nothing\n",
        },
        entry("vocab", kind=tarfile.SYMTYPE, target="../../blobs/x"),
    )
    assert found == {
        "trailing-blank",
        "misplaced-key",
        "unknown-key",
        "min-over-max",
        "rolling-batch",
        "no-tensor-parallel-degree",
        "two-weight-formats",
        "no-config",
        "no-tokenizer",
        "requirements-empty",
        "link",
    }


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"engine": "Python "}, {"trailing-blank"}),
        ({"engine": "python"}, {"unknown-engine"}),
        ({"engine": None}, {"no-engine"}),
        ({"option.engine": "Python"}, {"misplaced-key"}),
        ({"model_id": "x/y"}, {"misplaced-key"}),
        ({"batch_sise": "8"}, {"unknown-key"}),
        ({"option.rolling_batch": "auto"}, {"rolling-batch"}),
        ({"option.rolling_batch": None}, {"no-rolling-batch"}),
        ({"option.task": "text-classificaton"}, {"unknown-task"}),
        ({"gpu.minWorkers": "2"}, {"min-over-max"}),
        ({"gpu.maxWorkers": "0"}, {"out-of-range", "min-over-max"}),
        ({"gpu.minWorkers": "0"}, {"min-workers-zero"}),
        ({"gpu.minWorkers": None}, {"workers-half-written"}),
        ({"gpu.minWorkers": None, "gpu.maxWorkers": None}, {"no-workers"}),
        ({"cpu.maxWorkers": "2"}, {"workers-half-written"}),
        ({"gpu.maxWorkers": "two"}, {"not-an-integer"}),
        ({"batch_size": "abc"}, {"not-an-integer"}),
        ({"batch_size": "-1"}, {"out-of-range"}),
        ({"required_memory_mb": "2048MB"}, {"not-an-integer"}),
        ({"option.trust_remote_code": "yes"}, {"bad-value"}),
        ({"option.tensor_parallel_degree": None}, {"no-tensor-parallel-degree"}),
        ({"option.model_id": "/opt/ml/model"}, {"model-id-path"}),
        ({"option.model_id": "./weights/"}, {"model-id-path"}),
        ({"option.model_id": "https://example.org/m"}, {"model-id-path"}),
        ({"option.model_id": "s3://bucket/m/"}, set()),
        ({"option.model_id": None}, {"no-weights"}),
        ({"option.entryPoint": "model.py"}, {"entry-point-missing"}),
        ({"option.entryPoint": "djl_python.huggingface"}, set()),
        ({"option.max_length": "128"}, {"unknown-key"}),
        ({"option.async_mode": "true"}, {"async-no-retry"}),
        ({"option.async_mode": "TRUE", "retry_threshold": "0"}, {"async-no-retry"}),
        ({"option.async_mode": "true", "retry_threshold": "3"}, set()),
        ({"option.async_mode": "false", "gpu.maxWorkers": "2"}, set()),
        ({"option.async_mode": "true", "retry_threshold": "3", "gpu.maxWorkers": "2"}, {"async-workers-differ"}),
        (
            {"option.async_mode": "true", "retry_threshold": "3", "minWorkers": "1", "maxWorkers": "3"},
            {"async-workers-differ"},
        ),
    ],
)
def test_fault_of_properties(
    codes: Callable[..., set[str]], changed: Mapping[str, str | None], expected: set[str]
) -> None:
    """A single wrong line of serving.properties gives exactly the fault of that line."""
    properties = {key: value for key, value in {**GOOD, **changed}.items() if value is not None}
    assert codes({"serving.properties": text(properties)}) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xef\xbb\xbf" + text(GOOD), "byte-order-mark"),
        (text({**GOOD, "option.env": "A=\u00e4"}), "properties-encoding"),
        (text({**GOOD, "option.env": "\\u12"}), "properties-malformed"),
        (text(GOOD) + b"engine=Python\n", "repeated-key"),
        (b"#" * (inventory.TEXT_BYTES + 1), "properties-malformed"),
    ],
)
def test_fault_of_the_properties_text(codes: Callable[..., set[str]], data: bytes, expected: str) -> None:
    """Each text of serving.properties that Java reads otherwise than an editor shows it is a named fault."""
    assert expected in codes({"serving.properties": data})


def test_own_handler_may_have_options_of_its_own(codes: Callable[..., set[str]], tmp_path: Path) -> None:
    """An unknown option is only a warning if the archive contains code, because the code may read it."""
    files = {
        "serving.properties": text({**LOCAL, "option.entryPoint": "model.py", "option.tasks": "x"}),
        "model.py": b"def handle(inputs): ...",
    }
    assert codes(files) == {"unknown-key"}
    assert [fault.severity for fault in verify(tmp_path / "m.tar.gz")] == ["warning"]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, set()),
        ({"gpu.maxWorkers": "2", "gpu.minWorkers": "2"}, {"shared-workers"}),
        ({"cpu.minWorkers": "3", "cpu.maxWorkers": "3"}, {"shared-workers"}),
        ({"option.tensor_parallel_degree": "max"}, {"shared-tensor-parallel"}),
        ({"option.trust_remote_code": "TRUE"}, {"shared-process-settings"}),
        ({"option.dtype": "tf32"}, {"shared-process-settings"}),
        ({"option.threads": "2"}, {"shared-process-settings"}),
        ({"option.threads": "2", "option.shared": "false", "option.dtype": "tf32"}, set()),
    ],
)
def test_fault_of_a_shared_model(
    codes: Callable[..., set[str]], changed: Mapping[str, str], expected: set[str]
) -> None:
    """An archive says about its engine process only what holds for every model there."""
    lines = {"option.async_mode": "true", "option.entryPoint": "model.py", "retry_threshold": "10"}
    properties = {**GOOD, **lines, "option.shared": "true", **changed}
    code = {"model.py": b"", "cohost_service.py": b""}
    assert codes({"serving.properties": text(properties), **code}) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"config.json": None}, {"no-config"}),
        ({"config.json": b"{"}, {"config-unreadable"}),
        ({"config.json": b"[1]"}, {"config-unreadable"}),
        ({"config.json": b"{" * 100_000}, {"config-unreadable"}),
        ({"config.json": b'{"a": 1}'}, {"no-architecture"}),
        ({"config.json": b'{"architectures": ["BertForMaskedLM"]}'}, {"architecture-unfit"}),
        ({"tokenizer.json": None}, {"no-tokenizer"}),
        ({"tokenizer.json": None, "vocab.json": b"{}"}, {"no-tokenizer"}),
        ({"tokenizer.json": None, "spm.model": b"s"}, set()),
        ({"pytorch_model.bin": b"w"}, {"two-weight-formats"}),
        ({"training_args.bin": b"w"}, set()),
        ({"model.safetensors": b""}, {"empty-weights"}),
        ({"model.safetensors": b"version https://git-lfs.github.com/spec/v1\noid"}, {"lfs-pointer"}),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "model-2.safetensors"}}'}, {"missing-shards"}),
        ({"model.safetensors.index.json": b"{}"}, {"shard-index"}),
        ({"model.safetensors": None}, {"no-weights"}),
        ({"model.safetensors": None, "pt/model.safetensors": b"w"}, {"weights-in-folder"}),
    ],
)
def test_fault_of_a_packed_model(
    codes: Callable[..., set[str]], changed: Mapping[str, bytes | None], expected: set[str]
) -> None:
    """A single missing, broken or superfluous file of a model gives exactly that fault."""
    files = {name: data for name, data in {**MODEL, **changed}.items() if data is not None}
    assert codes({"serving.properties": text(LOCAL), **files}) == expected


def test_weights_beside_a_model_id_are_unused(codes: Callable[..., set[str]]) -> None:
    """Packed weights beside a model id give a warning, because the server ignores them."""
    assert codes({"serving.properties": text(GOOD), **MODEL}) == {"weights-unused"}


def test_model_in_a_folder_of_the_archive_is_found(codes: Callable[..., set[str]]) -> None:
    """A relative model_id may point into the archive."""
    properties = text({**GOOD, "option.model_id": "weights"})
    assert codes({"serving.properties": properties, "weights/model.safetensors": b"w"}) == set()


def test_zero_shot_needs_an_entailment_label(codes: Callable[..., set[str]]) -> None:
    """A zero-shot model without an entailment label is a fault, because its scores would mean nothing."""
    files = {**MODEL, "config.json": b'{"architectures": ["XForSequenceClassification"], "label2id": {"LABEL_0": 0}}'}
    properties = text({**LOCAL, "option.task": "zero-shot-classification"})
    assert codes({"serving.properties": properties, **files}) == {"no-entailment-label"}


def test_nested_archive_is_checked_as_if_at_the_root(codes: Callable[..., set[str]], tmp_path: Path) -> None:
    """A packed folder is a fault with the command that fixes it, and its content is checked."""
    assert codes({"m/serving.properties": text({**GOOD, "engine": "python"})}) == {"nested", "unknown-engine"}
    assert any("-C m ." in fault.fix for fault in verify(tmp_path / "m.tar.gz"))


def test_two_models_in_one_archive_are_refused(codes: Callable[..., set[str]]) -> None:
    """An archive of two models is rejected."""
    assert codes({"a/serving.properties": text(GOOD), "b/serving.properties": text(GOOD)}) == {"nested"}


def test_missing_properties_are_named(codes: Callable[..., set[str]]) -> None:
    """An archive without serving.properties is a fault."""
    assert codes(MODEL) == {"no-serving-properties"}


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        (entry("/etc/passwd"), "absolute-path"),
        (entry("../x"), "parent-path"),
        (entry("a/../../x"), "parent-path"),
        (entry("l", kind=tarfile.SYMTYPE, target="/etc/passwd"), "link"),
        (entry("l", kind=tarfile.LNKTYPE, target="serving.properties"), "link"),
        (entry("d", kind=tarfile.CHRTYPE), "special-file"),
        (entry("f", kind=tarfile.FIFOTYPE), "special-file"),
        (entry("./serving.properties", text(GOOD)), "duplicate-member"),
        (entry("a\\b"), "bad-name"),
        (entry("\x1b[2J"), "bad-name"),
    ],
)
def test_member_that_does_not_belong(
    codes: Callable[..., set[str]], member: tuple[tarfile.TarInfo, bytes], expected: str
) -> None:
    """Paths out of the folder, links, devices, repeated and unusual names are faults."""
    assert codes({"serving.properties": text(GOOD)}, member) == {expected}


def test_properties_that_are_a_link_are_not_called_missing(codes: Callable[..., set[str]]) -> None:
    """A link instead of serving.properties is one fault, not two."""
    link = entry("serving.properties", kind=tarfile.SYMTYPE, target="x")
    assert codes({}, link, entry("model.py")) == {"link"}


def test_file_that_is_no_archive(tmp_path: Path) -> None:
    """The fault of a file that is no archive names what the file is."""
    plain, zipped = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        tar.addfile(*_pair(entry("a", b"1")))
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("a", "1")
    cases = {
        b"": "empty",
        b"hello": "not-gzip",
        plain.getvalue(): "not-gzip",
        zipped.getvalue(): "not-gzip",
        gzip.compress(b"hello"): "not-tar",
        gzip.compress(b""): "not-tar",
        gzip.compress(b"\0" * 1024): "no-files",
    }
    path = tmp_path / "m.tar.gz"
    for data, code in cases.items():
        path.write_bytes(data)
        assert [fault.code for fault in verify(path)] == [code]


def _pair(item: tuple[tarfile.TarInfo, bytes]) -> tuple[tarfile.TarInfo, io.BytesIO]:
    return item[0], io.BytesIO(item[1])


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, or a folder, is a fault."""
    assert [fault.code for fault in verify(tmp_path / "none")] == ["unreadable"]
    assert [fault.code for fault in verify(tmp_path)] == ["unreadable"]


def test_truncation_anywhere_is_noticed(tmp_path: Path) -> None:
    """An archive that is cut off at any place has one fault only, because missing files may lie behind the cut."""
    whole = pack({"serving.properties": text(LOCAL), **MODEL, "big": bytes(range(256)) * 40})
    path = tmp_path / "m.tar.gz"
    for length in (*range(2, len(whole), 7), len(whole) - 1):
        path.write_bytes(whole[:length])
        assert {fault.code for fault in verify(path)} <= {"truncated", "not-tar", "damaged"}, length
        assert verify(path), length


def test_tar_cut_off_inside_an_intact_gzip_is_noticed(tmp_path: Path) -> None:
    """A truncated tar in an intact gzip file is a fault."""
    plain = gzip.decompress(pack({"a": b"1" * 600, "serving.properties": text(GOOD)}))
    path = tmp_path / "m.tar.gz"
    path.write_bytes(gzip.compress(plain[: 512 + 1024 + 100]))
    assert "truncated" in {fault.code for fault in verify(path)}
    path.write_bytes(gzip.compress(plain[: 512 + 1024] + b"x" * 512))
    assert "damaged" in {fault.code for fault in verify(path)}


def test_size_bomb_stops_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small archive that unpacks without end is rejected with little memory."""
    monkeypatch.setattr(inventory, "PLAIN_BYTES", 4 * 1024 * 1024)
    path = tmp_path / "m.tar.gz"
    tarred(path, [entry("serving.properties", text(GOOD)), entry("zeros", b"\0" * 64 * 1024 * 1024)])
    tracemalloc.start()
    try:
        faults = verify(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "size-bomb" in {fault.code for fault in faults}
    assert peak < 8 * 1024 * 1024


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tar with too many members is rejected."""
    monkeypatch.setattr(inventory, "MEMBERS", 10)
    path = tarred(tmp_path / "m.tar.gz", [entry(f"f{number}") for number in range(11)])
    assert "too-many-members" in {fault.code for fault in verify(path)}


def test_huge_extended_header_is_not_read(tmp_path: Path) -> None:
    """A tar header that states gigabytes is rejected unread."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 2**33
    path = tmp_path / "m.tar.gz"
    path.write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + b"\0" * 4096))
    assert [fault.code for fault in verify(path)] == ["damaged"]


def test_negative_size_does_not_loop(tmp_path: Path) -> None:
    """A member with a negative size is a fault."""
    good, bad = tarfile.TarInfo("a"), tarfile.TarInfo("b")
    bad.size = -2048
    data = good.tobuf(tarfile.GNU_FORMAT) + bad.tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024
    path = tmp_path / "m.tar.gz"
    path.write_bytes(gzip.compress(data))
    assert "damaged" in {fault.code for fault in verify(path)}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_damaged_tar_never_raises(tmp_path: Path, data: st.DataObject) -> None:
    """An archive with any changed bytes yields faults, or none, but never a traceback."""
    plain = bytearray(gzip.decompress(pack({"serving.properties": text(GOOD), "config.json": CONFIG})))
    for position in data.draw(st.lists(st.integers(0, 3000), max_size=8)):
        plain[position] = data.draw(st.integers(0, 255))
    path = tmp_path / "m.tar.gz"
    path.write_bytes(gzip.compress(bytes(plain), 1))
    check_wording(verify(path))


def test_faults_are_plain_records() -> None:
    """A fault can be printed as JSON, and is an error by default."""
    assert dataclasses.asdict(Fault("c", "m", "f")) == {"code": "c", "message": "m", "fix": "f", "severity": "error"}


def test_archive_with_our_handler_has_no_fault(tmp_path: Path) -> None:
    """`cohost verify` knows every setting of the batching handler that the catalog allows."""
    own = {f"option.{name}": "1" for name in BatchedSettings.model_fields}
    properties = {
        "engine": "Python",
        "option.model_id": "org/nli",
        "option.task": "text-classification",
        "option.rolling_batch": "disable",
        "option.async_mode": "true",
        "option.entryPoint": "model.py",
        "option.tensor_parallel_degree": "1",
        "gpu.minWorkers": "1",
        "gpu.maxWorkers": "1",
        "retry_threshold": "10",
        **own,
    }
    path = tmp_path / "nli.tar.gz"
    path.write_bytes(pack(model_files(properties, code=handler_files("batched"))))
    assert verify(path) == []
