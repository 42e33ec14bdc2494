"""Catalogs and stacks for tests, and functions that look up resources of a template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk

from cohost.catalog.models import Catalog
from stacks.lmi_cohost_stack import STACK_ID, LmiCohostStack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cohost.forecast.plan.profiles import Profile

ROOT = Path(__file__).parents[2]
FLAGS: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text())["context"]


def make_catalog(
    *,
    endpoint: dict[str, Any] | None = None,
    storage: dict[str, Any] | None = None,
    tags: dict[str, str] | None = None,
    models: dict[str, dict[str, Any]] | None = None,
    scaling: dict[str, Any] | None = None,
) -> Catalog:
    """A catalog of two models, with the given keys changed."""
    entry = {"model_id": "org/name", "task": "text-classification"}
    return Catalog.model_validate(
        {
            "endpoint": {
                "name": "lmi-cohost",
                "instance_type": "ml.g5.xlarge",
                "image": "djl-inference:0.36.0-lmi26.0.0-cu130",
                **(endpoint or {}),
            },
            "storage": {"prefix": "models/", **(storage or {})},
            "tags": {"project": "test"} if tags is None else tags,
            **({} if scaling is None else {"scaling": scaling}),
            "models": {"nli": entry, "mini": entry} if models is None else models,
        }
    )


def make_stack(
    catalog: Catalog,
    *,
    region: str = "us-east-1",
    outdir: Path | None = None,
    profiles: Mapping[str, Profile] | None = None,
) -> LmiCohostStack:
    """A fresh stack in a fresh app with the flags of cdk.json."""
    app = cdk.App(context=FLAGS, analytics_reporting=False, outdir=None if outdir is None else str(outdir))
    return LmiCohostStack(app, STACK_ID, catalog=catalog, profiles=profiles, env=cdk.Environment(region=region))


def template_of(stack: cdk.Stack) -> dict[str, Any]:
    """Synthesise the app of a stack and return the stack's template."""
    app = stack.node.root
    assert isinstance(app, cdk.App)
    template: dict[str, Any] = app.synth().get_stack_by_name(stack.stack_name).template
    return template


def resources(template: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """The resources of a type, by logical id."""
    return {name: found for name, found in template["Resources"].items() if found["Type"] == kind}


def only(template: dict[str, Any], kind: str) -> tuple[str, dict[str, Any]]:
    """Return the logical id and the definition of the only resource of a type."""
    found = resources(template, kind)
    assert len(found) == 1, f"{kind}: {sorted(found)}"
    return next(iter(found.items()))


def statements(template: dict[str, Any], role_id: str) -> list[dict[str, Any]]:
    """Return every statement that allows a role an action."""
    assert "ManagedPolicyArns" not in template["Resources"][role_id]["Properties"]
    return [
        statement
        for policy in resources(template, "AWS::IAM::Policy").values()
        if {"Ref": role_id} in policy["Properties"]["Roles"]
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
    ]


def waits_for(template: dict[str, Any], first: str, second: str) -> bool:
    """Return True if resource `first` is created after `second`, by any path of references and DependsOn."""
    seen: set[str] = set()
    waiting = [first]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in template["Resources"]:
            continue
        seen.add(name)
        waiting.extend(_needed(template["Resources"][name]))
    return second in seen - {first}


def _needed(node: object) -> list[str]:
    if isinstance(node, list):
        return [name for item in node for name in _needed(item)]
    if not isinstance(node, dict):
        return []
    if set(node) == {"Ref"}:
        return [node["Ref"]]
    if set(node) == {"Fn::GetAtt"}:
        return [node["Fn::GetAtt"][0]]
    depends = node.get("DependsOn", [])
    names = [depends] if isinstance(depends, str) else [name for name in depends if isinstance(name, str)]
    return names + [name for item in node.values() for name in _needed(item)]
