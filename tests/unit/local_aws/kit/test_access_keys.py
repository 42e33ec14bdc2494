"""The table of access keys."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.deploy.local_aws import ADMINISTRATOR_FILE, KEY_FILE, read_key
from cohost.errors import LocalError
from local_aws.kit.access_keys import (
    ACCESS_KEY,
    INTERNAL,
    SECRET_KEY,
    AccessKey,
    AccessKeys,
    administrator_key,
    user_key,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_keeps_its_key_for_its_owner_alone(tmp_path: Path) -> None:
    """A state folder keeps its access key over starts, and only its owner can read it."""
    key = user_key(tmp_path)
    assert user_key(tmp_path) == key
    assert read_key(tmp_path) == {"key_id": key.key_id, "secret": key.secret}
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]
    (tmp_path / "other").mkdir()
    other = user_key(tmp_path / "other")
    assert (other.key_id == key.key_id, other.secret == key.secret) == (False, False)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_key_that_others_may_have_read_is_replaced(mode: int, tmp_path: Path) -> None:
    """A key file that others could read is replaced."""
    key = user_key(tmp_path)
    (tmp_path / KEY_FILE).chmod(mode)
    assert user_key(tmp_path).secret != key.secret
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600


def test_a_broken_file_is_replaced_and_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    """A damaged key file is replaced, and a folder that cannot be written is an error."""
    user_key(tmp_path)
    (tmp_path / KEY_FILE).write_text("{")
    assert user_key(tmp_path).secret == read_key(tmp_path)["secret"]
    with refused("access-key-not-writable", str(tmp_path / "nowhere" / KEY_FILE), kind=LocalError):
        user_key(tmp_path / "nowhere")


def test_user_who_acts_as_a_role_has_the_same_key_and_an_administrator_another(tmp_path: Path) -> None:
    """The key file serves both ways of starting; the administrator's file goes with the role."""
    role = "arn:aws:iam::123456789012:role/team/deployer"
    plain, judged = user_key(tmp_path), user_key(tmp_path, role)
    assert (judged.key_id, judged.secret) == (plain.key_id, plain.secret)
    assert judged.principal == "arn:aws:sts::123456789012:assumed-role/deployer/cohost"
    administrator = administrator_key(tmp_path, role)
    assert administrator is not None
    assert (administrator.principal, administrator.key_id == plain.key_id) == (plain.principal, False)
    assert read_key(tmp_path, ADMINISTRATOR_FILE)["key_id"] == administrator.key_id
    assert administrator_key(tmp_path, None) is None
    assert not (tmp_path / ADMINISTRATOR_FILE).exists()


@pytest.mark.parametrize(
    "arn", ["deployer", "arn:aws:iam::111111111111:role/deployer", "arn:aws:iam::123456789012:user/deployer"]
)
def test_role_that_no_user_can_act_as_is_refused(arn: str, tmp_path: Path) -> None:
    """A name, a role of another account and a user have no rights here that a call could be judged by."""
    with refused("role-arn-invalid", "--as", kind=LocalError):
        user_key(tmp_path, arn)


def test_roles_have_keys_of_their_own() -> None:
    """Each session of a role has its own key with a token, and the assumed role as its principal."""
    keys, account = AccessKeys(), "arn:aws:iam::123456789012:role"
    key = keys.for_role(f"{account}/service-role/publisher", "function")
    assert key.principal == "arn:aws:sts::123456789012:assumed-role/publisher/function"
    assert key.token
    assert keys.find(key.key_id) is key is keys.for_role(f"{account}/service-role/publisher", "function")
    for role, session in (("other", "function"), ("service-role/publisher", "x")):
        assert keys.for_role(f"{account}/{role}", session).key_id != key.key_id
    assert AccessKeys().find(key.key_id) is None


def test_the_table_holds_the_emulations_own_key_and_asks_for_those_that_were_given_out() -> None:
    """The emulation's parts sign too; whatever is not in the table is looked for at IAM and STS."""
    given = AccessKey(key_id="AKIA2", secret="s", principal="arn:given")
    keys = AccessKeys(AccessKey(key_id="AKIA1", secret="s", principal="arn:user"), {"AKIA2": given}.get)
    own = keys.find(ACCESS_KEY)
    assert own is not None
    assert (own.secret, own.principal) == (SECRET_KEY, INTERNAL)
    assert keys.find("AKIA2") is given
    assert keys.find("AKIA3") is keys.find("test") is None


def test_a_key_never_shows_its_secret(tmp_path: Path) -> None:
    """The repr of a key has no secret."""
    key = AccessKeys().for_role("arn:aws:iam::123456789012:role/r", "s")
    assert key.secret not in repr(key)
    assert str(key.token) not in repr(key)
    assert user_key(tmp_path).secret not in repr(user_key(tmp_path))
