"""Deploys of the project's stack to a front door as the cdk command makes them: assets first, then the template."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

# jsii writes a banner to stderr on a Node version at its end of life; set before it is imported.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")

import aws_cdk as cdk

from stacks.lmi_cohost_stack import STACK_ID, LmiCohostStack

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog
    from local_aws.testing.running import FrontDoor

ACCOUNT = "123456789012"
REGION = "us-east-1"
FLAGS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "cdk.json").read_text())["context"]


def publish(door: FrontDoor, catalog: Catalog, folder: Path, *, s3: Any = None) -> dict[str, str]:
    """Synthesise a catalog's stack, publish its assets, and return arguments for CreateStack and UpdateStack.

    With `s3`, a client of a role, the assets are published in an account that is bootstrapped already.
    """
    app = cdk.App(context=FLAGS, analytics_reporting=False, outdir=str(folder))
    LmiCohostStack(app, STACK_ID, catalog=catalog, env=cdk.Environment(region=REGION))
    app.synth()
    return publish_stack(door, folder, STACK_ID, s3=s3)


def publish_stack(door: FrontDoor, folder: Path, stack: str, *, s3: Any = None) -> dict[str, str]:
    """Publish a stack that was synthesised into a folder, and return arguments for CreateStack and UpdateStack.

    With `s3`, a client of a role, the assets are published in an account that is bootstrapped already.
    """
    bootstrapped, s3 = s3 is not None, s3 or door.client("s3")
    if not bootstrapped:
        version = {"Name": "/cdk-bootstrap/hnb659fds/version", "Value": "30", "Type": "String"}
        door.client("ssm").put_parameter(**version, Overwrite=True)
    template = ""
    for asset in json.loads((folder / f"{stack}.assets.json").read_text())["files"].values():
        (destination,) = asset["destinations"].values()
        bucket = destination["bucketName"].replace("${AWS::AccountId}", ACCOUNT)
        if not bootstrapped:
            s3.create_bucket(Bucket=bucket)
        source = folder / asset["source"]["path"]
        body = _zipped(source) if asset["source"]["packaging"] == "zip" else source.read_bytes()
        s3.put_object(Bucket=bucket, Key=destination["objectKey"], Body=body)
        if source.name == f"{stack}.template.json":
            template = f"{door.server.url}/{bucket}/{destination['objectKey']}"
    return {"StackName": stack, "TemplateURL": template}


def _zipped(folder: Path) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    return packed.getvalue()
