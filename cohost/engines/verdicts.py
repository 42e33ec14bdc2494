"""Each model of a catalog against each backend: can it serve it, and does the catalog's own image have it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from cohost.engines import facts
from cohost.engines.facts import BACKENDS, ENGINE_NAMES
from cohost.engines.model_facts import facts_of
from cohost.engines.rules import Reason, reasons_against
from cohost.images import parse_image
from cohost.instances import INSTANCES
from cohost.onnx.recipe import cpu_design
from cohost.routing import MULTI_MODEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cohost.catalog.models import Catalog
    from cohost.engines.facts import Backend
    from cohost.engines.model_facts import ModelFacts
    from cohost.images import Image
    from cohost.plan.profiles import Profile

Answer = Literal["yes", "no", "unknown"]

_ON_A_GPU: Final = ("vllm", "trtllm")
_CPU_FULL: Final = "cpu-full"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One backend for one model.

    `serves` is about the model alone, with the image that suits the backend best; `here` says whether the catalog's
    image and instance type have it too. `against` are the reasons of the former, `place` those of the latter, `notes`
    what else to know.
    """

    backend: Backend
    serves: Answer
    here: bool
    against: tuple[Reason, ...]
    place: tuple[Reason, ...]
    notes: tuple[Reason, ...]

    @property
    def word(self) -> str:
        """The verdict in a word or two."""
        return "other image" if self.serves == "yes" and not self.here else self.serves


@dataclass(frozen=True, kw_only=True)
class ModelVerdicts:
    """One model and all backends."""

    model: ModelFacts
    verdicts: tuple[Verdict, ...]

    def as_data(self) -> dict[str, Any]:
        """For scripts."""
        return {
            **asdict(self.model),
            "backends": {
                verdict.backend: {key: value for key, value in asdict(verdict).items() if key != "backend"}
                for verdict in self.verdicts
            },
        }


def judge(
    catalog: Catalog, profiles: Mapping[str, Profile], names: Iterable[str], hubs: Sequence[Path] = ()
) -> list[ModelVerdicts]:
    """Hold models of a catalog against every backend.

    Raises:
        ImageError: the catalog names an image that is not known.
        PlanError: a model's config.json in a local folder cannot be read.
    """
    places = {backend: tuple(_place(backend, catalog)) for backend in BACKENDS}
    notes = {backend: tuple(_notes(backend, catalog)) for backend in BACKENDS}
    found = []
    for name in names:
        model = facts_of(name, catalog.models[name], profiles, hubs)
        verdicts = tuple(_verdict(backend, model, places[backend], notes[backend]) for backend in BACKENDS)
        found.append(ModelVerdicts(model=model, verdicts=verdicts))
    return found


def _verdict(backend: Backend, model: ModelFacts, place: tuple[Reason, ...], notes: tuple[Reason, ...]) -> Verdict:
    against = tuple(reasons_against(backend, model))
    serves: Answer = "yes" if not against else "no" if any(reason.certain for reason in against) else "unknown"
    return Verdict(
        backend=backend, serves=serves, here=serves == "yes" and not place, against=against, place=place, notes=notes
    )


def _image_of(backend: Backend, catalog: Catalog) -> tuple[str, Image]:
    """The image that a backend would run in, and the key that names it: ONNX has a stack of its own."""
    if backend == "onnx":
        return "designs.cpu-onnx.image", parse_image(cpu_design(catalog).image)
    return "endpoint.image", parse_image(catalog.endpoint.image)


def _place(backend: Backend, catalog: Catalog) -> Iterator[Reason]:
    """What of image, topology and instance type keeps a backend out."""
    key, image = _image_of(backend, catalog)
    reference = f"{image.repository}:{image.tag}"
    engine = ENGINE_NAMES[backend]
    if engine not in image.backends:
        has = ", ".join(sorted(image.backends)) or "none of DJL Serving's engines"
        yield Reason(text=f"{key} {reference} has no {engine} (it has {has})", source=facts.IMAGE_TABLE)
    if not image.multi_model and (backend == "onnx" or catalog.endpoint.topology == MULTI_MODEL):
        yield Reason(
            text=f"{key} {reference} lacks the multi-model label, so it serves one model an endpoint or component",
            source=facts.SAGEMAKER_LABEL,
        )
    instance = INSTANCES.get(catalog.endpoint.instance_type)
    if backend in _ON_A_GPU and instance is not None and not instance.gpus:
        yield Reason(
            text=f"endpoint.instance_type {catalog.endpoint.instance_type} has no GPU", source="cohost/instances.py"
        )


def _notes(backend: Backend, catalog: Catalog) -> Iterator[Reason]:
    key, image = _image_of(backend, catalog)
    if image.flavour == _CPU_FULL and ENGINE_NAMES[backend] == "python":
        yield Reason(
            text=f"{key} has no Python packages, so each archive carries a requirements.txt that is installed on load",
            source=facts.DJL_DOCKERFILES,
        )
    if backend == "vllm":
        yield Reason(
            text="the catalog writes rolling_batch=disable; vLLM takes an archive of your own",
            source="cohost/render.py",
        )
