"""A running local AWS server for tests, boto3 clients for it, and functions that wait for background work."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import boto3
import psutil
from botocore.config import Config
from starlette.requests import Request
from starlette.responses import Response

from cohost.deploy import local_aws as local
from local_aws import testing
from local_aws.server import LocalAws, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from starlette.types import Receive, Scope, Send


class FakeSageMaker:
    """A fake SageMaker that keeps models, configurations and endpoints in dictionaries; an endpoint is ready at once.

    An endpoint whose configuration has the instance type `ml.broken` fails.
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.models: dict[str, dict[str, Any]] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.endpoints: dict[str, str] = {}
        self.closed = False

    async def startup(self) -> None:
        """Do nothing: there is nothing to start."""

    async def shutdown(self) -> None:
        """Set `closed`, so that a test can see that the server has called this method."""
        self.closed = True

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a control plane request with `act`, and every InvokeEndpoint with an empty list."""
        request = Request(scope, receive)
        if request.url.path.endswith("/invocations"):
            await Response("[]", media_type="application/json")(scope, receive, send)
            return
        action = request.headers["x-amz-target"].partition(".")[2]
        status, answer = self.act(action, json.loads(await request.body()))
        await Response(json.dumps(answer), status, media_type="application/x-amz-json-1.1")(scope, receive, send)

    def act(self, action: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Do a SageMaker operation, as far as the stacks of tests need it; return the HTTP status and the answer."""
        kind = next(kind for kind in ("EndpointConfig", "Endpoint", "Model", "Tags") if action.endswith(kind))
        if kind == "Tags":
            return 200, {"Tags": []}
        name = body[f"{kind}Name"]
        noun = "endpoint-config" if kind == "EndpointConfig" else kind.lower()
        arn = {f"{kind}Arn": f"arn:aws:sagemaker:us-east-1:123456789012:{noun}/{name.lower()}"}
        shelves: dict[str, Any] = {"Model": self.models, "EndpointConfig": self.configs, "Endpoint": self.endpoints}
        shelf = shelves[kind]
        if action.startswith(("Create", "Update")):
            shelf[name] = body["EndpointConfigName"] if kind == "Endpoint" else body
        elif name not in shelf:
            return 400, {"__type": "ValidationException", "message": f"Could not find {kind} {name}"}
        elif action.startswith("Delete"):
            del shelf[name]
        else:
            config = self.configs[shelf[name]]
            broken = config["ProductionVariants"][0]["InstanceType"] == "ml.broken"
            status = {"EndpointStatus": "Failed", "FailureReason": "no such machine"} if broken else {}
            return 200, {"EndpointStatus": "InService", "EndpointConfigName": shelf[name], **arn, **status}
        return 200, arn


# Long enough for a busy machine; a wait ends as soon as its condition holds, so a long limit costs no time.
LIMIT_S = 240
wait_for = partial(testing.wait_for, limit_s=LIMIT_S)


class FrontDoor:
    """A running local AWS server with its boto3 clients, which are cached: to make one takes longer than most calls."""

    def __init__(self, server: LocalAws) -> None:
        self.server = server
        self.sagemaker: Any = server.sagemaker
        self.client = cache(self._client)

    def _client(self, service: str, **config: Any) -> Any:
        """Return a boto3 client that calls a service of this server; by default it does not retry."""
        given = Config(**{"retries": {"total_max_attempts": 1}, "max_pool_connections": 64, **config})
        key = self.key
        return session().client(
            service,
            endpoint_url=self.server.url,
            aws_access_key_id=key["key_id"],
            aws_secret_access_key=key["secret"],
            config=given,
        )

    @property
    def key(self) -> dict[str, str]:
        """The user's access key: `key_id` and `secret`."""
        return local.read_key(self.server.settings.state_dir)

    def environment(self, *, administrator: bool = False) -> dict[str, str]:
        """Return the environment variables that make a program call this server, with the user's access key.

        If `administrator` is True, return the administrator's key, which exists if the user acts as a role.
        """
        return self._local().environment(administrator=administrator)

    def page(self, path: str, **put: float) -> Any:
        """GET a page of the server, such as /_cohost/clock; if values are given, PUT them to the page first."""
        if put:
            self._local().ask(path, put)
        return self._local().ask(path)

    def reset(self) -> None:
        """Delete moto's state, which is global in the process and still has resources of earlier tests."""
        self._local().ask("/moto-api/reset", method="POST")

    def _local(self) -> local.LocalServer:
        return local.LocalServer(url=self.server.url, pid=os.getpid(), state=self.server.settings.state_dir)

    def set_speed(self, speed: float) -> None:
        """Make the emulator's clock run `speed` times as fast as real time from now on."""
        assert self.page("/_cohost/clock", speed=speed)["speed"] == speed

    def settle(self, status: str, name: str = "s") -> dict[str, Any]:
        """Wait until a stack's operation ends, check that the stack has `status`, and return its description.

        The waiters of boto3 are not used, since they poll too rarely.
        """
        cloudformation = self.client("cloudformation")

        def now() -> dict[str, Any]:
            stack: dict[str, Any] = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
            return stack

        wait_for(lambda: not now()["StackStatus"].endswith("IN_PROGRESS"))
        stack = now()
        if stack["StackStatus"] != status:
            events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
            raise AssertionError(stack["StackStatus"], [event.get("ResourceStatusReason") for event in events])
        return stack

    def delete_stack(self, name: str = "s") -> None:
        """Delete a stack and wait for the end, by the stack's id, since a deleted stack is not found by its name."""
        cloudformation = self.client("cloudformation")
        stack_id = cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackId"]
        cloudformation.delete_stack(StackName=name)
        self.settle("DELETE_COMPLETE", stack_id)


@cache
def session() -> Any:
    """Return one boto3 session for all tests: it caches botocore's service models, which take long to read."""
    return boto3.Session(region_name="us-east-1")


@contextlib.contextmanager
def leaving_no_process() -> Iterator[None]:
    """Check that all descendant processes that start in the `with` block end within 240 s after the block."""

    def children() -> set[int]:
        return {child.pid for child in psutil.Process().children(recursive=True)}

    before = children()
    yield
    wait_for(lambda: children() <= before)


@contextlib.contextmanager
def running(
    state_dir: Path, make_sagemaker: Callable[..., Any] | None = FakeSageMaker, **settings: Any
) -> Iterator[FrontDoor]:
    """Run the local AWS on a free port until the `with` block ends; `settings` are further settings of the server.

    `make_sagemaker` builds the emulated SageMaker; None means the full one, whose containers serve real models.
    """
    given = Settings(**{"port": 0, "state_dir": state_dir, "managed_policies": False, **settings})
    server = LocalAws(given, make_sagemaker)
    ready = threading.Event()
    thread = threading.Thread(target=server.serve, args=(lambda _: ready.set(),))
    thread.start()
    try:
        assert ready.wait(LIMIT_S)
        # moto must not be reset while it reads its managed policies for the first time.
        for one in threading.enumerate():
            if one.name == "warm-up":
                one.join(LIMIT_S)
        door = FrontDoor(server)
        door.reset()
        yield door
    finally:
        server.stop()
        thread.join(LIMIT_S)
        assert not thread.is_alive()
