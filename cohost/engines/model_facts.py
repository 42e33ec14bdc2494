"""What is known of one model: its architecture, from a local config.json, else from the profile beside the catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cohost.engines.facts import DEBERTA, HEAD_SUFFIX
from cohost.plan.model_files import CONFIG, Folder, read_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cohost.catalog.models import ModelEntry
    from cohost.plan.profiles import Profile

UNKNOWN_SOURCE: Final = "the catalog's entry alone"
_ENTAILMENT: Final = "entail"


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """One model. None is not known: `architecture` and `model_type` are config.json's, `labels` the size of its head,
    `entails` says whether one of its labels starts with "entail", `source` where all that was read.
    """

    name: str
    model_id: str
    task: str
    architecture: str | None
    model_type: str | None
    labels: int | None
    entails: bool | None
    own_code: bool
    source: str

    @property
    def has_head(self) -> bool | None:
        """Whether it was saved with a head for classification; None where its architecture is not known."""
        return None if self.architecture is None else self.architecture.endswith(HEAD_SUFFIX)

    @property
    def deberta(self) -> bool:
        """Whether it is known to have DeBERTa's disentangled attention."""
        return self.model_type in DEBERTA


def facts_of(name: str, entry: ModelEntry, profiles: Mapping[str, Profile], hubs: Sequence[Path] = ()) -> ModelFacts:
    """What is known of a model.

    Args:
        name: its name in the catalog.
        entry: its entry there.
        profiles: the profiles beside the catalog, by model id.
        hubs: folders of models laid out as org/name; the first that has the model's config.json wins over its profile.

    Raises:
        PlanError: a local config.json is no JSON object.
    """
    config, source = _config_of(entry, profiles, hubs)
    architectures = config.get("architectures") or [None]
    labels = config.get("id2label")
    return ModelFacts(
        name=name,
        model_id=entry.model_id,
        task=entry.task,
        architecture=architectures[0],
        model_type=config.get("model_type"),
        labels=len(labels) if labels else config.get("num_labels"),
        entails=any(str(label).lower().startswith(_ENTAILMENT) for label in labels.values()) if labels else None,
        own_code=bool(entry.trust_remote_code),
        source=source,
    )


def _config_of(
    entry: ModelEntry, profiles: Mapping[str, Profile], hubs: Sequence[Path]
) -> tuple[Mapping[str, Any], str]:
    for hub in hubs:
        folder = hub / entry.model_id
        if (folder / CONFIG).is_file():
            return read_config(Folder(folder)), str(folder / CONFIG)
    profile = profiles.get(entry.model_id)
    return ({}, UNKNOWN_SOURCE) if profile is None else (profile.config, "the profile beside the catalog")
