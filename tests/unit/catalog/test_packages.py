"""Packages of a model: pinned requirements, or wheels that are installed from the archive without a network."""

from __future__ import annotations

import ensurepip
import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from fakes.refusals import refused

from cohost.archives import handlers
from cohost.archives.archive import content_digest, pack
from cohost.archives.errors import ArtifactError
from cohost.archives.handlers import wheel_reference
from cohost.archives.request import models_of
from cohost.catalog.checks import package_faults
from cohost.catalog.models import ModelEntry
from cohost.catalog.packages import WHEEL_MIB, package_of, requirement_lines, wheels_of
from cohost.catalog.serving import CPU_FULL_REQUIREMENTS, code_of, files_of, requirements_for
from cohost.catalog_file import load_catalog
from cohost.errors import CatalogError
from cohost.hardware.images import parse_image

LMI = parse_image("djl-inference:0.36.0-lmi26.0.0-cu130")
CPU_FULL = parse_image("djl-inference:0.36.0-cpu-full")
CATALOG = """
endpoint:
  name: encoders
  instance_type: ml.g5.xlarge
  image: djl-inference:0.36.0-lmi26.0.0-cu130
models:
  nli:
    model_id: org/nli
    task: text-classification
    handler: batched
    packages: [{packages}]
"""


def write_wheel(folder: Path, name: str = "tiny_kernel-1.2-py3-none-any.whl", code: str = "ANSWER = 42\n") -> Path:
    """Write a minimal wheel of one module."""
    package, version = name.split("-")[:2]
    files = {
        f"{package}.py": code,
        f"{package}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n",
        f"{package}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{package}-{version}.dist-info/RECORD"] = "".join(f"{file},,\n" for file in files)
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as archive:
        for file, text in files.items():
            archive.writestr(zipfile.ZipInfo(file), text)
    return folder / name


def entry(*packages: str) -> ModelEntry:
    """Return a model with these packages, and wheels by their full path."""
    given = {"model_id": "org/nli", "task": "text-classification", "handler": "batched", "packages": list(packages)}
    return ModelEntry.model_validate(given)


def load(tmp_path: Path, packages: str) -> None:
    """Load a catalog of a model with these packages."""
    path = tmp_path / "catalog.yaml"
    path.write_text(CATALOG.format(packages=packages))
    load_catalog(path)


@pytest.mark.parametrize(
    ("packages", "code", "field"),
    [
        ("disentangled-flash", "version-not-pinned", ".0"),
        ("disentangled-flash>=1.1", "version-not-pinned", ".0"),
        ("disentangled-flash==1.*", "version-not-pinned", ".0"),
        ("'einops==0.8.1 --pre'", "version-not-pinned", ".0"),
        ("einops==0.8.1, 'git+https://example.com/x'", "version-not-pinned", ".1"),
        ("'--index-url=x'", "version-not-pinned", ".0"),
        ("missing-1.0-py3-none-any.whl", "wheel-missing", ".0"),
        ("../kernel.whl", "wheel-invalid", ".0"),
        ("'kernel-1.0+cu130-py3-none-any.whl'", "wheel-invalid", ".0"),
        ("tiny-kernel==1.2, tiny_kernel==1.3", "name-twice", ""),
    ],
)
def test_what_would_not_give_the_same_container_is_refused(
    tmp_path: Path, packages: str, code: str, field: str
) -> None:
    """A requirement is rejected unless it has one exact version and no other options of pip."""
    with refused(code, f"models.nli.packages{field}", kind=CatalogError):
        load(tmp_path, packages)


def test_files_that_are_no_wheels_or_too_large_are_refused(tmp_path: Path) -> None:
    """A file that is no wheel or is too large is rejected by name and size before a deploy."""
    (tmp_path / "text-1.0-py3-none-any.whl").write_text("no zip")
    with refused("wheel-invalid", "models.nli.packages.0"):
        load(tmp_path, "text-1.0-py3-none-any.whl")
    with (tmp_path / "large-1.0-py3-none-any.whl").open("wb") as file:
        file.truncate((WHEEL_MIB + 1) * 1024 * 1024)
    with refused("value-too-large", "models.nli.packages.0") as caught:
        load(tmp_path, "large-1.0-py3-none-any.whl")
    assert "large==1.0" in caught.value.fix


def test_wheels_are_found_from_the_catalogs_folder(tmp_path: Path) -> None:
    """Paths of wheels are relative to the catalog's folder, whatever the working folder is."""
    wheel = write_wheel(tmp_path / "wheels")
    path = tmp_path / "catalog.yaml"
    path.write_text(CATALOG.format(packages="wheels/tiny_kernel-1.2-py3-none-any.whl, Einops==0.8.1"))
    packages = load_catalog(path).catalog.models["nli"].packages
    assert packages == [str(wheel), "einops==0.8.1"]
    assert wheels_of(packages) == {wheel.name: wheel.read_bytes()}


def test_requirements_name_packages_behind_the_images_own(tmp_path: Path) -> None:
    """Only wheels give `--no-index`, and a package of the catalog replaces that of the image."""
    wheel = str(write_wheel(tmp_path))
    assert requirements_for(entry(), LMI) == ()
    assert requirements_for(entry("einops==0.8.1"), LMI) == ("einops==0.8.1",)
    assert requirements_for(entry(wheel), LMI) == ("--no-index", "--find-links .", "tiny-kernel==1.2")
    assert requirements_for(entry(wheel, "einops==0.8.1"), LMI) == (
        "--find-links .",
        "tiny-kernel==1.2",
        "einops==0.8.1",
    )
    replaced = requirements_for(entry("transformers==4.56.2"), CPU_FULL)
    assert replaced == (*CPU_FULL_REQUIREMENTS[1:], "transformers==4.56.2")
    assert requirement_lines([wheel], ("torch==2.11.0",))[0] == "--find-links ."


def test_one_server_has_one_version_of_a_package(tmp_path: Path) -> None:
    """Two models with different versions of a package are rejected, because all models share one Python."""
    (fault,) = package_faults({"a": ["einops==0.8.1"], "b": ["einops==0.8.1"], "c": ["einops==0.8.0"]})
    assert (fault.code, fault.field) == ("package-versions-differ", "models.c.packages")
    assert "'a'" in fault.problem
    first, second = (str(write_wheel(tmp_path / name)) for name in "ab")
    assert [fault.code for fault in package_faults({"a": [first], "b": [second]})] == ["wheels-differ"]


@pytest.mark.parametrize(
    ("topology", "allowed"), [("multi-model", True), ("scale-to-zero", False)], ids=["multi-model", "scale-to-zero"]
)
def test_one_archive_of_all_models_holds_a_copy_for_each(topology: str, allowed: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """With scale-to-zero the size limit counts a wheel once per model, because one archive has all copies."""
    wheel = write_wheel(tmp_path)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("kernel.so", bytes(16 * 1024 * 1024))
    text = CATALOG.format(packages=wheel.name).replace("endpoint:", f"endpoint:\n  topology: {topology}")
    model = text[text.index("  nli:") :]
    path = tmp_path / "catalog.yaml"
    path.write_text(text + "".join(model.replace("nli", name) for name in ("b", "c", "d")))
    if allowed:
        assert len(load_catalog(path).catalog.models) == 4
        return
    with refused("value-too-large", "models"):
        load_catalog(path)


def test_same_wheel_same_archive(tmp_path: Path) -> None:
    """A wheel of the same name with other content makes another generation."""
    wheel = write_wheel(tmp_path)
    first = files_of(entry(str(wheel)), LMI)
    again = files_of(entry(str(write_wheel(tmp_path / "elsewhere"))), LMI)
    assert pack(first) == pack(again)
    write_wheel(tmp_path, code="ANSWER = 43\n")
    assert content_digest(files_of(entry(str(wheel)), LMI)) != content_digest(first)


@pytest.mark.process
def test_pip_installs_from_the_unpacked_archive_without_a_network(tmp_path: Path) -> None:
    """The server's call, `pip install -r` with the full path from another folder, finds the wheels."""
    archive = tmp_path / "model.tar.gz"
    archive.write_bytes(pack(files_of(entry(str(write_wheel(tmp_path / "wheels"))), LMI)))
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "model", filter="data")
    (pip,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    command = [sys.executable, str(pip / "pip"), "install", "-q", "--target", str(tmp_path / "installed")]
    done = subprocess.run(
        [*command, "-r", str(tmp_path / "model" / "requirements.txt")],
        cwd=tmp_path,
        env={**os.environ, "PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "installed" / "tiny_kernel.py").read_text() == "ANSWER = 42\n"


def test_the_publishing_function_packs_the_wheels_that_the_stack_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function packs the same wheel as the catalog, and rejects a wheel with another content."""
    wheel = write_wheel(tmp_path)
    monkeypatch.setattr(handlers, "FOLDER", tmp_path)
    properties = {
        "Models": {"nli": {"engine": "Python"}},
        "Requirements": {"nli": "\n".join(requirements_for(entry(str(wheel)), LMI))},
        "Wheels": {"nli": wheel_reference(wheel.name, wheel.read_bytes())},
    }
    files = models_of(properties)["nli"]
    assert files[wheel.name] == code_of(entry(str(wheel)))[wheel.name]
    assert files["requirements.txt"] == b"--no-index\n--find-links .\ntiny-kernel==1.2\n"
    wheel.write_bytes(b"something else")
    with refused("code-of-another-checkout", "Wheels.nli", kind=ArtifactError):
        models_of(properties)
    for wrong in ("kernel.whl", f"../x.whl@{hashlib.sha256().hexdigest()}"):
        with refused("wheel-reference", "Wheels.nli", kind=ArtifactError):
            models_of(properties | {"Wheels": {"nli": wrong}})


def test_models_with_the_same_wheel_share_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function keeps the bytes of a wheel in memory once, however many models use it."""
    wheel = write_wheel(tmp_path)
    monkeypatch.setattr(handlers, "FOLDER", tmp_path)
    names, reference = ("a", "b"), wheel_reference(wheel.name, wheel.read_bytes())
    models = {name: {"engine": "Python"} for name in names}
    files = models_of({"Models": models, "Wheels": dict.fromkeys(names, reference)})
    assert files["a"][wheel.name] is files["b"][wheel.name]


def test_wheels_with_a_build_number_keep_their_version() -> None:
    """The version is the second part of a wheel's name, whatever follows (binary distribution format)."""
    package = package_of("a_b-1.0-1-cp312-cp312-manylinux_2_28_x86_64.whl")
    assert (package.name, package.version) == ("a-b", "1.0")
