"""The operations of Lambda: Invoke, and moto's management API, for which this package keeps code and LoggingConfig."""

from __future__ import annotations

import base64
import json
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from botocore.exceptions import ClientError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from local_aws.kit.errors import not_emulated
from local_aws.lambda_functions.code import CodeStore
from local_aws.lambda_functions.errors import CodeError, lambda_error
from local_aws.lambda_functions.invocation import FunctionSpec, Invoker, write_log
from local_aws.moto_services import capture, role_policies
from local_aws.rights.judge import service_may_assume

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from starlette.types import ASGIApp, Scope

    from local_aws.kit.access_keys import AccessKeys
    from local_aws.kit.clients import Clients
    from local_aws.lambda_functions.invocation import InvocationResult


FUNCTIONS: Final = re.compile(r"^/2015-03-31/functions/?$")
FUNCTION: Final = re.compile(r"^/2015-03-31/functions/(?P<name>[^/]+)/?(?P<part>code|configuration|invocations)?/?$")
LATEST: Final = "$LATEST"
LOG_TAIL_BYTES: Final = 4096
SUCCESS_LIMIT: Final = 300
_REJECTED: Final = "InvalidParameterValueException"
_SERVICE: Final = "lambda.amazonaws.com"
# Lambda's text (serverless/serverless#6876).
_UNTRUSTED: Final = "The role defined for the function cannot be assumed by Lambda."


class FunctionOperations:
    """Manages and invokes functions.

    Args:
        others: moto's application, which has the rest of the API and keeps the functions' configuration.
        clients: boto3 clients that call the emulator.
        keys: makes the access key of each function's role.
        folder: the folder for unpacked code.
    """

    def __init__(self, *, others: ASGIApp, clients: Clients, keys: AccessKeys, folder: Path) -> None:
        self._others = others
        self._clients = clients
        self._keys = keys
        self._code = CodeStore(folder, clients)
        self._logging: dict[tuple[str, str], dict[str, Any]] = {}
        self._invoker: Invoker | None = None

    def stop(self) -> None:
        """Kill the processes of all running handlers."""
        if self._invoker is not None:
            self._invoker.stop()

    async def manage(self, scope: Scope, region: str, body: bytes) -> Response:
        """Pass a management API call to moto; store code and LoggingConfig here, because moto does not."""
        call = ManagementCall.read(scope, body)
        rejection = call.rejection() or await run_in_threadpool(_role_rejection, call.request.get("Role"))
        if rejection is not None:
            return rejection
        folder: Path | None = None
        try:
            if call.code is not None:
                folder = await run_in_threadpool(self._code.unpack, region, call.code)
        except CodeError as error:
            return lambda_error(_REJECTED, str(error))
        answer = await capture(self._others, scope, body)
        if answer.status_code >= SUCCESS_LIMIT:
            return answer
        if folder is not None:
            self._code.bind(region, call.name, folder)
        if "LoggingConfig" in call.request:
            self._logging[region, call.name] = call.request["LoggingConfig"]
        if call.deletes:
            self._code.remove(region, call.name)
            self._logging.pop((region, call.name), None)
        return self._with_logging(region, answer)

    def _with_logging(self, region: str, answer: Response) -> Response:
        """Add the function's LoggingConfig, which moto does not store, to an answer that describes the function."""
        try:
            content = json.loads(bytes(answer.body) or b"null")
        except ValueError:
            return answer
        if not isinstance(content, dict):
            return answer
        described = content.get("Configuration", content)
        logging_config = self._logging.get((region, str(described.get("FunctionName"))))
        if logging_config is None:
            return answer
        described["LoggingConfig"] = {"LogFormat": "Text", **logging_config}
        return Response(json.dumps(content), answer.status_code, media_type="application/json")

    def invoke(self, region: str, name: str, headers: Mapping[str, str], query: str, event: bytes) -> Response:
        """Answer Invoke: run the function and wait, or for the invocation type Event run it in the background.

        Args:
            region: the function's region.
            name: the function's bare name.
            headers: the request's headers, which contain the invocation type.
            query: the request's query string, which may hold a qualifier.
            event: the event as JSON.
        """
        kind = headers.get("x-amz-invocation-type", "RequestResponse")
        qualifier = re.search(r"(?:^|&)Qualifier=([^&]*)", query)
        if qualifier and unquote(qualifier[1]) != LATEST:
            return lambda_error(
                "ResourceNotFoundException", f"Qualifier {unquote(qualifier[1])}: only {LATEST} runs here.", status=404
            )
        spec = self._checked_spec(region, name, event)
        if isinstance(spec, Response):
            return spec
        if kind == "DryRun":
            return Response(status_code=204)
        if kind == "Event":
            threading.Thread(target=self._run, args=(spec, event), name=f"event-{name}", daemon=True).start()
            return Response(status_code=202)
        result = self._run(spec, event)
        answer_headers = {"X-Amz-Executed-Version": LATEST}
        if result.failed:
            answer_headers["X-Amz-Function-Error"] = "Unhandled"
        if headers.get("x-amz-log-type") == "Tail":
            tail = "\n".join(result.log).encode()[-LOG_TAIL_BYTES:]
            answer_headers["X-Amz-Log-Result"] = base64.b64encode(tail).decode()
        return Response(result.payload, 200, answer_headers, media_type="application/json")

    def _checked_spec(self, region: str, name: str, event: bytes) -> FunctionSpec | Response:
        """Return the function to invoke, or the error answer: unknown function, invalid JSON or untrusting role."""
        try:
            spec = self._spec(region, name)
            json.loads(event or b"null")
        except ClientError as error:
            detail = error.response["Error"]
            return lambda_error(detail["Code"], detail["Message"], status=404)
        except ValueError as error:
            return lambda_error("InvalidRequestContentException", f"Could not parse request body into json: {error}")
        if not service_may_assume(role_policies(spec.role), spec.role, _SERVICE):
            return lambda_error("AccessDeniedException", _UNTRUSTED, status=403)
        return spec

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
            role=configuration["Role"],
            # Lambda names the session after the function.
            key=self._keys.for_role(configuration["Role"], name),
            region=region,
            handler=configuration["Handler"],
            timeout_seconds=int(configuration["Timeout"]),
            memory_mb=int(configuration["MemorySize"]),
            log_group=log_group,
            environment=configuration.get("Environment", {}).get("Variables", {}),
            code=code,
        )


def _role_rejection(role: object) -> Response | None:
    """Return the error answer if a function's new role does not trust Lambda; None if it does, or without a role."""
    if role is None or service_may_assume(role_policies(str(role)), str(role), _SERVICE):
        return None
    return lambda_error(_REJECTED, _UNTRUSTED)


def function_name(given: str) -> str:
    """Return the bare name of a function from its name or its whole or partial ARN (`…:function:NAME:QUALIFIER`)."""
    given = unquote(given)
    if ":function:" in given:
        given = given.partition(":function:")[2]
    return given.split(":")[0]


@dataclass(frozen=True, kw_only=True)
class ManagementCall:
    """The parts of a management API request that concern a function's code and logging."""

    name: str
    request: dict[str, Any]
    creates: bool
    deletes: bool
    code: dict[str, Any] | None

    @classmethod
    def read(cls, scope: Scope, body: bytes) -> ManagementCall:
        """Read a management API request; its member `request` is empty if it concerns neither code nor logging."""
        method, path = scope["method"], scope["path"]
        match = FUNCTION.match(path)
        part = match["part"] if match else None
        creates = method == "POST" and FUNCTIONS.match(path) is not None
        request = _json_object(body) if creates or (method == "PUT" and part in {"code", "configuration"}) else {}
        name = str(request.get("FunctionName", "")) if creates else match["name"] if match else ""
        code = request.get("Code", {}) if creates else request if part == "code" and request else None
        deletes = method == "DELETE" and match is not None and part is None
        return cls(name=function_name(name), request=request, creates=creates, deletes=deletes, code=code)

    def rejection(self) -> Response | None:
        """Return the error answer if the call creates a function that the emulation cannot run; otherwise None."""
        if not self.creates:
            return None
        runtime = str(self.request.get("Runtime", ""))
        if not runtime.startswith("python"):
            return lambda_error(_REJECTED, not_emulated(f"Runtime {runtime}", "Lambda", allowed="python"))
        if self.request.get("Layers"):
            fix = "put their files into the function's own code"
            return lambda_error(_REJECTED, not_emulated("Layers", "Lambda", fix=fix))
        return None


def _json_object(body: bytes) -> dict[str, Any]:
    """Return a body as a JSON object; return {} for any other body, since moto rejects the request."""
    try:
        content = json.loads(body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
