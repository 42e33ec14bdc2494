"""The operation InvokeEndpoint (AWS API reference: InvokeEndpoint of Amazon SageMaker AI Runtime).

The errors of InvokeEndpoint are made in local_aws/sagemaker/errors.py.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx
from starlette.responses import Response

from local_aws.kit.account import component_log_group, log_group
from local_aws.kit.errors import InternalFailure, ServiceFault
from local_aws.kit.json_protocol import request_id, runtime_fault
from local_aws.sagemaker import errors
from local_aws.sagemaker.hosting.production_variants import ModelVariant
from local_aws.sagemaker.runtime.request import (
    CUSTOM_ATTRIBUTES,
    TARGET_VARIANT,
    check_headers,
    component_name,
    passed_on,
    read_body,
    refuse_target_model,
    target_model,
)
from local_aws.sagemaker.telemetry.data_capture import Side

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request

    from local_aws.kit.account import Account
    from local_aws.sagemaker.fault_injection import FaultSwitches
    from local_aws.sagemaker.hosting.endpoint import Endpoint
    from local_aws.sagemaker.hosting.replicas import Destination
    from local_aws.sagemaker.state import SageMakerState
    from local_aws.sagemaker.telemetry.data_capture import CapturePlan, DataCapture
    from local_aws.sagemaker.telemetry.metrics import Meter, Metrics


_logger = logging.getLogger(__name__)

_SERVING = {"InService", "Updating", "RollingBack"}


@dataclass(frozen=True, kw_only=True)
class Call:
    """A checked call of InvokeEndpoint: its destination, and the request to send there.

    `target` is the model that a multi-model endpoint runs the call on; None for any other endpoint. `log_group` is the
    log group of the destination's containers. `meters` record the metrics of the call, and `capture` configures the
    capture of the call.
    """

    destination: Destination
    endpoint_name: str
    variant_name: str
    target: str | None
    body: bytes
    headers: Mapping[str, str]
    log_group: str
    meters: Sequence[Meter]
    capture: CapturePlan | None


class Runtime:
    """Answer calls of InvokeEndpoint."""

    def __init__(
        self,
        account: Account,
        state: SageMakerState,
        metrics: Metrics,
        faults: FaultSwitches,
        capture: DataCapture,
    ) -> None:
        self._account = account
        self._capture = capture
        self._endpoints = state.endpoints
        self._components = state.components
        self._metrics = metrics
        self._faults = faults

    async def invoke(self, request: Request) -> Response:
        """Answer `POST /endpoints/{name}/invocations`; every exception becomes an error answer."""
        started = time.perf_counter()
        identity = request_id()
        try:
            call = await self._read(request, identity)
            return await self._invoke(call, started, identity)
        except ServiceFault as fault:
            return runtime_fault(fault, identity)
        except Exception:
            _logger.exception("a call ended with a fault of the emulation")
            return runtime_fault(InternalFailure(), identity)

    async def _read(self, request: Request, identity: str) -> Call:
        name, headers = request.path_params["name"], request.headers
        body = await read_body(request)
        self._faults.check_call()
        check_headers(headers)
        endpoint = self._endpoints.find(name)
        fleet = None if endpoint is None else endpoint.taking
        if endpoint is None or fleet is None or endpoint.status not in _SERVING:
            raise errors.endpoint_not_found(name, self._account.account_id)
        variant = fleet.choose(headers.get(TARGET_VARIANT))
        if isinstance(variant, ModelVariant):
            return self._model_call(endpoint, variant, headers, body, identity)
        return self._component_call(endpoint, headers, body)

    def _model_call(
        self, endpoint: Endpoint, variant: ModelVariant, headers: Mapping[str, str], body: bytes, identity: str
    ) -> Call:
        return Call(
            destination=variant,
            endpoint_name=endpoint.name,
            variant_name=variant.plan.name,
            target=target_model(endpoint.name, headers, identity, multi_model=variant.container.multi_model),
            body=body,
            headers=passed_on(headers),
            log_group=log_group(endpoint.name),
            meters=[self._metrics.variant_meter(endpoint.name, variant.plan.name)],
            capture=variant.plan.capture,
        )

    def _component_call(self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> Call:
        name = component_name(headers)
        refuse_target_model(endpoint.name, headers)
        component = self._components.find(name)
        if component is None or component.endpoint is not endpoint:
            raise errors.component_not_found(name, endpoint.name)
        if headers.get(TARGET_VARIANT) not in {None, component.variant_name}:
            raise errors.component_on_other_variant(name, headers[TARGET_VARIANT])
        copies = component.variant.copies(name)
        copies.check_capacity()
        return Call(
            destination=copies,
            endpoint_name=endpoint.name,
            variant_name=component.variant_name,
            target=None,
            body=body,
            headers=passed_on(headers),
            log_group=component_log_group(name),
            meters=[self._metrics.variant_meter(endpoint.name, component.variant_name), copies.meter],
            capture=component.variant.plan.capture,
        )

    async def _invoke(self, call: Call, started: float, identity: str) -> Response:
        answer: httpx.Response | None = None
        reached = True
        try:
            answer = await self._ask(call)
        except errors.ServiceUnavailable:
            reached = False
            raise
        finally:
            self._measure(call, answer, time.perf_counter() - started, reached=reached)
        if not answer.is_success:
            raise errors.model_error(answer.status_code, answer.text, log_group=call.log_group, account=self._account)
        self._capture.record(
            call.capture,
            f"{call.endpoint_name}/{call.variant_name}",
            Side(content_type=call.headers.get("content-type", ""), body=call.body),
            Side(content_type=answer.headers.get("content-type", ""), body=answer.content),
        )
        return _passed_back(answer, call.variant_name, identity)

    async def _ask(self, call: Call) -> httpx.Response:
        try:
            return await call.destination.invoke(call.target, call.body, call.headers)
        except errors.ModelLoadError as fault:
            raise errors.model_error(
                fault.status, fault.text, log_group=call.log_group, account=self._account
            ) from fault
        except httpx.TimeoutException as fault:
            raise errors.invocation_timed_out(log_group=call.log_group, account=self._account) from fault
        except httpx.TransportError as fault:
            raise errors.no_response(call.endpoint_name, log_group=call.log_group, account=self._account) from fault

    @staticmethod
    def _measure(call: Call, answer: httpx.Response | None, total_s: float, *, reached: bool) -> None:
        """Record the metrics of a call; a call that reached no container is not counted as a model's error.

        AWS defines its error metrics by the status that the model returned. Whether AWS's error metrics count calls
        that found no instance in service is not known, so no alarm uses these metrics.
        """
        model_s = 0.0 if answer is None else answer.elapsed.total_seconds()
        for meter in call.meters:
            meter.count("Invocations")
            meter.duration("OverheadLatency", total_s - model_s)
            if answer is not None:
                meter.duration("ModelLatency", model_s)
                meter.count("Invocation4XXErrors", answer.is_client_error)
                meter.count("Invocation5XXErrors", answer.is_server_error)
            meter.count("InvocationModelErrors", reached and (answer is None or not answer.is_success))


def _passed_back(answer: httpx.Response, variant: str, identity: str) -> Response:
    headers = {"x-amzn-RequestId": identity, "x-Amzn-Invoked-Production-Variant": variant}
    for name in ("content-type", CUSTOM_ATTRIBUTES):
        if name in answer.headers:
            headers[name] = answer.headers[name]
    return Response(answer.content, headers=headers)
