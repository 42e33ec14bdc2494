"""Which generation is served, which ones served before, and what those were published from.

CloudFormation deletes a generation that an update replaced and one whose stack goes by the same request. What is
remembered here tells them apart. It lies in the bucket, beside the archives (layout.py), since the function that writes
it keeps nothing itself and is asked by nobody but CloudFormation.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .errors import ArtifactError
from .generation import is_generation_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .bucket import Bucket
    from .layout import Layout

_OF_THE_PLACE = ("ServiceToken", "ServiceTimeout", "Bucket", "Prefix", "KeepGenerations", "Generation")


@dataclass(frozen=True, kw_only=True)
class Served:
    """The generation that is served, how many earlier ones stay beside it, and the resource that published it."""

    generation: str
    keep: int
    resource: str


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """A generation that served, when an update left it (UTC, ISO 8601), and what it was published from."""

    generation: str
    left: str
    properties: Mapping[str, Any]


def _now() -> datetime:
    return datetime.now(UTC)


class History:
    """What is remembered of the generations below one prefix of a bucket.

    All methods raise ArtifactError when S3 refuses.
    """

    def __init__(self, bucket: Bucket, layout: Layout, now: Callable[[], datetime] = _now) -> None:
        self._bucket = bucket
        self._layout = layout
        self._now = now

    def served(self) -> Served | None:
        """What is served as of the last event that succeeded; None where nothing was ever kept."""
        key = self._layout.served()
        if not self._bucket.has(key):
            return None
        said = self._read(key)
        return Served(generation=said["generation"], keep=said["keep"], resource=said["resource"])

    def serve(self, served: Served | None) -> None:
        """Notes what is served now; None takes the note away."""
        if served is None:
            self._bucket.delete([self._layout.served()])
            return
        self._bucket.put_mark(self._layout.served(), _json(asdict(served)))
        self._bucket.delete([key for key, generation in self._left() if generation == served.generation])

    def leave(self, generation: str, properties: Mapping[str, Any]) -> None:
        """Notes what a generation that an update is about to replace was published from; one on trial never served."""
        if self._bucket.has(self._layout.trial(generation)):
            return
        older = [key for key, left in self._left() if left == generation]
        kept = {name: value for name, value in properties.items() if name not in _OF_THE_PLACE}
        self._bucket.put_mark(self._layout.left(f"{self._now():%Y-%m-%dT%H:%M:%S.%fZ}", generation), _json(kept))
        self._bucket.delete(older)

    def try_out(self, generation: str) -> None:
        """Notes that an update publishes this generation, and may yet fail."""
        self._bucket.put_mark(self._layout.trial(generation))

    def confirm(self, generation: str) -> None:
        """Notes that the update succeeded that published this generation."""
        self._bucket.delete([self._layout.trial(generation)])

    def left(self) -> tuple[str, ...]:
        """The generations that served before the present one and are not forgotten, the last one first."""
        return tuple(generation for _, generation in self._left())

    def earlier(self) -> tuple[Earlier, ...]:
        """The same, without the one that is served now, with all that is known of each."""
        served = self.served()
        return tuple(
            Earlier(generation=generation, left=self._layout.left_at(key), properties=self._read(key))
            for key, generation in self._left()
            if served is None or generation != served.generation
        )

    def properties(self, generation: str) -> Mapping[str, Any] | None:
        """What an earlier generation was published from; None where nothing is known of it."""
        for key, left in self._left():
            if left == generation:
                return self._read(key)
        return None

    def notes(self, generation: str) -> list[str]:
        """The keys of what is remembered of a generation, but for that it is served; some may not be there."""
        return [*(key for key, left in self._left() if left == generation), self._layout.trial(generation)]

    def end(self, generation: str) -> None:
        """Takes away the note that a generation is served, where it is this one."""
        served = self.served()
        if served is not None and served.generation == generation:
            self.serve(None)

    def _left(self) -> list[tuple[str, str]]:
        """Key and generation of each entry, newest first; a time in a key sorts as it is."""
        keys = self._bucket.keys(self._layout.left())
        found = [(key, self._layout.generation_left(key)) for key in sorted(keys, reverse=True)]
        return [(key, generation) for key, generation in found if is_generation_id(generation)]

    def _read(self, key: str) -> dict[str, Any]:
        try:
            said = json.loads(self._bucket.get(key))
        except ValueError as error:
            raise ArtifactError(
                f"{key}: is no JSON ({error}); allowed is what was written there; restore it or delete it"
            ) from error
        if not isinstance(said, dict):
            raise ArtifactError(f"{key}: is no JSON object; allowed is what was written there; restore it or delete it")
        return said


class Move:
    """The step from the generation that is served to another, which can be taken back.

    Nothing is noted where no generation is kept and none ever was.

    Args:
        history: where it is noted.
        keep: how many earlier generations stay from now on.
        resource: the logical id of the resource that publishes.
        left: the generation that is served now, None for none.
        published_from: what that one was published from.
        trial: whether the other one is new, so that it only has served when the update succeeds.
    """

    def __init__(
        self,
        history: History,
        *,
        keep: int,
        resource: str,
        trial: bool,
        left: str | None = None,
        published_from: Mapping[str, Any] | None = None,
    ) -> None:
        self._history = history
        self._keep = keep
        self._resource = resource
        self._trial = trial
        self._left = left
        self._published_from = published_from
        self._before: Served | None = None
        self._begun = False

    def to(self, generation: str) -> None:
        """Notes that this generation is served from now on."""
        self._before = self._history.served()
        if self._before is None and not self._keep:
            return
        if self._left not in {None, generation} and self._published_from is not None:
            self._history.leave(str(self._left), self._published_from)
        self._begun = True
        if self._trial:
            self._history.try_out(generation)
        self._history.serve(Served(generation=generation, keep=self._keep, resource=self._resource))

    def back(self) -> None:
        """Notes what was served before."""
        if self._begun:
            self._history.serve(self._before)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()
