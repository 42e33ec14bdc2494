"""An S3 in memory, a CloudFormation that waits for answers, and clients that fail on demand."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from cohost.archives import index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mypy_boto3_s3 import S3Client

BUCKET = "models"
PREFIX = "encoders/"


@pytest.fixture(scope="session")
def client() -> S3Client:
    """Return one client for all tests, because creating a client is slower than most tests."""
    return boto3.client(
        "s3",
        region_name="us-east-1",
        endpoint_url="https://s3.amazonaws.com",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


@pytest.fixture
def s3(client: S3Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Client]:
    """Return a client of an in-memory S3 that has one empty bucket."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        client.create_bucket(Bucket=BUCKET)
        yield client


class Spy:
    """A client that counts its calls, and that fails or runs an action before a call if a test requests this."""

    def __init__(self, client: S3Client) -> None:
        self._client = client
        self.calls: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._before: dict[tuple[str, int], Callable[[], object]] = {}

    def before(self, operation: str, number: int, action: Callable[[], object]) -> None:
        """Run an action, which may raise, before the nth call of an operation from now on."""
        self._before[operation, len(self.calls[operation]) + number] = action

    def fail(self, operation: str, number: int, code: str = "InternalError") -> None:
        """Makes the nth call of an operation, counted from 1 from now on, fail with an S3 error."""

        def refuse() -> None:
            raise ClientError({"Error": {"Code": code, "Message": "injected"}}, operation)

        self.before(operation, number, refuse)

    def __getattr__(self, operation: str) -> Any:
        """The real client's operation, counted."""
        real = getattr(self._client, operation)

        def call(*arguments: Any, **parameters: Any) -> Any:
            self.calls[operation].append(parameters)
            self._before.get((operation, len(self.calls[operation])), lambda: None)()
            return real(*arguments, **parameters)

        return call


@pytest.fixture
def spy(s3: S3Client) -> Spy:
    """Return a client of the same S3 that can be made to fail."""
    return Spy(s3)


class Context:
    """A Lambda context whose time advances only by a test."""

    def __init__(self, seconds: float = 300) -> None:
        self.seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        """The milliseconds left."""
        return int(self.seconds * 1000)


class CloudFormation:
    """Takes answers over HTTP as CloudFormation does, after refusing as many as a test wants."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        self.content_types: list[str | None] = []
        self.sizes: list[int] = []
        self.refuse = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.content_types.append(self.headers["Content-Type"])
                outer.sizes.append(len(body))
                outer.refuse -= 1
                if outer.refuse < 0:
                    outer.answers.append(json.loads(body))
                self.send_response(200 if outer.refuse < 0 else 503)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/answer?signature=x"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def event(self, kind: str, models: object = None, *, old: object = None, **fields: Any) -> dict[str, Any]:
        """A request for the model store, with properties that a test may change."""
        properties = {"ServiceToken": "arn", "Bucket": BUCKET, "Prefix": PREFIX, "Models": models}
        event = {
            "RequestType": kind,
            "ResponseURL": self.url,
            "StackId": "arn:aws:cloudformation:us-east-1:123456789012:stack/LmiCohostStack/1",
            "RequestId": "request-1",
            "LogicalResourceId": "Models",
            "ResourceType": "Custom::LmiModelStore",
            "ResourceProperties": properties,
        }
        if old is not None:
            event["OldResourceProperties"] = {**properties, "Models": old}
        return {**event, **fields}


@pytest.fixture
def cloudformation() -> Iterator[CloudFormation]:
    """A receiver of answers."""
    receiver = CloudFormation()
    yield receiver
    receiver.close()


@pytest.fixture
def send(
    spy: Spy, cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Send an event to the handler, and return its only answer."""
    monkeypatch.setattr(index, "s3_client", lambda: spy)

    def run(event: Mapping[str, Any], context: Context | None = None) -> dict[str, Any]:
        cloudformation.answers.clear()
        index.on_event(event, context or Context())
        (answer,) = cloudformation.answers
        assert {key: answer[key] for key in ("StackId", "RequestId", "LogicalResourceId")} == {
            key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")
        }
        return answer

    return run


@pytest.fixture
def keys(s3: S3Client) -> Callable[[], set[str]]:
    """Return all keys of the bucket."""

    def run() -> set[str]:
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return {item["Key"] for page in pages for item in page.get("Contents", [])}

    return run


@pytest.fixture
def context() -> type[Context]:
    """Create a Lambda context with this number of seconds left."""
    return Context
