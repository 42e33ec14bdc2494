"""The load test against a target of known behaviour: Locust as a user starts it, and a stub.

What depends on time is measured up to three times, because another process on the machine can spoil a measurement; a
generator that is wrong is wrong each time.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cohost.report.run import Run, load_run
from cohost.report.samples import Outcome, answered, latency_s
from cohost.report.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
LOCUSTFILE = ROOT / "load_tests" / "encoders.py"
TRIES = 3
# What a loaded machine may take for a run that is over in seconds.
LIMIT_S = 250

# Three tries on a loaded machine; the limit of one run ends a run that hangs.
pytestmark = pytest.mark.timeout(3 * LIMIT_S)


@dataclass
class Target:
    """A running stub."""

    process: subprocess.Popen[str]
    port: int

    @property
    def url(self) -> str:
        """The stub's URL."""
        return f"http://127.0.0.1:{self.port}"

    def counts(self) -> dict[str, int]:
        """Return the number of connections, including this one, and of calls so far."""
        with urllib.request.urlopen(f"{self.url}/counts", timeout=60) as answer:  # noqa: S310 - http only
            return dict(json.load(answer))


@dataclass
class Done:
    """A finished load test: exit code, output, result if there is one, and duration."""

    code: int
    output: str
    run: Run | None
    seconds: float

    @property
    def result(self) -> Run:
        """Return the result, which must exist."""
        assert self.run is not None, self.output
        return self.run

    @property
    def marks(self) -> set[str]:
        """The codes of the run's marks."""
        return {mark.code for mark in self.result.record.marks}


@pytest.fixture
def stub() -> Iterator[Callable[..., Target]]:
    """Starts stubs that end with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> Target:
        command = [sys.executable, "-m", "load_tests.tools.stub", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        started.append(process)
        assert process.stdout is not None
        return Target(process, int(process.stdout.readline()))

    yield start
    for process in started:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


def command_of(target: Target, out: Path, *arguments: str) -> list[str]:
    """Return the Locust command for a stub with one model and no warm-up."""
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary"]
    command += ["--host", target.url, "--models", "stub", "--task", "text-classification", "--warmup", "0"]
    return [*command, "--out", str(out), *arguments]


def environment() -> dict[str, str]:
    """Return the environment without variables for options of the load test."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("COHOST_", "LOCUST_"))}


def load(target: Target, out: Path, *arguments: str) -> Done:
    """Run Locust to its end."""
    started = time.monotonic()
    done = subprocess.run(
        command_of(target, out, *arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
        env=environment(),
        cwd=ROOT,
    )
    run = load_run(out) if (out / "run.json").is_file() else None
    return Done(done.returncode, done.stdout + done.stderr, run, time.monotonic() - started)


def code_of_a_missed_limit(done: Done) -> int:
    """Return 1, or 3 if the machine was too busy for a valid load test."""
    return 1 if done.result.record.valid else 3


def within(tries: int, attempt: Callable[[int], str | None]) -> None:
    """Repeat a measurement until it succeeds; each attempt returns its fault or None."""
    faults: list[str] = []
    for number in range(tries):
        fault = attempt(number)
        if fault is None:
            return
        faults.append(fault)
    pytest.fail("; ".join(faults))


SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/sagemaker/aws4_request, Signature=b"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/invocations", {}, 200),
        ("POST", "/endpoints/e/invocations", SIGNED, 200),
        ("POST", "/endpoints/e/invocations", {}, 403),
        ("POST", "/invocations", {"Origin": "http://evil.test"}, 403),
        ("POST", "/endpoints/e/invocations", {**SIGNED, "sec-fetch-site": "cross-site"}, 403),
        ("POST", "/invocations", {"HOST": "evil.test"}, 403),
        ("GET", "/counts", {"Sec-Fetch-Site": "same-site"}, 403),
        ("GET", "/models", {"Host": "evil.test"}, 403),
        ("GET", "/invocations?model_name=stub", {}, 404),
    ],
)
def test_the_stub_answers_programs_and_no_web_page(
    stub: Callable[..., Target], method: str, path: str, headers: dict[str, str], status: int
) -> None:
    """The stub rejects web pages without counting a call, and checks signatures as SageMaker would."""
    target = stub()
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=60)
    connection.request(method, path, b"{}" if method == "POST" else None, headers)
    answer = connection.getresponse()
    assert (answer.status, answer.read() != b"") == (status, True)
    connection.close()
    assert target.counts()["calls"] == (status == 200)


def test_fifty_users_see_the_latency_of_the_target(stub: Callable[..., Target], tmp_path: Path) -> None:
    """With 50 users a latency of 20 ms is measured as 20 ms, with one connection per user at most."""

    def attempt(number: int) -> str | None:
        target = stub("--delay-ms", "20")
        arguments = ("-u", "50", "-r", "100", "--warmup", "0.5", "--measure", "3")
        run = load(target, tmp_path / str(number), *arguments).result
        opened = target.counts()["connections"] - 1
        assert opened <= 50
        assert run.record.connections_opened == opened
        p50 = float(np.median(latency_s(answered(run.samples)))) * 1000
        assert p50 >= 20
        # Where others use the cores, the run knows by how much it was late; a quiet machine has some 0.2 ms.
        busy = max(0.0, float(run.ticks["lag_mean"].mean()) * 1000 - 0.5)
        return None if p50 <= 22 + 2 * busy else f"p50 {p50:.2f} ms, timers {busy:.2f} ms late"

    within(TRIES, attempt)


def test_latencies_agree_with_an_independent_client(stub: Callable[..., Target], tmp_path: Path) -> None:
    """Threads with the standard library's client measure the same median within 5 %."""

    def attempt(number: int) -> str | None:
        target = stub("--delay-ms", "20")
        run = load(target, tmp_path / str(number), "-u", "4", "--skip-cold", "--measure", "2").result
        ours = float(np.median(latency_s(answered(run.samples))))
        theirs = float(np.median(threaded(target, threads=4, seconds=2)))
        # Both are late where others use the cores, and not by the same: see the test above.
        busy = max(0.0, float(run.ticks["lag_mean"].mean()) - 0.0005)
        told = f"{ours * 1000:.2f} ms against {theirs * 1000:.2f} ms, timers {busy * 1000:.2f} ms late"
        return None if abs(ours - theirs) <= 0.05 * theirs + 2 * busy else told

    within(TRIES, attempt)


def threaded(target: Target, *, threads: int, seconds: float) -> list[float]:
    """Latencies that closed-loop threads with http.client see."""
    found: list[float] = []

    def call() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=10)
        while time.perf_counter() < ends:
            started = time.perf_counter()
            connection.request("POST", "/invocations", b'{"inputs": "x"}')
            connection.getresponse().read()
            found.append(time.perf_counter() - started)
        connection.close()

    ends = time.perf_counter() + seconds
    callers = [threading.Thread(target=call) for _ in range(threads)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return found


def test_open_load_shows_a_freeze_in_full(stub: Callable[..., Target], tmp_path: Path) -> None:
    """In an open load a freeze of 3 s delays every call that was due in this time."""

    def attempt(number: int) -> str | None:
        target = stub("--delay-ms", "5", "--freeze-after", "1", "--freeze", "3")
        done = load(target, tmp_path / str(number), "--rate", "20", "--skip-cold", "--measure", "7")
        (step,) = summarise(done.result).steps
        assert step.total.latency_ms is not None
        p50, p99 = step.total.latency_ms.p50, step.total.latency_ms.p99
        assert p99 > 2000
        share = float((latency_s(answered(done.result.samples)) > 0.1).mean())
        # Three of seven seconds were frozen.
        return None if p50 < 500 and 0.25 < share < 0.6 else f"p50 {p50:.0f} ms, {share:.0%} waited"

    within(TRIES, attempt)


def test_failures_are_counted_once_each(stub: Callable[..., Target], tmp_path: Path) -> None:
    """A target that fails every fifth call gives a fifth of failed calls, and no call is repeated."""
    target = stub("--delay-ms", "5", "--fail-every", "5")

    done = load(target, tmp_path / "run", "-u", "4", "--skip-cold", "--measure", "2", "--max-error-rate", "0.1")

    line = summarise(done.result).steps[0].total
    assert line.calls == target.counts()["calls"]
    assert line.failures == {"model error (503)": line.failed}
    assert abs(line.failed / line.calls - 0.2) < 0.01
    assert "error-rate" in done.marks
    assert done.code == code_of_a_missed_limit(done)
    assert "CallFailed('model error (503)')" in done.output


def test_a_rate_that_is_not_reached_marks_the_run(stub: Callable[..., Target], tmp_path: Path) -> None:
    """A target that reaches half of the planned rate gives a mark and an exit code."""
    target = stub("--delay-ms", "20", "--workers", "1")

    done = load(target, tmp_path / "run", "--rate", "100", "-u", "20", "--skip-cold", "--measure", "3")

    assert "rate-not-reached" in done.marks
    assert not done.result.record.valid
    assert done.code == 3
    assert Outcome.UNSENT in done.result.samples["outcome"]
    assert "rate-not-reached: step b1 100/s" in done.output


def test_a_target_that_never_answers_ends_the_run_at_the_time_out(stub: Callable[..., Target], tmp_path: Path) -> None:
    """Calls without an answer fail after --timeout, and not after a minute."""
    done = load(stub("--silent"), tmp_path / "run", "-u", "3", "--skip-cold", "--timeout", "1", "--measure", "1.5")

    outcomes = set(done.result.samples["outcome"].tolist())
    assert outcomes == {Outcome.TIMED_OUT}
    assert done.marks >= {"no-answer"}
    assert done.code == 1
    assert float(latency_s(done.result.samples).max()) < 20


def test_a_first_call_that_fails_ends_the_run(stub: Callable[..., Target], tmp_path: Path) -> None:
    """A load test ends without a measurement and with the reason if no model answers the first calls."""
    done = load(stub("--items", "3"), tmp_path / "run", "-u", "3", "--measure", "5")

    assert done.code == 1
    assert "the first call of stub failed: 200 with a wrong answer: 3 results for 1 texts" in done.output
    assert {mark.code for mark in done.result.record.marks} >= {"no-answer"}


def test_two_processes_make_one_result(stub: Callable[..., Target], tmp_path: Path) -> None:
    """A load test with --processes has each call of each worker once in its result, signed as for SageMaker.

    Workers count as ready to Locust while they still ask for their endpoint; the run must wait for them.
    """
    target = stub("--delay-ms", "5")
    arguments = ("--endpoint", "e", "--processes", "2", "-u", "5", "-r", "10", "--measure", "3")
    command = [part for part in command_of(target, tmp_path / "run", *arguments) if part not in {"--host", target.url}]
    aws = {
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": target.url,
        "AWS_ENDPOINT_URL_SAGEMAKER": "http://127.0.0.1:9",
        "AWS_MAX_ATTEMPTS": "2",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }

    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=LIMIT_S, env=environment() | aws, cwd=ROOT
    )

    assert "Traceback" not in done.stderr
    run = load_run(tmp_path / "run")
    assert set(run.samples["worker"].tolist()) == {0, 1}
    assert len(run.samples) == target.counts()["calls"]
    assert run.record.machine.processes == 2
    assert set(run.ticks["worker"].tolist()) == {0, 1}
    (step,) = summarise(run).steps
    assert step.concurrency == 5
    assert step.total.calls > 300, "five callers of 5 ms for 3 s"


def test_sweeps_are_steps_of_one_run(stub: Callable[..., Target], tmp_path: Path) -> None:
    """Each step of a sweep has its texts per call and its callers, which Locust's statistics name."""

    def attempt(number: int) -> str | None:
        folder = tmp_path / str(number)
        files = ("--csv", f"{folder}-csv", "--html", f"{folder}-page.html")
        sweeps = ("--sweep-batch", "[1,8]", "--sweep-concurrency", "1,3", "--warmup", "0.2", "--measure", "0.6")

        done = load(stub("--delay-ms", "4"), folder, *sweeps, *files)

        summary = summarise(done.result)
        assert [(step.batch, step.concurrency) for step in summary.steps] == [(1, 1), (8, 1), (1, 3)]
        assert [phase.kind for phase in done.result.record.phases] == ["cold", *("warm-up", "measured") * 3]
        assert set(done.result.of_phase(4)["items"].tolist()) == {8}
        assert "invoke,stub b8 c1," in Path(f"{folder}-csv_stats.csv").read_text()
        assert "stub b1 c3" in Path(f"{folder}-page.html").read_text()
        (headline,) = summary.headlines
        batched, wide = (
            headline.batch_efficiency,
            summary.steps[2].total.calls_per_s / summary.steps[0].total.calls_per_s,
        )
        return None if batched == pytest.approx(8, rel=0.2) and wide > 2 else f"{batched} by batch, {wide} by callers"

    within(TRIES, attempt)


def test_a_p99_over_its_limit_is_exit_code_1(stub: Callable[..., Target], tmp_path: Path) -> None:
    """A load test with a p99 over --p99-below ends with exit code 1."""
    done = load(stub("--delay-ms", "10"), tmp_path / "run", "--skip-cold", "--measure", "1", "--p99-below", "5")

    assert "p99" in done.marks
    assert done.code == code_of_a_missed_limit(done)


def test_ctrl_c_keeps_what_was_measured(stub: Callable[..., Target], tmp_path: Path) -> None:
    """Ctrl-C ends a load test at once with a marked result."""
    target, out = stub("--delay-ms", "5"), tmp_path / "run"
    command = command_of(target, out, "-u", "2", "--measure", "60")
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(), cwd=ROOT
    )
    deadline = time.monotonic() + 60
    # More than are asked for below, since a call that the stub has counted may not be answered yet.
    while target.counts()["calls"] < 60:
        assert time.monotonic() < deadline
        time.sleep(0.1)

    process.send_signal(signal.SIGINT)
    process.wait(60)

    run = load_run(out)
    assert "cut-short" in {mark.code for mark in run.record.marks}
    assert len(answered(run.samples)) >= 50


def test_a_thousand_users_start_in_seconds(stub: Callable[..., Target], tmp_path: Path) -> None:
    """A thousand users start in seconds, because they share one client."""

    def attempt(number: int) -> str | None:
        arguments = ("-u", "1000", "-r", "1000", "--measure", "1")
        done = load(stub("--delay-ms", "1000"), tmp_path / str(number), *arguments)
        assert done.result.record.connections_opened <= 1000
        assert len(done.result.samples) >= 1000
        return None if done.seconds < 30 else f"{done.seconds:.0f} s"

    within(TRIES, attempt)


def test_help_names_every_option_and_the_documents_too() -> None:
    """`locust --help` and the documents have all options of the load test with their variables."""
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment())
    documents = (ROOT / "docs" / "load-tests.md").read_text()

    ours = done.stdout[done.stdout.index("encoders: targets") :]
    options = set(re.findall(r"^  (--[a-z0-9-]+)", ours, re.MULTILINE))

    assert "--spawn-rate" in done.stdout
    assert len(re.findall(r"\[COHOST_[A-Z0-9_]+\]", re.sub(r"\s+", " ", ours))) == len(options)
    assert {"--endpoint", "--models", "--target-model", "--pad-to-max", "--rate", "--p99-below", "--out"} <= options
    assert not [option for option in options if f"`{option}" not in documents]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sweep-batch", "1,x"], "argument --sweep-batch: 'x'; allowed: a whole number"),
        (["--rate", "5", "--sweep-concurrency"], "error: --rate: given with a sweep; fix: "),
        (["--host", "127.0.0.1:1"], "error: --host: got '127.0.0.1:1'; allowed: a container's URL"),
        (["--texts", "nowhere.txt", "--host", "http://127.0.0.1:1"], "error: --texts: nowhere.txt cannot be read"),
    ],
)
def test_a_wrong_option_ends_with_a_clear_line(arguments: list[str], message: str) -> None:
    """A wrong option ends with one line that has the allowed values, without a traceback."""
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--task", "text-classification"]
    command += [] if "--models" in arguments else ["--models", "a"]
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment(),
        timeout=LIMIT_S,
    )

    assert done.returncode in {1, 2}
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_ssl_before_locust_is_refused_with_the_reason() -> None:
    """A load test that imported ssl before Locust is rejected with the reason."""
    code = "import boto3; import load_tests.encoders"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)

    assert done.returncode == 1
    assert "ssl was imported before Locust" in done.stderr.splitlines()[-1]
    code = "import locust; import boto3; import load_tests.encoders"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
