"""Roles are judged, users are not; a denial has AWS's text, and everything judged is on record."""

from __future__ import annotations

from typing import Any

import pytest

from local_aws.rights.judge import DeniedError, Dependent, Judge, RolePolicies
from local_aws.rights.policies import Request
from local_aws.rights.resource_arns import Call

ROLE = "arn:aws:iam::123456789012:role/r"
SESSION = "arn:aws:sts::123456789012:assumed-role/r/s"
USER = "arn:aws:iam::123456789012:user/cohost"
ENDPOINT = "arn:aws:sagemaker:us-east-1:123456789012:endpoint/e"
DELETE = Call(service="sagemaker", region="us-east-1", operation="DeleteEndpoint", parameters={"EndpointName": "e"})
ASSUME = Call(service="sts", region="us-east-1", operation="AssumeRole", parameters={"RoleArn": ROLE})


def policy(effect: str = "Allow", action: str = "sagemaker:DeleteEndpoint", **more: Any) -> dict[str, Any]:
    """Return a policy about one action on every resource."""
    return {"Statement": [{"Effect": effect, "Action": action, "Resource": "*", **more}]}


def judge(*identity: dict[str, Any], **more: Any) -> Judge:
    """Return a judge who knows one role."""
    trust = {"Statement": {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "123456789012"}}}
    role = RolePolicies(arn=ROLE, trust=more.pop("trust", trust), identity=identity, limits=more.pop("limits", ()))
    return Judge(lambda arn: role if arn in {ROLE, SESSION} else None, **more)


def test_a_user_is_not_judged_and_a_role_without_policies_may_nothing() -> None:
    """The denial names the session, the action and the resource."""
    strict = judge()
    strict.check(USER, DELETE)
    with pytest.raises(DeniedError) as caught:
        strict.check(SESSION, DELETE)
    assert str(caught.value) == (
        f"User: {SESSION} is not authorized to perform: sagemaker:DeleteEndpoint on resource: {ENDPOINT} "
        "because no identity-based policy allows the sagemaker:DeleteEndpoint action"
    )
    assert [(one.principal, one.request.action, one.allowed) for one in strict.record()] == [
        (SESSION, "sagemaker:DeleteEndpoint", False)
    ]


def test_a_role_may_what_a_policy_allows_and_no_other_denies() -> None:
    """A role may do what a policy allows and none denies; an explicit deny has AWS's own text."""
    judge(policy()).check(SESSION, DELETE)
    with pytest.raises(DeniedError, match=r"with an explicit deny in an identity-based policy$"):
        judge(policy(), policy("Deny", "sagemaker:*")).check(SESSION, DELETE)


def test_a_boundary_and_a_session_policy_must_allow_too() -> None:
    """A permissions boundary or a session policy can deny what the role's policies allow."""
    judge(policy(), limits=[policy(action="*")]).check(SESSION, DELETE)
    with pytest.raises(DeniedError):
        judge(policy(), limits=[policy(action="*"), policy(action="s3:*")]).check(SESSION, DELETE)


def test_a_role_that_is_gone_may_nothing() -> None:
    """The sessions of a deleted role have keys but no rights."""
    with pytest.raises(DeniedError):
        judge(policy()).check("arn:aws:sts::123456789012:assumed-role/other/s", DELETE)


def test_an_unknown_condition_is_named_and_never_a_permission() -> None:
    """An unknown condition is reported and never allows a request, because AWS might deny it."""
    unknown = policy(Condition={"StringEquals": {"aws:Moon": "full"}})
    with pytest.raises(DeniedError, match="the emulation does not know the condition key 'aws:Moon'"):
        judge(policy(), unknown).check(SESSION, DELETE)


def test_a_right_that_depends_on_what_exists_is_judged_with_its_own_text() -> None:
    """DeleteEndpoint of a scaled variant also needs the right to deregister its target."""
    request = Request(action="application-autoscaling:DeregisterScalableTarget", resource="*")
    more = {"dependents": lambda _: [Dependent(request=request, denial="An Application AutoScaling scalable target")]}
    with pytest.raises(DeniedError, match=r"^An Application AutoScaling scalable target$"):
        judge(policy(), **more).check(SESSION, DELETE)
    judge(policy(), policy(action="application-autoscaling:*"), **more).check(SESSION, DELETE)


@pytest.mark.parametrize(
    ("principal", "condition", "trusted"),
    [
        ({"AWS": "123456789012"}, {}, True),
        ({"AWS": "arn:aws:iam::123456789012:root"}, {}, True),
        ({"AWS": USER}, {}, True),
        ({"AWS": "*"}, {}, True),
        ({"AWS": "arn:aws:iam::123456789012:user/other"}, {}, False),
        ({"Service": "lambda.amazonaws.com"}, {}, False),
        ({"AWS": "123456789012"}, {"Null": {"sts:ExternalId": "true"}}, True),
        ({"AWS": "123456789012"}, {"StringEquals": {"sts:ExternalId": "x"}}, False),
    ],
)
def test_a_user_may_take_a_role_that_trusts_it(
    principal: dict[str, str], condition: dict[str, Any], trusted: object
) -> None:
    """A user may assume a role whose trust policy allows it, such as the roles of `cdk bootstrap`."""
    statement = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": principal, "Condition": condition}
    strict = judge(trust={"Statement": statement})
    if trusted:
        strict.check(USER, ASSUME)
        return
    with pytest.raises(
        DeniedError, match=f"^User: {USER} is not authorized to perform: sts:AssumeRole on resource: {ROLE}$"
    ):
        strict.check(USER, ASSUME)


def test_a_role_needs_the_right_to_take_another() -> None:
    """A role may assume another only if its own policies allow it and the other role trusts it."""
    with pytest.raises(DeniedError, match="no identity-based policy allows the sts:AssumeRole action"):
        judge(policy()).check(SESSION, ASSUME)
    judge(policy(action="sts:AssumeRole")).check(SESSION, ASSUME)


def test_who_a_caller_is_needs_no_right() -> None:
    """GetCallerIdentity is answered even to a role that may nothing."""
    judge().check(SESSION, Call(service="sts", region="us-east-1", operation="GetCallerIdentity"))
