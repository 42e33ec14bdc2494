"""Checks of requests against the API's own model."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import pytest
from fakes.faults import faulted
from hypothesis import given, settings
from hypothesis import strategies as st

from local_aws.kit.errors import ServiceFault, ValidationException
from local_aws.kit.validation import check_request, matcher

check = partial(check_request, service="sagemaker", title="SageMaker")


def variant(**members: Any) -> dict[str, Any]:
    """Return an endpoint config with one production variant."""
    whole = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1, **members}
    return {"EndpointConfigName": "c", "ProductionVariants": [whole]}


def test_a_good_request_passes() -> None:
    """A request that keeps all constraints is let through, also with members that the model does not know."""
    check("CreateEndpointConfig", {**variant(), "FutureMember": 1})


@pytest.mark.parametrize(
    ("operation", "request_body", "message"),
    [
        (
            "CreateEndpoint",
            {"EndpointName": "e"},
            (
                "1 validation error detected: Value null at 'endpointConfigName' failed to satisfy constraint: "
                "Member must not be null"
            ),
        ),
        (
            "DescribeEndpoint",
            {"EndpointName": "under_score"},
            (
                "1 validation error detected: Value 'under_score' at 'endpointName' failed to satisfy constraint: "
                "Member must satisfy regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
            ),
        ),
        (
            "DescribeEndpoint",
            {"EndpointName": "e" * 64},
            (
                f"1 validation error detected: Value '{'e' * 64}' at 'endpointName' failed to satisfy constraint: "
                "Member must have length less than or equal to 63"
            ),
        ),
        (
            "CreateEndpointConfig",
            variant(ModelDataDownloadTimeoutInSeconds=59),
            (
                "1 validation error detected: Value '59' at "
                "'productionVariants.1.member.modelDataDownloadTimeoutInSeconds' failed to satisfy constraint: "
                "Member must have value greater than or equal to 60"
            ),
        ),
        (
            "CreateEndpointConfig",
            {"EndpointConfigName": "c", "ProductionVariants": []},
            (
                "1 validation error detected: Value '[]' at 'productionVariants' failed to satisfy constraint: "
                "Member must have length greater than or equal to 1"
            ),
        ),
    ],
)
def test_a_broken_constraint_is_told_in_the_services_form(
    operation: str, request_body: dict[str, Any], message: str
) -> None:
    """Each broken constraint gives AWS's text with the path of the member."""
    with pytest.raises(ValidationException) as caught:
        check(operation, request_body)
    assert caught.value.message == message


def test_all_faults_come_at_once() -> None:
    """All faults of a request are reported at once."""
    with faulted("ValidationException", 400, "2 validation errors detected: ") as caught:
        check("CreateEndpointConfig", variant(InitialInstanceCount=0, InstanceType="ml.cool.xlarge"))
    assert all(name in caught.value.message for name in ("initialInstanceCount", "ml.cool.xlarge"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
CONTAINER = st.fixed_dictionaries({}, optional={"Image": JSON, "Environment": JSON, "ModelDataUrl": JSON, "Mode": JSON})


@given(
    request_body=st.fixed_dictionaries({}, optional={"ModelName": JSON, "PrimaryContainer": CONTAINER, "Tags": JSON})
)
@settings(max_examples=150, deadline=None)
def test_no_json_value_breaks_the_checks(request_body: dict[str, Any]) -> None:
    """Any JSON value in a request passes or gets one of the service's errors."""
    with contextlib.suppress(ServiceFault):
        check("CreateModel", request_body)


def test_map_entries_are_checked() -> None:
    """A container's environment has bounds on keys and values."""
    container = {"Image": "i", "Environment": {"1bad": "x", "OK": "y" * 1025}}
    with pytest.raises(ValidationException) as caught:
        check("CreateModel", {"ModelName": "m", "PrimaryContainer": container})
    assert "Map keys must satisfy constraint: [Member must satisfy regular expression" in caught.value.message
    assert (
        "Map value must satisfy constraint: [Member must have length less than or equal to 1024" in caught.value.message
    )


@pytest.mark.parametrize("value", [7, True, ["e"], {"a": 1}])
def test_a_wrong_json_type_cannot_be_read(value: object) -> None:
    """A value of another JSON type is refused before any constraint is looked at."""
    with faulted("SerializationException", 400, "endpointName"):
        check("DescribeEndpoint", {"EndpointName": value})


def test_a_boolean_is_no_number() -> None:
    """A boolean is rejected for a number."""
    with faulted("SerializationException", 400, "integer"):
        check("CreateEndpointConfig", variant(InitialInstanceCount=True))


def test_an_unknown_operation_is_refused() -> None:
    """The error for an operation that SageMaker lacks names the operation."""
    with faulted("UnknownOperationException", 400, "MakeCoffee"):
        check("MakeCoffee", {})


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", "Größe 한국 9", True),
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", "semi;colon", False),
        (r"\p{ASCII}*", "plain", True),
        (r"\p{ASCII}*", "né", False),
        (r"\A\S[\p{Print}]*\z", "a/b.tar.gz", True),
        (r"\A\S[\p{Print}]*\z", " leading", False),
        (r"\A\S[\p{Print}]*\z", "line\nbreak", False),
    ],
)
def test_java_patterns_match_as_in_java(pattern: str, text: str, matches: bool) -> None:  # noqa: FBT001
    """Character classes that only Java has match as in Java."""
    assert bool(matcher(pattern).fullmatch(text)) is matches
