"""The sources of weights (a pinned revision on the Hub, or folders on this machine) and the Hub's access token.

No message, log or template contains the token.
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
    """Return the Hub's token that is stored at `secretsmanager:NAME` or `ssm:NAME`.

    If the stored text is a JSON object with one key, the token is that key's value.

    Raises:
        WeightsError: `source` has another form, the text there cannot be read, or the text is not a token.
    """
    try:
        check_token_source(source)
    except ValueError:
        # The error does not show `source`, since a user may have written the token itself.
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
    """Return the value of a JSON object with one key, the form in which the Secrets Manager console stores a secret.

    Any other text is returned unchanged.
    """
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
    """A source of weights: local folders, searched in order, that hold each model in a subfolder `org/name`.

    A file REVISION in a model's folder may name the commit. Without that file, the folder is assumed to hold the
    requested revision.
    """

    # The files of a revision in a folder may change, so each push compares them with the uploaded ones.
    immutable: Final = False

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = tuple(roots)

    def fetch(self, revision: Revision, *, allow_pickle: bool, with_code: bool) -> Path:  # noqa: ARG002 - Source's signature
        """Return the folder that holds the model; no file is copied.

        Raises:
            WeightsError: no folder has the model, or the first folder with the model holds another revision.
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
    """A source of weights: the Hugging Face Hub, through its own client, which caches and verifies fetched files.

    Args:
        token: the token for gated and private models. None uses the token in HF_TOKEN or of `hf auth login`, if any.
    """

    immutable: Final = True

    def __init__(self, token: str | None = None) -> None:
        self._token = token

    def fetch(self, revision: Revision, *, allow_pickle: bool, with_code: bool) -> Path:
        """Download the model's files that are to be uploaded, and return their folder.

        Raises:
            HubAccessError: the Hub does not provide the model.
            WeightsError: the model's only weights are pickles, and `allow_pickle` is false.
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
