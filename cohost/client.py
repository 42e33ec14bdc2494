"""The client that everybody uses: one call by a model's name, whatever the endpoint's topology."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from cohost.deployment import DEFAULT_STACK, Deployment, read_deployment
from cohost.errors import InvocationError
from cohost.routing import ARCHIVE_SUFFIX, Route, find_route

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker_runtime import SageMakerRuntimeClient

MAX_BODY_BYTES = 6_291_456
"""SageMaker's limit of a real-time request (API reference: InvokeEndpoint, Body)."""

READY_TIMEOUT_S = 360.0
"""How long SageMaker goes on loading a model after the first refusal (guide: multi-model endpoints)."""

READ_TIMEOUT_S = 70
"""Above the 60 s in which a container must answer, so that the service's own error arrives."""

NOT_READY = frozenset({"ModelNotReadyException"})


class CohostClient:
    """Calls models of one deployed endpoint by name.

    Thread-safe as its boto3 clients are. `s3` is asked only for a name that the stack's outputs do not have: a model
    pushed since the last deploy.
    """

    def __init__(self, deployment: Deployment, *, runtime: SageMakerRuntimeClient, s3: S3Client) -> None:
        self.deployment = deployment
        self._runtime = runtime
        self._s3 = s3
        self._pushed: dict[str, str] = {}

    @classmethod
    def from_stack(
        cls, stack_name: str = DEFAULT_STACK, *, session: boto3.Session | None = None, max_connections: int = 10
    ) -> CohostClient:
        """A client for a deployed stack, in the region where the stack is.

        Args:
            stack_name: the CloudFormation stack.
            session: credentials and region; boto3's own defaults when left out.
            max_connections: how many calls can be under way at once.

        Raises:
            StackError: the stack is not there or not finished.
        """
        session = session or boto3.Session()
        deployment = read_deployment(session.client("cloudformation"), stack_name)
        config = Config(read_timeout=READ_TIMEOUT_S, max_pool_connections=max_connections)
        return cls(
            deployment,
            runtime=session.client("sagemaker-runtime", region_name=deployment.region, config=config),
            s3=session.client("s3", region_name=deployment.region),
        )

    def invoke(
        self,
        model: str,
        inputs: object,
        parameters: Mapping[str, object] | None = None,
        *,
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> Any:  # noqa: ANN401 - each task answers a shape of its own
        """Call a model and return its answer, read from JSON.

        Args:
            model: the name in the catalog.
            inputs: a text, a pair `{"text": …, "text_pair": …}`, or a list of either, as the model's task takes them.
            parameters: the task's parameters, such as `top_k` or `candidate_labels`.
            ready_timeout_s: how long to go on asking while the service says that the model is still loading.

        Raises:
            RoutingError: no such model on the endpoint; nothing was sent.
            InvocationError: the body is too large or empty (nothing was sent), or the service or the model answered
                with an error, or with a 200 that holds none of the task's answers.
        """
        route = self.route(model)
        body = _body(model, inputs, parameters)
        deadline = time.monotonic() + ready_timeout_s
        pause_s = 0.5
        while True:
            try:
                answer = self._send(route, body)
            except ClientError as error:
                if _code(error) not in NOT_READY or time.monotonic() + pause_s > deadline:
                    raise _invocation_error(model, error) from error
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 10.0)
            except BotoCoreError as error:
                msg = f"model {model!r} cannot be called: {error}; fix: check the network, credentials and region"
                raise InvocationError(msg) from error
            else:
                return _read_answer(model, answer)

    def route(self, model: str) -> Route:
        """Where calls of a model go.

        Raises:
            RoutingError: no such model on the endpoint.
        """
        known = {**self.deployment.models, **self._pushed}
        if model not in known:
            self._pushed = self._list_live()
            known |= self._pushed
        return find_route(
            endpoint_name=self.deployment.endpoint_name,
            topology=self.deployment.topology,
            model=model,
            known=known,
        )

    def _list_live(self) -> dict[str, str]:
        """The models whose archives lie in the live generation, pushed ones too."""
        prefix = f"{self.deployment.prefix}{self.deployment.generation}/"
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.deployment.bucket, Prefix=prefix)
        try:
            keys = [item["Key"].removeprefix(prefix) for page in pages for item in page.get("Contents", [])]
        except ClientError:
            # A caller that may invoke need not be allowed to list; then the outputs are all there is to know.
            return {}
        return {key.removesuffix(ARCHIVE_SUFFIX): key for key in keys if key.endswith(ARCHIVE_SUFFIX)}

    def _send(self, route: Route, body: bytes) -> bytes:
        response = self._runtime.invoke_endpoint(
            **route.arguments(), Body=body, ContentType="application/json", Accept="application/json"
        )
        return response["Body"].read()


def _body(model: str, inputs: object, parameters: Mapping[str, object] | None) -> bytes:
    if inputs in ("", [], {}, None):
        msg = (
            f"model {model!r}: inputs is empty; allowed: a text, a pair or a list of them; fix: give at least one text"
        )
        raise InvocationError(msg)
    # `parameters: null` is an error to the stock handler, so the key is left out.
    payload = {"inputs": inputs, **({"parameters": dict(parameters)} if parameters else {})}
    body = json.dumps(payload, ensure_ascii=False, allow_nan=False).encode()
    if len(body) > MAX_BODY_BYTES:
        msg = (
            f"model {model!r}: a body of {len(body)} bytes; allowed: {MAX_BODY_BYTES} bytes; "
            "fix: send the texts in several calls"
        )
        raise InvocationError(msg)
    return body


def _read_answer(model: str, answer: bytes) -> Any:  # noqa: ANN401 - as invoke
    try:
        content = json.loads(answer)
    except ValueError:
        content = answer.decode(errors="replace")
    if isinstance(content, str):
        # The stock handler answers input that it cannot read with 200 and a sentence (DJL Serving 0.36.0).
        msg = f"model {model!r} answered 200 with a sentence instead of results: {content[:300]!r}"
        raise InvocationError(msg, status=200)
    return content


def _code(error: ClientError) -> str:
    return error.response["Error"].get("Code", "")


def _invocation_error(model: str, error: ClientError) -> InvocationError:
    response: Mapping[str, Any] = error.response
    status = response.get("OriginalStatusCode") or response["ResponseMetadata"]["HTTPStatusCode"]
    message = response.get("OriginalMessage") or response["Error"].get("Message", str(error))
    where = "the model" if "OriginalStatusCode" in response else "the service"
    return InvocationError(
        f"model {model!r}: {where} answered {status} {_code(error)}: {' '.join(str(message).split())}",
        status=int(status),
        code=_code(error),
    )
