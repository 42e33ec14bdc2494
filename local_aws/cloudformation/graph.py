"""The order of work: which resource waits for which, and running them as far apart as that allows."""

from __future__ import annotations

import graphlib
import queue
import threading
from typing import TYPE_CHECKING

from local_aws.cloudformation.errors import ValidationError
from local_aws.cloudformation.references import references

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from local_aws.cloudformation.template import Template

Graph = dict[str, set[str]]


def dependencies(template: Template, active: Iterable[str], conditions: Mapping[str, bool]) -> Graph:
    """What each active resource waits for: its DependsOn, and every resource that its properties refer to.

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
    """The order of deletion: what waited is now waited for."""
    turned: Graph = {name: set() for name in graph}
    for name, waits_for in graph.items():
        for other in waits_for:
            turned[other].add(name)
    return turned


def restricted(graph: Mapping[str, Iterable[str]], names: Iterable[str]) -> Graph:
    """The order among `names` alone, also where it led through others; names that the graph lacks wait for nothing."""
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
    """Call `action` for every name in order, independent ones at the same time.

    Args:
        graph: what each name waits for.
        action: the work; an exception from it is a failure, and what waits for that name is not started.
        on_failure: called at the first failure; when it is given, nothing more is started after that.

    Returns:
        The failures by name, in the order in which they happened.
    """
    sorter = graphlib.TopologicalSorter(graph)
    sorter.prepare()
    finished: queue.Queue[tuple[str, Exception | None]] = queue.Queue()

    def work(name: str) -> None:
        try:
            action(name)
        except Exception as error:  # noqa: BLE001 - any fault of a resource is this resource's failure
            finished.put((name, error))
        else:
            finished.put((name, None))

    failures: dict[str, Exception] = {}
    running = 0
    while True:
        ready = () if failures and on_failure else sorter.get_ready()
        for name in ready:
            # Daemon threads: a resource that hangs must not keep the process alive when it is told to stop.
            threading.Thread(target=work, args=(name,), name=f"resource-{name}", daemon=True).start()
            running += 1
        if running == 0:
            return failures
        name, error = finished.get()
        running -= 1
        if error is None:
            sorter.done(name)
            continue
        if on_failure and not failures:
            on_failure()
        failures[name] = error
