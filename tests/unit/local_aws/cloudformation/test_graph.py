"""The order of work."""

from __future__ import annotations

import threading
from typing import Any

from cloud_fakes import body, thing
from fakes.faults import faulted

from local_aws.cloudformation.graph import dependencies, restricted, reverse, run
from local_aws.cloudformation.templates.template import parse_template


def graph_of(resources: dict[str, Any]) -> dict[str, set[str]]:
    """The graph of a template in which everything is active."""
    return dependencies(parse_template(body(resources)), resources, {})


def test_references_and_depends_on_make_the_order() -> None:
    """The order follows references and DependsOn, and parameters are no resources."""
    graph = graph_of(
        {
            "A": thing(),
            "B": thing(Value={"Fn::Sub": "${A.Arn}/x"}),
            "C": thing(depends_on=["A"], Value=[{"Ref": "B"}]),
        }
    )
    assert graph == {"A": set(), "B": {"A"}, "C": {"A", "B"}}
    assert reverse(graph) == {"A": {"B", "C"}, "B": {"C"}, "C": set()}


def test_cycle_is_refused_by_name() -> None:
    """A cycle of resources is rejected with their names."""
    with faulted("ValidationError", 400, "Circular dependency between resources: [") as caught:
        graph_of({"A": thing(Value={"Ref": "B"}), "B": thing(Value={"Ref": "A"}), "C": thing()})
    assert {name for name in "ABC" if f"{name}" in str(caught.value).partition("[")[2]} == {"A", "B"}


def test_order_survives_what_is_left_out() -> None:
    """Two resources keep their order even if a resource between them is left out."""
    assert restricted({"A": set(), "B": {"A"}, "C": {"B"}}, {"A", "C", "new"}) == {"A": set(), "C": {"A"}, "new": set()}


def test_independent_resources_run_at_the_same_time() -> None:
    """Two independent resources run at the same time, so they meet at a barrier."""
    barrier = threading.Barrier(2, timeout=60)
    assert run({"A": set(), "B": set()}, lambda _: barrier.wait() and None) == {}


def test_failure_stops_what_depends_on_it_and_all_that_has_not_begun() -> None:
    """After a failure no further resource starts with a failure hook, and no dependent one without a hook."""
    done: list[str] = []
    stopped = threading.Event()

    def act(name: str) -> None:
        if name == "A":
            raise ValueError(name)
        if name == "B" and not stop_early:
            stopped.wait(0.01)
        done.append(name)

    graph = {"A": set(), "B": set(), "C": {"B"}, "D": {"A"}}
    stop_early = False
    assert list(run(graph, act)) == ["A"]
    assert sorted(done) == ["B", "C"]
    hooked: list[int] = []
    assert list(run({"A": set(), "D": {"A"}}, act, on_failure=lambda: hooked.append(1))) == ["A"]
    assert hooked == [1]
