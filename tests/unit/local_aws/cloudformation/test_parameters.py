"""Values of a template's parameters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.faults import faulted

from local_aws.cloudformation.templates.parameters import Parameter, check_parameters, resolve_parameters
from local_aws.cloudformation.templates.template import parse_template


def resolve(
    spec: dict[str, Any], given: list[dict[str, Any]] | None = None, previous: dict[str, Parameter] | None = None
) -> dict[str, Parameter]:
    """The parameter P with this declaration."""
    template = parse_template(json.dumps({"Parameters": {"P": spec}, "Resources": {"A": {"Type": "T"}}}))
    return resolve_parameters(template, given or [], previous or {}, lambda name: f"value of {name}")


def give(value: str) -> list[dict[str, Any]]:
    """P given as this."""
    return [{"ParameterKey": "P", "ParameterValue": value}]


@pytest.mark.parametrize(
    ("spec", "given", "value"),
    [
        ({"Type": "String", "Default": "d"}, [], "d"),
        ({"Type": "String", "Default": True}, [], "true"),
        ({"Type": "String", "Default": "d"}, give("x"), "x"),
        ({"Type": "CommaDelimitedList"}, give("a, b"), ["a", "b"]),
        ({"Type": "CommaDelimitedList", "Default": ""}, [], []),
        ({"Type": "List<Number>"}, give("1,2"), ["1", "2"]),
        ({"Type": "Number"}, give("3"), "3"),
        ({"Type": "Number"}, give("-1.5e3"), "-1.5e3"),
        ({"Type": "CommaDelimitedList", "AllowedValues": ["a", "b"]}, give("b, a"), ["b", "a"]),
        ({"Type": "CommaDelimitedList", "AllowedPattern": "[a-z]+"}, give("a,b"), ["a", "b"]),
        ({"Type": "String", "AllowedValues": [True, 1]}, give("true"), "true"),
        ({"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/v"}, [], "value of /v"),
        ({"Type": "AWS::SSM::Parameter::Value<List<String>>", "Default": "/v"}, [], ["value of /v"]),
    ],
)
def test_value_by_type(spec: dict[str, Any], given: list[dict[str, Any]], value: Any) -> None:
    """Defaults, lists and SSM parameters resolve to the value of a Ref."""
    assert resolve(spec, given)["P"].value == value


def test_previous_value_is_kept_on_request() -> None:
    """UsePreviousValue keeps a value, and is rejected without a previous one."""
    before = resolve({"Type": "String"}, give("old"))
    same = [{"ParameterKey": "P", "UsePreviousValue": True}]
    assert resolve({"Type": "String", "Default": "d"}, same, before)["P"].value == "old"
    with faulted("ValidationError", 400, "P"):
        resolve({"Type": "String"}, same)


def test_secret_and_ssm_values_are_described_as_aws_does() -> None:
    """A NoEcho value is masked, and an SSM parameter shows its path and its value."""
    assert resolve({"Type": "String", "NoEcho": True}, give("secret"))["P"].described()["ParameterValue"] == "****"
    described = resolve({"Type": "AWS::SSM::Parameter::Value<String>"}, give("/v"))["P"].described()
    assert described == {"ParameterKey": "P", "ParameterValue": "/v", "ResolvedValue": "value of /v"}


@pytest.mark.parametrize(
    ("spec", "given", "about"),
    [
        ({"Type": "String"}, [], "[P] must have values"),
        ({"Type": "String", "Default": ""}, [{"ParameterKey": "Q", "ParameterValue": ""}], "Q"),
        ({"Type": "String", "AllowedValues": ["a", "b"]}, give("c"), "a, b"),
        ({"Type": "String", "AllowedPattern": "[a-z]+"}, give("A"), "[a-z]+"),
        ({"Type": "String", "AllowedPattern": "[a-z]+", "ConstraintDescription": "be small"}, give("A"), "be small"),
        ({"Type": "String", "MinLength": 2}, give("a"), "MinLength 2"),
        ({"Type": "Number", "MaxValue": "5"}, give("6"), "MaxValue 5"),
        ({"Type": "Number"}, give("six"), "P"),
        ({"Type": "Number"}, give("nan"), "must be a number"),
        ({"Type": "Number"}, give("1_000"), "must be a number"),
        ({"Type": "List<Number>"}, give("1,six"), "it is 'six'"),
        ({"Type": "CommaDelimitedList", "AllowedValues": ["a", "b"]}, give("a,c"), "it is 'c'"),
        ({"Type": "CommaDelimitedList", "AllowedPattern": "[a-z]+"}, give("a, B"), "it is 'B'"),
        ({"Type": "CommaDelimitedList", "AllowedPattern": "[a-z]+,[a-z]+"}, give("a,b"), "it is 'a'"),
        ({"Type": "String", "AllowedValues": ["true"]}, give("True"), "it is 'True'"),
        ({"Type": "String"}, give("x" * 4097), "4096 bytes"),
    ],
)
def test_forbidden_value_is_refused_by_name(spec: dict[str, Any], given: list[dict[str, Any]], about: str) -> None:
    """A value that breaks a constraint is rejected with the parameter and the allowed values."""
    with faulted("ValidationError", 400, about):
        resolve(spec, given)


@pytest.mark.parametrize(
    ("declared", "about"),
    [
        ({"P": {}}, "must contain a Type member"),
        ({"P": "String"}, "must contain a Type member"),
        ({"P": {"Type": "Integer"}}, "Unrecognized parameter type: Integer"),
        ({"P": {"Type": "List<String>"}}, "Unrecognized parameter type: List<String>"),
        ({"P": {"Type": "AWS::EC2::VPC::Id"}}, "AWS::EC2::VPC::Id"),
        ({"P_1": {"Type": "String"}}, "P_1 is non alphanumeric"),
        ({"P": {"Type": "String", "Required": True}}, "'Required' of [P]"),
        ({"P": {"Type": "String", "MinValue": 1}}, "cannot have MinValue"),
        ({"P": {"Type": "Number", "AllowedPattern": "1+"}}, "cannot have AllowedPattern"),
        ({"P": {"Type": "CommaDelimitedList", "Default": ["a"]}}, "Every Default member must be a string"),
        ({"P": {"Type": "String", "Default": "c", "AllowedValues": ["a", "b"]}}, "it is 'c'"),
        ({"P": {"Type": "CommaDelimitedList", "Default": "a,c", "AllowedValues": ["a", "b"]}}, "it is 'c'"),
        ({"P": {"Type": "Number", "Default": "six"}}, "must be a number"),
        ({f"P{number}": {"Type": "String"} for number in range(201)}, "201"),
    ],
)
def test_a_malformed_declaration_is_refused(declared: dict[str, Any], about: str) -> None:
    """Types, names, keys and defaults are judged before any value is given."""
    with faulted("ValidationError", 400, about):
        check_parameters(declared)
