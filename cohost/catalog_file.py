"""Load a catalog file: read and check it, and derive missing memory keys from the models' profiles.

The catalog's pydantic classes neither import the memory plan nor read other files; only this module combines catalog,
profiles and memory plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml
from pydantic import ValidationError

from cohost.catalog.checks import catalog_faults, name_faults
from cohost.catalog.faults import faults_of
from cohost.catalog.models import Catalog
from cohost.catalog.yaml_source import ExpansionError, YamlSource, read_yaml
from cohost.errors import CatalogError, PlanError
from cohost.forecast.plan.memory import with_derived_memory
from cohost.forecast.plan.profiles import load_profiles, profiles_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cohost.forecast.plan.profiles import Profile


@dataclass(frozen=True, kw_only=True)
class LoadedCatalog:
    """A catalog that was read from a file and checked.

    Attributes:
        catalog: the settings, with the derived memory keys filled in.
        source: the path of the catalog file.
        profiles: the profiles of the models by model id, from the file beside the catalog file; empty without that
            file.
        derived_memory: the names of the models whose memory keys come from their profiles, because the file states
            none.
    """

    catalog: Catalog
    source: Path
    profiles: Mapping[str, Profile]
    derived_memory: frozenset[str]


def load_catalog(path: Path) -> LoadedCatalog:
    """Read and check a catalog file, and derive memory keys for models that have a profile and no memory keys.

    Raises:
        CatalogError: the catalog file or the profiles file cannot be read, or the catalog file is not YAML or has
            faults. All faults are reported together, each as `file:line: field: problem; allowed: …; fix: …`.
    """
    catalog = _checked(_read(path), path)
    try:
        profiles = load_profiles(profiles_path(path))
        completed = with_derived_memory(catalog, profiles)
    except PlanError as error:
        raise CatalogError(
            code=error.code, field=error.field, problem=error.problem, allowed=error.allowed, fix=error.fix
        ) from error
    changed = frozenset(name for name, entry in completed.models.items() if entry is not catalog.models[name])
    return LoadedCatalog(catalog=completed, source=path, profiles=profiles, derived_memory=changed)


def _checked(source: YamlSource, path: Path) -> Catalog:
    """Return the catalog in a file's content, or raise all faults of the file in one error, ordered by line."""
    faults = source.faults
    data = {} if source.data is None else source.data
    if isinstance(data, dict):
        faults += name_faults(data.get("models"))
    catalog: Catalog | None = None
    try:
        catalog = Catalog.model_validate(data, context={"folder": path.parent})
    except ValidationError as error:
        faults += faults_of(error, Catalog, source.lines)
    else:
        faults += catalog_faults(catalog)
    if faults or catalog is None:
        for fault in faults:
            fault.file, fault.line = str(path), fault.line or source.line_of(fault.field)
        raise CatalogError.gathered(sorted(faults, key=lambda fault: fault.line))
    return catalog


def _read(path: Path) -> YamlSource:
    try:
        return read_yaml(path)
    except OSError as error:
        fix = "name a catalog that exists, such as model_configs/encoders.yaml"
        raise CatalogError("catalog-unreadable", str(path), f"cannot be read ({error.strerror})", fix=fix) from error
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not UTF-8"
        raise CatalogError("catalog-not-utf8", str(path), problem, fix="save the file as UTF-8") from error
    except ExpansionError as error:
        fix = "write the values out where an alias repeats a list of aliases"
        raise CatalogError("yaml-expands", "the file", str(error), fix=fix, file=str(path), line=1) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = f"cannot be read as YAML ({getattr(error, 'problem', None) or str(error).splitlines()[0]})"
        fix = "check indentation, quotes and colons on that line"
        raise CatalogError("yaml-unreadable", "the file", problem, fix=fix, file=str(path), line=line) from error
