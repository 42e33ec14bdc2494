"""The dependency graph of a template's resources, and parallel work in the order of such a graph.

A graph maps each name to the names that it waits for.
"""

from __future__ import annotations

import graphlib
import queue
import threading
from typing import TYPE_CHECKING

from local_aws.cloudformation.errors import ValidationError
from local_aws.cloudformation.templates.intrinsics import references

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from local_aws.cloudformation.templates.template import Template


Graph = dict[str, set[str]]


def dependencies(template: Template, active: Iterable[str], conditions: Mapping[str, bool]) -> Graph:
    """Return the graph in which each active resource waits for its DependsOn and for the resources that it refers to.

    Raises:
        ValidationError: resources wait for each other; the text names them.
    """
    names = set(active)
    graph = {
        name: names
        & {*template.resources[name].depends_on}.union(
            reference.target for reference in references(template.resources[name].properties, conditions)
        )
        for name in sorted(names)
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        raise ValidationError(f"Circular dependency between resources: [{', '.join(error.args[1][:-1])}]") from None
    return graph


def reverse(graph: Mapping[str, Iterable[str]]) -> Graph:
    """Return the graph of a deletion: each name waits for the names that wait for it in `graph`."""
    turned: Graph = {name: set() for name in graph}
    for name, waits_for in graph.items():
        for other in waits_for:
            turned[other].add(name)
    return turned


def restricted(graph: Mapping[str, Iterable[str]], names: Iterable[str]) -> Graph:
    """Return the graph of `names` alone, with indirect dependencies; a name unknown to `graph` waits for nothing."""
    kept = set(names)
    return {name: kept & _reachable(graph, name) for name in kept}


def _reachable(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph.get(start, ()))
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(graph.get(name, ()))
    return seen


def run(
    graph: Mapping[str, Iterable[str]],
    action: Callable[[str], None],
    *,
    on_failure: Callable[[], None] | None = None,
) -> dict[str, Exception]:
    """Call `action` for every name in the order of the graph; independent names run at the same time.

    Args:
        graph: the names that each name waits for.
        action: the work on a name; if it raises, the name has failed, and the names that wait for it are not started.
        on_failure: called at the first failure; if it is given, no other name is started after that.

    Returns:
        The failures by name, in the order in which they happened.
    """
    sorter = graphlib.TopologicalSorter(graph)
    sorter.prepare()
    threads = _Threads(action)
    failures: dict[str, Exception] = {}
    while True:
        if not (failures and on_failure):
            threads.start(sorter.get_ready())
        if threads.running == 0:
            return failures
        name, error = threads.wait()
        if error is None:
            sorter.done(name)
            continue
        if on_failure and not failures:
            on_failure()
        failures[name] = error


class _Threads:
    """Calls an action in one thread per name, and reports the names as they finish."""

    def __init__(self, action: Callable[[str], None]) -> None:
        self._action = action
        self._finished: queue.Queue[tuple[str, Exception | None]] = queue.Queue()
        self.running = 0

    def start(self, names: Iterable[str]) -> None:
        """Start one thread per name."""
        for name in names:
            # Daemon threads, since a resource that hangs must not keep the process from exiting.
            threading.Thread(target=self._work, args=(name,), name=f"resource-{name}", daemon=True).start()
            self.running += 1

    def wait(self) -> tuple[str, Exception | None]:
        """Wait until another name is finished; return the name with its exception, or with None on success."""
        outcome = self._finished.get()
        self.running -= 1
        return outcome

    def _work(self, name: str) -> None:
        try:
            self._action(name)
        except Exception as error:  # noqa: BLE001 - any fault of a resource is this resource's failure
            self._finished.put((name, error))
        else:
            self._finished.put((name, None))
