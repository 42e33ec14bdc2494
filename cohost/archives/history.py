"""Records of the served generation (published set of archives), of the earlier ones, and of their properties.

CloudFormation sends the same delete request after an update has replaced a generation and when its stack is deleted;
the records show which of the two happened. Each record is an S3 object beside the archives (layout.py), because the
Lambda function is stateless.
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
    """The served generation's id, the number of earlier ones to keep, and the logical id of the publishing resource."""

    generation: str
    keep: int
    resource: str


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """An earlier generation: its id, the time of its replacement (UTC, ISO 8601), and its resource's properties."""

    generation: str
    left: str
    properties: Mapping[str, Any]


def _now() -> datetime:
    return datetime.now(UTC)


class History:
    """The records of the generations below one prefix of a bucket.

    All methods raise ArtifactError if S3 refuses a request.
    """

    def __init__(self, bucket: Bucket, layout: Layout, now: Callable[[], datetime] = _now) -> None:
        self._bucket = bucket
        self._layout = layout
        self._now = now

    def served(self) -> Served | None:
        """Return the record of the served generation; None if there is no such record."""
        key = self._layout.served()
        if not self._bucket.has(key):
            return None
        note = self._read(key)
        return Served(generation=note["generation"], keep=note["keep"], resource=note["resource"])

    def serve(self, served: Served | None) -> None:
        """Record the generation that is served now; delete any record that lists it as an earlier generation.

        If `served` is None, delete the record of the served generation.
        """
        if served is None:
            self._bucket.delete([self._layout.served()])
            return
        self._bucket.put_mark(self._layout.served(), _json(asdict(served)))
        self._bucket.delete([key for key, generation in self._left() if generation == served.generation])

    def leave(self, generation: str, properties: Mapping[str, Any]) -> None:
        """Record the properties of a generation that an update will replace.

        A generation that is still on trial (`try_out`) is not recorded: the update that published it never succeeded.
        """
        if self._bucket.has(self._layout.trial(generation)):
            return
        older = [key for key, left in self._left() if left == generation]
        kept = {name: value for name, value in properties.items() if name not in _OF_THE_PLACE}
        self._bucket.put_mark(self._layout.left(f"{self._now():%Y-%m-%dT%H:%M:%S.%fZ}", generation), _json(kept))
        self._bucket.delete(older)

    def try_out(self, generation: str) -> None:
        """Record this generation as on trial: the update that publishes it may still fail."""
        self._bucket.put_mark(self._layout.trial(generation))

    def confirm(self, generation: str) -> None:
        """Delete the record that this generation is on trial, because the update that published it has succeeded."""
        self._bucket.delete([self._layout.trial(generation)])

    def left(self) -> tuple[str, ...]:
        """Return the ids of the earlier generations, the most recently replaced one first."""
        return tuple(generation for _, generation in self._left())

    def earlier(self) -> tuple[Earlier, ...]:
        """Return the records of the earlier generations, except a record of the generation that is served now."""
        served = self.served()
        return tuple(
            Earlier(generation=generation, left=self._layout.left_at(key), properties=self._read(key))
            for key, generation in self._left()
            if served is None or generation != served.generation
        )

    def properties(self, generation: str) -> Mapping[str, Any] | None:
        """Return the resource properties from which an earlier generation was published; None if no record has them."""
        for key, left in self._left():
            if left == generation:
                return self._read(key)
        return None

    def notes(self, generation: str) -> list[str]:
        """Return the keys of the records that list a generation as earlier or on trial; the latter may not exist."""
        return [*(key for key, left in self._left() if left == generation), self._layout.trial(generation)]

    def end(self, generation: str) -> None:
        """Delete the record of the served generation if it names this generation."""
        served = self.served()
        if served is not None and served.generation == generation:
            self.serve(None)

    def _left(self) -> list[tuple[str, str]]:
        """Return key and generation of each earlier generation's record, newest first (the keys contain the time)."""
        keys = self._bucket.keys(self._layout.left())
        found = [(key, self._layout.generation_left(key)) for key in sorted(keys, reverse=True)]
        return [(key, generation) for key, generation in found if is_generation_id(generation)]

    def _read(self, key: str) -> dict[str, Any]:
        try:
            note = json.loads(self._bucket.get(key))
        except ValueError as error:
            raise _foreign(key, f"is not JSON ({error})") from error
        if not isinstance(note, dict):
            raise _foreign(key, "is not a JSON object")
        return note


def _foreign(key: str, problem: str) -> ArtifactError:
    return ArtifactError(
        "history-unreadable", key, problem, allowed="the text that was written there", fix="restore it or delete it"
    )


class Move:
    """A change that makes another generation the served one, and that can be undone.

    Nothing is recorded if `keep` is 0 and no served generation has been recorded yet.

    Args:
        history: the records to change.
        keep: the number of earlier generations to keep from now on.
        resource: the logical id of the CloudFormation resource that publishes.
        left: the generation that is served now; None if there is none.
        published_from: the resource properties that `left` was published from.
        trial: true if the other generation is new, so that it is on trial until the update has succeeded.
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
        """Record that this generation is served from now on."""
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
        """Restore the record of the generation that was served before."""
        if self._begun:
            self._history.serve(self._before)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()
