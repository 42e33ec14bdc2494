"""AWS::EC2::VPCEndpoint, of the kind that a stack of ours makes: a gateway to S3."""

from __future__ import annotations

from typing import ClassVar

from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.resources.base import Outcome, Request, ResourceType, call


class VpcEndpoint(ResourceType):
    """A gateway endpoint on route tables of a VPC that is there. It is stored and described, and routes nothing."""

    type: ClassVar[str] = "AWS::EC2::VPCEndpoint"
    known: ClassVar[frozenset[str]] = frozenset({"RouteTableIds", "ServiceName", "Tags", "VpcEndpointType", "VpcId"})
    required: ClassVar[frozenset[str]] = frozenset({"ServiceName", "VpcId"})
    create_only: ClassVar[frozenset[str]] = frozenset({"ServiceName", "VpcEndpointType", "VpcId"})

    def create(self, request: Request) -> Outcome:
        """Make the endpoint; a VPC or route table that is not there is refused, which moto would not do."""
        client, properties = request.client("ec2"), request.properties
        tables = list(properties.get("RouteTableIds", []))
        call(client, "describe_vpcs", VpcIds=[properties["VpcId"]])
        for table in call(client, "describe_route_tables", RouteTableIds=tables)["RouteTables"] if tables else []:
            if table["VpcId"] != properties["VpcId"]:
                raise ResourceFailure(f"route table {table['RouteTableId']} belongs to {table['VpcId']}")
        answer = call(
            client,
            "create_vpc_endpoint",
            VpcId=properties["VpcId"],
            ServiceName=properties["ServiceName"],
            VpcEndpointType=properties.get("VpcEndpointType", "Gateway"),
            RouteTableIds=tables or None,
        )
        endpoint_id = str(answer["VpcEndpoint"]["VpcEndpointId"])
        request.initiated(endpoint_id)
        _tag(request, endpoint_id)
        return Outcome(physical_id=endpoint_id, attributes={"Id": endpoint_id})

    def update(self, request: Request) -> Outcome:
        """Change tags."""
        if request.changed("RouteTableIds"):
            # moto would list the new tables and then fail to delete the endpoint, since it moves no routes.
            raise ResourceFailure("RouteTableIds: a change is not supported by the local AWS")
        _tag(request, request.physical_id)
        return Outcome(physical_id=request.physical_id, attributes={"Id": request.physical_id})

    def delete(self, request: Request) -> None:
        """Remove the endpoint; one that is gone already is no fault, as EC2 answers with a list of what failed."""
        call(request.client("ec2"), "delete_vpc_endpoints", VpcEndpointIds=[request.physical_id])


def _tag(request: Request, endpoint_id: str) -> None:
    if tags := request.tag_list():
        call(request.client("ec2"), "create_tags", Resources=[endpoint_id], Tags=tags)
