"""AWS::Budgets::Budget."""

from __future__ import annotations

from typing import ClassVar, Final

from local_aws.cloudformation.names import physical_name
from local_aws.cloudformation.resources.base import Outcome, Request, ResourceType, call, call_if_there
from local_aws.settings import ACCOUNT_ID

NAME_LIMIT: Final = 100


class Budget(ResourceType):
    """A budget with its notifications; `Ref` is its name. Nothing is spent on this machine, so none is ever sent."""

    type: ClassVar[str] = "AWS::Budgets::Budget"
    known: ClassVar[frozenset[str]] = frozenset({"Budget", "NotificationsWithSubscribers", "ResourceTags"})
    required: ClassVar[frozenset[str]] = frozenset({"Budget"})
    create_only: ClassVar[frozenset[str]] = frozenset({"NotificationsWithSubscribers"})

    def create(self, request: Request) -> Outcome:
        """Make the budget."""
        stated = request.properties["Budget"].get("BudgetName")
        name = stated or physical_name(request.stack_name, request.logical_id, limit=NAME_LIMIT)
        return self._create(request, str(name))

    def update(self, request: Request) -> Outcome:
        """Change the budget; moto has no UpdateBudget, so it is made anew under its name."""
        call_if_there(request.client("budgets"), "delete_budget", AccountId=ACCOUNT_ID, BudgetName=request.physical_id)
        return self._create(request, request.physical_id)

    def delete(self, request: Request) -> None:
        """Remove the budget."""
        call_if_there(request.client("budgets"), "delete_budget", AccountId=ACCOUNT_ID, BudgetName=request.physical_id)

    @staticmethod
    def _create(request: Request, name: str) -> Outcome:
        properties = request.properties
        call(
            request.client("budgets"),
            "create_budget",
            AccountId=ACCOUNT_ID,
            Budget={**properties["Budget"], "BudgetName": name},
            NotificationsWithSubscribers=properties.get("NotificationsWithSubscribers"),
        )
        return Outcome(physical_id=name)
