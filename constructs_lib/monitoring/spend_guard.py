"""The AWS budget for a stack's monthly cost, which sends a mail when the spend nears the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import aws_cdk as cdk
from aws_cdk import aws_budgets as budgets
from constructs import Construct

from cohost.endpoint.stack_outputs import budget_name

if TYPE_CHECKING:
    from collections.abc import Mapping


# The figure of the actual spend is up to a day old, and the forecast needs some weeks of history; so both notify.
_THRESHOLDS: Final = (("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100))


class SpendGuard(Construct):
    """An AWS::Budgets::Budget for the cost of all resources with the stack's tags.

    The budget counts only tags that are activated as cost allocation tags in the billing console (AWS: Using cost
    allocation tags). Without tags the budget counts the whole account's SageMaker spend.

    Args:
        monthly_usd: the limit for a calendar month, in USD.
        email: the address to notify at 80 and 100 percent, and when the forecast passes the limit.
        tags: the tags whose spend is counted.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, monthly_usd: float, email: str, tags: Mapping[str, str]
    ) -> None:
        super().__init__(scope, construct_id)
        stack = cdk.Stack.of(self)
        filters = {"TagKeyValue": [f"user:{key}${value}" for key, value in tags.items()]} if tags else {}
        self._budget = budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                # CloudFormation's id of a budget is not its name, so that without this nobody could find the budget.
                budget_name=budget_name(stack.stack_name, stack.region),
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=monthly_usd, unit="USD"),
                cost_filters=filters or {"Service": ["Amazon SageMaker"]},
            ),
            notifications_with_subscribers=[_notification(kind, percent, email) for kind, percent in _THRESHOLDS],
        )


def _notification(kind: str, percent: int, email: str) -> budgets.CfnBudget.NotificationWithSubscribersProperty:
    return budgets.CfnBudget.NotificationWithSubscribersProperty(
        notification=budgets.CfnBudget.NotificationProperty(
            notification_type=kind, comparison_operator="GREATER_THAN", threshold=percent, threshold_type="PERCENTAGE"
        ),
        subscribers=[budgets.CfnBudget.SubscriberProperty(subscription_type="EMAIL", address=email)],
    )
