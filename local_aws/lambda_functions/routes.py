"""The HTTP interface of Lambda: moto stores the functions' configuration; this package stores their code and runs it.

This package answers Invoke, because moto would run the code in Docker. All other requests go to moto; if a request
creates or changes a function, its code is unpacked first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers

from local_aws.gateway import read_body, replay
from local_aws.kit.account import DEFAULT_REGION
from local_aws.lambda_functions.operations import FUNCTION, FunctionOperations, function_name

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import ASGIApp, Receive, Scope, Send

    from local_aws.kit.access_keys import AccessKeys
    from local_aws.kit.clients import Clients


class LambdaFunctions:
    """AWS Lambda; `asgi` answers its requests, which are signed for the service `lambda`.

    Args:
        others: moto's application, which has the rest of the API and keeps the functions' configuration.
        clients: boto3 clients that call the emulator.
        keys: makes the access key of each function's role.
        folder: the folder for unpacked code.
    """

    def __init__(self, *, others: ASGIApp, clients: Clients, keys: AccessKeys, folder: Path) -> None:
        self._operations = FunctionOperations(others=others, clients=clients, keys=keys, folder=folder)

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of the Lambda API."""
        signed = scope.get("aws_scope")
        region = (signed and signed.region) or DEFAULT_REGION
        body = await read_body(receive)
        match = FUNCTION.match(scope["path"])
        if match and match["part"] == "invocations":
            name, query = function_name(match["name"]), scope["query_string"].decode()
            response = await run_in_threadpool(self._operations.invoke, region, name, Headers(scope=scope), query, body)
        else:
            response = await self._operations.manage(scope, region, body)
        await response(scope, replay(b""), send)

    def stop(self) -> None:
        """Kill the processes of all running handlers."""
        self._operations.stop()
