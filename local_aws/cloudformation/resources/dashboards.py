"""AWS::CloudWatch::Dashboard."""

from __future__ import annotations

import json
from typing import ClassVar, Final

from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.resources.base import Outcome, Request, ResourceType, call, call_if_there, policy_text

NAME_LIMIT: Final = 255


class Dashboard(ResourceType):
    """A dashboard; `Ref` is its name."""

    type: ClassVar[str] = "AWS::CloudWatch::Dashboard"
    known: ClassVar[frozenset[str]] = frozenset({"DashboardBody", "DashboardName"})
    required: ClassVar[frozenset[str]] = frozenset({"DashboardBody"})
    create_only: ClassVar[frozenset[str]] = frozenset({"DashboardName"})
    name_property: ClassVar[str | None] = "DashboardName"

    def create(self, request: Request) -> Outcome:
        """Put the dashboard."""
        return self._put(request, request.name("DashboardName", limit=NAME_LIMIT))

    def update(self, request: Request) -> Outcome:
        """Overwrite its body."""
        return self._put(request, request.physical_id)

    def delete(self, request: Request) -> None:
        """Remove the dashboard."""
        call_if_there(request.client("cloudwatch"), "delete_dashboards", DashboardNames=[request.physical_id])

    @staticmethod
    def _put(request: Request, name: str) -> Outcome:
        body = policy_text(request.properties["DashboardBody"])
        _check(body)
        call(request.client("cloudwatch"), "put_dashboard", DashboardName=name, DashboardBody=body)
        return Outcome(physical_id=name)


def _check(body: str) -> None:
    """Refuse what CloudWatch would (AWS: Dashboard Body Structure and Syntax); moto takes any text.

    Raises:
        ResourceFailure: the body is no JSON object with a list of widgets that each have a type and properties.
    """
    try:
        widgets = json.loads(body)["widgets"]
        wrong = [widget for widget in widgets if not {"type", "properties"} <= set(widget)]
    except (ValueError, KeyError, TypeError) as error:
        raise ResourceFailure(f"DashboardBody is no dashboard: {error!r}") from error
    if wrong:
        raise ResourceFailure(f"DashboardBody has a widget without type or properties: {json.dumps(wrong[0])[:200]}")
