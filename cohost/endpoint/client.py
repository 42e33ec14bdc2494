"""The client of a deployed endpoint of any topology, which calls models by their names in the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from cohost.archives.handlers import ENGINE_HANDLERS
from cohost.endpoint.copies import WAKE_TIMEOUT_S, Waker
from cohost.endpoint.invocation_payloads import (
    as_results,
    make_body,
    read_answer,
    read_bounded,
    refusal_of,
    unreachable,
)
from cohost.endpoint.stack_outputs import DEFAULT_STACK, Deployment, read_deployment
from cohost.errors import InvocationError, ModelNotReadyError, NoCapacityError, WorkerStoppedError
from cohost.routing import ARCHIVE_SUFFIX, MULTI_MODEL, SCALE_TO_ZERO, Route
from cohost.waiting import Backoff, Clock, Gate, LimitPassedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sagemaker_runtime import SageMakerRuntimeClient

    from cohost.waiting import Waiting


Answer = TypeVar("Answer")

READY_TIMEOUT_S = 360.0
"""Seconds for which SageMaker goes on loading a model after it refused the first call with ModelNotReadyException
(guide: multi-model endpoints)."""

READ_TIMEOUT_S = 70
"""The read timeout of a call in seconds. It exceeds the 60 s in which a container must answer, so that SageMaker's own
error arrives first."""

READY_PAUSES = Backoff(first_s=0.5, longest_s=10.0)

RESTARTING_HANDLERS = ENGINE_HANDLERS
"""The value of the catalog's key `handler` with which DJL Serving restarts a worker process that has ended."""

RESTART_TIMEOUT_S = 120.0
"""Seconds that a call waits for a worker process that DJL Serving restarts. The process starts within seconds and then
queues calls while it loads the model; the rest is a margin for a busy machine."""

STOPPED_TIMEOUT_S = 5.0
"""Seconds that a call waits if DJL Serving does not restart the process: another worker may take the next call."""

RESTART_PAUSES = Backoff(first_s=0.25, longest_s=5.0)


def _untold(_: Waiting) -> None:
    """Ignore the progress of a wait, as the default of the parameter `notice`."""


class _Restarts:
    """The wait of all calls of one model while the model's worker process is restarted. Thread-safe.

    If a call has waited for its whole limit in vain, later calls with an equal or shorter limit are sent once, without
    a wait, until a call succeeds. So only one caller waits in vain for a model that does not recover.
    """

    def __init__(self, clock: Clock) -> None:
        self._gate = Gate(WorkerStoppedError, backoff=RESTART_PAUSES, clock=clock)
        self._in_vain_s = -1.0

    def run(self, send: Callable[[], Answer], limit_s: float) -> Answer:
        """Make a call; while the model's worker process is stopped, repeat the call for up to `limit_s` seconds.

        Raises:
            LimitPassedError: the process was still stopped at the limit.
        """
        in_vain_s = self._in_vain_s
        if limit_s > in_vain_s:
            return self._wait(send, limit_s)
        try:
            answer = send()
        except WorkerStoppedError as error:
            raise LimitPassedError(error, in_vain_s) from error
        self._in_vain_s = -1.0
        self._gate.open()
        return answer

    def _wait(self, send: Callable[[], Answer], limit_s: float) -> Answer:
        try:
            return self._gate.run(send, limit_s=limit_s, notice=_untold)
        except LimitPassedError as passed:
            if isinstance(passed.last, WorkerStoppedError):
                self._in_vain_s = max(self._in_vain_s, limit_s)
            raise


class CohostClient:
    """The client of one deployed endpoint, which calls its models by their names in the catalog.

    The client is thread-safe, since boto3's clients are. Of the threads that wait for the same model, or for the same
    endpoint to wake up, only one polls. The client `s3` is used only for a model name that the stack's outputs lack,
    because such a model may have been pushed (`cohost push`) since the last deploy. The client `sagemaker` is used only
    while a scale-to-zero endpoint wakes up, to ask for the number of running copies; if `sagemaker` is None, the call
    is repeated once per minute instead.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        runtime: SageMakerRuntimeClient,
        s3: S3Client,
        sagemaker: SageMakerClient | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.deployment = deployment
        self._runtime = runtime
        self._s3 = s3
        self._clock = clock or Clock()
        self._pushed: dict[str, str] = {}
        self._loading: dict[str, Gate] = {}
        self._restarts: dict[str, _Restarts] = {}
        component = deployment.inference_component_name
        self._waker = None if component is None else Waker(component, sagemaker, self._clock)

    @classmethod
    def from_stack(
        cls, stack_name: str = DEFAULT_STACK, *, session: boto3.Session | None = None, max_connections: int = 10
    ) -> CohostClient:
        """Return a client for a deployed stack, in the region of the stack.

        Args:
            stack_name: the name of the CloudFormation stack.
            session: the credentials and the region; None takes boto3's defaults.
            max_connections: the number of calls that can be under way at once.

        Raises:
            StackError: the stack does not exist or has no outputs yet.
        """
        session = session or boto3.Session()
        deployment = read_deployment(session.client("cloudformation"), stack_name)
        return cls.from_deployment(deployment, session, max_connections=max_connections)

    @classmethod
    def from_deployment(
        cls, deployment: Deployment, session: boto3.Session, *, max_connections: int = 10, retries: int | None = None
    ) -> CohostClient:
        """Return a client for a stack whose outputs are known; `retries` None stands for boto3's default."""
        again: Any = {} if retries is None else {"retries": {"total_max_attempts": retries + 1}}
        config = Config(read_timeout=READ_TIMEOUT_S, max_pool_connections=max_connections, **again)
        region = deployment.region
        return cls(
            deployment,
            runtime=session.client("sagemaker-runtime", region_name=region, config=config),
            s3=session.client("s3", region_name=region),
            sagemaker=session.client("sagemaker", region_name=region) if deployment.inference_component_name else None,
        )

    def invoke(
        self,
        model: str,
        inputs: object,
        parameters: Mapping[str, object] | None = None,
        *,
        ready_timeout_s: float = READY_TIMEOUT_S,
        restart_timeout_s: float | None = None,
        wake: bool = False,
        wake_timeout_s: float = WAKE_TIMEOUT_S,
        notice: Callable[[Waiting], None] = _untold,
        custom_attributes: str | None = None,
        target_model: str | None = None,
        inference_component_name: str | None = None,
    ) -> Any:  # the shape of an answer depends on the task
        """Call a model and return its answer, parsed from JSON.

        Args:
            model: the model's name in the catalog.
            inputs: a text, a pair `{"text": …, "text_pair": …}`, or a list of either, as the model's task takes them.
            parameters: the task's parameters, such as `top_k` or `candidate_labels`.
            ready_timeout_s: the seconds for which the call is repeated while SageMaker reports that the model is still
                loading.
            restart_timeout_s: the seconds for which the call is repeated while the model's worker process has ended
                (DJL Serving's 400 "Backend Python process is stopped."). None means 120 s with `handler: batched`
                or `shared`, because DJL Serving restarts that process, else 5 s. No other answer of the model leads to
                a repetition.
            wake: True waits until a scale-to-zero endpoint at zero copies has a copy. With False, such a call fails at
                once, but still starts a copy. A multi-model endpoint is never at zero, so the option has no effect.
            wake_timeout_s: the longest wait for a copy, in seconds.
            notice: the function that is called with the time waited for a copy, about once per second and before each
                pause.
            custom_attributes: attributes for the container, such as `trace=abc`, without spaces.
            target_model: the expected TargetModel on a multi-model endpoint; if it is not that of `model`, nothing is
                sent.
            inference_component_name: the expected inference component on other endpoints; if it does not serve `model`,
                nothing is sent.

        Raises:
            RoutingError: the model is not on the endpoint, or `target_model` or `inference_component_name` does not
                address it; nothing was sent.
            NoCapacityError: no copy runs, and `wake` is false or no copy started in time.
            ModelNotReadyError: the model was not loaded in time.
            WorkerStoppedError: the model's process has ended and was not restarted in time.
            InvocationError: the body is too large or empty (nothing was sent), or the service or the model answered
                with an error, or with a 200 and a sentence instead of the task's results.
        """
        route = self.route(model)
        route.check_given(target_model=target_model, inference_component_name=inference_component_name)
        arguments = route.arguments(custom_attributes)
        body = make_body(model, inputs, parameters)
        restart_s = self._restart_limit_s(model) if restart_timeout_s is None else restart_timeout_s
        try:
            answer = self._awake(
                lambda: self._there(model, lambda: self._send(model, arguments, body), ready_timeout_s, restart_s),
                wake_timeout_s if wake else None,
                notice,
            )
        except LimitPassedError as passed:
            raise self._too_late(model, passed) from passed.last
        return as_results(answer, parameters)

    def route(self, model: str) -> Route:
        """Return the arguments of InvokeEndpoint that address a model, as a Route.

        Raises:
            RoutingError: the endpoint has no model of that name.
        """
        deployment = self.deployment
        known = {**deployment.models, **self._pushed}
        # Only on a multi-model endpoint can a model be pushed after the deploy, so that the outputs lack it.
        if model not in known and deployment.topology == MULTI_MODEL:
            self._pushed = self._list_live()
            known |= self._pushed
        return deployment.route_to(model, known)

    def _awake(self, send: Callable[[], Answer], limit_s: float | None, notice: Callable[[Waiting], None]) -> Answer:
        """Make a call; while the inference component has no copy, wait up to `limit_s` seconds (None: do not wait)."""
        if self._waker is None:
            return send()
        if limit_s is not None:
            return self._waker.run(send, limit_s=limit_s, notice=notice)
        answer = send()
        self._waker.answered()
        return answer

    def _there(self, model: str, send: Callable[[], Answer], ready_s: float, restart_s: float) -> Answer:
        """Make a call; wait at most `ready_s` seconds for the model's loading, `restart_s` for a process's restart."""
        loading = self._loading.get(model) or self._loading.setdefault(
            model, Gate(ModelNotReadyError, backoff=READY_PAUSES, clock=self._clock)
        )
        restarts = self._restarts.get(model) or self._restarts.setdefault(model, _Restarts(self._clock))
        return loading.run(lambda: restarts.run(send, restart_s), limit_s=ready_s, notice=_untold)

    def _restart_limit_s(self, model: str) -> float:
        restarts = self.deployment.handlers.get(model) in RESTARTING_HANDLERS
        return RESTART_TIMEOUT_S if restarts else STOPPED_TIMEOUT_S

    def _list_live(self) -> dict[str, str]:
        """Return the TargetModel of each deployed or pushed model, from the deployed set of archives in S3."""
        prefix = f"{self.deployment.prefix}{self.deployment.generation}/"
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.deployment.bucket, Prefix=prefix)
        try:
            keys = [item["Key"].removeprefix(prefix) for page in pages for item in page.get("Contents", [])]
        except ClientError:
            # A caller may have the right to invoke the endpoint but not to list the bucket. Then only the models in the
            # stack's outputs are known.
            return {}
        return {key.removesuffix(ARCHIVE_SUFFIX): key for key in keys if key.endswith(ARCHIVE_SUFFIX)}

    def _send(self, model: str, arguments: Mapping[str, str], body: bytes) -> Any:
        try:
            response = self._runtime.invoke_endpoint(
                **arguments, Body=body, ContentType="application/json", Accept="application/json"
            )
            answer = read_bounded(model, response["Body"])
        except ClientError as error:
            raise refusal_of(model, error) from error
        except BotoCoreError as error:
            raise unreachable(model, error) from error
        return read_answer(model, answer)

    def _too_late(self, model: str, passed: LimitPassedError) -> InvocationError:
        """Return the error for a caller whose time limit has passed.

        The returned error is a new object and not the last refusal itself, because another waiting caller may raise the
        last refusal too.
        """
        last = passed.last
        if not isinstance(last, InvocationError):
            raise last
        problem = f"{last.problem}, still so after {passed.limit_s:g} s"
        if isinstance(last, WorkerStoppedError):
            more, fix = self._way_back(model)
            return last.but(f"{problem}; {more}", fix=fix)
        option = "wake_timeout_s (--wake-timeout)" if isinstance(last, NoCapacityError) else "ready_timeout_s"
        return last.but(problem, fix=f"see `cohost status`, and allow more with {option}")

    def _way_back(self, model: str) -> tuple[str, str]:
        """Return two texts for a model whose process has ended: DJL Serving's reaction, and the user's fix."""
        handler = self.deployment.handlers.get(model)
        if handler in RESTARTING_HANDLERS:
            return (
                "the server starts its process again, and that has not ended yet",
                "see the endpoint's log, and allow more with restart_timeout_s (--restart-timeout)",
            )
        reload = (
            "run `cohost sleep` and `cohost wake`"
            if self.deployment.topology == SCALE_TO_ZERO
            else f"change one of the model's settings and run `cdk deploy {self.deployment.stack_name}`"
        )
        process = f"the process of handler {handler}" if handler else "its process"
        fix = f"{reload} to have it loaded again, or write handler: batched, whose process comes back by itself"
        return f"the server does not start {process} again", f"see `cohost status --probe`; {fix}"
