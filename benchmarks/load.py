"""Measure the load generator's calls per second on one core, compared with other clients on the same stub server.

Each client runs in a process of its own, with the same number of connections. The clients are: a loop of the load
test's call, signed for SageMaker and unsigned; the complete load test in Locust, signed, in one and in two processes;
and a loop of boto3 calls in gevent (one pool connection per caller, no retries). The clients run one after the other in
each round. The medians of calls per second, and of calls per second of the client's processor time, are compared. Then
the load test and, if installed, the program `wrk` measure the latency of a target that answers in 20 ms.

Run it as `python benchmarks/load.py`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from cohost.report.run import load_run
from cohost.report.samples import answered, latency_s

ROOT = Path(__file__).parents[1]
ROUNDS = 3
SECONDS = 3.0
CALLERS = 16
NOWHERE = {
    "AWS_ENDPOINT_URL_SAGEMAKER": "http://127.0.0.1:9",
    "AWS_MAX_ATTEMPTS": "1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
}
"""The environment of signed calls: the stub takes the place of the SageMaker runtime, and there is no other service."""

WRK_SCRIPT = (
    'wrk.method = "POST"; wrk.body = "{\\"inputs\\": \\"x\\"}"; wrk.headers["Content-Type"] = "application/json"'
)

CLIENT = """
import locust, json, sys, time, gevent
from types import SimpleNamespace
kind, url, callers, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
body = ('{"inputs": "' + "The ferry leaves at nine, and the ticket office opens an hour before. " * 30 + '"}').encode()
if kind == "boto3":
    import boto3
    from botocore.config import Config
    config = Config(max_pool_connections=callers, retries={"total_max_attempts": 1}, read_timeout=70)
    client = boto3.client("sagemaker-runtime", endpoint_url=url, region_name="us-east-1", aws_access_key_id="a",
                          aws_secret_access_key="b", config=config)
    def call():
        client.invoke_endpoint(EndpointName="e", TargetModel="m.tar.gz", Body=body, ContentType="application/json",
                               Accept="application/json")["Body"].read()
else:
    from botocore.credentials import Credentials
    from load_tests.targets import Destination
    from load_tests.transport import Transport
    credentials = Credentials("a", "b") if kind == "signed" else None
    target = SimpleNamespace(url=url, region="us-east-1")
    transport = Transport(SimpleNamespace(target=target, credentials=credentials), 70)
    where = Destination("/endpoints/e/invocations", {"X-Amzn-SageMaker-Target-Model": "m.tar.gz"})
    def call():
        assert transport.send(where, body).status == 200
count = 0
def user():
    global count
    while time.perf_counter() < ends:
        call()
        count += 1
call()
ends = time.perf_counter() + seconds
cpu = time.process_time()
gevent.joinall([gevent.spawn(user) for _ in range(callers)], raise_error=True)
print(json.dumps({"calls": count, "cpu": time.process_time() - cpu}))
"""


class Stub:
    """A stub server in its own process, which runs for the duration of a `with` block."""

    def __init__(self, *arguments: str) -> None:
        self._command = [sys.executable, "-m", "load_tests.tools.stub", *arguments]

    def __enter__(self) -> str:
        """Start the stub's process, and return its URL."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, cwd=ROOT)  # noqa: S603
        if self._process.stdout is None:
            raise RuntimeError("the stub has no output")
        return f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def __exit__(self, *_: object) -> None:
        """Stop the stub's process."""
        self._process.terminate()
        self._process.communicate()


def client(kind: str, url: str) -> tuple[float, float]:
    """Run a client of this kind; return its calls per second, and its calls per second of processor time."""
    command = [sys.executable, "-c", CLIENT, kind, url, str(CALLERS), str(SECONDS)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)  # noqa: S603 - our own code
    found = json.loads(done.stdout)
    return found["calls"] / SECONDS, found["calls"] / found["cpu"]


def locust(url: str, out: Path, *arguments: str, signed: bool = False) -> Path:
    """Run the load test against a stub server, with signed or unsigned calls; return the folder of its results."""
    command = [sys.executable, "-m", "locust", "-f", "load_tests/encoders.py", "--headless", "--only-summary"]
    command += ["--models", "stub", "--task", "text-classification", "--warmup", "1", "--out", str(out)]
    command += ["--endpoint", "stub"] if signed else ["--host", url]
    environment = {**os.environ, **NOWHERE, "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": url}
    subprocess.run(  # noqa: S603 - our own command
        [*command, *arguments], check=False, capture_output=True, cwd=ROOT, env=environment
    )
    return out


def whole(url: str, out: Path, processes: int) -> tuple[float, float]:
    """Run the complete load test; return its calls per second, and its calls per second of processor time."""
    spread = ["--processes", str(processes)] if processes > 1 else []
    arguments = ("-u", str(CALLERS), "--measure", str(SECONDS), "--skip-cold", *spread)
    run = load_run(locust(url, out, *arguments, signed=True))
    phase = run.record.phases[-1]
    calls = len(run.answered_in(phase)) / phase.seconds
    ticks = run.ticks_of(phase)
    cpu = sum(float(ticks["cpu"][ticks["worker"] == worker].mean()) for worker in np.unique(ticks["worker"]))
    return calls, calls / cpu


def wrk(url: str, connections: int, folder: Path) -> float:
    """Return the median latency in ms that wrk measures."""
    script = folder / "post.lua"
    script.write_text(WRK_SCRIPT, encoding="utf-8")
    command = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{SECONDS:.0f}s",
        "--latency",
        "-s",
        str(script),
        f"{url}/invocations",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - the distribution's client
    value, unit = re.findall(r"50%\s+([\d.]+)(us|ms|s)\b", done.stdout)[0]
    return float(value) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]


def rates(folder: Path) -> None:
    """Compare the clients' calls per second, and print them."""
    kinds = ("boto3", "signed", "unsigned", "locust", "locust --processes 2")
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    with Stub() as url:
        for number in range(ROUNDS):
            for kind in kinds[:3]:
                found[kind].append(client(kind, url))
            for processes, kind in enumerate(kinds[3:], start=1):
                found[kind].append(whole(url, folder / f"{processes}-{number}", processes))
    medians = {kind: [statistics.median(part) for part in zip(*rows, strict=True)] for kind, rows in found.items()}
    for kind, (calls, per_core) in medians.items():
        print(f"{kind:>21}: {calls:7,.0f} calls/s, {per_core:7,.0f} calls per second of its processor time")
    print(f"ratio signed:boto3, calls/s = {medians['signed'][0] / medians['boto3'][0]:.2f}")
    print(f"ratio signed:boto3, per processor second = {medians['signed'][1] / medians['boto3'][1]:.2f}")
    print(
        f"ratio 2 processes:1, calls/s = {medians[kinds[4]][0] / medians[kinds[3]][0]:.2f} (the stub needs a core too)"
    )


def latencies(folder: Path) -> None:
    """Compare the results of the load test and of wrk for a target that answers in 20 ms."""
    if shutil.which("wrk") is None:
        print("wrk is not installed (apt-get install wrk), so it is not compared")
        return
    ratios = []
    with Stub("--delay-ms", "20") as url:
        for number in range(ROUNDS):
            theirs = wrk(url, CALLERS, folder)
            run = load_run(locust(url, folder / f"wrk-{number}", "-u", str(CALLERS), "--measure", str(SECONDS)))
            phase = len(run.record.phases) - 1
            ours = float(np.median(latency_s(answered(run.of_phase(phase))))) * 1000
            ratios.append(ours / theirs)
            print(f"p50 of a 20 ms target: {ours:.2f} ms here, {theirs:.2f} ms by wrk")
    print(f"ratio p50 here:wrk = {statistics.median(ratios):.3f}")


def main() -> None:
    """Measure rates and latencies, and print the results."""
    with tempfile.TemporaryDirectory() as name:
        rates(Path(name))
        latencies(Path(name))


if __name__ == "__main__":
    main()
