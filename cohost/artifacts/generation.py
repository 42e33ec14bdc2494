"""Generations: sets of models published together, and which of them an update goes to. Pure, no S3.

SageMaker never reads a loaded archive again ("use a new and unique name", AWS: add models to a multi-model endpoint).
So within a generation a name stands for one content for ever; other content needs another generation, hence another
ModelDataUrl.
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
"""Stands for the digest of an object that was not written here."""

_ID = re.compile(r"[0-9a-f]{12}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What lies in a generation: content digest by model name, and the digests that each removed model had."""

    id: str
    models: Mapping[str, str]
    removed: Mapping[str, Collection[str]]

    @property
    def empty(self) -> bool:
        """Whether nothing tells that this generation ever existed."""
        return not self.models and not self.removed

    @property
    def bundled(self) -> bool:
        """Whether it holds, or held, a bundle of all models instead of an archive a model."""
        return _any_bundle(chain(self.models.values(), *self.removed.values()))

    def agrees(self, wanted: Mapping[str, str]) -> bool:
        """Whether no wanted model has, or had, other content here: the old copy may still be loaded somewhere.

        Archives and a bundle never lie in one generation: what an endpoint of the one kind reads would be taken away
        while it still serves.
        """
        if not self.empty and self.bundled != _any_bundle(wanted.values()):
            return False
        return all(
            self.models.get(name, digest) == digest and set(self.removed.get(name, ())) <= {digest}
            for name, digest in wanted.items()
        )


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What makes a generation that agrees hold what is wanted: names to write, and names with digests to remove."""

    write: tuple[str, ...]
    remove: Mapping[str, str]


def _any_bundle(digests: Iterable[str]) -> bool:
    return any(digest.startswith(BUNDLE_DIGEST) for digest in digests)


def generation_id(wanted: Mapping[str, str], taken: Collection[str] = ()) -> str:
    """12 hexadecimal digits that follow from the wanted models (digest by name); another one where that is taken."""
    pairs = "".join(f"{name}={digest}\n" for name, digest in sorted(wanted.items()))
    for attempt in count():
        text = pairs if attempt == 0 else f"{pairs}attempt={attempt}\n"
        candidate = hashlib.sha256(text.encode()).hexdigest()[:12]
        if candidate not in taken:
            return candidate
    raise AssertionError  # pragma: no cover - count() has no end


def is_generation_id(text: str) -> bool:
    """Whether a folder's name can be a generation's."""
    return bool(_ID.fullmatch(text))


def choose(wanted: Mapping[str, str], current: Generation | None, others: Iterable[Generation]) -> Generation | None:
    """The generation to bring up to what is wanted: the current one if it agrees, else another; None for a new one.

    Among others the one with exactly the wanted names comes first, so a rollback finds the generation it left.
    `others` is only looked at when the current one does not agree.
    """
    if current is not None and current.agrees(wanted):
        return current
    agreeing = [other for other in others if not other.empty and other.agrees(wanted)]
    return min(agreeing, key=lambda other: (set(other.models) != set(wanted), other.id), default=None)


def changes(wanted: Mapping[str, str], generation: Generation, previous: Collection[str]) -> Changes:
    """What to write and remove in a generation that agrees.

    Removed is only what the previous properties named, the wanted ones do not, and was written here. Other names were
    pushed by hand and stay.
    """
    gone = {name: generation.models.get(name, FOREIGN) for name in sorted(set(previous) - set(wanted))}
    return Changes(
        write=tuple(name for name in sorted(wanted) if name not in generation.models),
        remove={name: digest for name, digest in gone.items() if digest != FOREIGN},
    )


def check_name(name: str) -> str:
    """A model name that can stand in an S3 key, in a TargetModel and in the server's addresses.

    Raises:
        ArtifactError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise ArtifactError(
            f"model name {name!a}: is not allowed; allowed are 1-63 letters, digits and hyphens, first a letter or "
            "digit; rename the model"
        )
    return name
