"""The subcommand that prints the least IAM policies for deploys: `cohost rights`."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Annotated

import boto3
import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.text import Text

from cohost.commands import console
from cohost.commands.options import DEFAULT_CATALOG, CatalogOption, JsonOption, StackOption, load_with_warnings
from cohost.deploy.rights.assembly import caller_of, read_stacks, synthesise
from cohost.deploy.rights.commands import COMMANDS
from cohost.deploy.rights.policies import Document, cloudformation_policies
from cohost.endpoint.stack_outputs import DEFAULT_REGION, DEFAULT_STACK
from cohost.errors import InvalidValueError, StackError

_ACCOUNT = re.compile(r"[0-9]{12}")
_CALLER = "For whoever runs cohost, a person or a pipeline"
_CLOUDFORMATION = "For `cdk bootstrap --cloudformation-execution-policies`, as a managed policy"


def rights(
    catalog: CatalogOption = DEFAULT_CATALOG,
    stack: StackOption = DEFAULT_STACK,
    command: Annotated[
        list[str] | None,
        typer.Option("--command", help="A command that the caller may run; repeatable (default: all)."),
    ] = None,
    account: Annotated[
        str | None, typer.Option("--account", help="The account's number (default: the account of your credentials).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="A folder for the policies as files, caller-1.json and so on.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the least IAM policies: one for the caller of cohost, one for CloudFormation's role of `cdk bootstrap`.

    Both policies follow from the catalog's synthesised template, and name only resources of the catalog's stacks.

    Example: cohost rights --command deploy --command status --command expire
    """
    wanted = _commands(command)
    _check_account(account)
    loaded = load_with_warnings(catalog).catalog
    session = boto3.Session()
    region = session.region_name or DEFAULT_REGION
    with tempfile.TemporaryDirectory() as folder:
        synthesise(stack, catalog, Path(folder))
        stacks = read_stacks(
            Path(folder),
            stack,
            partition=session.get_partition_for_region(region),
            region=region,
            account=_account(session) if account is None else account,
        )
    found = {
        "caller": caller_of(loaded, stacks).policies(wanted),
        "cloudformation": cloudformation_policies(stacks),
    }
    if out is not None:
        _write(out, found)
    if as_json:
        console.print_json(found)
        return
    for title, documents in zip((_CALLER, _CLOUDFORMATION), found.values(), strict=True):
        for number, document in enumerate(documents, 1):
            part = f" ({number} of {len(documents)})" if len(documents) > 1 else ""
            console.err.print(Text(f"{title}{part}:"), soft_wrap=True)
            console.out.print(Text(json.dumps(document, indent=2)), soft_wrap=True)


def _write(folder: Path, found: dict[str, list[Document]]) -> None:
    """Write each policy to a separate file, and create the folder if it is missing.

    Raises:
        InvalidValueError: the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, documents in found.items():
            for number, document in enumerate(documents, 1):
                path = folder / f"{name}-{number}.json"
                path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
                console.err.print(Text(f"written: {path}"), soft_wrap=True)
    except OSError as error:
        raise InvalidValueError(
            "policies-not-writable",
            "--out",
            f"{folder} cannot be written to ({error.strerror})",
            allowed="a folder that you may write to",
            fix="name another folder",
        ) from error


def _check_account(account: str | None) -> None:
    if account is not None and not _ACCOUNT.fullmatch(account):
        raise InvalidValueError(
            "account-malformed",
            "--account",
            f"got {account!r}",
            allowed="an account's number of 12 digits",
            fix="write the number, or leave --account out for the account of your credentials",
        )


def _commands(names: list[str] | None) -> list[str]:
    """Return the named commands, or all commands if none is named.

    Raises:
        InvalidValueError: a name is not that of a command that calls AWS.
    """
    for name in names or []:
        if name not in COMMANDS:
            raise InvalidValueError(
                "command-unknown",
                "--command",
                f"{name!r} is not a command that calls AWS",
                allowed=", ".join(COMMANDS),
                fix="name one of these",
            )
    return names or list(COMMANDS)


def _account(session: boto3.Session) -> str:
    try:
        return session.client("sts").get_caller_identity()["Account"]
    except (BotoCoreError, ClientError) as error:
        raise StackError(
            "account-unreadable",
            "--account",
            f"is missing, and the account of your credentials cannot be read ({error})",
            fix="set credentials, e.g. AWS_PROFILE, or write --account with the account's number",
        ) from error
