"""Can the catalog's handlers serve its models: the rules of `cohost engines`, as errors before a deploy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cohost.engines.facts import TRANSFORMERS_SDPA
from cohost.engines.model_facts import facts_of
from cohost.engines.rules import head_faults
from constructs_lib.fit import Misfit, error, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cohost.catalog.models import Catalog, ModelEntry
    from cohost.engines.model_facts import ModelFacts
    from cohost.plan.profiles import Profile

_OF_DEBERTA: Final = ("disentangled-flash", "flashdeberta")


def engine_misfits(catalog: Catalog, profiles: Mapping[str, Profile]) -> Iterator[Misfit]:
    """Models that their task or their attention does not suit, as far as their architecture is known."""
    for name, entry in catalog.models.items():
        model = facts_of(name, entry, profiles)
        yield from _task_misfits(model)
        yield from _attention_misfits(model, entry)


def _task_misfits(model: ModelFacts) -> Iterator[Misfit]:
    for reason in head_faults(model):
        yield error(
            "model-task",
            f"models.{model.name}.task: {model.task!r} does not suit {model.model_id}: {reason.text} "
            f"({reason.source}); allowed: what the model was trained for; fix: another task, such as "
            "feature-extraction for a model without a head, or another model_id",
        )


def _attention_misfits(model: ModelFacts, entry: ModelEntry) -> Iterator[Misfit]:
    attention = None if entry.batched is None else entry.batched.attention
    if model.deberta and attention == "sdpa":
        yield error(
            "model-attention",
            f"models.{model.name}.batched.attention: 'sdpa' fails to load with {model.architecture} "
            f"({TRANSFORMERS_SDPA}); allowed: auto, eager, {', '.join(_OF_DEBERTA)}; fix: leave attention out",
        )
    if attention in _OF_DEBERTA and model.model_type is not None and not model.deberta:
        yield warning(
            "attention-unused",
            f"models.{model.name}.batched.attention: {attention!r} is for DeBERTa, and {model.model_id} is "
            f"{model.model_type}, which runs as if it were not written; fix: leave attention out",
        )
