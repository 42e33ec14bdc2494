"""The judge allows or denies requests signed with a role's key, with AWS's error texts, and records each decision.

Requests signed with a user's own key are not evaluated. For the roles that services and the `cdk` command assume, the
judge evaluates the policies, permissions boundary, session policy and, for AssumeRole, the trust policy.

Source: IAM user guide, "Policy evaluation logic" and "Troubleshoot access denied error messages".
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from local_aws.kit.account import ACCOUNT_ID, PARTITION
from local_aws.rights.policies import Request, UnknownConditionError, Verdict, evaluate, trusts
from local_aws.rights.requests import judged, shared_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from local_aws.rights.resource_arns import Call

_LOGGER: Final = logging.getLogger(__name__)
SESSIONS: Final = f"arn:{PARTITION}:sts::{ACCOUNT_ID}:assumed-role/"
ROOT: Final = f"arn:{PARTITION}:iam::{ACCOUNT_ID}:root"
RECORDED: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class RolePolicies:
    """A role's ARN, its trust policy, its identity-based policies, and the policies that limit its permissions.

    `limits` has the permissions boundary and the session policy, if they exist: each of them must also allow an action.
    """

    arn: str
    trust: Mapping[str, Any]
    identity: Sequence[Mapping[str, Any]]
    limits: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One recorded decision: the principal's ARN, the action with its resource, and True if the action was allowed."""

    principal: str
    request: Request
    allowed: bool


@dataclass(frozen=True, kw_only=True)
class Dependent:
    """An additional permission that a call needs because of an existing resource, with AWS's error text for its lack.

    If `denial` is None, the error has AWS's usual text with the action and the resource.
    """

    request: Request
    denial: str | None = None


class DeniedError(Exception):
    """The error for a caller without permission for an action; the text is AWS's text."""


class Judge:
    """Checks the permissions of calls that roles make.

    Args:
        find_role: returns a role's policies by the ARN of the role or of one of its sessions; None for an unknown role.
        dependents: returns the further rights that a call needs because of existing resources.
    """

    def __init__(
        self,
        find_role: Callable[[str], RolePolicies | None],
        dependents: Callable[[Call], Iterable[Dependent]] = lambda _: (),
    ) -> None:
        self._find_role = find_role
        self._dependents = dependents
        self._lock = threading.Lock()
        self._record: deque[Judgement] = deque(maxlen=RECORDED)

    def record(self) -> list[Judgement]:
        """Return the last 10,000 decisions, oldest first."""
        with self._lock:
            return list(self._record)

    def check(self, principal: str, call: Call) -> None:
        """Check that a principal has all permissions that a call needs.

        Raises:
            DeniedError: the principal lacks a right that the call needs.
        """
        if call.operation == "AssumeRole" and call.service == "sts":
            self._check_trust(principal, str(call.parameters.get("RoleArn", "")), call)
        if not principal.startswith(SESSIONS) or (call.service, call.operation) in _FREE:
            return
        role = self._find_role(principal)
        for request in judged(call):
            self._check(principal, role, request)
        for dependent in self._dependents(call):
            self._check(principal, role, dependent.request, dependent.denial)

    def check_request(self, principal: str, request: Request, region: str) -> None:
        """Check a principal's permission for an action that a service does for it without an API call to the emulator.

        Raises:
            DeniedError: the principal is a role without the right.
        """
        if principal.startswith(SESSIONS):
            context = {**shared_context(region), **request.context}
            asked = Request(action=request.action, resource=request.resource, context=context)
            self._check(principal, self._find_role(principal), asked)

    def reason_against(self, principal: str, request: Request, region: str) -> str | None:
        """Return AWS's error text if a principal has no permission for a request, else None; record no decision.

        Use this method for a permission that the request does not need, but that determines its answer.
        """
        if not principal.startswith(SESSIONS):
            return None
        role = self._find_role(principal)
        context = {**shared_context(region), "aws:principalaccount": [ACCOUNT_ID], **request.context}
        asked = Request(action=request.action, resource=request.resource, context=context)
        try:
            verdict = Verdict.NOT_ALLOWED if role is None else _verdict(role, asked, principal)
        except DeniedError as denial:
            return str(denial)
        if verdict is Verdict.ALLOWED:
            return None
        return _denial(principal, asked, verdict.value.format(action=asked.action))

    def may_assume(self, role_arn: str, service: str, context: Mapping[str, Sequence[str]] | None = None) -> bool:
        """Return True if the trust policy of a role lets a service assume the role; False for an unknown role."""
        return service_may_assume(self._find_role(role_arn), role_arn, service, context)

    def _check(self, principal: str, role: RolePolicies | None, request: Request, denial: str | None = None) -> None:
        context = {"aws:principalaccount": [ACCOUNT_ID], **request.context}
        if role is not None:
            context["aws:principalarn"] = [role.arn]
        asked = Request(action=request.action, resource=request.resource, context=context)
        verdict = Verdict.NOT_ALLOWED if role is None else _verdict(role, asked, principal)
        with self._lock:
            self._record.append(Judgement(principal=principal, request=asked, allowed=verdict is Verdict.ALLOWED))
        if verdict is not Verdict.ALLOWED:
            _LOGGER.warning("denied: %s on %s for %s", asked.action, asked.resource, principal)
            raise DeniedError(denial or _denial(principal, asked, verdict.value.format(action=asked.action)))

    def _check_trust(self, principal: str, role_arn: str, call: Call) -> None:
        if f":{ACCOUNT_ID}:" not in role_arn:
            return  # STS itself rejects a role of another account
        role = self._find_role(role_arn)
        taken = self._find_role(principal) if principal.startswith(SESSIONS) else None
        names = {principal, ROOT, ACCOUNT_ID, "*"} | (set() if taken is None else {taken.arn})
        request = Request(action="sts:AssumeRole", resource=role_arn, context=_session_context(call))
        if role is None or not trusts(role.trust, names, request):
            raise DeniedError(_denial(principal, request, ""))


def service_may_assume(
    role: RolePolicies | None, role_arn: str, service: str, context: Mapping[str, Sequence[str]] | None = None
) -> bool:
    """Return True if a role's trust policy lets a service assume the role; False if `role` is None (an unknown role).

    Args:
        role: the role's policies.
        role_arn: the ARN by which the role was passed; it has to be the role's own.
        service: the service's principal, such as `lambda.amazonaws.com`.
        context: the values of condition keys that the service gives, beside its account.
    """
    if role is None or role.arn != role_arn:
        return False
    known = {"aws:sourceaccount": [ACCOUNT_ID], **(context or {})}
    request = Request(action="sts:AssumeRole", resource=role_arn, context=known)
    try:
        return trusts(role.trust, {service}, request)
    except UnknownConditionError:
        return False


# GetCallerIdentity needs no permission, even if a policy denies it (STS API reference: GetCallerIdentity).
_FREE: Final = frozenset({("sts", "GetCallerIdentity")})


def _session_context(call: Call) -> dict[str, list[str]]:
    named = {"sts:externalid": "ExternalId", "sts:rolesessionname": "RoleSessionName"}
    return {key: [call.parameters[name]] for key, name in named.items() if name in call.parameters}


def _verdict(role: RolePolicies, request: Request, principal: str) -> Verdict:
    try:
        verdicts = (evaluate(documents, request) for documents in (role.identity, *([one] for one in role.limits)))
        return next((verdict for verdict in verdicts if verdict is not Verdict.ALLOWED), Verdict.ALLOWED)
    except UnknownConditionError as unknown:
        reason = f"because the emulation does not know the {unknown} of a policy of this role"
        raise DeniedError(_denial(principal, request, reason)) from unknown


def _denial(principal: str, request: Request, reason: str) -> str:
    return (
        f"User: {principal} is not authorized to perform: {request.action} on resource: {request.resource} {reason}"
    ).rstrip()
