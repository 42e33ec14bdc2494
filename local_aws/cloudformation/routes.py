"""The HTTP interface of CloudFormation: the query protocol that the cdk CLI and boto3 use, and an engine per region."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from local_aws.cloudformation import operations, queries
from local_aws.cloudformation.context import Context
from local_aws.cloudformation.engine import Engine
from local_aws.cloudformation.errors import CloudFormationError
from local_aws.cloudformation.operations import find_stack
from local_aws.cloudformation.resources import ResourceTypes, aws_types
from local_aws.cloudformation.resources.custom import CustomResource, Responses
from local_aws.cloudformation.resources.handler_rights import calling
from local_aws.kit.account import DEFAULT_REGION
from local_aws.kit.errors import not_emulated
from local_aws.kit.query_protocol import QueryError, QueryProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from local_aws.cloudformation.resources.handler_rights import HandlerRights
    from local_aws.kit.clients import Clients


LOGGER: Final = logging.getLogger(__name__)
PROTOCOL: Final = QueryProtocol("cloudformation", title="CloudFormation")
ACTIONS: Final[dict[str, Callable[[Engine, Mapping[str, Any]], dict[str, Any]]]] = {
    "ContinueUpdateRollback": operations.continue_update_rollback,
    "CreateChangeSet": operations.create_change_set,
    "CreateStack": operations.create_stack,
    "DeleteChangeSet": operations.delete_change_set,
    "DeleteStack": operations.delete_stack,
    "DescribeChangeSet": queries.describe_change_set,
    "DescribeStackEvents": queries.describe_stack_events,
    "DescribeStackResource": queries.describe_stack_resource,
    "DescribeStackResources": queries.describe_stack_resources,
    "DescribeStacks": queries.describe_stacks,
    "ExecuteChangeSet": operations.execute_change_set,
    "GetTemplate": queries.get_template,
    "GetTemplateSummary": queries.get_template_summary,
    "ListChangeSets": queries.list_change_sets,
    "ListExports": queries.list_exports,
    "ListHookResults": queries.list_hook_results,
    "ListImports": queries.list_imports,
    "ListStackResources": queries.list_stack_resources,
    "ListStacks": queries.list_stacks,
    "RollbackStack": operations.roll_back_stack,
    "UpdateStack": operations.update_stack,
    "UpdateTerminationProtection": operations.update_termination_protection,
    "ValidateTemplate": queries.validate_template,
}
# The cdk CLI polls a changing stack every 5 s. The poll is answered when the operation ends, or after HOLD_SECONDS, so
# that a deploy of 1 s takes 1 s in the CLI too. The CLI's event monitor prints meanwhile.
HOLD_SECONDS: Final = 20.0
HOLD_POLL_SECONDS: Final = 0.05
HELD_CALLER: Final = "aws-cdk"


class CloudFormation:
    """The emulated CloudFormation, with one engine per region.

    Args:
        clients: boto3 clients that call the emulator, by which resources are created.
        resource_types: the known resource types; left out, custom resources and those of `aws_types`.
        rights: the rights with which resources are changed; None if nobody's rights limit the changes.
    """

    def __init__(
        self,
        *,
        clients: Clients,
        resource_types: ResourceTypes | None = None,
        rights: HandlerRights | None = None,
    ) -> None:
        self._rights = rights
        self.responses = Responses(clients.endpoint_url)
        self._clients = clients
        self._resource_types = resource_types or ResourceTypes(aws_types(), custom=CustomResource(self.responses))
        self._engines: dict[str, Engine] = {}

    def engine(self, region: str) -> Engine:
        """Return the engine of a region."""
        if region not in self._engines:
            context = Context(
                region=region, resource_types=self._resource_types, clients=self._clients, rights=self._rights
            )
            self._engines[region] = Engine(context)
        return self._engines[region]

    def stop(self) -> None:
        """End the long waits of all running stack operations."""
        for engine in self._engines.values():
            engine.stop()

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of the query protocol."""
        request = Request(scope, receive)
        signed = scope.get("aws_scope")
        engine = self.engine((signed and signed.region) or DEFAULT_REGION)
        try:
            body = await request.body() or str(request.url.query).encode()
            action, arguments = PROTOCOL.parse_request(body)
            if action == "DescribeStacks" and HELD_CALLER in request.headers.get("user-agent", ""):
                await _hold(engine, arguments)
            calling.set(scope.get("aws_key"))
            response = await run_in_threadpool(_answer, engine, action, arguments)
        except QueryError as error:
            response = Response(PROTOCOL.render_error(error), error.status, media_type="text/xml")
        except Exception as error:
            LOGGER.exception("CloudFormation request failed by a fault of the engine")
            fault = CloudFormationError("InternalFailure", f"{type(error).__name__}: {error}", status=500)
            response = Response(PROTOCOL.render_error(fault), fault.status, media_type="text/xml")
        await response(scope, receive, send)


def _answer(engine: Engine, action: str, arguments: Mapping[str, Any]) -> Response:
    if action not in ACTIONS:
        raise CloudFormationError("InvalidAction", not_emulated(f"action {action}", "CloudFormation"))
    result = ACTIONS[action](engine, arguments)
    return Response(PROTOCOL.render_response(action, result), media_type="text/xml")


async def _hold(engine: Engine, arguments: Mapping[str, Any]) -> None:
    """Wait until no operation on the requested stack runs, at most HOLD_SECONDS."""
    stack = find_stack(engine.context, str(arguments.get("StackName", "")))
    waited = 0.0
    while stack is not None and not stack.settled.is_set() and waited < HOLD_SECONDS:
        await asyncio.sleep(HOLD_POLL_SECONDS)
        waited += HOLD_POLL_SECONDS
