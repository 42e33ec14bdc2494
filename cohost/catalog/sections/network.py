"""What the catalog says of the network that the endpoint's containers run in."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from cohost.catalog.sections.settings import Settings

_ID = "([0-9a-f]{8}|[0-9a-f]{17})$"

Subnet = Annotated[str, Field(pattern=f"^subnet-{_ID}")]
SecurityGroup = Annotated[str, Field(pattern=f"^sg-{_ID}")]
RouteTable = Annotated[str, Field(pattern=f"^rtb-{_ID}")]


class Network(Settings):
    """The VPC of the containers, and whether they may reach anything at all.

    All ids are given, because a synth looks nothing up. So the catalog also has to say what no id tells: whether the
    subnets lead to the internet, and how the containers reach S3. Limits are SageMaker's (API reference: VpcConfig).
    """

    vpc: str | None = Field(default=None, pattern=f"^vpc-{_ID}", description="vpc- and 8 or 17 hexadecimal digits")
    subnets: list[Subnet] = Field(
        default_factory=list, max_length=16, description="1 to 16 ids: subnet- and 8 or 17 hexadecimal digits"
    )
    security_groups: list[SecurityGroup] = Field(
        default_factory=list, max_length=5, description="1 to 5 ids: sg- and 8 or 17 hexadecimal digits"
    )
    isolation: bool = Field(default=False, description="true (the container reaches nothing) or false")
    internet: bool = Field(default=False, description="true (the subnets' routes lead out, by a NAT gateway) or false")
    s3_endpoint: Literal["given"] | None = Field(
        default=None, description="given: the VPC has an S3 gateway endpoint on the subnets' route tables"
    )
    route_tables: list[RouteTable] = Field(
        default_factory=list, max_length=50, description="ids: rtb- and 8 or 17 hexadecimal digits"
    )

    @property
    def in_vpc(self) -> bool:
        """Whether the containers run in a VPC of the user's."""
        return self.vpc is not None

    @model_validator(mode="after")
    def _vpc_is_whole(self) -> Network:
        parts = {"vpc": self.vpc, "subnets": self.subnets, "security_groups": self.security_groups}
        missing = [name for name, value in parts.items() if not value]
        if len(missing) not in {0, len(parts)}:
            raise ValueError(
                f"{' and '.join(missing)} missing; allowed: vpc, subnets and security_groups together, or none of "
                "them; fix: name all three"
            )
        if missing and not self.isolation:
            raise ValueError(
                "nothing is asked for; allowed: a vpc, isolation, or both; fix: name them, or leave it out"
            )
        ways = [name for name in ("internet", "s3_endpoint", "route_tables") if getattr(self, name)]
        if ways and missing:
            raise ValueError(f"{ways[0]} without a vpc; allowed: with a vpc only; fix: name the vpc, or take it out")
        return self

    @model_validator(mode="after")
    def _one_s3_endpoint(self) -> Network:
        if self.s3_endpoint is not None and self.route_tables:
            raise ValueError(
                "s3_endpoint: given beside route_tables; allowed: one of them; fix: take route_tables out if the VPC "
                "has the endpoint, else s3_endpoint"
            )
        return self
