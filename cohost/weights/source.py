"""The sources of weights, the Hub in a pinned revision or folders on this machine, and the Hub's token.

The token's value is in no message, no log and no template.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from cohost.catalog.sections.storage import TOKEN_SOURCE, check_token_source
from cohost.errors import WeightsError
from cohost.hub import client, explaining
from cohost.weights.files import choose, pickle_fault

if TYPE_CHECKING:
    from collections.abc import Iterable

    import boto3

    from cohost.archives.weights import Revision


def read_token(source: str, session: boto3.Session) -> str:
    """Return the token stored at `secretsmanager:NAME` or `ssm:NAME`; of a secret with one key, return its value.

    Raises:
        WeightsError: `source` has another form, cannot be read, or holds no token.
    """
    try:
        check_token_source(source)
    except ValueError:
        # Not shown, since it may be the token itself.
        raise WeightsError(
            "token-source-invalid",
            "--token-from",
            "is not the name of a place",
            allowed=TOKEN_SOURCE,
            fix="put the token into Secrets Manager or Parameter Store, and name that",
        ) from None
    service, _, name = source.partition(":")
    try:
        text = _secret(name, session) if service == "secretsmanager" else _parameter(name, session)
    except (ClientError, BotoCoreError) as error:
        raise WeightsError(
            "token-unreadable", source, f"cannot be read ({error})", fix="check name, region and your right to read it"
        ) from error
    token = _only_value(text).strip()
    if not token or not token.isprintable() or " " in token:
        raise WeightsError("token-invalid", source, "holds no token", fix="store the token there as plain text")
    return token


def _secret(name: str, session: boto3.Session) -> str:
    return str(session.client("secretsmanager").get_secret_value(SecretId=name).get("SecretString", ""))


def _parameter(name: str, session: boto3.Session) -> str:
    return session.client("ssm").get_parameter(Name=name, WithDecryption=True)["Parameter"].get("Value", "")


def _only_value(text: str) -> str:
    """Return the only value of a JSON object, which is how the console stores a secret; any other text is unchanged."""
    try:
        content = json.loads(text)
    except ValueError:
        return text
    match list(content.values()) if isinstance(content, dict) else []:
        case [str(value)]:
            return value
    return text


_REVISION_FILE: Final = "REVISION"


class Folders:
    """Models in folders laid out as `org/name`, searched in order.

    A file REVISION in a model's folder may name the commit; a folder without it counts as the requested revision.
    """

    # A revision's content may change, so that it is fetched again to compare it with what was uploaded.
    immutable: Final = False

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = tuple(roots)

    def fetch(self, revision: Revision, *, allow_pickle: bool, with_code: bool) -> Path:  # noqa: ARG002 - Source's signature
        """Return the model's own folder; nothing is copied.

        Raises:
            WeightsError: no folder has the model, or the first one that has it holds another revision.
        """
        folder = next((root / revision.model_id for root in self._roots if (root / revision.model_id).is_dir()), None)
        if folder is None:
            raise WeightsError(
                "model-missing",
                "--from",
                f"{revision.model_id} is in none of {', '.join(map(str, self._roots))}",
                allowed="folders laid out as org/name",
                fix="put its files there, or leave --from out to fetch it from the Hub",
            )
        held = folder / _REVISION_FILE
        if held.is_file() and (commit := held.read_text(encoding="utf-8").strip()) != revision.revision:
            raise WeightsError(
                "revision-other",
                "--from",
                f"{folder} holds revision {commit}",
                allowed=f"the catalog's, {revision.revision}",
                fix="put that revision there, or write the one there into the catalog",
            )
        return folder


class Hub:
    """The Hugging Face Hub, through its own client, which caches and verifies the files that it fetches.

    Args:
        token: for gated and private models. None uses the token of HF_TOKEN or `hf auth login`, if there is one.
    """

    immutable: Final = True

    def __init__(self, token: str | None = None) -> None:
        self._token = token

    def fetch(self, revision: Revision, *, allow_pickle: bool, with_code: bool) -> Path:
        """Download the files to upload, and no others, and return their folder.

        Raises:
            HubAccessError: the Hub does not provide the model.
            WeightsError: its only weights are pickles, which were not allowed.
        """
        model_id, commit = revision.model_id, revision.revision
        with explaining(str(revision), folder="--from", token="hub_token, --token-from or HF_TOKEN"):  # noqa: S106 - options
            hub = client(self._token)
            names = [file.rfilename for file in hub.model_info(model_id, revision=commit).siblings or []]
            chosen = choose(names, allow_pickle=allow_pickle, with_code=with_code)
            if fault := pickle_fault(names, chosen):
                raise WeightsError(fault.code, str(revision), fault.message, fix=fault.fix)
            return Path(hub.snapshot_download(model_id, revision=commit, allow_patterns=chosen))


Source = Folders | Hub
