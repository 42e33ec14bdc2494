"""The catalog's `packages`, which a model needs and the image lacks: pinned requirements, or wheels in the archive.

DJL Serving runs `pip install -r` on an archive's requirements.txt before it starts a worker, and only logs a warning if
pip fails (`PyEnv.installDependency` of its Python engine). A relative `--find-links` counts from the folder of the
requirements file if the path exists there (pip's `req_file.py`), so pip finds wheels beside that file wherever the
server unpacks the archive.
"""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, ValidationInfo

from cohost.archives.inventory import HostileArchiveError, check_member_count, check_unpacked_size
from cohost.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PACKAGES = (
    "requirements with one version such as disentangled-flash==1.1.1, or .whl files by their path from the catalog's "
    "folder"
)
WHEEL_MIB: Final = 20
"""The size limit of one wheel in MiB: a wheel is unpacked once per model, and the publishing function has 512 MB."""
WHEELS_MIB: Final = 60
"""The size limit of all wheels of a catalog together in MiB; the code of a Lambda function may have 250 MB.

In one archive of all models each model's copy counts, because the publishing function packs the archive in memory.
"""

MIB: Final = 1024 * 1024
_PINNED = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==([A-Za-z0-9.!+_-]+)")
_WHEEL = re.compile(
    r"([A-Za-z0-9_.]+)-([A-Za-z0-9_.!]+)(?:-\d[A-Za-z0-9_.]*)?-[A-Za-z0-9_.]+-[A-Za-z0-9_.]+-[A-Za-z0-9_.]+\.whl"
)
_LONGEST_NAME = 100


@dataclass(frozen=True, kw_only=True)
class Package:
    """One package at one version; `wheel` is the path of its .whl file, None for a package from a package index."""

    name: str
    version: str
    wheel: Path | None = None

    @property
    def line(self) -> str:
        """Return the package's line in a requirements.txt."""
        return f"{self.name}=={self.version}"


def package_of(text: str, folder: Path | None = None) -> Package:
    """Return the package that an entry of `packages` names; a wheel's path is relative to `folder`.

    Raises:
        InvalidValueError: the text is neither a requirement with one version nor a wheel's path.
    """
    if text.endswith(".whl"):
        path = Path(text) if folder is None else folder / text
        if not (match := _WHEEL.fullmatch(path.name)) or len(path.name) > _LONGEST_NAME:
            fix = "use the name that the wheel was built with"
            refuse("wheel-invalid", f"{text!r} is not named as a wheel", allowed=PACKAGES, fix=fix)
        return Package(name=_normal(match[1]), version=match[2], wheel=path)
    if not (match := _PINNED.fullmatch(text)):
        fix = "write name==version, so that the same catalog gives the same container"
        refuse("version-not-pinned", f"got {text!r}", allowed=PACKAGES, fix=fix)
    return Package(name=_normal(match[1]), version=match[2])


def _checked(text: str, info: ValidationInfo) -> str:
    """Return a checked entry of `packages`, with the path of a wheel joined to the catalog's folder."""
    package = package_of(text, (info.context or {}).get("folder"))
    if (path := package.wheel) is None:
        return package.line
    if not path.is_file():
        refuse("wheel-missing", f"{path} is missing", allowed=PACKAGES, fix="put the file there, or correct the path")
    if path.stat().st_size > WHEEL_MIB * MIB:
        refuse(
            "value-too-large",
            f"{path.name} has {path.stat().st_size / MIB:.0f} MiB",
            allowed=f"{WHEEL_MIB} MiB",
            fix=f"write {package.line} for the package index",
        )
    _check_content(path)
    return str(path)


def _check_content(path: Path) -> None:
    """Check that a wheel is a zip file, and does not become far larger when pip unpacks it in the container."""
    try:
        with zipfile.ZipFile(path) as wheel:
            members = wheel.infolist()
            check_member_count(len(members))
            check_unpacked_size(sum(member.file_size for member in members), path.stat().st_size)
    except zipfile.BadZipFile:
        refuse("wheel-invalid", f"{path.name} is not a zip file, and so not a wheel", fix="copy or build it again")
    except HostileArchiveError as error:
        problem = f"{path.name}: {error.fault.message}"
        refuse("wheel-too-large-unpacked", problem, fix=f"write {package_of(path.name).line} for the package index")


def _each_once(texts: list[str]) -> list[str]:
    names = [package_of(text).name for text in texts]
    if twice := next((name for name in names if names.count(name) > 1), None):
        refuse("name-twice", f"has {twice} twice", allowed="each package once", fix="keep one of its entries")
    return texts


Packages = Annotated[list[Annotated[str, AfterValidator(_checked)]], AfterValidator(_each_once)]
"""The type of the field `packages`; pydantic's validation context is {"folder": the base of wheel paths}."""


def requirement_lines(texts: Iterable[str], others: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the lines of a requirements.txt: first the lines `others`, then those for `packages` (`texts`).

    An entry replaces the line of `others` for the same package. If the file has wheels only, pip uses no index.
    """
    packages = [package_of(text) for text in texts]
    names = {package.name for package in packages}
    kept = [line for line in others if _normal(line.partition("==")[0]) not in names]
    wheels = [package for package in packages if package.wheel is not None]
    if not wheels:
        options: tuple[str, ...] = ()
    else:
        options = ("--find-links .",) if kept or len(wheels) < len(packages) else ("--no-index", "--find-links .")
    return (*options, *kept, *(package.line for package in packages))


def wheels_of(texts: Iterable[str]) -> dict[str, bytes]:
    """Return the content of the wheels among the entries of `packages`, by file name."""
    wheels = [package.wheel for package in map(package_of, texts) if package.wheel is not None]
    return {wheel.name: wheel.read_bytes() for wheel in wheels}


def _normal(name: str) -> str:
    """Return a package's name in the normalised form that pip and package indexes compare (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
