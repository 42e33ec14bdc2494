"""Physical names and ids, made the way CloudFormation makes them: `<stack>-<logical id>-<random>`."""

from __future__ import annotations

import secrets
import string
import uuid
from typing import Final

from local_aws.settings import ACCOUNT_ID, PARTITION

RANDOM_LENGTH: Final = 12
_ALPHABET: Final = string.ascii_uppercase + string.digits


def physical_name(stack_name: str, logical_id: str, *, limit: int, lower: bool = False, separator: str = "-") -> str:
    """A fresh name of at most `limit` characters; the random part is always whole, stack and id share the rest."""
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(RANDOM_LENGTH))
    room = limit - RANDOM_LENGTH - 2 * len(separator)
    stack, resource = stack_name, logical_id
    if len(stack) + len(resource) > room:
        resource = resource[: max(room - len(stack), room // 2)]
        stack = stack[: room - len(resource)]
    name = separator.join((stack, resource, suffix))
    return name.lower() if lower else name


def stack_arn(region: str, stack_name: str) -> str:
    """A fresh stack id."""
    return f"arn:{PARTITION}:cloudformation:{region}:{ACCOUNT_ID}:stack/{stack_name}/{uuid.uuid4()}"


def change_set_arn(region: str, name: str) -> str:
    """A fresh change set id."""
    return f"arn:{PARTITION}:cloudformation:{region}:{ACCOUNT_ID}:changeSet/{name}/{uuid.uuid4()}"
