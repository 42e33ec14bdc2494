"""The identities of deployed resources: recorded templates of an earlier state, and the comparison with today's.

A deployed stack updates in place when each resource keeps its logical id, its type, and the properties that
CloudFormation can set only at creation (names among them). `tests/data/deployed_ids.json` holds these for all stacks of
the catalogs that were shipped at commit cf2b027; its `made` says how it was made.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).parents[1] / "data" / "deployed_ids.json"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The recording: the stacks of each catalog, create-only properties by type, and later resources.

    `added` holds the reason of each resource that is newer than the recording, by logical id.
    """

    stacks: dict[str, dict[str, dict[str, Any]]]
    create_only: dict[str, list[str]]
    added: dict[str, str]


def read_recorded() -> Recorded:
    """Return the recording with a full resource (Type, Properties) for each id."""
    data = json.loads(FILE.read_text(encoding="utf-8"))
    stacks = {
        catalog: {
            stack: {
                name: {"Type": data["types"][name], "Properties": own["properties"].get(name, {})}
                for name in own["ids"]
            }
            for stack, own in stacks.items()
        }
        for catalog, stacks in data["catalogs"].items()
    }
    return Recorded(stacks=stacks, create_only=data["create_only"], added=data["added"])


def identities(template: dict[str, Any], create_only: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Return type and create-only properties of each resource, by logical id."""
    return {
        name: {
            "Type": resource["Type"],
            "Properties": {
                key: value
                for key, value in resource.get("Properties", {}).items()
                if key in create_only.get(resource["Type"], ())
            },
        }
        for name, resource in template["Resources"].items()
    }


def replacements(then: dict[str, Any], now: dict[str, Any]) -> dict[str, str]:
    """Return the resources that an update would replace or remove, by logical id."""
    found = {}
    for name, resource in then.items():
        if name not in now:
            found[name] = f"{resource['Type']} is gone"
        elif now[name]["Type"] != resource["Type"]:
            found[name] = f"{resource['Type']} is {now[name]['Type']} now"
        elif now[name]["Properties"] != resource["Properties"]:
            found[name] = f"{resource['Properties']} is {now[name]['Properties']} now"
    return found
