"""Generations: sets of archives published together, and the choice of the generation that an update changes.

SageMaker never reads a loaded archive again ("use a new and unique name", AWS: add models to a multi-model endpoint).
So within a generation a model's name always has the same content; changed content needs another generation, and so
another ModelDataUrl. The module `generation` never calls S3.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING

from .archive import BUNDLE_DIGEST
from .errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

FOREIGN = ""
"""The placeholder for the content digest of an object that lmi-cohost did not write."""

_ID = re.compile(r"[0-9a-f]{12}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A generation: `models` maps names to content digests, `removed` maps removed models to their earlier digests."""

    id: str
    models: Mapping[str, str]
    removed: Mapping[str, Collection[str]]

    @property
    def empty(self) -> bool:
        """Return True if the generation has neither models nor removed models."""
        return not self.models and not self.removed

    @property
    def bundled(self) -> bool:
        """Return True if the generation holds, or held, one archive of all models instead of one archive per model."""
        return _any_bundle(chain(self.models.values(), *self.removed.values()))

    def agrees(self, desired: Mapping[str, str]) -> bool:
        """Return True if the desired models (digest by name) can be published in this generation.

        A desired model must never have had other content in this generation, because a container may still have that
        content loaded. A generation never holds both archives of single models and a bundle: the change from one to the
        other would remove archives that an endpoint of the other topology still reads.
        """
        if not self.empty and self.bundled != _any_bundle(desired.values()):
            return False
        return all(
            self.models.get(name, digest) == digest and set(self.removed.get(name, ())) <= {digest}
            for name, digest in desired.items()
        )


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The changes that give a generation the desired models: names to write, and models to remove (digest by name)."""

    write: tuple[str, ...]
    remove: Mapping[str, str]


def _any_bundle(digests: Iterable[str]) -> bool:
    return any(digest.startswith(BUNDLE_DIGEST) for digest in digests)


def generation_id(desired: Mapping[str, str], taken: Collection[str] = ()) -> str:
    """Return a generation's id: 12 hex digits derived from the desired models (digest by name), not in `taken`."""
    pairs = "".join(f"{name}={digest}\n" for name, digest in sorted(desired.items()))
    for attempt in count():
        text = pairs if attempt == 0 else f"{pairs}attempt={attempt}\n"
        candidate = hashlib.sha256(text.encode()).hexdigest()[:12]
        if candidate not in taken:
            return candidate
    raise AssertionError  # pragma: no cover - count() has no end


def is_generation_id(text: str) -> bool:
    """Return True if a text has the form of a generation's id: 12 hexadecimal digits in lower case."""
    return bool(_ID.fullmatch(text))


def choose(desired: Mapping[str, str], current: Generation | None, others: Iterable[Generation]) -> Generation | None:
    """Return the generation to update: one in which the desired models can be published (`agrees`), else None.

    The current generation is preferred, then one of `others` with exactly the desired names, so that a rollback finds
    the previous generation. `others` is read only if the desired models cannot be published in the current generation.
    """
    if current is not None and current.agrees(desired):
        return current
    agreeing = [other for other in others if not other.empty and other.agrees(desired)]
    return min(agreeing, key=lambda other: (set(other.models) != set(desired), other.id), default=None)


def changes(desired: Mapping[str, str], generation: Generation, previous: Collection[str]) -> Changes:
    """Return the changes that give a generation the desired models (digest by name); `agrees` must be true for them.

    A model is removed only if the resource's previous properties name it (`previous`), `desired` does not name it, and
    lmi-cohost wrote its archive. All other models stay, because somebody pushed them by hand.
    """
    gone = {name: generation.models.get(name, FOREIGN) for name in sorted(set(previous) - set(desired))}
    return Changes(
        write=tuple(name for name in sorted(desired) if name not in generation.models),
        remove={name: digest for name, digest in gone.items() if digest != FOREIGN},
    )


def check_name(name: str) -> str:
    """Return a model's name if it is valid in an S3 key, in TargetModel and in the server's URLs.

    Raises:
        ArtifactError: the name is not valid in all three.
    """
    if not _NAME.fullmatch(name):
        raise ArtifactError(
            "model-name",
            f"model name {name!a}",
            "is not allowed",
            allowed="1-63 letters, digits and hyphens, first a letter or digit",
            fix="rename the model",
        )
    return name
