"""Checks of the resource properties in CloudFormation's event, and their conversion to the publisher's input."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .archive import bundle_files, model_files
from .errors import ArtifactError, RequestError
from .generation import check_name, is_generation_id
from .handlers import Wheels, handler_files, handler_version
from .layout import BUNDLE_NAME
from .packed import packed_revisions, with_part
from .verify import startup_faults
from .weights import Revision, revision_in, with_bucket

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ARCHIVES, BUNDLE = "archives", "bundle"
"""The values of the property `Layout`: one archive per model, or one archive of all models."""


_PREFIX = re.compile(r"(?!.*(?:^|/)\.{1,2}/)(?:[^/\s]+/)+")
_NUMBER = re.compile(r"[0-9]{1,2}")


@dataclass(frozen=True, kw_only=True)
class Place:
    """The S3 bucket and prefix of the model store; the prefix ends with "/"."""

    bucket: str
    prefix: str


def place_of(properties: Mapping[str, Any]) -> Place:
    """Return the bucket and prefix of the store that a resource's properties name.

    Raises:
        ArtifactError: `Bucket` or `Prefix` is missing, or has a value that is not allowed.
    """
    _raise(_place_faults(properties))
    return Place(bucket=properties["Bucket"], prefix=properties["Prefix"])


def is_bundle(properties: Mapping[str, Any]) -> bool:
    """Return True if `Layout` requests one archive of all models.

    Raises:
        ArtifactError: `Layout` is neither "archives" nor "bundle".
    """
    layout = properties.get("Layout", ARCHIVES)
    if layout not in {ARCHIVES, BUNDLE}:
        raise _fault("Layout", layout, f"{ARCHIVES}, {BUNDLE}", "write one of these")
    return bool(layout == BUNDLE)


def kept_in(properties: Mapping[str, Any]) -> int:
    """Return the number of earlier generations to keep: the property `KeepGenerations`, 0 by default.

    Raises:
        ArtifactError: `KeepGenerations` is not a number from 0 to 99.
    """
    text = str(properties.get("KeepGenerations", "0"))
    if not _NUMBER.fullmatch(text):
        raise _fault("KeepGenerations", text, "a number from 0 to 99", "write one")
    return int(text)


def pinned_in(properties: Mapping[str, Any]) -> str | None:
    """Return the id of the stored generation to serve: the property `Generation`; None if it is left out.

    Without the property `Generation`, the resource's models are published.

    Raises:
        ArtifactError: `Generation` does not have the form of a generation's id.
    """
    pinned = properties.get("Generation")
    if pinned is not None and not (isinstance(pinned, str) and is_generation_id(pinned)):
        raise _fault("Generation", pinned, "an id of 12 hexadecimal digits", "leave it out")
    return pinned


def archives_of(properties: Mapping[str, Any]) -> dict[str, dict[str, bytes]]:
    """Return the files of each archive to publish, by archive name: the model's name, or `models` for a bundle.

    Raises:
        ArtifactError: the properties are not valid (`models_of`, `is_bundle`), or a bundle has a model that the server
            could not load, so that it would serve none of the models.
    """
    models = models_of(properties)
    if not is_bundle(properties):
        return models
    _raise(map(_unbundled, packed_revisions(properties)))
    _raise(startup_faults(models))
    return {BUNDLE_NAME: bundle_files(models)}


def models_of(properties: Mapping[str, Any]) -> dict[str, dict[str, bytes]]:
    """Return the files of each model, by model name.

    Raises:
        ArtifactError: a model's name, properties, requirements, handler, wheels or weights are not valid. The text
            names all faults in the form of the properties together.
    """
    _raise(_model_faults(properties))
    requirements, handlers = properties.get("Requirements", {}), properties.get("Handlers", {})
    packed, bucket = packed_revisions(properties), str(properties.get("WeightsBucket", ""))
    wheels = Wheels()
    files = {
        name: model_files(
            with_bucket(settings, properties.get("WeightsBucket")),
            requirements.get(name, "").splitlines(),
            {
                **(_code(name, handlers[name]) if name in handlers else {}),
                **wheels.files(name, properties.get("Wheels", {}).get(name, "")),
            },
        )
        for name, settings in properties["Models"].items()
    }
    return files | {name: with_part(files[name], revision, bucket) for name, revision in packed.items()}


def revisions_of(properties: Mapping[str, Any]) -> dict[str, Revision]:
    """Return the revision of the pushed weights that a model's container fetches, by model name.

    A model whose weights were not pushed to S3 is left out.

    The caller must have checked `properties` with `models_of`.
    """
    found = {name: revision_in(settings) for name, settings in properties["Models"].items()}
    return {name: revision for name, revision in found.items() if revision is not None}


def names_in(properties: object) -> frozenset[str]:
    """Return the names of the archives that a resource's properties request; the properties may be invalid."""
    models = properties.get("Models") if isinstance(properties, dict) else None
    if isinstance(properties, dict) and properties.get("Layout") == BUNDLE:
        return frozenset({BUNDLE_NAME})
    return frozenset(models) if isinstance(models, dict) else frozenset()


def _code(model: str, handler: str) -> Mapping[str, bytes]:
    """Return the files of the handler `name@version`; the version lets CloudFormation detect a change of the code."""
    name, _, version = handler.partition("@")
    if (here := handler_version(name)) != version:
        raise ArtifactError(
            "code-of-another-checkout",
            f"Handlers.{model}",
            f"got {handler!a}",
            allowed=f"{name}@{here}, the version in the function's code",
            fix="deploy the stack from one checkout",
        )
    return handler_files(name)


def _raise(faults: Iterator[ArtifactError]) -> None:
    if found := list(faults):
        raise RequestError(found)


def _fault(field: str, value: object, allowed: str, fix: str) -> ArtifactError:
    return ArtifactError("request-property", field, f"got {_short(value)}", allowed=allowed, fix=fix)


def _unbundled(model: str) -> ArtifactError:
    return ArtifactError(
        "packed-weights-bundled",
        f"PackedWeights.{model}",
        "weights cannot be put into an archive of several models",
        allowed="archives of one model",
        fix="write weights: s3",
    )


def _place_faults(properties: Mapping[str, Any]) -> Iterator[ArtifactError]:
    bucket, prefix = properties.get("Bucket"), properties.get("Prefix")
    if not isinstance(bucket, str) or not bucket:
        yield _fault("Bucket", bucket, "the name of a bucket", "set it")
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        names = "folder names each followed by one '/', such as 'encoders/', without '/' in front, blanks, '.' or '..'"
        yield _fault("Prefix", prefix, names, "write it so")


def _model_faults(properties: Mapping[str, Any]) -> Iterator[ArtifactError]:
    models = properties.get("Models")
    if not isinstance(models, dict) or not models:
        yield _fault("Models", models, "a map of at least one model's properties by name", "name a model")
        models = {}
    for name, settings in models.items():
        yield from _settings_faults(name, settings)
    yield from _text_faults("Requirements", properties.get("Requirements", {}), models)
    yield from _text_faults("Handlers", properties.get("Handlers", {}), models)
    yield from _text_faults("Wheels", properties.get("Wheels", {}), models)


def _text_faults(field: str, texts: object, models: Mapping[str, Any]) -> Iterator[ArtifactError]:
    if not isinstance(texts, dict):
        yield _fault(field, texts, "a map of text by model name", "leave it out")
        return
    for name, text in texts.items():
        if name not in models:
            yield ArtifactError(
                "request-model-unknown",
                f"{field}.{name}",
                "there is no such model",
                allowed="the names in Models",
                fix="remove it",
            )
        elif not isinstance(text, str):
            yield _fault(f"{field}.{name}", text, "text", "write text")


def _settings_faults(name: str, settings: object) -> Iterator[ArtifactError]:
    try:
        check_name(name)
    except ArtifactError as error:
        yield error
    if not isinstance(settings, dict) or not settings:
        yield _fault(f"Models.{name}", settings, "a map of properties", "give it at least `engine`")
        return
    for key, value in settings.items():
        # CloudFormation passes numbers and booleans as text, so anything else was a list or a map in the template.
        if not isinstance(value, str):
            yield _fault(f"Models.{name}.{key}", value, "text", "write it as text")


def _short(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:60]}…"  # noqa: PLR2004 - enough to recognise it
