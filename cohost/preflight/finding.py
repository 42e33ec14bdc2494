"""The outcome of one check, and how refusals of AWS become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from botocore.exceptions import BotoCoreError, ClientError, CredentialRetrievalError, NoCredentialsError

if TYPE_CHECKING:
    from collections.abc import Callable

Outcome = Literal["pass", "fail", "unknown"]

_NO_CREDENTIALS = (NoCredentialsError, CredentialRetrievalError)
_BAD_CREDENTIALS = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check found: `unknown` is "could not be checked", and `why` says in every case why."""

    check: str
    outcome: Outcome
    why: str


def passed(check: str, why: str) -> Finding:
    """The check holds."""
    return Finding(check=check, outcome="pass", why=why)


def failed(check: str, why: str) -> Finding:
    """The deploy would fail or surprise; `why` carries the fix."""
    return Finding(check=check, outcome="fail", why=why)


def unknown(check: str, why: str) -> Finding:
    """It could not be checked, which is no reason to stop."""
    return Finding(check=check, outcome="unknown", why=why)


def guarded(check: str, work: Callable[[], Finding]) -> Finding:
    """Run a check; what the service or the network refuses makes it unknown, bad credentials make it fail."""
    try:
        return work()
    except _NO_CREDENTIALS as error:
        return failed(check, f"{error}; fix: set AWS_PROFILE, or log in")
    except ClientError as error:
        code, operation = error.response["Error"].get("Code", ""), error.operation_name
        if code in _BAD_CREDENTIALS:
            return failed(check, f"{operation}: {code}; fix: log in again, or set AWS_PROFILE to another profile")
        return unknown(check, f"{operation}: {code}: {error.response['Error'].get('Message', '')}")
    except BotoCoreError as error:
        return unknown(check, str(error))
