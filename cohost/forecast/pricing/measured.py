"""Compare the setup of a measurement with a catalog: its rate applies to the catalog only if both are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cohost.catalog.serving import settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cohost.catalog.models import Catalog


HOW_TO_MEASURE: Final = "measure with `cohost bench`, then run `cohost cost --report` with its report.json"
MOST_DIFFERENCES: Final = 3


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All settings on which a measured rate depends.

    `image` is a whole URI, or `repository:tag` for a catalog that states no URI. `models` has the settings of each
    model by its name: source, revision, handler, dtype, workers, lengths and all others; None for a model whose
    settings were not recorded.
    """

    instance_type: str | None
    topology: str | None
    image: str | None
    models: Mapping[str, Mapping[str, str] | None]


def setup_of(catalog: Catalog) -> Setup:
    """Return the setup that a catalog describes."""
    endpoint = catalog.endpoint
    return Setup(
        instance_type=endpoint.instance_type,
        topology=endpoint.topology,
        image=endpoint.image_uri or endpoint.image,
        models={name: settings_of(entry, endpoint) for name, entry in catalog.models.items()},
    )


def recorded_setup(record: Mapping[str, Any]) -> Setup:
    """Return the setup of a load test, from its run's record (JSON data)."""
    target = record["target"]
    return Setup(
        instance_type=target["instance_type"],
        topology=target.get("topology"),
        image=target.get("image"),
        models={model["name"]: model.get("settings") for model in record.get("models", ())},
    )


def recorded_lengths(record: Mapping[str, Any]) -> str | None:
    """Return the tokens per text of a load test, such as "512" or "9 to 512"; None if they are unknown for a model."""
    lengths = [model.get("tokens") for model in record.get("models", ())]
    if not lengths or None in lengths:
        return None
    least, most = min(length[0] for length in lengths), max(length[1] for length in lengths)
    return f"{least}" if least == most else f"{least} to {most}"


def differences(catalog: Setup, measured: Setup) -> list[str]:
    """Return one text for each setting in which a measurement differs from a catalog; empty if all are equal."""
    found = [
        f"{what} {theirs or 'unknown'} (catalog: {ours})"
        for what, ours, theirs in (
            ("instance type", catalog.instance_type, measured.instance_type),
            ("topology", catalog.topology, measured.topology),
        )
        if ours != theirs
    ]
    if not _same_image(catalog.image or "", measured.image):
        found.append(f"image {measured.image or 'unknown'} (catalog: {catalog.image})")
    if catalog.models.keys() != measured.models.keys():
        found.append(f"models {', '.join(measured.models) or 'unknown'} (catalog: {', '.join(catalog.models)})")
        return found
    for name, ours in catalog.models.items():
        found += _other_settings(name, ours or {}, measured.models[name])
    return found


def _same_image(catalog: str, measured: str | None) -> bool:
    """Return True if a measurement's image URI is the catalog's image, or ends with the catalog's `repository:tag`."""
    return measured is not None and (measured == catalog or measured.endswith(f"/{catalog}"))


def _other_settings(name: str, ours: Mapping[str, str], theirs: Mapping[str, str] | None) -> Iterator[str]:
    if theirs is None:
        yield f"settings of {name} unknown"
        return
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key):
            yield f"{name} {key} {theirs.get(key, 'not set')} (catalog: {ours.get(key, 'not set')})"
