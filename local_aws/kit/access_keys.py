"""The table of access keys that the emulator accepts in signatures, each with its secret and its principal.

As on AWS, users have keys `AKIA…` that do not expire, and assumed roles have keys `ASIA…` with a session token (IAM
user guide, "Managing access keys" and "Temporary security credentials").
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import stat
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from cohost.callers import write_private
from cohost.deploy.local_aws import ADMINISTRATOR_FILE, KEY_FILE, read_key
from cohost.errors import LocalError
from local_aws.kit.account import ACCOUNT_ID, PARTITION

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path


# The key of the emulation's own calls, created in every process and never written to disk.
ACCESS_KEY: Final = f"AKIA{secrets.token_hex(8).upper()}"
SECRET_KEY: Final = secrets.token_urlsafe(30)


USER: Final = f"arn:{PARTITION}:iam::{ACCOUNT_ID}:user/cohost"
INTERNAL: Final = f"arn:{PARTITION}:iam::{ACCOUNT_ID}:user/cohost-internal"
_USER_SESSION: Final = "cohost"
_ROLE_ARN: Final = re.compile(rf"arn:{PARTITION}:iam::{ACCOUNT_ID}:role/(?:[^/\s]+/)*([\w+=,.@-]{{1,64}})")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, kw_only=True)
class AccessKey:
    """One access key.

    Args:
        key_id: the key's id, 20 capitals and digits.
        secret: the secret that signatures are computed with.
        principal: ARN of the user or of the assumed role that signs with the key.
        user_id: UserId in the answer of GetCallerIdentity; None if moto issued the key and answers for it.
        token: the session token that each request with the key must carry; None for a user's key.
        expires: the time from which the key is refused; None for a key that does not expire.
    """

    key_id: str
    secret: str = field(repr=False)
    principal: str
    user_id: str | None = None
    token: str | None = field(default=None, repr=False)
    expires: datetime | None = None

    def environment(self) -> dict[str, str]:
        """Return the AWS environment variables for the key; without a session token, AWS_SESSION_TOKEN is empty."""
        return {
            "AWS_ACCESS_KEY_ID": self.key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_SESSION_TOKEN": self.token or "",
        }


class AccessKeys:
    """All accepted access keys: of the emulator itself, of the user, of roles, and those that IAM and STS issued.

    Args:
        user: the key of the user who started the server; None for no key.
        issued: finds a key that IAM or STS issued; None without these services.
        administrator: the key of the account's set-up; None if the user's own key is not judged.
    """

    def __init__(
        self,
        user: AccessKey | None = None,
        issued: Callable[[str], AccessKey | None] | None = None,
        administrator: AccessKey | None = None,
    ) -> None:
        own = _user_key(INTERNAL, ACCESS_KEY, SECRET_KEY)
        self._keys = {key.key_id: key for key in (own, user, administrator) if key is not None}
        self._issued = issued
        self._roles: dict[tuple[str, str], AccessKey] = {}
        self._lock = threading.Lock()

    def find(self, key_id: str) -> AccessKey | None:
        """Return the access key with this id; None if the key does not exist or has been removed."""
        key = self._keys.get(key_id)
        return self._issued(key_id) if key is None and self._issued is not None else key

    def for_role(self, role_arn: str, session: str) -> AccessKey:
        """Return the access key of a service's session of a role; a session keeps its key until the server ends.

        Args:
            role_arn: `arn:aws:iam::ACCOUNT:role/NAME`, perhaps with a path before the name.
            session: the session's name, as the service chooses it.
        """
        with self._lock:
            if (role_arn, session) not in self._roles:
                key = _role_key(role_arn, session)
                self._roles[role_arn, session] = self._keys[key.key_id] = key
            return self._roles[role_arn, session]


def user_key(state_dir: Path, act_as: str | None = None) -> AccessKey:
    """Return the user's key from a state folder, or make a key and save it in a file that only its owner can read.

    If other users can access the key file, replace it by a file with a new key.

    Args:
        state_dir: the state folder.
        act_as: the ARN of the role whose rights the key has; None for a key that is not judged.

    Raises:
        LocalError: the key file cannot be written, or `act_as` is not the ARN of a role of this account.
    """
    key = _kept_key(state_dir, KEY_FILE)
    if act_as is None:
        return key
    return replace(key, principal=_session_of(act_as), user_id=f"AROA{key.key_id[4:]}:{_USER_SESSION}")


def administrator_key(state_dir: Path, act_as: str | None) -> AccessKey | None:
    """Return the key that sets up an account whose user acts as a role; None if the user acts as no role.

    For None, the key file of an earlier server is deleted.

    Raises:
        LocalError: the key file cannot be written.
    """
    if act_as is not None:
        return _kept_key(state_dir, ADMINISTRATOR_FILE)
    # A file of an earlier server has a key that this server does not accept.
    (state_dir / ADMINISTRATOR_FILE).unlink(missing_ok=True)
    return None


def _session_of(role_arn: str) -> str:
    if (found := _ROLE_ARN.fullmatch(role_arn)) is None:
        raise LocalError(
            "role-arn-invalid",
            "--as",
            f"got {role_arn}",
            allowed=f"arn:{PARTITION}:iam::{ACCOUNT_ID}:role/NAME",
            fix="name a role of the emulated account; the role itself may be created later",
        )
    return f"arn:{PARTITION}:sts::{ACCOUNT_ID}:assumed-role/{found[1]}/{_USER_SESSION}"


def _kept_key(state_dir: Path, file: str) -> AccessKey:
    with contextlib.suppress(LocalError, FileNotFoundError):
        found = (state_dir / file).lstat()
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & _OTHERS:
            return _user_key(USER, **read_key(state_dir, file))
    key = _user_key(USER, _new_id("AKIA"), secrets.token_urlsafe(30))
    _keep(state_dir / file, key)
    return key


def _keep(path: Path, key: AccessKey) -> None:
    try:
        write_private(path, json.dumps({"key_id": key.key_id, "secret": key.secret}))
    except OSError as error:
        raise LocalError(
            "access-key-not-writable",
            str(path),
            f"cannot be written ({error.strerror})",
            allowed="a state folder of yours",
            fix="name one with --state",
        ) from error


def _user_key(principal: str, key_id: str, secret: str) -> AccessKey:
    return AccessKey(key_id=key_id, secret=secret, principal=principal, user_id=f"AIDA{key_id[4:]}")


def _role_key(role_arn: str, session: str) -> AccessKey:
    role, key_id = role_arn.rpartition("/")[2], _new_id("ASIA")
    return AccessKey(
        key_id=key_id,
        secret=secrets.token_urlsafe(30),
        principal=f"arn:{PARTITION}:sts::{ACCOUNT_ID}:assumed-role/{role}/{session}",
        user_id=f"AROA{key_id[4:]}:{session}",
        token=secrets.token_urlsafe(90),
    )


def _new_id(kind: str) -> str:
    """Make the id of an access key, in a form that moto recognizes in a signature: 20 capitals and digits."""
    return kind + secrets.token_hex(8).upper()
