"""The cost outputs that a reviewer sees in `cdk diff` of one catalog against another's template, with the real cdk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from emulation import QUICK

from local_aws.demo.cdk import STACK, Cdk

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

ENCODERS = Path(__file__).parents[2] / "model_configs" / "encoders.yaml"
ANSI = re.compile(r"\x1b\[[0-9;]*m")
NOWHERE = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "CDK_DISABLE_CLI_TELEMETRY": "1",
    "CDK_DEFAULT_REGION": "us-east-1",
    **QUICK,
}


def test_diff_of_a_dearer_instance_type_shows_both_prices(tmp_path: Path) -> None:
    """`cdk diff` from ml.g5.xlarge to ml.g6.12xlarge shows each cost before and after, with its source."""
    # GIVEN the template as it would be deployed now
    cdk = Cdk(environment=NOWHERE, out=tmp_path)
    cdk.run("synth", STACK, "--quiet", catalog=ENCODERS)
    before = tmp_path / "before.json"
    before.write_bytes((tmp_path / "cdk.out" / f"{STACK}.template.json").read_bytes())
    # WHEN
    dearer = tmp_path / "dearer.yaml"
    dearer.write_text(ENCODERS.read_text().replace("ml.g5.xlarge", "ml.g6.12xlarge"))
    diff = ANSI.sub("", cdk.run("diff", STACK, "--template", str(before), catalog=dearer).stdout)
    # THEN
    costs = dict(re.findall(r"\[~\] Output (\w+) \w+: (.*)", diff))
    values = {name: re.findall(r'"Value":"([^"]+)"', line) for name, line in costs.items()}
    assert values == {
        "CostPerHourUsd": ["1.408", "5.752"],
        "CostPerMonthUsd": ["1027.84", "4198.96"],
        "CostPerMillionUsd": ["3.76", "unknown"],
    }
    assert all(line.count("AWS Pricing API, 2026-08-07") == 2 for line in costs.values())
