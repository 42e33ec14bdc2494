"""The S3 gateway endpoint of a stack on route tables of a VPC, in the emulator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from local_aws.testing.running import FrontDoor, running

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def door(tmp_path: Any) -> Iterator[FrontDoor]:
    """Start a front door for each test."""
    with running(tmp_path) as front_door:
        yield front_door


def template(vpc: str, table: str) -> str:
    """A stack of the endpoint alone."""
    properties = {
        "VpcId": vpc,
        "ServiceName": "com.amazonaws.us-east-1.s3",
        "VpcEndpointType": "Gateway",
        "RouteTableIds": [table],
        "Tags": [{"Key": "project", "Value": "lmi-cohost"}],
    }
    return json.dumps({"Resources": {"S3": {"Type": "AWS::EC2::VPCEndpoint", "Properties": properties}}})


def endpoints(ec2: Any, vpc: str) -> list[dict[str, Any]]:
    """The endpoints of a VPC that are not deleted."""
    found = ec2.describe_vpc_endpoints(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["VpcEndpoints"]
    return [endpoint for endpoint in found if endpoint["State"].lower() != "deleted"]


def test_life_of_a_gateway_endpoint(door: FrontDoor) -> None:
    """A gateway endpoint is created on the named route table with tags, and deleted with its stack."""
    ec2, cloudformation = door.client("ec2"), door.client("cloudformation")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]

    cloudformation.create_stack(StackName="gateway", TemplateBody=template(vpc, table))

    door.settle("CREATE_COMPLETE", "gateway")
    (endpoint,) = endpoints(ec2, vpc)
    assert endpoint["VpcEndpointType"] == "Gateway"
    assert endpoint["ServiceName"] == "com.amazonaws.us-east-1.s3"
    assert endpoint["RouteTableIds"] == [table]
    assert {"Key": "project", "Value": "lmi-cohost"} in endpoint["Tags"]
    door.delete_stack("gateway")
    assert endpoints(ec2, vpc) == []


def test_route_table_of_another_vpc_is_refused(door: FrontDoor) -> None:
    """A gateway endpoint with the route table of another VPC is rejected as by EC2, and is not created."""
    ec2, cloudformation = door.client("ec2"), door.client("cloudformation")
    vpc, other = (ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"] for _ in range(2))
    table = ec2.create_route_table(VpcId=other)["RouteTable"]["RouteTableId"]

    cloudformation.create_stack(StackName="refused", TemplateBody=template(vpc, table))

    door.settle("ROLLBACK_COMPLETE", "refused")
    events = cloudformation.describe_stack_events(StackName="refused")["StackEvents"]
    assert any(f"belongs to {other}" in event.get("ResourceStatusReason", "") for event in events)
    assert endpoints(ec2, vpc) == []
