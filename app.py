"""The CDK application: one stack for one catalog, and the checks that every synth runs.

The catalog's file is the context value `catalog` (`cdk synth -c catalog=FILE`), else the environment variable
COHOST_CATALOG, else the default catalog of this project. The region comes from the caller's AWS configuration. A
catalog with weights in S3 has a second stack for the weights' bucket, which is deployed first. Each comparison design
that a catalog names is a further stack.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cohost.catalog_file import load_catalog
from cohost.errors import CohostError

if TYPE_CHECKING:
    from aws_cdk import App

DEFAULT_CATALOG = "model_configs/encoders.yaml"


def main() -> int:
    """Write the cloud assembly; an error that the user can correct is printed to stderr, and gives exit code 1."""
    # Importing the CDK starts Node.js, whose four background threads take half of a synth's CPU time; one is enough.
    os.environ["NODE_OPTIONS"] = f"--v8-pool-size=1 {os.environ.get('NODE_OPTIONS', '')}"
    import aws_cdk as cdk

    from stacks.application import add_stacks

    app = cdk.App()
    try:
        add_stacks(app, load_catalog(_catalog_file(app)), cdk.Environment(region=_region()))
    except CohostError as error:
        print(error, file=sys.stderr)  # noqa: T201 - what the cdk command shows of us
        return 1
    app.synth()
    return 0


def _catalog_file(app: App) -> Path:
    context: str | None = app.node.try_get_context("catalog")
    return Path(context or os.environ.get("COHOST_CATALOG") or DEFAULT_CATALOG)


def _region() -> str:
    return os.environ.get("CDK_DEFAULT_REGION") or os.environ.get("AWS_REGION") or "us-east-1"


if __name__ == "__main__":
    sys.exit(main())
