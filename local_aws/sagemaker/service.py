"""SageMaker of one account and region: its control plane, its runtime and every container behind them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

import httpx
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router

from local_aws.sagemaker.account import Account
from local_aws.sagemaker.changes import Changes
from local_aws.sagemaker.component import ComponentDeployments, InferenceComponent
from local_aws.sagemaker.components import InferenceComponents
from local_aws.sagemaker.container import start_lmi_container
from local_aws.sagemaker.control import ControlPlane
from local_aws.sagemaker.endpoint import Deployments, Endpoint
from local_aws.sagemaker.endpoint_configs import EndpointConfigs
from local_aws.sagemaker.endpoints import Endpoints
from local_aws.sagemaker.faults import ValidationError
from local_aws.sagemaker.front import Front
from local_aws.sagemaker.host import Host
from local_aws.sagemaker.introspection import PATH as INTROSPECTION_PATH
from local_aws.sagemaker.introspection import snapshot
from local_aws.sagemaker.log_shipping import LogShipper
from local_aws.sagemaker.metrics import Metrics
from local_aws.sagemaker.models import Models
from local_aws.sagemaker.registry import Collection, Resource
from local_aws.sagemaker.runtime import Runtime
from local_aws.sagemaker.settings import Settings
from local_aws.sagemaker.switches import PATH as FAULTS_PATH
from local_aws.sagemaker.switches import Switches
from local_aws.sagemaker.tags import Tags
from local_aws.sagemaker.validation import service_model
from local_aws.sagemaker.wire import request_id, runtime_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from local_aws.sagemaker.container import StartContainer
    from local_aws.sagemaker.control import Operation

_logger = logging.getLogger(__name__)


class SageMaker:
    """An embedded SageMaker. `asgi` answers every request that is signed for "sagemaker", and the pages of our own.

    Those are `/_cohost/endpoints` (introspection) and `/_cohost/faults` (faults on demand).

    Args:
        endpoint_url: where the other embedded services are found; asked when first needed.
        state_dir: holds `logs/<endpoint>/<instance>.log`, and `endpoints/` while endpoints run.
        hub_roots: folders `org/name` of Hugging Face files, handed to containers.
        account_id: twelve digits, for ARNs and texts.
        region: an AWS region's name.
        settings: time limits and quotas; None stands for the service's own.
        start_container: starts a server container; None stands for the LMI container of local_aws.lmi.
    """

    asgi: ASGIApp

    def __init__(
        self,
        *,
        endpoint_url: Callable[[], str],
        state_dir: Path,
        hub_roots: Sequence[Path],
        account_id: str,
        region: str,
        settings: Settings | None = None,
        start_container: StartContainer | None = None,
    ) -> None:
        self._account = Account(account_id=account_id, region=region)
        self._settings = Settings() if settings is None else settings
        self._front = Front(endpoint_url, region)
        self._metrics = Metrics(self._front)
        self._logs = LogShipper(self._front)
        # One pool for all containers. Proxies of the environment are for other machines, containers are on this one;
        # answers are passed on as they are, so the container is not asked to compress them.
        self._http = httpx.AsyncClient(
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=256),
            headers={"user-agent": "lmi-cohost-sagemaker", "accept-encoding": "identity"},
        )
        self._host = Host(
            front=self._front,
            http=self._http,
            start_container=start_lmi_container if start_container is None else start_container,
            hub_roots=hub_roots,
            state_dir=state_dir,
            settings=self._settings,
            switches=Switches(),
            metrics=self._metrics,
            logs=self._logs,
        )
        prefix, changes = self._account.arn_prefix, Changes()
        self._endpoints = Collection[Endpoint]("endpoint", prefix, "endpoint")
        self._components = Collection[InferenceComponent]("inference component", prefix, "inference-component")
        self._deployments = Deployments(self._endpoints, self._host, changes)
        self._component_deployments = ComponentDeployments(self._components, self._host, changes)
        self._publisher: asyncio.Task[None] | None = None
        self.asgi = self._routes()

    async def startup(self) -> None:
        """Start what works in the background. Call it once, in the event loop that serves `asgi`."""
        await asyncio.to_thread(service_model, "sagemaker")
        await asyncio.to_thread(service_model, "sagemaker-runtime")
        self._publisher = asyncio.create_task(self._publish_for_ever())

    async def shutdown(self) -> None:
        """End every container and whatever works in the background. Nothing of the service outlives it."""
        await self._deployments.shutdown()
        if self._publisher is not None:
            self._publisher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._publisher
        await self._http.aclose()
        self._front.close()

    def _routes(self) -> ASGIApp:
        control = ControlPlane(self._operations())
        runtime = Runtime(self._account, self._endpoints, self._components, self._host)
        return Router(
            [
                Route("/endpoints/{name}/invocations", runtime.invoke, methods=["POST"]),
                Route("/endpoints/{name}/async-invocations", _not_emulated, methods=["POST"]),
                Route("/endpoints/{name}/invocations-response-stream", _not_emulated, methods=["POST"]),
                Route(INTROSPECTION_PATH, self._introspect, methods=["GET"]),
                Route(FAULTS_PATH, self._host.switches.answer, methods=["GET", "PUT", "DELETE"]),
                Route("/", control.answer, methods=["POST"]),
            ]
        )

    def _operations(self) -> dict[str, Operation]:
        prefix = self._account.arn_prefix
        model_records = Collection[Resource]("model", prefix, "model")
        config_records = Collection[Resource]("endpoint configuration", prefix, "endpoint-config")
        models = Models(self._account, model_records, self._front)
        configs = EndpointConfigs(config_records, model_records, self._front, self._settings)
        endpoints = Endpoints(
            collection=self._endpoints,
            configs=config_records,
            models=model_records,
            components=self._components,
            deployments=self._deployments,
            settings=self._settings,
        )
        components = InferenceComponents(
            account=self._account,
            collection=self._components,
            endpoints=self._endpoints,
            models=model_records,
            deployments=self._component_deployments,
            front=self._front,
        )
        tags = Tags([model_records, config_records, self._endpoints, self._components])
        return {
            "CreateModel": models.create,
            "DescribeModel": models.describe,
            "ListModels": models.list,
            "DeleteModel": models.delete,
            "CreateEndpointConfig": configs.create,
            "DescribeEndpointConfig": configs.describe,
            "ListEndpointConfigs": configs.list,
            "DeleteEndpointConfig": configs.delete,
            "CreateEndpoint": endpoints.create,
            "DescribeEndpoint": endpoints.describe,
            "ListEndpoints": endpoints.list,
            "UpdateEndpoint": endpoints.update,
            "UpdateEndpointWeightsAndCapacities": endpoints.rescale,
            "DeleteEndpoint": endpoints.delete,
            "CreateInferenceComponent": components.create,
            "DescribeInferenceComponent": components.describe,
            "ListInferenceComponents": components.list,
            "UpdateInferenceComponent": components.update,
            "UpdateInferenceComponentRuntimeConfig": components.update_runtime,
            "DeleteInferenceComponent": components.delete,
            "AddTags": tags.add,
            "ListTags": tags.list,
            "DeleteTags": tags.delete,
        }

    async def _introspect(self, _request: Request) -> Response:
        return JSONResponse(snapshot(self._endpoints))

    async def _publish_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.publish_interval_s)
            for endpoint in self._endpoints:
                if endpoint.fleet is not None:
                    endpoint.fleet.report()
            for publish in (self._metrics.publish, self._logs.publish):
                try:
                    await publish()
                except Exception:
                    # Metrics and log lines are lost rather than calls held up; what is wrong shows in the log.
                    _logger.exception("could not publish to the embedded CloudWatch")


async def _not_emulated(_request: Request) -> Response:
    fault = ValidationError("Only InvokeEndpoint is part of this emulation of SageMaker's runtime")
    return runtime_fault(fault, request_id())
