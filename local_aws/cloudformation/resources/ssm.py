"""AWS::SSM::Parameter."""

from __future__ import annotations

from typing import ClassVar, Final

from local_aws.cloudformation.resources.base import Outcome, Request, ResourceType, call, call_if_there

NAME_LIMIT: Final = 1011


class Parameter(ResourceType):
    """A parameter; its value is an attribute."""

    type: ClassVar[str] = "AWS::SSM::Parameter"
    known: ClassVar[frozenset[str]] = frozenset(
        {"AllowedPattern", "DataType", "Description", "Name", "Tags", "Tier", "Type", "Value"}
    )
    required: ClassVar[frozenset[str]] = frozenset({"Type", "Value"})
    create_only: ClassVar[frozenset[str]] = frozenset({"Name"})
    name_property: ClassVar[str | None] = "Name"
    volatile: ClassVar[frozenset[str] | None] = frozenset({"Type", "Value"})

    def create(self, request: Request) -> Outcome:
        """Put a parameter that must not exist yet."""
        name = request.name("Name", limit=NAME_LIMIT)
        return self._put(request, name, overwrite=False)

    def update(self, request: Request) -> Outcome:
        """Overwrite the value."""
        return self._put(request, request.physical_id, overwrite=True)

    def delete(self, request: Request) -> None:
        """Remove the parameter."""
        call_if_there(request.client("ssm"), "delete_parameter", Name=request.physical_id)

    @staticmethod
    def _put(request: Request, name: str, *, overwrite: bool) -> Outcome:
        properties, client = request.properties, request.client("ssm")
        call(
            client,
            "put_parameter",
            Name=name,
            Type=properties["Type"],
            Value=properties["Value"],
            Overwrite=overwrite,
            **{key: properties.get(key) for key in ("AllowedPattern", "DataType", "Description", "Tier")},
        )
        tags = request.tag_list()
        if tags:
            call(client, "add_tags_to_resource", ResourceType="Parameter", ResourceId=name, Tags=tags)
        return Outcome(physical_id=name, attributes={"Type": properties["Type"], "Value": properties["Value"]})
