"""A front door on a free port, with everything real behind it but SageMaker."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.request
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from starlette.requests import Request
from starlette.responses import Response

from local_aws.server import LocalAws
from local_aws.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from starlette.types import Receive, Scope, Send


class FakeSageMaker:
    """Keeps models, configurations and endpoints in dictionaries; an endpoint serves at once.

    A configuration whose instance type is `ml.broken` makes its endpoint fail.
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.models: dict[str, dict[str, Any]] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.endpoints: dict[str, str] = {}
        self.closed = False

    async def startup(self) -> None:
        """Nothing to start."""

    async def shutdown(self) -> None:
        """Remember that it was told."""
        self.closed = True

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call of the control plane."""
        request = Request(scope, receive)
        action = request.headers["x-amz-target"].partition(".")[2]
        status, answer = self.act(action, json.loads(await request.body()))
        await Response(json.dumps(answer), status, media_type="application/x-amz-json-1.1")(scope, receive, send)

    def act(self, action: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """What the service would do, as far as the stacks of these tests need it."""
        kind = next(kind for kind in ("EndpointConfig", "Endpoint", "Model", "Tags") if action.endswith(kind))
        if kind == "Tags":
            return 200, {"Tags": []}
        name = body[f"{kind}Name"]
        arn = {f"{kind}Arn": f"arn:aws:sagemaker:us-east-1:123456789012:{kind.lower()}/{name.lower()}"}
        shelf: dict[str, Any] = {"Model": self.models, "EndpointConfig": self.configs, "Endpoint": self.endpoints}[kind]
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


class FrontDoor:
    """A running server and clients for it."""

    def __init__(self, server: LocalAws) -> None:
        self.server = server
        self.sagemaker: Any = server.sagemaker

    def set_speed(self, speed: float) -> None:
        """Let the clock run so much faster from now on."""
        body = json.dumps({"speed": speed}).encode()
        put = urllib.request.Request(f"{self.server.url}/_cohost/clock", body, method="PUT")  # noqa: S310 - as below
        with urllib.request.urlopen(put):  # noqa: S310 - our own address
            pass

    def client(self, service: str, **config: Any) -> Any:
        """A boto3 client of the front door."""
        session: Any = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
        return session.client(
            service, endpoint_url=self.server.url, config=Config(retries={"total_max_attempts": 1}, **config)
        )


@contextlib.contextmanager
def running(
    state_dir: Path, *, speed: float = 1, make_sagemaker: Callable[..., Any] = FakeSageMaker
) -> Iterator[FrontDoor]:
    """Serve on a free port until the block ends."""
    settings = Settings(port=0, state_dir=state_dir, speed=speed, managed_policies=False)
    server = LocalAws(settings, make_sagemaker)
    ready = threading.Event()
    thread = threading.Thread(target=server.serve, args=(lambda _: ready.set(),))
    thread.start()
    try:
        assert ready.wait(20)
        # moto's state belongs to the process, so a server of an earlier test has left its own.
        with urllib.request.urlopen(urllib.request.Request(f"{server.url}/moto-api/reset", method="POST")):  # noqa: S310 - our own address
            yield FrontDoor(server)
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()
