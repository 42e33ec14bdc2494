"""What CloudFormation's create, update and delete mean for the model store."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .archive import content_digest
from .errors import ArtifactError
from .generation import Generation, changes, choose, generation_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from .store import ModelStore

    Models = Mapping[str, Mapping[str, bytes]]
    """The files of each model's archive, by model name."""

_log = logging.getLogger(__name__)


class Publisher:
    """Brings a store to what is wanted, or leaves it as it was.

    `before_undo` is called before an attempt is undone, so that a time limit can leave room for that. `before_write` is
    called with the names of the models whose archives are about to be written, and may refuse.
    """

    def __init__(
        self,
        store: ModelStore,
        before_undo: Callable[[], None],
        before_write: Callable[[Collection[str]], None] = lambda _names: None,
    ) -> None:
        self._store = store
        self._before_undo = before_undo
        self._before_write = before_write

    def create(self, models: Models) -> str:
        """Publishes models for a new resource and returns the generation's id; a repeat finds its own work.

        Raises:
            ArtifactError: it could not be done; nothing of the attempt is left.
        """
        self.sweep()
        wanted = _digests(models)
        present = self._store.read(generation_id(wanted))
        if not present.empty and present.agrees(wanted):
            return self._fill(present, models, previous=())
        return self._publish(models)

    def update(self, models: Models, current: str | None, previous: Collection[str]) -> str:
        """Publishes models in place of those that `previous` names, and returns the generation's id.

        `current` is the generation that is served now, None if it does not lie in this store.

        Raises:
            ArtifactError: it could not be done; the current generation is as it was.
        """
        self.sweep(keep=current)
        wanted = _digests(models)
        now = self._store.read(current) if current is not None else None
        others = (self._store.read(other) for other in self._store.generations() if other != current)
        chosen = choose(wanted, now, others)
        return self._publish(models) if chosen is None else self._fill(chosen, models, previous)

    def delete(self, generation: str) -> None:
        """Deletes a generation, as far as it was written here."""
        self._store.delete(generation)

    def sweep(self, keep: str | None = None) -> None:
        """Deletes generations that an earlier attempt began and could not even undo: nobody was told of them."""
        for generation in self._store.unfinished():
            if generation != keep:
                _log.info("deleting %s, which was never finished", self._store.uri(generation))
                self._store.delete(generation)

    def _fill(self, generation: Generation, models: Models, previous: Collection[str]) -> str:
        wanted = _digests(models)
        todo = changes(wanted, generation, previous)
        _log.info("%s: %d to write, %d to remove", self._store.uri(generation.id), len(todo.write), len(todo.remove))
        self._before_write(todo.write)
        try:
            for name in todo.write:
                self._store.put(generation.id, name, models[name])
            self._store.remove(generation.id, todo.remove)
        except Exception:
            attempted = {name: wanted[name] for name in todo.write}
            self._undo(lambda: self._store.take_back(generation.id, attempted))
            raise
        return generation.id

    def _publish(self, models: Models) -> str:
        generation = generation_id(_digests(models), taken=self._store.generations())
        _log.info("%s: new, %d to write", self._store.uri(generation), len(models))
        self._before_write(sorted(models))
        try:
            self._store.begin(generation)
            for name in sorted(models):
                self._store.put(generation, name, models[name])
            self._store.finish(generation)
        except Exception:
            self._undo(lambda: self._store.delete(generation))
            raise
        return generation

    def _undo(self, step: Callable[[], None]) -> None:
        _log.info("undoing what this attempt wrote")
        self._before_undo()
        try:
            step()
        except ArtifactError as error:
            # The first fault is the one to report. A new generation keeps its mark, and the next event sweeps it.
            _log.warning("not all could be undone: %s", error)


def _digests(models: Models) -> dict[str, str]:
    return {name: content_digest(files) for name, files in models.items()}
