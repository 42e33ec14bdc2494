"""Helpers for tests that wait for a condition, or create the execution role of an endpoint."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable


SERVING_POLICY: Final[dict[str, Any]] = {
    "PolicyName": "serve",
    "PolicyDocument": {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["s3:GetObject", "s3:ListBucket", "cloudwatch:DescribeAlarms"],
                "Resource": "*",
            }
        ],
    },
}
"""The policy that an execution role needs: read archives, list their prefix, read the alarms of guardrails."""


def wait_for(condition: Callable[[], Any], limit_s: float = 60, *, pause_s: float = 0.05) -> None:
    """Wait until a condition holds, checking it every `pause_s` seconds; fail the test after `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(pause_s)


def serving_role(iam: Any, name: str, service: str = "sagemaker.amazonaws.com") -> str:
    """Create a role that `service` may assume and that has SERVING_POLICY; return the role's ARN."""
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    arn = iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    policy = json.dumps(SERVING_POLICY["PolicyDocument"])
    iam.put_role_policy(RoleName=name, PolicyName=SERVING_POLICY["PolicyName"], PolicyDocument=policy)
    return str(arn)
