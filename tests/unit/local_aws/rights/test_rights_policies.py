"""Policies are evaluated as the IAM user guide describes it."""

from __future__ import annotations

from typing import Any

import pytest

from local_aws.rights.policies import Request, UnknownConditionError, Verdict, evaluate, trusts

BUCKET = "arn:aws:s3:::models"
GET = Request(action="s3:GetObject", resource=f"{BUCKET}/a/b.tar.gz", context={"aws:securetransport": ["true"]})


def statement(**changed: Any) -> dict[str, Any]:
    """Return a statement that allows GET, with changed elements; None removes an element."""
    elements = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{BUCKET}/*", **changed}
    return {name: value for name, value in elements.items() if value is not None}


def verdict(*statements: dict[str, Any], request: Request = GET) -> Verdict:
    """Return the verdict of one policy per statement."""
    return evaluate([{"Version": "2012-10-17", "Statement": one} for one in statements], request)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"Action": ["s3:PutObject", "s3:GetObject"]},
        {"Action": "S3:getobject"},
        {"Action": "s3:Get*"},
        {"Action": "*"},
        {"Action": "s3:GetObjec?"},
        {"Resource": "*"},
        {"Resource": [f"{BUCKET}/x", f"{BUCKET}/a/*.tar.gz"]},
        {"Action": None, "NotAction": "s3:PutObject"},
        {"Resource": None, "NotResource": f"{BUCKET}/x/*"},
    ],
)
def test_what_a_statement_names_is_allowed(changed: dict[str, Any]) -> None:
    """Actions match in any letter case, and wildcards match slashes."""
    assert verdict(statement(**changed)) is Verdict.ALLOWED


@pytest.mark.parametrize(
    "changed",
    [
        {"Action": "s3:GetObjectVersion"},
        {"Action": "s3:GetObjec"},
        {"Action": []},
        {"Resource": BUCKET},
        {"Resource": "arn:aws:s3:::MODELS/*"},
        {"Resource": "arn:aws:s3:::models/a/?"},
        {"Action": None, "NotAction": ["s3:get*"]},
        {"Resource": None, "NotResource": f"{BUCKET}/a/*"},
        {"Resource": None},
        {"Resource": f"{BUCKET}/${{aws:PrincipalTag/team}}/*"},
    ],
)
def test_what_no_statement_names_is_not_allowed(changed: dict[str, Any]) -> None:
    """A resource is compared with regard to case; a variable without a value matches nothing."""
    assert verdict(statement(**changed)) is Verdict.NOT_ALLOWED


def test_a_deny_wins_over_every_allow() -> None:
    """The order and number of the statements do not matter."""
    deny = statement(Effect="Deny", Action="s3:*")
    assert verdict(deny, statement()) is Verdict.DENIED
    assert verdict(statement(), deny) is Verdict.DENIED
    assert verdict(deny) is Verdict.DENIED
    assert verdict(statement(), statement(Effect="Deny", Action="s3:PutObject")) is Verdict.ALLOWED


def test_a_variable_is_replaced_and_an_escaped_wildcard_is_text() -> None:
    """`${key}` is the request's value, `${key, 'x'}` has a default, and `${*}` is the character itself."""
    assert verdict(statement(Resource=f"{BUCKET}/${{aws:PrincipalTag/team, 'a'}}/*")) is Verdict.ALLOWED
    tagged = Request(action=GET.action, resource=GET.resource, context={"aws:principaltag/team": ["a"]})
    assert verdict(statement(Resource=f"{BUCKET}/${{aws:PrincipalTag/team}}/*"), request=tagged) is Verdict.ALLOWED
    assert verdict(statement(Resource=f"{BUCKET}/a/${{*}}")) is Verdict.NOT_ALLOWED
    starred = Request(action=GET.action, resource=f"{BUCKET}/a/*")
    assert verdict(statement(Resource=f"{BUCKET}/a/${{*}}"), request=starred) is Verdict.ALLOWED


@pytest.mark.parametrize(
    ("operator", "wanted", "got", "holds"),
    [
        ("StringEquals", "a", ["a"], True),
        ("StringEquals", ["b", "a"], ["a"], True),
        ("StringEquals", "A", ["a"], False),
        ("StringEquals", "a", [], False),
        ("StringEqualsIfExists", "a", [], True),
        ("StringEqualsIfExists", "a", ["b"], False),
        ("StringNotEquals", "a", ["a"], False),
        ("StringNotEquals", ["a", "b"], ["c"], True),
        ("StringNotEquals", "a", [], True),
        ("StringEqualsIgnoreCase", "A", ["a"], True),
        ("StringNotEqualsIgnoreCase", "A", ["a"], False),
        ("StringLike", "a*", ["abc"], True),
        ("StringNotLike", "a*", ["abc"], False),
        ("ArnLike", "arn:aws:s3:::*", ["arn:aws:s3:::b"], True),
        ("ArnEquals", "arn:aws:s3:::*", ["arn:aws:s3:::b"], True),
        ("ArnNotLike", "arn:aws:s3:::*", ["arn:aws:s3:::b"], False),
        ("Bool", "true", ["True"], True),
        ("Bool", "false", ["true"], False),
        ("Null", "true", [], True),
        ("Null", "false", [], False),
        ("Null", "false", ["a"], True),
        ("NumericLessThanEquals", "10", ["10"], True),
        ("NumericLessThan", "10", ["10"], False),
        ("NumericNotEquals", "10", ["11"], True),
        ("DateGreaterThan", "2026-01-01T00:00:00Z", ["2026-06-01T00:00:00Z"], True),
        ("DateLessThan", "2026-01-01", ["2026-06-01T00:00:00Z"], False),
        ("IpAddress", "10.0.0.0/8", ["10.1.2.3"], True),
        ("NotIpAddress", "10.0.0.0/8", ["10.1.2.3"], False),
        ("ForAnyValue:StringEquals", ["a"], ["a", "b"], True),
        ("ForAnyValue:StringEquals", ["a"], [], False),
        ("ForAllValues:StringEquals", ["a"], ["a", "b"], False),
        ("ForAllValues:StringEquals", ["a", "b"], ["a", "b"], True),
        ("ForAllValues:StringEquals", ["a"], [], True),
    ],
)
def test_a_condition_holds_as_documented(operator: str, wanted: object, got: list[str], holds: object) -> None:
    """Each condition operator is tested with matching values, other values and a missing key."""
    request = Request(action=GET.action, resource=GET.resource, context={"aws:sourcearn": got} if got else {})
    condition = {operator: {"aws:SourceArn": wanted}}
    assert (verdict(statement(Condition=condition), request=request) is Verdict.ALLOWED) is holds


@pytest.mark.parametrize(
    ("condition", "name"),
    [
        ({"BinaryEquals": {"aws:SourceArn": "eA=="}}, "operator 'BinaryEquals'"),
        ({"ForSomeValues:StringEquals": {"aws:SourceArn": "a"}}, "operator 'ForSomeValues:StringEquals'"),
        ({"StringEquals": {"aws:Moon": "full"}}, "condition key 'aws:Moon'"),
        ({"StringEquals": {"aws:SourceArn": "a"}, "Bool": {"aws:Moon": "true"}}, "condition key 'aws:Moon'"),
    ],
)
def test_a_condition_that_is_not_known_is_an_error(condition: dict[str, Any], name: str) -> None:
    """An unknown condition is an error, even beside a condition that does not hold."""
    with pytest.raises(UnknownConditionError) as caught:
        verdict(statement(Condition=condition, Effect="Deny"), request=GET)
    assert str(caught.value) == name


def test_every_condition_must_hold() -> None:
    """All operators and keys of a statement must hold."""
    both = {"Bool": {"aws:SecureTransport": "true"}, "StringEquals": {"aws:SourceAccount": "1"}}
    assert verdict(statement(Condition=both)) is Verdict.NOT_ALLOWED
    assert verdict(statement(Condition={"Bool": {"aws:SecureTransport": "true"}})) is Verdict.ALLOWED


@pytest.mark.parametrize(
    ("changed", "trusted"),
    [
        ({}, True),
        ({"Principal": {"Service": ["lambda.amazonaws.com", "scheduler.amazonaws.com"]}}, True),
        ({"Principal": {"Service": "lambda.amazonaws.com"}}, False),
        ({"Principal": "*"}, False),
        ({"Action": "sts:TagSession"}, False),
        ({"Effect": "Deny"}, False),
        ({"Condition": {"StringEquals": {"aws:SourceAccount": "111122223333"}}}, False),
    ],
)
def test_a_role_trusts_whom_its_policy_names(changed: dict[str, Any], trusted: object) -> None:
    """The action, the principal and the conditions must all agree."""
    principal = {"Service": "scheduler.amazonaws.com"}
    one = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": principal, **changed}
    request = Request(action="sts:AssumeRole", resource="arn:aws:iam::1:role/r", context={"aws:sourceaccount": ["1"]})
    assert trusts({"Statement": one}, ["scheduler.amazonaws.com"], request) is trusted
