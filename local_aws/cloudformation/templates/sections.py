"""The form of a template's sections (parameters, mappings, conditions, rules and outputs), and their largest sizes.

AWS: CloudFormation user guide, "Template anatomy" and "Understand CloudFormation quotas".
"""

from __future__ import annotations

import graphlib
import re
from typing import TYPE_CHECKING, Any, Final

from local_aws.cloudformation.errors import ValidationError
from local_aws.cloudformation.templates.forms import check_condition, check_functions
from local_aws.cloudformation.templates.intrinsics import references
from local_aws.cloudformation.templates.parameters import check_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from local_aws.cloudformation.templates.template import Template


LIMITS: Final = {"Mappings": 200, "Outputs": 200, "Resources": 500}
DESCRIPTION_LIMIT: Final = 1024
NAME_LIMIT: Final = 255
OUTPUT_KEYS: Final = frozenset({"Condition", "Description", "Export", "Value"})
NAME: Final = re.compile(r"[A-Za-z0-9]+")
# The keys of the first level may be names of regions.
MAP_KEY: Final = re.compile(r"[A-Za-z0-9.-]+")


def check_sections(template: Template) -> None:
    """Reject sections that CloudFormation would reject when it reads the template.

    Raises:
        ValidationError: a section is malformed or too long; the text names the part.
    """
    for section, limit in LIMITS.items():
        count = len(template.section(section))
        if count > limit:
            raise ValidationError(
                f"Template format error: Number of {section.lower()}, {count}, is greater than maximum allowed, {limit}"
            )
    description = template.document.get("Description")
    if description is not None and not isinstance(description, str):
        raise ValidationError("Template format error: Every Description member must be a string.")
    if description is not None and len(description.encode()) > DESCRIPTION_LIMIT:
        raise ValidationError(f"Template format error: Description is longer than {DESCRIPTION_LIMIT} bytes.")
    _check_names(template)
    check_parameters(template.section("Parameters"))
    for name, mapping in template.section("Mappings").items():
        _check_mapping(name, mapping)
    _check_conditions(template)
    _check_rules(template)
    for key, output in template.section("Outputs").items():
        _check_output(key, output)


def _check_names(template: Template) -> None:
    for section in ("Mappings", "Conditions", "Outputs", "Resources"):
        for name in template.section(section):
            if NAME.fullmatch(name) is None:
                raise ValidationError(f"Template format error: {section[:-1]} name {name} is non alphanumeric.")
            if len(name) > NAME_LIMIT:
                raise ValidationError(f"Template format error: {name} is longer than {NAME_LIMIT} characters.")
    if shared := sorted(set(template.section("Parameters")) & set(template.resources)):
        raise ValidationError(
            f"Template format error: [{', '.join(shared)}] is the name of a parameter and of a resource."
        )


def _check_mapping(name: str, mapping: Any) -> None:
    if not isinstance(mapping, dict) or not all(isinstance(one, dict) for one in mapping.values()):
        raise ValidationError(f"Template format error: Every Mappings member {name} must be a map.")
    for key, attributes in mapping.items():
        if MAP_KEY.fullmatch(key) is None:
            raise ValidationError(f"Template format error: Mappings key {key} of {name} is non alphanumeric.")
        for attribute, value in attributes.items():
            if NAME.fullmatch(attribute) is None:
                raise ValidationError(
                    f"Template format error: Mappings attribute name '{attribute}' must contain only alphanumeric "
                    "characters."
                )
            if isinstance(value, dict):
                raise ValidationError("Template format error: Every Mappings attribute must be a String or a List.")


def _check_conditions(template: Template) -> None:
    conditions = template.section("Conditions")
    for name, condition in conditions.items():
        check_condition(name, condition, "Conditions")
    _reject_resources(template, "Conditions", conditions)
    graph = {name: set(_named(condition)) for name, condition in conditions.items()}
    if missing := sorted(set().union(*graph.values()) - set(graph)):
        raise ValidationError(
            f"Template format error: Unresolved condition dependency {missing[0]} in the Conditions block of the "
            "template"
        )
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        raise ValidationError(
            f"Template error: Found circular condition dependency between [{', '.join(error.args[1][:-1])}]"
        ) from None


def _check_rules(template: Template) -> None:
    rules = template.section("Rules")
    for name, rule in rules.items():
        assertions = rule.get("Assertions") if isinstance(rule, dict) else None
        if not isinstance(assertions, list) or not all("Assert" in one for one in assertions):
            raise ValidationError(f"Template format error: Rule {name} needs Assertions, each with an Assert.")
        stated = [rule["RuleCondition"]] if "RuleCondition" in rule else []
        for condition in [*stated, *(one["Assert"] for one in assertions)]:
            check_condition(name, condition, "Rules")
    _reject_resources(template, "Rules", rules)


def _reject_resources(template: Template, block: str, content: Mapping[str, Any]) -> None:
    """Reject references to resources from a block that is evaluated before any resource exists."""
    check_functions(dict(content), block)
    targets = {one.target for one in references(dict(content))}
    known = {name for name in targets if name.startswith("AWS::") or name in template.section("Parameters")}
    if others := sorted(targets - known):
        raise ValidationError(
            f"Template format error: Unresolved dependencies [{', '.join(others)}]. Cannot reference resources in the "
            f"{block} block of the template"
        )


def _named(node: Any) -> Iterator[str]:
    """Yield the names of the other conditions that a condition refers to."""
    if isinstance(node, dict):
        if set(node) == {"Condition"}:
            yield str(node["Condition"])
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from _named(item)


def _check_output(key: str, output: Any) -> None:
    malformed = f"Template format error: Output {key} is malformed."
    if not isinstance(output, dict) or not set(output) <= OUTPUT_KEYS:
        raise ValidationError(f"{malformed} It takes {', '.join(sorted(OUTPUT_KEYS))}.")
    if "Value" not in output or isinstance(output["Value"], list):
        raise ValidationError(f"{malformed} The Value field of every Outputs member must evaluate to a String.")
    description = output.get("Description", "")
    if not isinstance(description, str) or len(description.encode()) > DESCRIPTION_LIMIT:
        raise ValidationError(f"{malformed} Description must be a string of at most {DESCRIPTION_LIMIT} bytes.")
    if "Export" in output and (not isinstance(output["Export"], dict) or set(output["Export"]) != {"Name"}):
        raise ValidationError(f"{malformed} Export needs a Name and nothing else.")
