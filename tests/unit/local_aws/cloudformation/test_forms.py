"""Functions and sections that CloudFormation refuses when it reads a template.

The cases follow the public tests of cfn-lint and AWS's reference of functions; their templates are written anew.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from cloud_fakes import World, make_engine, thing
from fakes.faults import faulted

from local_aws.cloudformation.checks import check_template
from local_aws.cloudformation.templates.template import parse_template


def check(value: Any = "v", *, resources: dict[str, Any] | None = None, **sections: Any) -> None:
    """Check a template of one resource that has this property, and of other sections."""
    template = {
        "Parameters": {"Text": {"Type": "String"}, "Names": {"Type": "CommaDelimitedList"}},
        "Conditions": {"Big": {"Fn::Equals": [{"Ref": "Text"}, "big"]}},
        "Resources": {"A": thing(Value=value), "B": thing(), "Store": {"Type": "Custom::Store"}, **(resources or {})},
        **sections,
    }
    check_template(parse_template(json.dumps(template)), make_engine(World()).context.resource_types)


@pytest.mark.parametrize(
    "value",
    [
        {"Fn::Join": ["-", ["a", {"Ref": "Text"}, {"Fn::GetAtt": ["B", "Arn"]}, 1, True]]},
        {"Fn::Join": [",", {"Ref": "Names"}]},
        {"Fn::Join": [",", {"Fn::Split": ["|", {"Ref": "Text"}]}]},
        {"Fn::Select": [0, {"Fn::GetAZs": {"Ref": "AWS::Region"}}]},
        {"Fn::Select": [{"Ref": "Text"}, {"Ref": "Names"}]},
        {"Fn::Select": ["1", ["a", {"Fn::If": ["Big", "b", {"Ref": "AWS::NoValue"}]}]]},
        {"Fn::Sub": "${AWS::Region} ${B.Arn} ${!Kept} $${Text} ${ Text }"},
        {"Fn::Sub": ["${x}", {"x": {"Fn::Select": [0, {"Ref": "Names"}]}}]},
        {"Fn::If": ["Big", {"deep": [{"Ref": "B"}]}, {"Ref": "AWS::NoValue"}]},
        {"Fn::GetAtt": "Store.any.thing"},
        {"Fn::GetAtt": ["Store", {"Ref": "Text"}]},
        {"Fn::Base64": {"Fn::Sub": "#!${Text}"}},
        {"Fn::ImportValue": {"Fn::Sub": "${Text}-subnet"}},
        {"Condition": {"Bool": {"aws:SecureTransport": "false"}}},
        {"Fn": "no function", "Ref": "no function beside another key"},
    ],
)
def test_a_function_in_its_form_passes(value: Any) -> None:
    """Every form of the reference, and what only looks like a function."""
    check(value)


@pytest.mark.parametrize(
    ("value", "about"),
    [
        ({"Ref": ["A"]}, "every Ref object must have a single String value"),
        ({"Ref": {"Ref": "Text"}}, "every Ref object"),
        ({"Fn::GetAtt": ["A"]}, "every Fn::GetAtt object requires two"),
        ({"Fn::GetAtt": "A"}, "every Fn::GetAtt object requires two"),
        ({"Fn::GetAtt": [{"Ref": "Text"}, "Arn"]}, "Ref is not supported in this place"),
        ({"Fn::GetAtt": ["B", {"Fn::Sub": "Arn"}]}, "Fn::Sub is not supported in this place"),
        ({"Fn::GetAtt": ["B", "Color"]}, "does not support attribute type Color in Fn::GetAtt"),
        ({"Fn::Sub": "${B.Color}"}, "does not support attribute type Color in Fn::GetAtt"),
        ({"Fn::GetAtt": ["Nobody", "Arn"]}, "[Nobody] in the Resources block"),
        ({"Fn::Sub": "${Nobody}"}, "[Nobody] in the Resources block"),
        ({"Fn::Join": ["-", "text"]}, "every Fn::Join object requires two parameters"),
        ({"Fn::Join": [["-"], ["a"]]}, "every Fn::Join object requires two parameters"),
        ({"Fn::Join": [{"Ref": "Text"}, ["a"]]}, "Ref is not supported in this place"),
        ({"Fn::Join": ["-", ["a"], "b"]}, "3 parameters"),
        ({"Fn::Join": ["-", [["a"]]]}, "is no string"),
        ({"Fn::Join": ["-", ["a", {"Fn::GetAZs": ""}]]}, "Fn::GetAZs is not supported in this place"),
        ({"Fn::Select": [-1, ["a"]]}, "below 0"),
        ({"Fn::Select": ["first", ["a"]]}, "is no integer"),
        ({"Fn::Select": [0]}, "1 parameters"),
        ({"Fn::Select": [0, "a"]}, "is no array"),
        ({"Fn::Select": [0, {"Fn::Sub": "a"}]}, "Fn::Sub is not supported in this place"),
        ({"Fn::Select": [{"Fn::Sub": "0"}, ["a"]]}, "Fn::Sub is not supported in this place"),
        ({"Fn::Split": [",", ["a"]]}, "every Fn::Split object requires two parameters"),
        ({"Fn::Split": ["", "a"]}, "the delimiter is empty"),
        ({"Fn::Split": [{"Ref": "Text"}, "a"]}, "Ref is not supported in this place"),
        ({"Fn::Sub": ["${x}"]}, "1 parameters"),
        ({"Fn::Sub": ["${x}", "y"]}, "is no object"),
        ({"Fn::Sub": {"Ref": "Text"}}, "don't specify expected arguments"),
        ({"Fn::Sub": "${Text:-default}"}, "variable names in Fn::Sub syntax"),
        ({"Fn::Sub": "${a-b}"}, "variable names in Fn::Sub syntax"),
        ({"Fn::If": ["Big", "a"]}, "Fn::If requires a list argument with three parameters"),
        ({"Fn::If": [{"Ref": "Text"}, "a", "b"]}, "Fn::If requires a list argument with three parameters"),
        ({"Fn::If": ["Small", "a", "b"]}, "unresolved condition dependency Small in Fn::If"),
        ({"Fn::If": ["Big", {"Fn::If": ["Small", 1, 2]}, 3]}, "unresolved condition dependency Small"),
        ({"Fn::If": ["Big", 1, {"Fn::Select": [0]}]}, "every Fn::Select object"),
        ({"Fn::FindInMap": ["M", "a"]}, "every Fn::FindInMap object requires three parameters"),
        ({"Fn::FindInMap": ["M", {"Fn::Sub": "a"}, "b"]}, "Fn::Sub is not supported in this place"),
        ({"Fn::Base64": ["a"]}, "Fn::Base64"),
        ({"Fn::ImportValue": {"Fn::GetAtt": ["A", "Arn"]}}, "Fn::GetAtt is not supported in this place"),
        ({"Fn::ImportValue": {"Ref": "B"}}, "Fn::ImportValue must not depend on any resources"),
        ({"Fn::ImportValue": {"Fn::Sub": "${B}-x"}}, "Fn::ImportValue must not depend on any resources"),
        ({"Fn::If": ["Big", {"Fn::Cidr": ["a", 1]}, 1]}, "Fn::Cidr"),
        ({"Fn::Equals": ["a", "b"]}, "Fn::Equals"),
        ({"Fn::Nope": 1}, "Fn::Nope"),
    ],
)
def test_a_malformed_function_is_refused_before_anything_is_made(value: Any, about: str) -> None:
    """Each names the function, in branches that are not taken too."""
    with faulted("ValidationError", 400, about):
        check(value)


@pytest.mark.parametrize(
    ("condition", "about"),
    [
        ({"Fn::Equals": [{"Ref": "A"}, "x"]}, "[A]. Cannot reference resources in the Conditions block"),
        ({"Fn::Equals": [{"Fn::GetAtt": ["A", "Arn"]}, "x"]}, "Fn::GetAtt is not supported in this place"),
        ({"Fn::Equals": [{"Fn::ImportValue": "x"}, "x"]}, "Fn::ImportValue is not supported in this place"),
        ({"Fn::Equals": [{"Fn::If": ["Big", "a", "b"]}, "x"]}, "Fn::If is not supported in this place"),
        ({"Fn::Equals": [{"Condition": "Big"}, "x"]}, "a list of 2 string parameters"),
        ({"Fn::Equals": ["x"]}, "a list of 2 string parameters"),
        ({"Fn::Equals": ["x", ["y"]]}, "a list of 2 string parameters"),
        ({"Fn::And": [{"Condition": "Big"}]}, "at least 2 and at most 10"),
        ({"Fn::Or": [{"Condition": "Big"}] * 11}, "at least 2 and at most 10"),
        ({"Fn::And": [{"Condition": "Big"}, "true"]}, "at least 2 and at most 10"),
        ({"Fn::Not": [{"Condition": "Big"}, {"Condition": "Big"}]}, "requires one boolean parameter"),
        ({"Fn::Not": {"Condition": "Big"}}, "requires one boolean parameter"),
        ({"Fn::Not": [{"Ref": "Text"}]}, "Ref is not supported in this place"),
        ({"Fn::Contains": [["a"], "a"]}, "Conditions can only be boolean operations"),
        ({"Ref": "Text"}, "Conditions can only be boolean operations"),
        (True, "Conditions can only be boolean operations"),
        ({"Condition": "Absent"}, "Unresolved condition dependency Absent"),
        ({"Fn::Not": [{"Condition": "C"}]}, "circular condition dependency"),
    ],
)
def test_a_malformed_condition_is_refused(condition: Any, about: str) -> None:
    """Conditions are boolean functions of parameters and of each other, and nothing else."""
    big = {"Fn::Equals": [{"Ref": "Text"}, "big"]}
    with faulted("ValidationError", 400, about):
        check(Conditions={"Big": big, "C": condition})


@pytest.mark.parametrize(
    ("sections", "about"),
    [
        ({"AWSTemplateFormatVersion": "2010-09-10"}, "AWSTemplateFormatVersion"),
        ({"Description": ["x"]}, "Every Description member must be a string"),
        ({"Description": "x" * 1025}, "1024 bytes"),
        ({"Mappings": {"M": {"a": "b"}}}, "Every Mappings member M must be a map"),
        ({"Mappings": {"M": {"a": {"b": {"c": 1}}}}}, "must be a String or a List"),
        ({"Mappings": {"M": {"a": {"b-c": 1}}}}, "must contain only alphanumeric"),
        ({"Mappings": {"M_1": {"a": {"b": 1}}}}, "M_1 is non alphanumeric"),
        ({"Mappings": {f"M{n}": {"a": {"b": 1}} for n in range(201)}}, "201"),
        ({"Outputs": {"O": {"Description": "x"}}}, "must evaluate to a String"),
        ({"Outputs": {"O": {"Value": ["x"]}}}, "must evaluate to a String"),
        ({"Outputs": {"O": "x"}}, "Output O is malformed"),
        ({"Outputs": {"O": {"Value": "x", "Name": "y"}}}, "Output O is malformed"),
        ({"Outputs": {"O": {"Value": "x", "Description": {"Ref": "Text"}}}}, "Output O is malformed"),
        ({"Outputs": {"O": {"Value": "x", "Export": {"Name": "y", "Region": "z"}}}}, "Export needs a Name"),
        ({"Outputs": {"O": {"Value": "x", "Condition": "Absent"}}}, "condition dependency Absent"),
        ({"Outputs": {"O": {"Value": {"Fn::GetAtt": ["A", "Color"]}}}}, "attribute type Color"),
        ({"Outputs": {"O": {"Value": {"Fn::If": ["Absent", 1, 2]}}}}, "condition dependency Absent"),
        ({"Outputs": {"O_1": {"Value": "x"}}}, "O_1 is non alphanumeric"),
        ({"Outputs": {f"O{n}": {"Value": "x"} for n in range(201)}}, "201"),
        ({"Rules": {"R": {"Assertions": [{"AssertDescription": "x"}]}}}, "Rule R"),
        ({"Rules": {"R": {"Assertions": [{"Assert": {"Ref": "Text"}}]}}}, "R is"),
        ({"Rules": {"R": {"Assertions": [{"Assert": {"Fn::Contains": [["a"], {"Ref": "A"}]}}]}}}, "in the Rules block"),
        ({"resources": {"Text": thing()}}, "[Text] is the name of a parameter and of a resource"),
        ({"resources": {f"R{n}": thing() for n in range(498)}}, "501"),
        ({"resources": {"C": thing(Arn="arn:x")}}, "[Arn] is read-only"),
        ({"resources": {"C": thing(Colour="red")}}, "extraneous key [Colour] is not permitted"),
        ({"resources": {"C": thing(Elsewhere="x")}}, "the local AWS does not support [Elsewhere]"),
        ({"resources": {"C": thing(Value=None)}}, "[/Resources/C/Properties/Value] 'null' values are not allowed"),
        ({"resources": {"C": {**thing(), "Condition": {"Fn::Not": []}}}}, "Every Condition member must be a string"),
        ({"resources": {"C": {**thing(), "DependsOn": [{"Ref": "A"}]}}}, "DependsOn of [C]"),
        ({"resources": {"C": {**thing(), "DeletionPolicy": {"Ref": "Text"}}}}, "Every DeletionPolicy member"),
        ({"resources": {"C": {**thing(), "UpdateReplacePolicy": "RetainExceptOnCreate"}}}, "UpdateReplacePolicy"),
        ({"resources": {"C": {**thing(), "Properties": []}}}, "Properties of [C] must be a map"),
    ],
)
def test_a_malformed_section_is_refused(sections: dict[str, Any], about: str) -> None:
    """Names, kinds and numbers of each section's parts, and properties that no template can set."""
    with faulted("ValidationError", 400, about):
        check(**sections)


def test_a_section_in_its_form_passes() -> None:
    """Keys of regions, lists in maps, and a rule with a condition."""
    check(
        Mappings={"M": {"us-east-1": {"a": ["x", "y"], "b": 1}}},
        Outputs={"O": {"Value": {"Ref": "A"}, "Condition": "Big", "Export": {"Name": {"Fn::Sub": "${Text}-o"}}}},
        Rules={
            "R": {
                "RuleCondition": {"Fn::Equals": [{"Ref": "Text"}, "x"]},
                "Assertions": [{"Assert": {"Fn::Not": [{"Fn::Contains": [["1", "2"], {"Ref": "Text"}]}]}}],
            }
        },
    )
