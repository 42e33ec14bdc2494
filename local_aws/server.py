"""The emulator's server: all emulated services on one port of 127.0.0.1."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route, Router

from cohost.callers import write_private
from cohost.deploy.local_aws import subcommand
from cohost.errors import LocalError
from local_aws.autoscaling.routes import AutoScaling
from local_aws.cloudformation.resources.custom import PATH as RESPONSE_PATH
from local_aws.cloudformation.resources.handler_rights import HandlerRights
from local_aws.cloudformation.routes import CloudFormation
from local_aws.cloudwatch.metric_store import MetricStore
from local_aws.cloudwatch.routes import CloudWatch
from local_aws.gateway import Gateway, ThisMachineOnly
from local_aws.kit.access_keys import AccessKeys, administrator_key, user_key
from local_aws.kit.account import ACCOUNT_ID, DEFAULT_REGION, HOST, Account, bound_listener
from local_aws.kit.bodies import MIB, BodyMemory
from local_aws.kit.clients import Clients
from local_aws.kit.clock import PATH as CLOCK_PATH
from local_aws.kit.clock import Clock
from local_aws.lambda_functions.routes import LambdaFunctions
from local_aws.moto_services import (
    MotoServices,
    issued_key,
    key_of_bucket,
    key_of_object,
    moto_app,
    role_policies,
    warm_up,
)
from local_aws.rights.encryption import Encryption
from local_aws.rights.judge import Dependent, Judge
from local_aws.rights.requests import judged
from local_aws.rights.resource_arns import Call
from local_aws.sagemaker.debug.pages import PATH as INTROSPECTION_PATH
from local_aws.sagemaker.fault_injection import PATH as FAULTS_PATH
from local_aws.scheduler.routes import Scheduler
from local_aws.signatures import Verifier

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from local_aws.kit.alarm_actions import AlarmTrigger


LOGGER: Final = logging.getLogger(__name__)
NAME: Final = "lmi-cohost local AWS"
STATE_FILE: Final = "server.json"
GRACE_SECONDS: Final = 3
# Each waiting call (an invocation, a delayed answer) takes a thread; services call each other, so many are needed.
THREADS: Final = 200
ENCRYPTION: Final = Encryption(of_object=key_of_object, of_bucket=key_of_bucket)
HEAD_LIMIT: Final = 65536  # bytes of a request's head; uvicorn's own default is 16 KiB
# The bodies of all requests at once: two of the longest of S3. moto holds up to three copies of the one it works on.
BODIES_BYTES: Final = 256 * MIB
BODIES_WAIT_S: Final = 30.0
MOST_REQUESTS: Final = 4096


class LocalAws:
    """The whole local AWS emulator on one port, which the constructor binds.

    Args:
        settings: the options of the command, such as port, folders and region.
        make_sagemaker: builds the SageMaker service; None for the one whose containers are those of local_aws.lmi.

    Raises:
        LocalError: the port is in use, or the clock's speed is not valid.
    """

    def __init__(self, settings: Settings, make_sagemaker: Callable[..., Any] | None = None) -> None:
        self.settings = settings
        clock = self._clock = Clock(settings.speed)
        self.listener = _bind(settings.port)
        self.port: int = self.listener.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}"
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        self.judge = Judge(role_policies, self._dependent_rights)
        keys = self.keys = _access_keys(settings)
        clients = self._clients = Clients(lambda: self.url)
        moto = MotoServices(moto_app(managed_policies=settings.managed_policies))
        metrics = MetricStore(clock)
        self.sagemaker = (make_sagemaker or _sagemaker)(
            endpoint_url=lambda: self.url,
            state_dir=settings.state_dir,
            hub_roots=settings.hub_roots,
            account_id=ACCOUNT_ID,
            region=settings.region,
            clock=clock,
            record_metric=metrics.record,
            keys=keys,
        )
        account = Account(account_id=ACCOUNT_ID, region=settings.region)
        self.cloudwatch = CloudWatch(
            moto=moto,
            endpoint_url=lambda: self.url,
            account=account,
            clock=clock,
            metrics=metrics,
            act=self._act_on_alarms,
        )
        self.auto_scaling = AutoScaling(
            endpoint_url=lambda: self.url, account=account, clock=clock, in_alarm=self.cloudwatch.in_alarm
        )
        code = settings.state_dir / "functions"
        self.functions = LambdaFunctions(others=moto, clients=clients, keys=keys, folder=code)
        self.cloudformation = CloudFormation(clients=clients, rights=HandlerRights(self.judge, keys))
        self.scheduler = Scheduler(others=moto, clients=clients, keys=keys, now=clock.now)
        self._server = _AnnouncingServer(self._config(self._app(moto)), self._announce)
        self._on_ready: Callable[[LocalAws], None] = _nobody

    async def _act_on_alarms(self, triggers: Sequence[AlarmTrigger]) -> None:
        await self.auto_scaling.act_on_alarms(triggers)

    def _dependent_rights(self, call: Call) -> list[Dependent]:
        """Return the additional permissions that a call needs because of a scalable target or an object's KMS key."""
        return [*self._rights_of_scaling(call), *(Dependent(request=one) for one in ENCRYPTION.rights(call))]

    def _rights_of_scaling(self, call: Call) -> list[Dependent]:
        """Return the additional permissions that DeleteEndpoint needs if the endpoint has a scalable target.

        Source of the error text: awslabs/stable-diffusion-aws-extension#161. Source of the permission: SageMaker
        developer guide, "Delete endpoints configured for auto scaling".
        """
        name = str(call.parameters.get("EndpointName", ""))
        if call.operation != "DeleteEndpoint" or not self.auto_scaling.targets_of(name):
            return []
        dimension = "sagemaker:variant:DesiredInstanceCount"
        parameters = {"ServiceNamespace": "sagemaker", "ScalableDimension": dimension}
        deregister = Call(
            service="application-autoscaling",
            region=call.region,
            operation="DeregisterScalableTarget",
            parameters=parameters,
        )
        denial = (
            "An Application AutoScaling scalable target exists for a variant being deleted, and the IAM identity used "
            "to invoke DeleteEndpoint does not have application-autoscaling:DeregisterScalableTarget permission to "
            "deregister the scalable target."
        )
        return [Dependent(request=request, denial=denial) for request in judged(deregister)]

    def _app(self, moto: ASGIApp) -> ASGIApp:
        services: dict[str, ASGIApp] = {
            "application-autoscaling": self.auto_scaling.asgi,
            "cloudformation": self.cloudformation.asgi,
            "lambda": self.functions.asgi,
            "monitoring": self.cloudwatch.asgi,
            "sagemaker": self.sagemaker.asgi,
            "scheduler": self.scheduler.asgi,
            "servicequotas": self.sagemaker.asgi,
        }
        pages: dict[str, ASGIApp] = dict.fromkeys((INTROSPECTION_PATH, FAULTS_PATH), self.sagemaker.asgi)
        pages[CLOCK_PATH] = Router([Route(CLOCK_PATH, self._clock.answer, methods=["GET", "PUT"])])
        memory = BodyMemory(total_bytes=BODIES_BYTES, wait_s=BODIES_WAIT_S, most_requests=MOST_REQUESTS)
        verifier = Verifier(self.keys, subcommand("env", self.settings.state_dir))
        return Starlette(
            routes=[
                # Two routes need no signature: the first only names the emulator, the second has a secret address.
                Route("/_cohost/health", self._health),
                Route(f"{RESPONSE_PATH}/{{token}}", self.cloudformation.responses.receive, methods=["PUT"]),
                Mount(
                    "/",
                    Gateway(
                        memory=memory,
                        verifier=verifier,
                        judge=self.judge,
                        services=services,
                        pages=pages,
                        others=moto,
                    ),
                ),
            ],
            middleware=[Middleware(ThisMachineOnly)],
            lifespan=self._lifespan,
        )

    @staticmethod
    def _config(app: ASGIApp) -> uvicorn.Config:
        return uvicorn.Config(
            app,
            http="h11",
            h11_max_incomplete_event_size=HEAD_LIMIT,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="on",
            date_header=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            # The cdk CLI keeps connections open while it synthesises, and fails if the server closes one meanwhile.
            timeout_keep_alive=120,
        )

    async def _health(self, request: Request) -> JSONResponse:  # noqa: ARG002 - starlette's signature
        # Every user of this machine can read this page, so it names nothing of the user's: no folder, no catalog.
        return JSONResponse(
            {
                "status": "ok",
                "emulation": NAME,
                "account": ACCOUNT_ID,
                "region": self.settings.region,
                "pid": os.getpid(),
            }
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:  # noqa: ARG002 - starlette's signature
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        await self.sagemaker.startup()
        await self.auto_scaling.startup()
        await self.cloudwatch.startup()
        self.scheduler.start()
        try:
            yield
        finally:
            self.scheduler.stop()
            self.cloudformation.stop()
            self.functions.stop()
            await self.cloudwatch.shutdown()
            await self.auto_scaling.shutdown()
            await self.sagemaker.shutdown()

    def serve(self, on_ready: Callable[[LocalAws], None] | None = None) -> None:
        """Serve until SIGINT, SIGTERM or `stop`; while the server runs, the state folder contains `server.json`.

        Args:
            on_ready: called with this server when it begins to answer requests.

        Raises:
            LocalError: a service could not start; the service's own message went to the log.
        """
        self._on_ready = on_ready or _nobody
        previous = _swallow_signals()
        try:
            self._server.run([self.listener])
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            self.listener.close()
            _remove_own(self.settings.state_dir / STATE_FILE)
        if not self._server.started:
            raise LocalError(
                "local-aws-not-started",
                NAME,
                "a part of it could not start",
                fix="correct what the log on standard error names",
            )

    def stop(self) -> None:
        """Make `serve` return; call this method from another thread."""
        self._server.should_exit = True

    def _announce(self) -> None:
        catalog = self.settings.catalog
        content = {"pid": os.getpid(), "port": self.port, "url": self.url, "region": self.settings.region}
        text = json.dumps({**content, "catalog": None if catalog is None else str(catalog)})
        write_private(self.settings.state_dir / STATE_FILE, text)
        threading.Thread(target=warm_up, args=(self._clients,), name="warm-up", daemon=True).start()
        self._on_ready(self)


class _AnnouncingServer(uvicorn.Server):
    """A uvicorn server that calls `announce` when it begins to answer requests."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server, then call `announce` unless the start failed."""
        await super().startup(sockets)
        if self.started:
            self._announce()


def _bind(port: int) -> socket.socket:
    """Bind the server's port, before any service is built.

    Raises:
        LocalError: the port is in use, not permitted to this user, or not from 0 to 65535.
    """
    try:
        return bound_listener(port)
    except OSError as error:
        cause = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be opened ({error.strerror})"
        raise LocalError(
            "port-taken",
            "--port",
            f"{port} on {HOST} {cause}",
            allowed="a free port",
            fix="stop what holds it (`cohost local down` if that is ours), or choose another (0 takes a free one)",
        ) from None
    except OverflowError:
        raise LocalError(
            "port-out-of-range",
            "--port",
            f"got {port}",
            allowed="0 to 65535",
            fix="choose another, or 0 for a free one",
        ) from None


def _swallow_signals() -> dict[int, Any]:
    """Ignore SIGINT and SIGTERM except while uvicorn handles them; return the previous handlers by signal number.

    After its shutdown, uvicorn sends the signal to the process again, which would end the process before its clean-up.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}


def _remove_own(state: Path) -> None:
    """Delete the file `server.json` at this path, unless another server has written it."""
    with contextlib.suppress(OSError, ValueError):
        if json.loads(state.read_text(encoding="utf-8"))["pid"] == os.getpid():
            state.unlink()


def _access_keys(settings: Settings) -> AccessKeys:
    folder, role = settings.state_dir, settings.act_as
    return AccessKeys(user_key(folder, role), issued_key, administrator_key(folder, role))


def _nobody(_: LocalAws) -> None:
    """Do nothing: stand in for `on_ready` if nobody wants to know when the server is ready."""


def _sagemaker(**arguments: Any) -> Any:  # its class is imported when it is needed
    # Imported here, since tests of the other services need neither module.
    from local_aws.lmi.container import Container
    from local_aws.sagemaker.routes import SageMaker

    return SageMaker(start_container=Container.start, **arguments)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options with which `python -m local_aws up` was started.

    Args:
        port: the front door's port on 127.0.0.1; 0 takes a free one.
        state_dir: folder for logs, fetched code, unpacked archives and `server.json`.
        catalog: the catalog that is to be deployed here; it is checked at the start and named in `server.json`.
        hub_roots: folders `org/name/` of Hugging Face files from which containers take weights.
        region: the region that requests without one belong to.
        speed: the speed of the clock of alarms, cooldowns and schedules, as a multiple of real time.
        managed_policies: whether IAM knows AWS's own managed policies, which the roles of `cdk bootstrap` name. Loading
            them adds a second to IAM's first answer after the start and after each reset.
        act_as: the ARN of the role whose rights the user's key has; None for a key that is not judged.
    """

    port: int
    state_dir: Path
    catalog: Path | None = None
    hub_roots: tuple[Path, ...] = ()
    region: str = DEFAULT_REGION
    speed: float = 1
    managed_policies: bool = True
    act_as: str | None = None
