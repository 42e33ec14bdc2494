"""Measure the time that each layer of the local AWS emulator adds to a call, with a handler that does nothing.

`make bench-local` runs this program. With concurrency 1, the same call is made at each layer, and the medians are
printed: the handler in this process, the container over HTTP, the front door (the emulator's HTTP server) over HTTP,
and boto3. The difference between two layers is the time that the upper one adds. A boto3 call to a server that answers
at once shows the client's share. With concurrency 32, the results are calls per second, and each process's processor
time per call, which does not depend on other work on the machine. The best of several rounds counts, since disturbances
can only slow a round down.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import io
import json
import multiprocessing
import os
import statistics
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import boto3
import psutil
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config

from cohost.callers import TOKEN_HEADER
from cohost.deploy import local_aws as local
from local_aws.lmi.container import address_of
from local_aws.lmi.handler_api import Input, Output
from local_aws.testing import serving_role

if TYPE_CHECKING:
    from collections.abc import Callable

GOAL_ADDED_MS = 3.0
GOAL_CALLS_PER_S = 600.0
CONCURRENCY = 32
HANDLER = """
from djl_python import Output

def handle(inputs):
    if inputs.is_empty():
        return None
    return Output().add(inputs.get_as_bytes())
"""
PROPERTIES = "engine=Python\noption.rolling_batch=disable\ncpu.minWorkers=1\ncpu.maxWorkers=1\n"
BODY = json.dumps({"inputs": "the movie was great"}).encode()
CALL = {"EndpointName": "bench", "TargetModel": "nothing.tar.gz", "ContentType": "application/json", "Body": BODY}
PATH = "/endpoints/bench/invocations"
HEADERS = {"Content-Type": "application/json", "X-Amzn-SageMaker-Target-Model": "nothing.tar.gz"}


@dataclass(frozen=True, kw_only=True)
class Served:
    """The measured endpoint: URL and process id of the emulator's HTTP server and of the container; the model's id."""

    url: str
    pid: int
    container_url: str
    container_headers: dict[str, str]
    container_pid: int
    model_id: str


def main() -> int:
    """Measure and print times and rates; return 1 if a goal is not met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000, help="calls per measurement (default 1000)")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds; the best one is reported (default 5)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = local.start(port=0, state=Path(folder), catalog=Path("model_configs/offline.yaml"))
        try:
            served = _deploy(server)
            added = _print_layers(served, options.calls, options.rounds)
            rate = _print_throughput(served, options.calls * 3, options.rounds)
        finally:
            local.stop(Path(folder))
    print(f"added by front and container at concurrency 1: {added:.2f} ms, goal < {GOAL_ADDED_MS:g} ms")
    print(f"calls a second at concurrency {CONCURRENCY}: {rate:.0f}, goal > {GOAL_CALLS_PER_S:g}")
    return int(added >= GOAL_ADDED_MS or rate <= GOAL_CALLS_PER_S)


def _client(service: str, url: str) -> Any:  # the type depends on the service
    config = Config(retries={"total_max_attempts": 1}, max_pool_connections=CONCURRENCY)
    return _session().client(service, endpoint_url=url, config=config)


@cache
def _session() -> Any:
    """Return one boto3 session for all clients, since most of the time for creating a client goes into its session."""
    return boto3.Session()


def _archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in {"serving.properties": PROPERTIES, "model.py": HANDLER}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def _deploy(server: local.LocalServer) -> Served:
    """Deploy an endpoint to the local AWS, load its model, and return the endpoint."""
    url = server.url
    os.environ.update(server.environment())
    s3, iam, sagemaker = (_client(service, url) for service in ("s3", "iam", "sagemaker"))
    s3.create_bucket(Bucket="bench")
    s3.put_object(Bucket="bench", Key="p/nothing.tar.gz", Body=_archive())
    role = serving_role(iam, "bench")
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130"
    container = {"Image": image, "Mode": "MultiModel", "ModelDataUrl": "s3://bench/p/"}
    sagemaker.create_model(ModelName="bench", PrimaryContainer=container, ExecutionRoleArn=role)
    variant = {"VariantName": "v", "ModelName": "bench", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName="bench", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="bench", EndpointConfigName="bench")
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="bench", WaiterConfig={"Delay": 1})
    _client("sagemaker-runtime", url).invoke_endpoint(**CALL)["Body"].read()
    snapshot = server.ask("/_cohost/endpoints")
    instance = snapshot["endpoints"][0]["variants"][0]["instances"][0]
    address = address_of(instance["pid"])
    if address is None:
        raise RuntimeError("the container has ended")
    container_url, token = address
    return Served(
        url=url,
        pid=server.pid,
        container_url=container_url,
        container_headers={TOKEN_HEADER: token},
        container_pid=instance["pid"],
        model_id=instance["models"][0]["model_id"],
    )


def _print_layers(served: Served, calls: int, rounds: int) -> float:
    """Print each layer's median in ms; return the ms that the emulator's HTTP server and container add to a call."""
    runtime = _client("sagemaker-runtime", served.url)
    with _Stub() as stub:
        stub_runtime = _client("sagemaker-runtime", stub.url)
        signed = _signed(served.url + PATH)
        layers: dict[str, Callable[[], object]] = {
            "handler": _handler(),
            "container": _http(
                served.container_url,
                f"/models/{served.model_id}/invoke",
                {"Content-Type": "text/plain", **served.container_headers},
            ),
            "front door": _http(served.url, PATH, signed),
            "boto3": _boto3(runtime),
            "boto3, stub": _boto3(stub_runtime),
            "http, stub": _http(stub.url, PATH, signed),
        }
        best = {name: min(_median_ms(call, calls) for _ in range(rounds)) for name, call in layers.items()}
    container = best["container"] - best["http, stub"]
    front = best["front door"] - best["container"]
    client = best["boto3"] - best["front door"] + best["http, stub"]
    whole = best["boto3"]
    print(f"medians of {calls} calls at concurrency 1, the best of {rounds} rounds, ms")
    print(f"  handler alone, in this process      {best['handler']:7.3f}")
    print(f"  + container and worker, over HTTP   {container:7.3f}  {container / whole:4.0%}")
    print(f"  + front door and SageMaker's front  {front:7.3f}  {front / whole:4.0%}")
    print(f"  + client: boto3 and loopback        {client:7.3f}  {client / whole:4.0%}")
    print(
        f"  = invoke_endpoint                   {whole:7.3f}  (against a server that answers at once: "
        f"{best['boto3, stub']:.3f})"
    )
    return whole - best["boto3, stub"] - best["handler"]


def _signed(url: str) -> dict[str, str]:
    """Return the signed headers of the call; all repetitions use them, since a signature is valid for 15 minutes."""
    request = AWSRequest("POST", url, headers=HEADERS, data=BODY)
    SigV4Auth(_session().get_credentials(), "sagemaker", "us-east-1").add_auth(request)
    return dict(request.headers.items())


def _handler() -> Callable[[], object]:
    namespace: dict[str, Any] = {}
    source = HANDLER.replace("from djl_python import Output", "")
    exec(source, namespace | {"Output": Output}, namespace)  # noqa: S102 - the constant above
    namespace["handle"].__globals__["Output"] = Output
    inputs = Input()
    inputs.content.add("data", BODY)
    return lambda: namespace["handle"](inputs)


def _boto3(runtime: Any) -> Callable[[], object]:  # boto3 clients have no static type
    def call() -> object:
        return runtime.invoke_endpoint(**CALL)["Body"].read()

    return call


def _http(url: str, path: str, headers: dict[str, str]) -> Callable[[], object]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def call() -> bytes:
        connection.request("POST", path, BODY, headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != http.client.OK:
            msg = f"{url}{path}: {answer.status} {content!r}"
            raise RuntimeError(msg)
        return content

    return call


def _median_ms(call: Callable[[], object], calls: int) -> float:
    for _ in range(calls // 10):
        call()
    times = []
    for _ in range(calls):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1000


def _print_throughput(served: Served, calls: int, rounds: int) -> float:
    """Print calls per second of 32 boto3 callers, and each process's processor time per call; return the rate."""
    runtime = _client("sagemaker-runtime", served.url)

    call = _boto3(runtime)

    def one(_: int) -> None:
        call()

    workers = [child.pid for child in psutil.Process(served.container_pid).children(recursive=True)]
    groups = {
        "client": [psutil.Process().pid],
        "front": [served.pid],
        "container": [served.container_pid],
        "worker": workers,
    }
    best, costs = 0.0, dict.fromkeys(groups, float("inf"))
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        list(pool.map(one, range(CONCURRENCY * 4)))
        for _ in range(rounds):
            before = {name: _cpu_s(pids) for name, pids in groups.items()}
            begun = time.perf_counter()
            list(pool.map(one, range(calls)))
            best = max(best, calls / (time.perf_counter() - begun))
            for name, pids in groups.items():
                costs[name] = min(costs[name], (_cpu_s(pids) - before[name]) / calls * 1000)
    shares = ", ".join(f"{name} {cost:.2f}" for name, cost in costs.items())
    print(f"{calls} calls at concurrency {CONCURRENCY}, the best of {rounds} rounds: {best:.0f} calls a second")
    print(f"  processor time of a call, ms: {shares}; together {sum(costs.values()):.2f}")
    return best


def _cpu_s(pids: list[int]) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(t.user + t.system for t in times)


class _Stub:
    """A server in a separate process that takes the emulator's place and answers every request at once."""

    def __enter__(self) -> Self:
        ours, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=_serve_stub, args=(theirs,), daemon=True)
        self._process.start()
        self.url = f"http://127.0.0.1:{ours.recv()}"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()


class _StubProtocol(asyncio.Protocol):
    """The protocol of the stub server: answers when the received bytes end with BODY, and parses nothing."""

    _ANSWER = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nx-amzn-RequestId: 1\r\nContent-Length: "
        + str(len(BODY)).encode()
        + b"\r\n\r\n"
        + BODY
    )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._received.endswith(BODY):
            self._received = b""
            self._transport.write(self._ANSWER)


def _serve_stub(pipe: Any) -> None:  # the pipe is a connection of multiprocessing
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_StubProtocol, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


if __name__ == "__main__":
    raise SystemExit(main())
