"""Who deploys, and whether the account is ready for the CDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError

from cohost.preflight.finding import Finding, failed, passed

if TYPE_CHECKING:
    import boto3

CREDENTIALS: Final = "credentials"
BOOTSTRAP: Final = "bootstrap"

# aws-cdk-lib's DefaultStackSynthesizer: the version from which file assets are published as ours are, and the parameter
# under which `cdk bootstrap` writes its version.
BOOTSTRAP_VERSION: Final = 6
BOOTSTRAP_PARAMETER: Final = "/cdk-bootstrap/hnb659fds/version"


def check_credentials(session: boto3.Session, region: str) -> Finding:
    """Whether the credentials are good, and whose account they open."""
    identity = session.client("sts", region_name=region).get_caller_identity()
    return passed(CREDENTIALS, f"account {identity['Account']}, {identity['Arn']}")


def check_bootstrap(session: boto3.Session, region: str) -> Finding:
    """Whether the CDK's own bucket and roles are there, in a version that the CDK takes."""
    fix = "fix: cdk bootstrap"
    try:
        answer = session.client("ssm", region_name=region).get_parameter(Name=BOOTSTRAP_PARAMETER)
    except ClientError as error:
        if error.response["Error"].get("Code") == "ParameterNotFound":
            return failed(BOOTSTRAP, f"{region} of this account is not bootstrapped; {fix}")
        raise
    version = int(answer["Parameter"]["Value"])
    if version < BOOTSTRAP_VERSION:
        return failed(BOOTSTRAP, f"version {version}; allowed: {BOOTSTRAP_VERSION} or later; {fix}")
    return passed(BOOTSTRAP, f"version {version}")
