"""The emulated SageMaker of one account and region: its control plane, its runtime and all its containers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import httpx
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router

from local_aws.kit.account import Account
from local_aws.kit.background import BackgroundTasks
from local_aws.kit.clients import ServiceClients
from local_aws.kit.clock import Clock
from local_aws.kit.json_protocol import ControlPlane, request_id, runtime_fault
from local_aws.kit.validation import service_model
from local_aws.sagemaker import errors
from local_aws.sagemaker.containers.transport import ContainerTransport
from local_aws.sagemaker.control.operations import operations
from local_aws.sagemaker.control.service_quotas import SERVICE as QUOTAS_SERVICE
from local_aws.sagemaker.control.service_quotas import TITLE as QUOTAS_TITLE
from local_aws.sagemaker.control.service_quotas import ServiceQuotas
from local_aws.sagemaker.debug.pages import PATH as INTROSPECTION_PATH
from local_aws.sagemaker.debug.pages import FaultPage, snapshot
from local_aws.sagemaker.fault_injection import PATH as FAULTS_PATH
from local_aws.sagemaker.fault_injection import FaultSwitches
from local_aws.sagemaker.hosting.context import ContainerContext, EndpointContext
from local_aws.sagemaker.hosting.endpoint import EndpointDeployments
from local_aws.sagemaker.hosting.inference_component import ComponentDeployments
from local_aws.sagemaker.runtime.invocations import Runtime
from local_aws.sagemaker.settings import Quotas, Settings
from local_aws.sagemaker.state import SageMakerState
from local_aws.sagemaker.telemetry.data_capture import DataCapture
from local_aws.sagemaker.telemetry.logs import LogShipper
from local_aws.sagemaker.telemetry.metrics import MachineUtilization, Metrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from local_aws.kit.access_keys import AccessKeys
    from local_aws.sagemaker.containers.api import StartContainer
    from local_aws.sagemaker.telemetry.metrics import RecordMetric


_logger = logging.getLogger(__name__)

_SHORTEST_INTERVAL_S = 0.01


class SageMaker:
    """Run an emulated SageMaker in this process; the ASGI application `asgi` answers its requests.

    `asgi` answers all requests that are signed for "sagemaker" or "servicequotas", and two pages that SageMaker does
    not have: `/_cohost/endpoints` (internal state) and `/_cohost/faults` (fault injection).

    Args:
        endpoint_url: returns the URL of the other embedded services; called when that URL is first needed.
        state_dir: holds `logs/<endpoint>/<instance>.log`, and `endpoints/` while endpoints run.
        hub_roots: folders with Hugging Face models as `org/name`, handed to containers.
        account_id: twelve digits, for ARNs and the texts of errors.
        region: an AWS region's name.
        start_container: starts a server container.
        settings: time limits and quotas; None means SageMaker's own.
        clock: measures idle times and the intervals of metrics; None means the machine's clock.
        record_metric: gets every metric value when it is recorded, for alarms; None where there are no alarms.
        keys: gives each container the access key of its execution role; None means keys that the gateway refuses.
        on_transition: awaited, before `settings.transition_delay_s`, in each status that an endpoint or a component
            passes through, such as Creating.
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
        start_container: StartContainer,
        settings: Settings | None = None,
        clock: Clock | None = None,
        record_metric: RecordMetric | None = None,
        keys: AccessKeys | None = None,
        on_transition: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._account = Account(account_id=account_id, region=region)
        self._state = SageMakerState.empty(self._account.arn_prefix)
        self._settings = settings = Settings() if settings is None else settings
        self._clock = Clock() if clock is None else clock
        self._clients = ServiceClients(endpoint_url, region, keys)
        self._http = _container_client()
        self._metrics = Metrics(self._clients, record_metric)
        self._logs = LogShipper(self._clients)
        self._capture = DataCapture(self._clients)
        self._faults = FaultSwitches.of(settings)
        self._quotas = Quotas(settings, self._state.instances_in_use)
        self._machine = MachineUtilization(state_dir)
        self._tasks = BackgroundTasks()
        self._on_transition = on_transition
        self._deployments = self._endpoint_deployments(start_container, hub_roots, state_dir)
        self._publishing = BackgroundTasks()
        self._plane = self._control_plane()
        listing = ServiceQuotas(self._account, settings).list
        quotas = {"ListServiceQuotas": listing, "ListAWSDefaultServiceQuotas": listing}
        self._service_quotas = ControlPlane(quotas, service=QUOTAS_SERVICE, title=QUOTAS_TITLE)
        self.asgi = self._routes()

    @property
    def state(self) -> SageMakerState:
        """The account's SageMaker resources; use them only in the event loop that serves `asgi`."""
        return self._state

    async def startup(self) -> None:
        """Start publishing metrics and logs. Call it once, in the event loop that serves `asgi`."""
        self._machine.prime()
        await asyncio.to_thread(service_model, "sagemaker")
        await asyncio.to_thread(service_model, "sagemaker-runtime")
        self._publishing.begin(self._publish_for_ever())
        self._publishing.begin(self._report_for_ever())

    async def shutdown(self) -> None:
        """End every container, task and thread of the emulated SageMaker."""
        await self.stop_endpoints()
        await self._publishing.give_up()
        await self._http.aclose()
        await self._clients.close()

    async def stop_endpoints(self) -> None:
        """Cancel every change of endpoints and components, and end all containers, including starting ones."""
        await self._deployments.shutdown()

    async def publish(self) -> None:
        """Send new metrics and log lines to the embedded CloudWatch, and the records of captured calls to S3.

        Raises:
            ExceptionGroup: CloudWatch did not accept all metrics or log lines; the rest is sent the next time.
        """
        parts = (self._metrics.publish(), self._logs.publish(), self._capture.publish())
        results = await asyncio.gather(*parts, return_exceptions=True)
        if faults := [result for result in results if isinstance(result, Exception)]:
            raise ExceptionGroup("the embedded CloudWatch did not take everything", faults)

    async def _transition(self) -> None:
        if self._on_transition is not None:
            await self._on_transition()
        await asyncio.sleep(self._settings.transition_delay_s)

    def _endpoint_deployments(
        self, start_container: StartContainer, hub_roots: Sequence[Path], state_dir: Path
    ) -> EndpointDeployments:
        containers = ContainerContext(
            start_container=start_container,
            hub_roots=hub_roots,
            state_dir=state_dir,
            clients=self._clients,
            http=self._http,
            settings=self._settings,
            faults=self._faults,
            metrics=self._metrics,
            logs=self._logs,
        )
        context = EndpointContext(
            containers=containers,
            settings=self._settings,
            quotas=self._quotas,
            metrics=self._metrics,
            clock=self._clock,
            machine=self._machine,
        )
        return EndpointDeployments(
            self._state.endpoints,
            context=context,
            clients=self._clients,
            logs=self._logs,
            tasks=self._tasks,
            transition=self._transition,
        )

    def _control_plane(self) -> ControlPlane:
        components = ComponentDeployments(
            self._state.components, logs=self._logs, tasks=self._tasks, transition=self._transition
        )
        served = operations(
            self._account,
            self._state,
            clients=self._clients,
            settings=self._settings,
            quotas=self._quotas,
            endpoints=self._deployments,
            components=components,
        )
        return ControlPlane(served, service="sagemaker", title="SageMaker")

    def _routes(self) -> ASGIApp:
        runtime = Runtime(self._account, self._state, self._metrics, self._faults, self._capture)
        faults = FaultPage(self._faults, self._state.endpoints)
        return Router(
            [
                Route("/endpoints/{name}/invocations", runtime.invoke, methods=["POST"]),
                Route("/endpoints/{name}/async-invocations", _not_emulated, methods=["POST"]),
                Route("/endpoints/{name}/invocations-response-stream", _not_emulated, methods=["POST"]),
                Route(INTROSPECTION_PATH, self._introspect, methods=["GET"]),
                Route(FAULTS_PATH, faults.answer, methods=["GET", "PUT", "DELETE"]),
                Route("/", self._control, methods=["POST"]),
            ]
        )

    async def _control(self, request: Request) -> Response:
        quotas = request.headers.get("x-amz-target", "").startswith("ServiceQuotas")
        return await (self._service_quotas if quotas else self._plane).answer(request)

    async def _introspect(self, _request: Request) -> Response:
        return JSONResponse(snapshot(self._state.endpoints))

    async def _report_for_ever(self) -> None:
        settings, clock = self._settings, self._clock
        while True:
            # Each round records one value per metric of the clock's intervals, so a fast clock needs more rounds.
            interval_s = min(settings.publish_interval_s, clock.real(settings.concurrency_interval_s))
            await asyncio.sleep(max(interval_s, _SHORTEST_INTERVAL_S))
            for endpoint in list(self._state.endpoints):
                try:
                    if endpoint.fleet is not None:
                        endpoint.fleet.report()
                except Exception:
                    # An endpoint whose report fails must not end this loop, and so the metrics of all endpoints.
                    _logger.exception("could not look at endpoint %s", endpoint.name)

    async def _publish_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.publish_interval_s)
            try:
                await self.publish()
            except Exception:
                # Metric values and log lines that could not be sent are sent the next time; the log has the error.
                _logger.exception("could not publish to the embedded CloudWatch")


def _container_client() -> httpx.AsyncClient:
    """Make the HTTP client of all containers, with one pool of connections.

    The client ignores the proxies that the environment names, since containers are on this machine. The client does not
    accept compression, since answers are forwarded unchanged.
    """
    return httpx.AsyncClient(
        trust_env=False,
        transport=ContainerTransport(),
        headers={"user-agent": "lmi-cohost-sagemaker", "accept-encoding": "identity"},
    )


async def _not_emulated(_request: Request) -> Response:
    return runtime_fault(errors.not_emulated("operation", allowed="InvokeEndpoint"), request_id())
