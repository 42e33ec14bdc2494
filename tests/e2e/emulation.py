"""An emulator for the steps of one test file, and the cdk command that deploys to it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import boto3
import pytest

from cohost.deploy import local_aws as local
from local_aws.demo.cdk import Cdk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# CloudFormation's default rules take 3 s of CPU at each synth (aws-cdk-lib: synthesis-validation.js).
# tests/infrastructure/test_examples.py has them applied to the templates of all catalogs.
QUICK: Final = {"CDK_VALIDATION": "false"}


@dataclass(frozen=True, kw_only=True)
class Emulation:
    """An emulator on a free port, and a cdk command that writes into `folder`."""

    server: local.LocalServer
    cdk: Cdk
    folder: Path


@contextlib.contextmanager
def emulation(folder: Path, catalog: Path) -> Iterator[Emulation]:
    """Run an emulator, which this process's boto3 and cohost also use, and stop it at the end of the block."""
    state = folder / "state"
    server = local.start(port=0, state=state, catalog=catalog)
    environment = server.environment()
    with pytest.MonkeyPatch.context() as patch:
        # boto3's own session keeps the keys of the emulation that another file of this process had.
        patch.setattr(boto3, "DEFAULT_SESSION", None)
        for name in ("AWS_PROFILE", "COHOST_CATALOG", "COHOST_HUB"):
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            cdk = Cdk(environment={**environment, **QUICK}, out=folder / "cdk")
            yield Emulation(server=server, cdk=cdk, folder=folder)
        finally:
            local.stop(state)
