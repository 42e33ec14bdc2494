"""The table of access keys that the front door accepts, each with its secret and its principal.

AWS has the same kinds (IAM user guide, "Managing access keys" and "Temporary security credentials"): `AKIA…` for users,
without expiry; `ASIA…` for assumed roles, together with a session token.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cohost.callers import write_private
from cohost.deploy.local_aws import KEY_FILE, read_key
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
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, kw_only=True)
class AccessKey:
    """One access key.

    Args:
        key_id: 20 capitals and digits.
        secret: what signatures are made with.
        principal: ARN of the user or of the assumed role that signs with it.
        user_id: UserId in the answer of GetCallerIdentity; None if moto issued the key and returns it.
        token: the session token that must come with it; None for a user's key.
        expires: when it ends; None for never.
    """

    key_id: str
    secret: str = field(repr=False)
    principal: str
    user_id: str | None = None
    token: str | None = field(default=None, repr=False)
    expires: datetime | None = None

    def environment(self) -> dict[str, str]:
        """Name the variables that an SDK reads the key from; a token of another key is put out of the way."""
        return {
            "AWS_ACCESS_KEY_ID": self.key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_SESSION_TOKEN": self.token or "",
        }


class AccessKeys:
    """All keys that are taken: the emulation's own, the user's, those of roles, and those that IAM and STS gave out.

    Args:
        user: the key of the user who started the server; None for no key.
        issued: finds a key that IAM or STS issued; None without these services.
    """

    def __init__(self, user: AccessKey | None = None, issued: Callable[[str], AccessKey | None] | None = None) -> None:
        own = _user_key(INTERNAL, ACCESS_KEY, SECRET_KEY)
        self._keys = {key.key_id: key for key in (own, user) if key is not None}
        self._issued = issued
        self._roles: dict[tuple[str, str], AccessKey] = {}
        self._lock = threading.Lock()

    def find(self, key_id: str) -> AccessKey | None:
        """Find the key of this id; None if it does not exist (any more)."""
        key = self._keys.get(key_id)
        return self._issued(key_id) if key is None and self._issued is not None else key

    def for_role(self, role_arn: str, session: str) -> AccessKey:
        """Give the key of a service that has taken a role, the same one for the same session; it ends with the server.

        Args:
            role_arn: `arn:aws:iam::ACCOUNT:role/NAME`, perhaps with a path before the name.
            session: the session's name, as the service chooses it.
        """
        with self._lock:
            if (role_arn, session) not in self._roles:
                key = _role_key(role_arn, session)
                self._roles[role_arn, session] = self._keys[key.key_id] = key
            return self._roles[role_arn, session]


def user_key(state_dir: Path) -> AccessKey:
    """Read the user's key of a state folder, or make it and keep it in a file of its owner's alone.

    A file that other users can access is replaced, together with its key.

    Raises:
        LocalError: the file cannot be written.
    """
    with contextlib.suppress(LocalError, FileNotFoundError):
        found = (state_dir / KEY_FILE).lstat()
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & _OTHERS:
            return _user_key(USER, **read_key(state_dir))
    key = _user_key(USER, _new_id("AKIA"), secrets.token_urlsafe(30))
    _keep(state_dir / KEY_FILE, key)
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
    """Make an id that moto finds in a signature: 20 capitals and digits."""
    return kind + secrets.token_hex(8).upper()
