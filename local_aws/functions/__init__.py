"""Lambda for one machine: moto keeps the functions' configuration, we keep their code and run it.

Invocations are ours because moto runs them in Docker; everything else of the API goes to moto, and on its way the code
of a new or changed function is unpacked.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from botocore.exceptions import ClientError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response

from local_aws.functions.code import CodeError, CodeStore
from local_aws.functions.logs import write_log
from local_aws.functions.runner import FunctionSpec, Invoker
from local_aws.moto_services import capture, read_body, replay
from local_aws.settings import DEFAULT_REGION

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import ASGIApp, Receive, Scope, Send

    from local_aws.functions.runner import InvocationResult
    from local_aws.settings import Clients

LOGGER: Final = logging.getLogger(__name__)
FUNCTIONS: Final = re.compile(r"^/2015-03-31/functions/?$")
FUNCTION: Final = re.compile(r"^/2015-03-31/functions/(?P<name>[^/]+)/?(?P<part>code|invocations)?/?$")
LATEST: Final = "$LATEST"
LOG_TAIL_BYTES: Final = 4096
SUCCESS_LIMIT: Final = 300


class Functions:
    """The ASGI app for requests signed for `lambda`.

    Args:
        others: the app that has the rest of the API, and the functions' configuration.
        clients: boto3 clients of the front door.
        folder: where code is unpacked.
    """

    def __init__(self, *, others: ASGIApp, clients: Clients, folder: Path) -> None:
        self._others = others
        self._clients = clients
        self._code = CodeStore(folder, clients)
        self._invoker: Invoker | None = None

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        signed = scope.get("aws_scope")
        region = (signed and signed.region) or DEFAULT_REGION
        body = await read_body(receive)
        match = FUNCTION.match(scope["path"])
        if match and match["part"] == "invocations":
            name = function_name(match["name"])
            response = await run_in_threadpool(self._invoke, region, name, Headers(scope=scope), scope, body)
        else:
            response = await self._manage(scope, region, body)
        await response(scope, replay(b""), send)

    def stop(self) -> None:
        """End every handler that runs."""
        if self._invoker is not None:
            self._invoker.stop()

    async def _manage(self, scope: Scope, region: str, body: bytes) -> Response:
        """A call of the management API: moto's, with the code taken from those that bring some."""
        method, path = scope["method"], scope["path"]
        match = FUNCTION.match(path)
        creates = method == "POST" and FUNCTIONS.match(path) is not None
        changes_code = method == "PUT" and match is not None and match["part"] == "code"
        request: dict[str, Any] = json.loads(body) if creates or changes_code else {}
        refusal = _refusal(request) if creates else None
        if refusal is not None:
            return refusal
        answer = await capture(self._others, scope, body)
        if answer.status_code >= SUCCESS_LIMIT:
            return answer
        if creates or changes_code:
            name = function_name(request["FunctionName"] if creates or match is None else match["name"])
            code = request["Code"] if creates else request
            try:
                await run_in_threadpool(self._code.put, region, name, code)
            except CodeError as error:
                return lambda_error("InvalidParameterValueException", str(error))
        elif method == "DELETE" and match is not None and match["part"] is None:
            self._code.remove(region, function_name(match["name"]))
        return answer

    def _invoke(self, region: str, name: str, headers: Headers, scope: Scope, body: bytes) -> Response:
        kind = headers.get("x-amz-invocation-type", "RequestResponse")
        qualifier = re.search(r"(?:^|&)Qualifier=([^&]*)", scope["query_string"].decode())
        if qualifier and unquote(qualifier[1]) != LATEST:
            return lambda_error(
                "ResourceNotFoundException", f"Qualifier {unquote(qualifier[1])}: only {LATEST} runs here.", status=404
            )
        try:
            spec = self._spec(region, name)
            json.loads(body or b"null")
        except ClientError as error:
            detail = error.response["Error"]
            return lambda_error(detail["Code"], detail["Message"], status=404)
        except ValueError as error:
            return lambda_error("InvalidRequestContentException", f"Could not parse request body into json: {error}")
        if kind == "DryRun":
            return Response(status_code=204)
        if kind == "Event":
            threading.Thread(target=self._run, args=(spec, body), name=f"event-{name}", daemon=True).start()
            return Response(status_code=202)
        result = self._run(spec, body)
        answer_headers = {"X-Amz-Executed-Version": LATEST}
        if result.failed:
            answer_headers["X-Amz-Function-Error"] = "Unhandled"
        if headers.get("x-amz-log-type") == "Tail":
            tail = "\n".join(result.log).encode()[-LOG_TAIL_BYTES:]
            answer_headers["X-Amz-Log-Result"] = base64.b64encode(tail).decode()
        return Response(result.payload, 200, answer_headers, media_type="application/json")

    def _run(self, spec: FunctionSpec, event: bytes) -> InvocationResult:
        if self._invoker is None:
            self._invoker = Invoker(self._clients.endpoint_url())
        result = self._invoker.invoke(spec, event)
        write_log(self._clients.get("logs", spec.region), spec.log_group, result.log_stream, result.log)
        return result

    def _spec(self, region: str, name: str) -> FunctionSpec:
        configuration = self._clients.get("lambda", region).get_function_configuration(FunctionName=name)
        code = self._code.get(region, name)
        if code is None:
            raise ClientError(
                {"Error": {"Code": "ResourceNotFoundException", "Message": f"Function {name} has no code here"}},
                "Invoke",
            )
        log_group = configuration.get("LoggingConfig", {}).get("LogGroup") or f"/aws/lambda/{name}"
        return FunctionSpec(
            name=name,
            arn=configuration["FunctionArn"],
            region=region,
            handler=configuration["Handler"],
            timeout_seconds=int(configuration["Timeout"]),
            memory_mb=int(configuration["MemorySize"]),
            log_group=log_group,
            environment=configuration.get("Environment", {}).get("Variables", {}),
            code=code,
        )


def function_name(given: str) -> str:
    """The bare name out of a name, a partial or a whole ARN (`…:function:NAME`, perhaps with a qualifier)."""
    given = unquote(given)
    if ":function:" in given:
        given = given.partition(":function:")[2]
    return given.split(":")[0]


def lambda_error(code: str, message: str, *, status: int = 400) -> Response:
    """An error of the Lambda API."""
    body = json.dumps({"Type": "User", "message": message, "Message": message})
    return Response(body, status, {"x-amzn-errortype": code}, media_type="application/json")


def _refusal(request: dict[str, Any]) -> Response | None:
    """Functions that cannot run here are refused when they are made, not when they are called."""
    runtime = str(request.get("Runtime", ""))
    if not runtime.startswith("python"):
        return lambda_error(
            "InvalidParameterValueException",
            f"Runtime: '{runtime}' of {request.get('FunctionName')} cannot run here; the local AWS runs python only.",
        )
    if request.get("Layers"):
        return lambda_error("InvalidParameterValueException", "Layers: the local AWS runs functions without layers.")
    return None
