"""The evaluation of IAM policies: statements, wildcards, policy variables and conditions.

Source: IAM user guide, "Policy evaluation logic", "IAM JSON policy elements" and "Condition operators". An unknown
operator or condition key raises an error instead of allowing anything, since AWS may evaluate it differently.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

KNOWN_KEYS: Final = re.compile(
    r"aws:(secureTransport|PrincipalArn|PrincipalAccount|PrincipalType|userid|SourceAccount|SourceArn|SourceIp|TagKeys"
    r"|RequestedRegion|ResourceAccount|CurrentTime|EpochTime|CalledVia|ViaAWSService|(RequestTag|ResourceTag|PrincipalTag)/.+)"
    r"|s3:(ResourceAccount|prefix|delimiter|max-keys|x-amz-acl|x-amz-server-side-encryption(-aws-kms-key-id)?|TlsVersion)"
    r"|iam:(PassedToService|AssociatedResourceArn|AWSServiceName)|sts:(ExternalId|RoleSessionName)"
    r"|kms:(ViaService|CallerAccount|GrantIsForAWSResource|EncryptionContext:.+)"
    r"|application-autoscaling:(service-namespace|scalable-dimension)"
    r"|cloudwatch:namespace|lambda:FunctionArn|ec2:(Vpc|Subnet)|scheduler:.+",
    re.IGNORECASE,
)
"""The condition keys that can be evaluated: a request has the value, or lacks the key as it would on AWS."""


class UnknownConditionError(Exception):
    """The error for a policy with an operator or a condition key that this emulation cannot evaluate."""


class Verdict(Enum):
    """The outcome of an evaluation; the values for a denial are the reasons in AWS's error text."""

    ALLOWED = "allowed"
    DENIED = "with an explicit deny in an identity-based policy"
    NOT_ALLOWED = "because no identity-based policy allows the {action} action"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One action on one resource; `context` maps each condition key, in lower case, to its values."""

    action: str
    resource: str
    context: Mapping[str, Sequence[str]] = field(default_factory=dict)


def evaluate(documents: Iterable[Mapping[str, Any]], request: Request) -> Verdict:
    """Return the policies' verdict: DENIED if any statement denies, else ALLOWED if one allows, else NOT_ALLOWED.

    Raises:
        UnknownConditionError: a statement about this action and resource has a condition that cannot be evaluated.
    """
    matching = [
        statement
        for document in documents
        for statement in listed(document.get("Statement"))
        if _is_about(statement, request) and _conditions_hold(statement.get("Condition") or {}, request.context)
    ]
    if any(statement.get("Effect") == "Deny" for statement in matching):
        return Verdict.DENIED
    return Verdict.ALLOWED if any(s.get("Effect") == "Allow" for s in matching) else Verdict.NOT_ALLOWED


def trusts(document: Mapping[str, Any], principals: Iterable[str], request: Request) -> bool:
    """Return True if a role's trust policy lets a principal assume the role.

    `principals` has all names by which a statement may mean the principal: the ARN of its account, role, session or
    user, or the name of a service.
    """
    names = set(principals)
    about = [
        statement
        for statement in listed(document.get("Statement"))
        if _matches(listed(statement.get("Action")), request.action, ignore_case=True)
        and names & set(_named(statement.get("Principal")))
        and _conditions_hold(statement.get("Condition") or {}, request.context)
    ]
    return bool(about) and all(statement.get("Effect") == "Allow" for statement in about)


def listed(value: Any) -> list[Any]:
    """Return a policy element's value as a list: wrap a single value, and return an empty list for None."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _named(principal: Any) -> Iterator[str]:
    if principal == "*":
        yield "*"
    elif isinstance(principal, dict):
        for names in principal.values():
            yield from listed(names)


def _is_about(statement: Mapping[str, Any], request: Request) -> bool:
    if "NotAction" in statement:
        if _matches(listed(statement["NotAction"]), request.action, ignore_case=True):
            return False
    elif not _matches(listed(statement.get("Action")), request.action, ignore_case=True):
        return False
    if "NotResource" in statement:
        return not _matches(_filled(statement["NotResource"], request.context), request.resource)
    return _matches(_filled(statement.get("Resource"), request.context), request.resource)


def _matches(patterns: Iterable[str], text: str, *, ignore_case: bool = False) -> bool:
    return any(_pattern(pattern, ignore_case).fullmatch(text) for pattern in patterns)


@cache
def _pattern(pattern: str, ignore_case: bool) -> re.Pattern[str]:  # noqa: FBT001 - a key of the cache
    parts = re.split(r"(\$\{[*?$]\}|[*?])", pattern)
    wild = {"*": ".*", "?": "."}
    text = "".join(wild.get(part) or re.escape(part[2] if part.startswith("${") else part) for part in parts)
    return re.compile(text, re.DOTALL | (re.IGNORECASE if ignore_case else 0))


def _filled(values: Any, context: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield patterns with their policy variables replaced; omit a pattern if one of its variables has no value."""
    for value in listed(values):
        missing = False

        def put(found: re.Match[str]) -> str:
            nonlocal missing
            name, _, default = found[1].partition(",")
            values = context.get(_known(name.strip()).lower(), ())
            missing = missing or (not values and not default)
            return values[0] if values else default.strip().strip("'")

        filled = re.sub(r"\$\{([^}*?$][^}]*)\}", put, value)
        if not missing:
            yield filled


def _known(key: str) -> str:
    if not KNOWN_KEYS.fullmatch(key):
        raise UnknownConditionError(f"condition key {key!r}")
    return key


def _conditions_hold(conditions: Mapping[str, Any], context: Mapping[str, Sequence[str]]) -> bool:
    # A list evaluates all conditions, so an unknown operator or key is found even after one that does not hold.
    held = [
        _holds(operator, key, list(_filled(values, context)), context)
        for operator, keys in conditions.items()
        for key, values in keys.items()
    ]
    return all(held)


def _holds(operator: str, key: str, wanted: Sequence[str], context: Mapping[str, Sequence[str]]) -> bool:
    prefix, _, name = operator.rpartition(":")
    optional = name.endswith("IfExists")
    name = name.removesuffix("IfExists")
    got = context.get(_known(key).lower(), ())
    if name == "Null":
        return all(str(value).lower() == str(not got).lower() for value in wanted)
    negated = "Not" in name
    compare = _COMPARE.get(name.replace("Not", "", 1) if negated else name)
    if compare is None or prefix not in {"", "ForAnyValue", "ForAllValues"}:
        raise UnknownConditionError(f"operator {operator!r}")
    if not got:
        return optional or negated or prefix == "ForAllValues"

    def one(value: str) -> bool:
        return any(compare(value, str(pattern)) for pattern in wanted) is not negated

    return all(map(one, got)) if prefix == "ForAllValues" or (negated and not prefix) else any(map(one, got))


def _number(compare: Callable[[float, float], bool]) -> Callable[[str, str], bool]:
    return lambda value, wanted: compare(float(value), float(wanted))


def _date(compare: Callable[[float, float], bool]) -> Callable[[str, str], bool]:
    return lambda value, wanted: compare(_seconds(value), _seconds(wanted))


def _seconds(text: str) -> float:
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _is_in(value: str, network: str) -> bool:
    return ipaddress.ip_address(value) in ipaddress.ip_network(network, strict=False)


def _like(value: str, pattern: str) -> bool:
    return _pattern(pattern, False).fullmatch(value) is not None  # noqa: FBT003 - a key of the cache


_ORDER: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "Equals": lambda a, b: a == b,
    "LessThan": lambda a, b: a < b,
    "LessThanEquals": lambda a, b: a <= b,
    "GreaterThan": lambda a, b: a > b,
    "GreaterThanEquals": lambda a, b: a >= b,
}
_COMPARE: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "StringEquals": lambda value, wanted: value == wanted,
    "StringEqualsIgnoreCase": lambda value, wanted: value.lower() == wanted.lower(),
    "StringLike": _like,
    # ArnEquals and ArnLike behave alike (IAM user guide, "Amazon Resource Name (ARN) condition operators").
    "ArnEquals": _like,
    "ArnLike": _like,
    "Bool": lambda value, wanted: value.lower() == wanted.lower(),
    "IpAddress": _is_in,
    **{f"Numeric{name}": _number(compare) for name, compare in _ORDER.items()},
    **{f"Date{name}": _date(compare) for name, compare in _ORDER.items()},
}
