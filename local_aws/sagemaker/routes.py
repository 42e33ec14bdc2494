"""SageMaker of one account and region: its control plane, its runtime and every container behind them."""

from __future__ import annotations

import asyncio
import contextlib
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
from local_aws.lmi.container import Container
from local_aws.sagemaker import errors
from local_aws.sagemaker.control.operations import operations
from local_aws.sagemaker.debug.fault_injection import PATH as FAULTS_PATH
from local_aws.sagemaker.debug.fault_injection import Switches
from local_aws.sagemaker.debug.pages import PATH as INTROSPECTION_PATH
from local_aws.sagemaker.debug.pages import FaultPage, snapshot
from local_aws.sagemaker.hosting.container_transport import ContainerTransport
from local_aws.sagemaker.hosting.endpoint import Deployments
from local_aws.sagemaker.hosting.host import Host
from local_aws.sagemaker.hosting.inference_component import ComponentDeployments
from local_aws.sagemaker.runtime.invocations import Runtime
from local_aws.sagemaker.settings import Settings
from local_aws.sagemaker.state import Quotas, Records
from local_aws.sagemaker.telemetry.logs import LogShipper
from local_aws.sagemaker.telemetry.metrics import Metrics, Processor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from local_aws.cloudwatch.metric_store import MetricStore
    from local_aws.kit.access_keys import AccessKeys
    from local_aws.sagemaker.hosting.container import StartContainer


_logger = logging.getLogger(__name__)

_SHORTEST_INTERVAL_S = 0.01


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
        clock: what idle times and the intervals of metrics go by; None stands for the machine's.
        history: takes in the metrics' values for alarms.
        keys: gives each container the key of its execution role; None stands for keys that the gateway does not know.
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
        clock: Clock | None = None,
        history: MetricStore | None = None,
        keys: AccessKeys | None = None,
    ) -> None:
        self._account = Account(account_id=account_id, region=region)
        self._records = Records.empty(self._account.arn_prefix)
        settings = Settings() if settings is None else settings
        clients = ServiceClients(endpoint_url, region, keys)
        self._host = Host(
            clients=clients,
            http=_container_client(),
            start_container=Container.start if start_container is None else start_container,
            hub_roots=hub_roots,
            state_dir=state_dir,
            settings=settings,
            quotas=Quotas(self._records.endpoints, settings),
            switches=Switches.of(settings),
            metrics=Metrics(clients, history),
            logs=LogShipper(clients),
            clock=Clock() if clock is None else clock,
            processor=Processor(),
        )
        tasks = BackgroundTasks()
        self._deployments = Deployments(self._records.endpoints, self._host, tasks)
        self._component_deployments = ComponentDeployments(self._records.components, self._host, tasks)
        self._background: list[asyncio.Task[None]] = []
        self.asgi = self._routes()

    async def startup(self) -> None:
        """Start what works in the background. Call it once, in the event loop that serves `asgi`."""
        self._host.processor.prime()
        await asyncio.to_thread(service_model, "sagemaker")
        await asyncio.to_thread(service_model, "sagemaker-runtime")
        self._background = [asyncio.create_task(work()) for work in (self._publish_for_ever, self._report_for_ever)]

    async def shutdown(self) -> None:
        """End every container and whatever works in the background. Nothing of the service outlives it."""
        await self._deployments.shutdown()
        for task in self._background:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._host.http.aclose()
        self._host.clients.close()

    def _routes(self) -> ASGIApp:
        deployments = self._deployments, self._component_deployments
        served = operations(self._account, self._records, self._host, *deployments)
        control = ControlPlane(served, service="sagemaker", title="SageMaker")
        runtime = Runtime(self._account, self._records, self._host)
        faults = FaultPage(self._host.switches, self._records.endpoints)
        return Router(
            [
                Route("/endpoints/{name}/invocations", runtime.invoke, methods=["POST"]),
                Route("/endpoints/{name}/async-invocations", _not_emulated, methods=["POST"]),
                Route("/endpoints/{name}/invocations-response-stream", _not_emulated, methods=["POST"]),
                Route(INTROSPECTION_PATH, self._introspect, methods=["GET"]),
                Route(FAULTS_PATH, faults.answer, methods=["GET", "PUT", "DELETE"]),
                Route("/", control.answer, methods=["POST"]),
            ]
        )

    async def _introspect(self, _request: Request) -> Response:
        return JSONResponse(snapshot(self._records.endpoints))

    async def _report_for_ever(self) -> None:
        settings, clock = self._host.settings, self._host.clock
        while True:
            # Each look is a value of the metrics that go by the clock, so a fast clock needs more of them.
            interval_s = min(settings.publish_interval_s, clock.real(settings.concurrency_interval_s))
            await asyncio.sleep(max(interval_s, _SHORTEST_INTERVAL_S))
            for endpoint in list(self._records.endpoints):
                try:
                    if endpoint.fleet is not None:
                        endpoint.fleet.report()
                except Exception:
                    # One endpoint that cannot be looked at must not end the metrics of all, for good and unseen.
                    _logger.exception("could not look at endpoint %s", endpoint.name)

    async def _publish_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._host.settings.publish_interval_s)
            for publish in (self._host.metrics.publish, self._host.logs.publish):
                try:
                    await publish()
                except Exception:
                    # What could not be sent is sent the next time; what is wrong shows in the log.
                    _logger.exception("could not publish to the embedded CloudWatch")


def _container_client() -> httpx.AsyncClient:
    """The client of all containers, with one pool.

    Proxies of the environment are for other machines, containers are on this one; answers are passed on as they are,
    so the container is not asked to compress them.
    """
    return httpx.AsyncClient(
        trust_env=False,
        transport=ContainerTransport(),
        headers={"user-agent": "lmi-cohost-sagemaker", "accept-encoding": "identity"},
    )


async def _not_emulated(_request: Request) -> Response:
    return runtime_fault(errors.only_invoke_endpoint(), request_id())
