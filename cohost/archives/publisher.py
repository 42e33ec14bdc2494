"""The work for CloudFormation's create, update and delete requests on the model store in S3."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from .archive import content_digest
from .errors import ArtifactError
from .generation import Generation, changes, choose, generation_id
from .history import Move
from .request import names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from .history import Served
    from .store import ModelStore

    Models = Mapping[str, Mapping[str, bytes]]
    """The files of each model's archive, by model name."""

_log = logging.getLogger(__name__)


class Publisher:
    """The publisher of a resource's models: it writes all of them to a store, or leaves the store unchanged.

    Args:
        store: the store of the archives.
        before_undo: called before a failed attempt is undone, so that the caller can extend its time limit.
        before_write: called with the names of the models whose archives are about to be written; raises to refuse.
        keep: the number of earlier generations that stay after a successful update.
        resource: the logical id of the resource whose models are published.
    """

    def __init__(
        self,
        store: ModelStore,
        before_undo: Callable[[], None],
        before_write: Callable[[Collection[str]], None] = lambda _names: None,
        *,
        keep: int = 0,
        resource: str = "",
    ) -> None:
        self._store = store
        self._before_undo = before_undo
        self._before_write = before_write
        self._keep = keep
        self._resource = resource

    def create(self, models: Models) -> str:
        """Publish the models of a new resource, and return the id of their generation (published set of archives).

        If CloudFormation repeats the event, the archives of the first attempt are used.

        Raises:
            ArtifactError: S3 or `before_write` refused; no archive of this attempt is left.
        """
        self.sweep()
        desired = _digests(models)
        present = self._store.read(generation_id(desired))
        move = self._move(trial=False)
        if not present.empty and present.agrees(desired):
            return self._fill(present, models, (), move)
        return self._publish(models, move)

    def update(
        self,
        models: Models,
        current: str | None,
        previous: Collection[str],
        published_from: Mapping[str, Any] | None = None,
    ) -> str:
        """Publish models in place of the models that `previous` names, and return the generation's id.

        `current` is the generation that is served now, None if it does not lie in this store. `published_from` are the
        resource properties to record for the current generation if another generation replaces it.

        Raises:
            ArtifactError: S3 or `before_write` refused; the current generation is unchanged.
        """
        self.sweep(keep=current)
        desired = _digests(models)
        now = self._store.read(current) if current is not None else None
        others = (
            self._store.read(other)
            for other in self._store.generations()
            # This check comes first: it reads a listing and one small object, but `read` makes one request per archive.
            if other != current and self._was_published_from(other, desired)
        )
        chosen = choose(desired, now, others)
        move = self._move(left=current, published_from=published_from, trial=chosen is None)
        return self._publish(models, move) if chosen is None else self._fill(chosen, models, previous, move)

    def go_back(
        self, generation: str, names: Collection[str], current: str | None, published_from: Mapping[str, Any] | None
    ) -> str:
        """Serve a stored generation unchanged, and return its id; the generation must hold archives of all `names`.

        Raises:
            ArtifactError: the generation is not stored or lacks an archive, or S3 or `before_write` refused.
        """
        stored = self._store.models(generation)
        if missing := sorted(set(names) - set(stored)):
            raise ArtifactError(
                "generation-missing",
                "Generation",
                f"{generation} is not stored with {', '.join(missing)}",
                allowed="what `cohost rollback --list` shows",
                fix="run `cdk deploy` to publish the catalog",
            )
        self._before_write(names)
        move = self._move(left=current, published_from=published_from, trial=False)
        try:
            move.to(generation)
        except Exception:
            self._undo(move.back)
            raise
        return generation

    def delete(self, generation: str) -> None:
        """Delete a generation for CloudFormation's delete request; only archives that lmi-cohost wrote are deleted.

        If the request names the served generation, the resource is being deleted, so all generations are deleted. A
        replaced generation stays while it is among the latest `KeepGenerations` earlier ones, unless the update that
        published it never succeeded.
        """
        history = self._store.history
        served = history.served()
        if served is None or (served.resource != self._resource and served.generation != generation):
            self._store.delete(generation)
        elif served.resource != self._resource:
            _log.info("%s is served for %s now and stays", self._store.uri(generation), served.resource)
        elif served.generation == generation:
            self._store.delete_all()
        else:
            self._retire(generation, served)

    def _retire(self, generation: str, served: Served) -> None:
        earlier = [one for one in self._store.history.left() if one != served.generation]
        retained = earlier[: served.keep]
        for one in {generation, *earlier} - set(retained):
            self._store.delete(one)
        # CloudFormation deletes the replaced resource after the update has succeeded; after a rollback, the generation
        # that is served now was never on trial.
        self._store.history.confirm(served.generation)
        _log.info("retained beside %s: %s", served.generation, ", ".join(retained) or "none")

    def sweep(self, keep: str | None = None) -> None:
        """Delete each generation that an earlier attempt began but neither finished nor undid; never delete `keep`.

        CloudFormation never received the ids of these generations.
        """
        for generation in self._store.unfinished():
            if generation != keep:
                _log.info("deleting %s, which was never finished", self._store.uri(generation))
                self._store.delete(generation)

    def _move(self, **options: Any) -> Move:  # the options of class Move
        return Move(self._store.history, keep=self._keep, resource=self._resource, **options)

    def _was_published_from(self, generation: str, desired: Collection[str]) -> bool:
        """Return True if an earlier generation had archives of exactly the desired names, or if no record tells."""
        properties = self._store.history.properties(generation)
        return properties is None or names_in(properties) == set(desired)

    def _fill(self, generation: Generation, models: Models, previous: Collection[str], move: Move) -> str:
        desired = _digests(models)
        todo = changes(desired, generation, previous)
        _log.info("%s: %d to write, %d to remove", self._store.uri(generation.id), len(todo.write), len(todo.remove))
        self._before_write(todo.write)
        try:
            for name in todo.write:
                self._store.put(generation.id, name, models[name])
            self._store.remove(generation.id, todo.remove)
            move.to(generation.id)
        except Exception:
            attempted = {name: desired[name] for name in todo.write}
            self._undo(lambda: self._store.take_back(generation.id, attempted), move.back)
            raise
        return generation.id

    def _publish(self, models: Models, move: Move) -> str:
        generation = generation_id(_digests(models), taken=self._store.generations())
        _log.info("%s: new, %d to write", self._store.uri(generation), len(models))
        self._before_write(sorted(models))
        try:
            self._store.begin(generation)
            for name in sorted(models):
                self._store.put(generation, name, models[name])
            move.to(generation)
            self._store.finish(generation)
        except Exception:
            self._undo(lambda: self._store.delete(generation), move.back)
            raise
        return generation

    def _undo(self, *steps: Callable[[], None]) -> None:
        _log.info("deleting the archives that this attempt wrote")
        self._before_undo()
        try:
            for step in steps:
                step()
        except ArtifactError as error:
            # The first fault is reported. A new generation keeps its mark as unfinished, and the next event deletes it.
            _log.warning("not all could be undone: %s", error)


def _digests(models: Models) -> dict[str, str]:
    return {name: content_digest(files) for name, files in models.items()}
