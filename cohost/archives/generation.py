"""Generations: sets of models published together, and the choice of the one that an update goes to.

SageMaker never reads a loaded archive again ("use a new and unique name", AWS: add models to a multi-model endpoint).
So within a generation a name stands for one content forever; other content needs another generation, hence another
ModelDataUrl. Nothing in this module calls S3.
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
"""The digest that stands for any object not written by lmi-cohost."""

_ID = re.compile(r"[0-9a-f]{12}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The contents of a generation: the content digest by model name, and the digests that each removed model had."""

    id: str
    models: Mapping[str, str]
    removed: Mapping[str, Collection[str]]

    @property
    def empty(self) -> bool:
        """Return whether no trace of this generation exists."""
        return not self.models and not self.removed

    @property
    def bundled(self) -> bool:
        """Return whether it holds, or held, one bundle of all models instead of one archive per model."""
        return _any_bundle(chain(self.models.values(), *self.removed.values()))

    def agrees(self, wanted: Mapping[str, str]) -> bool:
        """Return whether no wanted model has, or had, other content here, which may still be loaded somewhere.

        Archives and a bundle never share a generation: the change would remove what an endpoint of the other kind
        still reads.
        """
        if not self.empty and self.bundled != _any_bundle(wanted.values()):
            return False
        return all(
            self.models.get(name, digest) == digest and set(self.removed.get(name, ())) <= {digest}
            for name, digest in wanted.items()
        )


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The changes that bring a generation to the wanted models: names to write, and names with digests to remove."""

    write: tuple[str, ...]
    remove: Mapping[str, str]


def _any_bundle(digests: Iterable[str]) -> bool:
    return any(digest.startswith(BUNDLE_DIGEST) for digest in digests)


def generation_id(wanted: Mapping[str, str], taken: Collection[str] = ()) -> str:
    """Return 12 hexadecimal digits, not in `taken`, that are derived from the wanted models (digest by name)."""
    pairs = "".join(f"{name}={digest}\n" for name, digest in sorted(wanted.items()))
    for attempt in count():
        text = pairs if attempt == 0 else f"{pairs}attempt={attempt}\n"
        candidate = hashlib.sha256(text.encode()).hexdigest()[:12]
        if candidate not in taken:
            return candidate
    raise AssertionError  # pragma: no cover - count() has no end


def is_generation_id(text: str) -> bool:
    """Return whether a folder's name can be the id of a generation."""
    return bool(_ID.fullmatch(text))


def choose(wanted: Mapping[str, str], current: Generation | None, others: Iterable[Generation]) -> Generation | None:
    """Return the generation to update: the current one if it agrees, else another that does; None for a new one.

    Of the others, one with exactly the wanted names is preferred, so that a rollback finds the generation it left.
    `others` is read only if the current one does not agree.
    """
    if current is not None and current.agrees(wanted):
        return current
    agreeing = [other for other in others if not other.empty and other.agrees(wanted)]
    return min(agreeing, key=lambda other: (set(other.models) != set(wanted), other.id), default=None)


def changes(wanted: Mapping[str, str], generation: Generation, previous: Collection[str]) -> Changes:
    """Return the changes that a generation needs to hold the wanted models; it must agree with them.

    A model is removed only if the previous properties named it, the wanted ones do not, and lmi-cohost wrote it. Other
    names were pushed by hand and stay.
    """
    gone = {name: generation.models.get(name, FOREIGN) for name in sorted(set(previous) - set(wanted))}
    return Changes(
        write=tuple(name for name in sorted(wanted) if name not in generation.models),
        remove={name: digest for name, digest in gone.items() if digest != FOREIGN},
    )


def check_name(name: str) -> str:
    """Return a model name that is valid in an S3 key, in TargetModel and in the server's addresses.

    Raises:
        ArtifactError: the name is not valid there.
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
