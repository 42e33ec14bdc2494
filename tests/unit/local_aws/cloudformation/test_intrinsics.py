"""Intrinsic functions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.faults import faulted

from local_aws.cloudformation.templates.intrinsics import NO_VALUE, UNKNOWN, Reference, Resolver, references
from local_aws.cloudformation.templates.template import parse_template

TEMPLATE = {
    "Mappings": {"Map": {"us-east-1": {"ami": "x"}}},
    "Conditions": {
        "Yes": {"Fn::Equals": [{"Ref": "P"}, "p"]},
        "No": {"Fn::Not": [{"Condition": "Yes"}]},
        "Both": {"Fn::And": [{"Condition": "Yes"}, {"Condition": "No"}]},
        "Any": {"Fn::Or": [{"Condition": "No"}, {"Condition": "Yes"}]},
        "In": {"Fn::Contains": [["p", "q"], {"Ref": "P"}]},
    },
    "Resources": {"R": {"Type": "T"}, "Later": {"Type": "T"}},
}


class Values:
    """R exists, Later does not yet."""

    def ref(self, logical_id: str) -> str:
        """An id."""
        return UNKNOWN if logical_id == "Later" else f"id-of-{logical_id}"

    def attribute(self, logical_id: str, name: str) -> Any:
        """A text, or a list for the attribute List."""
        return ["l1", "l2"] if name == "List" else f"{logical_id}.{name}"


def make_resolver() -> Resolver:
    """A resolver of the template above."""
    pseudo = {"AWS::Region": "us-east-1", "AWS::AccountId": "123456789012"}
    names = {"P": "p", "Odd": "x${!b}{{y}}", "L": ["a", "b"], **pseudo}
    return Resolver(
        parse_template(json.dumps(TEMPLATE)),
        names=names,
        values=Values(),
        lookup_ssm=lambda name: f"ssm:{name}",
        import_value=lambda name: f"import:{name}",
    )


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ({"Ref": "P"}, "p"),
        ({"Ref": "R"}, "id-of-R"),
        ({"Fn::GetAtt": ["R", "Arn"]}, "R.Arn"),
        ({"Fn::GetAtt": "R.A.B"}, "R.A.B"),
        ({"Fn::GetAtt": ["R", {"Ref": "P"}]}, "R.p"),
        ({"Fn::Sub": "${P}-${R}-${R.Arn}-${!Kept}-${AWS::Region}"}, "p-id-of-R-R.Arn-${Kept}-us-east-1"),
        ({"Fn::Sub": ["${x}/${P}", {"x": {"Ref": "R"}}]}, "id-of-R/p"),
        ({"Fn::Join": ["-", ["a", 1, True, {"Ref": "P"}]]}, "a-1-true-p"),
        ({"Fn::Join": [",", {"Ref": "L"}]}, "a,b"),
        ({"Fn::Join": [",", ["a", {"Ref": "AWS::NoValue"}]]}, "a"),
        ({"Fn::Select": ["1", {"Ref": "L"}]}, "b"),
        ({"Fn::Select": [0, {"Fn::Split": ["/", "x/y"]}]}, "x"),
        ({"Fn::Select": [3, {"Fn::Split": ["/", {"Ref": "Later"}]}]}, UNKNOWN),
        ({"Fn::FindInMap": ["Map", {"Ref": "AWS::Region"}, "ami"]}, "x"),
        ({"Fn::If": ["Yes", "y", "n"]}, "y"),
        ({"Fn::If": ["No", "y", "n"]}, "n"),
        ({"Fn::Base64": {"Ref": "P"}}, "cA=="),
        ({"Fn::GetAZs": ""}, ["us-east-1a", "us-east-1b", "us-east-1c"]),
        ({"Fn::GetAZs": "eu-west-1"}, ["eu-west-1a", "eu-west-1b", "eu-west-1c"]),
        ({"Fn::ImportValue": {"Fn::Sub": "${P}-x"}}, "import:p-x"),
        ({"Fn::Sub": "${Odd}|${!b}"}, "x${!b}{{y}}|${b}"),
        ({"Fn::Sub": ["${v}", {"v": "${P} ${!P}"}]}, "${P} ${!P}"),
        ({"Fn::Join": ["", ["{{resolve:ssm:", "/name", "}}"]]}, "ssm:/name"),
        ({"Fn::Sub": "{{resolve:ssm:/${P}}}"}, "ssm:/p"),
        ({"Fn::Select": [1, {"Fn::Split": [":", "{{resolve:ssm:/a}}"]}]}, "ssm"),
        ({"Fn::Join": [",", {"Fn::Split": ["/", {"Ref": "Later"}]}]}, UNKNOWN),
        ("{{resolve:ssm:/name:2}}/x", "ssm:/name:2/x"),
        ({"a": {"Ref": "AWS::NoValue"}, "b": [{"Ref": "AWS::NoValue"}, 1]}, {"b": [1]}),
        ({"Condition": {"StringEquals": {"k": {"Ref": "P"}}}}, {"Condition": {"StringEquals": {"k": "p"}}}),
    ],
)
def test_function_resolves(expression: Any, value: Any) -> None:
    """Each intrinsic function gives CloudFormation's result, and the Condition of a policy is no function."""
    assert make_resolver().resolve(expression) == value


def test_no_value_alone_is_told_apart() -> None:
    """An expression that is only AWS::NoValue is neither null nor empty."""
    assert make_resolver().resolve({"Ref": "AWS::NoValue"}) is NO_VALUE


def test_conditions() -> None:
    """Conditions with And, Or, Not, Equals, Contains and names are evaluated."""
    assert make_resolver().conditions() == {"Yes": True, "No": False, "Both": False, "Any": True, "In": True}


@pytest.mark.parametrize(
    ("expression", "about"),
    [
        ({"Ref": "Nobody"}, "Nobody"),
        ({"Fn::GetAtt": ["Nobody", "Arn"]}, "Nobody"),
        ({"Fn::Cidr": []}, "Fn::Cidr"),
        ({"Fn::FindInMap": ["Map", "eu", "ami"]}, "Map::eu::ami"),
        ({"Fn::Select": [7, {"Ref": "L"}]}, "7"),
        ({"Fn::If": ["Nope", 1, 2]}, "Nope"),
        ({"Fn::Select": [-1, {"Ref": "L"}]}, "nonexistent value at index -1"),
        ({"Fn::Select": ["-1", {"Ref": "L"}]}, "nonexistent value at index -1"),
        ({"Fn::Select": [0, {"Ref": "P"}]}, "a list to select from"),
        ({"Fn::Join": ["", {"Ref": "P"}]}, "a list to be joined"),
        ({"Fn::Join": ["", [{"Ref": "L"}]]}, "text is needed"),
        ({"Fn::ToJsonString": {"a": 1}}, "Fn::ToJsonString"),
        ({"Fn::Length": {"Ref": "L"}}, "Fn::Length"),
        ("{{resolve:secretsmanager:x}}", "secretsmanager"),
    ],
)
def test_wrong_expression_is_refused_by_name(expression: Any, about: str) -> None:
    """The error of an expression that cannot be resolved names the function or the missing name."""
    with faulted("ValidationError", 400, about):
        make_resolver().resolve(expression)


def test_references_of_an_expression() -> None:
    """All references of an expression are found; with known conditions only those of the chosen branch."""
    expression = {
        "a": {"Fn::Sub": ["${R.Arn} ${x} ${!y} ${P}", {"x": {"Ref": "X"}}]},
        "b": [{"Fn::If": ["Yes", {"Ref": "Then"}, {"Ref": "Else"}]}],
        "c": {"Fn::GetAtt": "G.Arn"},
    }
    every = {Reference("R", "Arn"), Reference("X"), Reference("P"), Reference("G", "Arn")}
    assert references(expression) == every | {Reference("Then"), Reference("Else")}
    assert references(expression, {"Yes": False}) == every | {Reference("Else")}
