"""The Hub's token, from where it is kept; its value is in no message, no log and no template."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from cohost.catalog.sections.storage import check_token_source
from cohost.weights.errors import WeightsError

if TYPE_CHECKING:
    import boto3


def read_token(source: str, session: boto3.Session) -> str:
    """The token that lies at `secretsmanager:NAME` or `ssm:NAME`; a secret of one key and value is taken for its value.

    Raises:
        WeightsError: `source` is no such place, it cannot be read, or no text lies there.
    """
    try:
        check_token_source(source)
    except ValueError as error:
        raise WeightsError(f"--token-from: {error}") from None
    service, _, name = source.partition(":")
    try:
        text = _secret(name, session) if service == "secretsmanager" else _parameter(name, session)
    except (ClientError, BotoCoreError) as error:
        raise WeightsError(
            f"the Hub's token: {source} cannot be read ({error}); fix: check name, region and your right to read it"
        ) from error
    token = _only_value(text).strip()
    if not token or not token.isprintable() or " " in token:
        raise WeightsError(f"the Hub's token: {source} holds no token; fix: store the token there as plain text")
    return token


def _secret(name: str, session: boto3.Session) -> str:
    return str(session.client("secretsmanager").get_secret_value(SecretId=name).get("SecretString", ""))


def _parameter(name: str, session: boto3.Session) -> str:
    return session.client("ssm").get_parameter(Name=name, WithDecryption=True)["Parameter"].get("Value", "")


def _only_value(text: str) -> str:
    """The console stores secrets as a JSON object of keys and values; one with a single text is that text."""
    try:
        content = json.loads(text)
    except ValueError:
        return text
    match list(content.values()) if isinstance(content, dict) else []:
        case [str(value)]:
            return value
    return text
