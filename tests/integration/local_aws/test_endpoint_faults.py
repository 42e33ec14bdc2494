"""Faults seen through the whole path: boto3, front door, SageMaker, a real container and its workers."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from fakes.refusals import refused

from cohost.endpoint.invocation_payloads import refusal_of
from cohost.endpoint.load_failures import reason_from_log
from cohost.errors import InvocationError
from local_aws.lmi.container import Container
from local_aws.lmi.models.hub import default_roots
from local_aws.sagemaker.routes import SageMaker
from local_aws.sagemaker.settings import Settings as SageMakerSettings
from local_aws.testing import serving_role
from local_aws.testing.running import LIMIT_S, FrontDoor, leaving_no_process, running, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130"
LOAD_WAIT_S = 1.5
ONE_WORKER = "engine=Python\noption.rolling_batch=disable\ncpu.minWorkers=1\ncpu.maxWorkers=1\n"
NLI = f"{ONE_WORKER}option.model_id=lmi-cohost/tiny-minilm-nli\noption.task=text-classification\n"
ECHO = """
import os, pathlib, time
from djl_python import Output

started = False

def start(gate):
    with gate.with_suffix(".starts").open("a") as starts:
        starts.write("x")
    while not gate.exists():
        time.sleep(0.02)

def handle(inputs):
    global started
    if not started and "gate" in inputs.get_properties():
        start(pathlib.Path(inputs.get_properties()["gate"]))
    started = True
    if inputs.is_empty():
        return None
    text = inputs.get_as_json()["inputs"]
    return Output().add_as_json({"text": text, "pid": os.getpid(), "model": inputs.get_properties()["model_dir"]})
"""
ASYNC_ECHO = """
import asyncio, json, os
from djl_python import Output

async def handle(inputs):
    if inputs.is_empty():
        return None
    text = inputs.get_as_json()["inputs"]
    await asyncio.sleep(len(text) % 7 / 1000)
    output = Output()
    output.add(Output.binary_encode({"data": json.dumps({"text": text, "pid": os.getpid()}), "last": True}))
    return output
"""
MORTAL = """
import os
from djl_python import Output

def handle(inputs):
    if inputs.is_empty():
        return None
    if inputs.get_as_json()["inputs"] == "end":
        os._exit(1)
    return Output().add_as_json({"pid": os.getpid()})
"""
BATCH_ECHO = """
import os
from djl_python import Output

def handle(inputs):
    if inputs.is_empty():
        return None
    output = Output()
    for index, item in enumerate(inputs.get_batches()):
        output.add_as_json({"text": item.get_as_json()["inputs"], "pid": os.getpid()}, batch_index=index)
    return output
"""


def archive(properties: str, handler: str | None = None) -> bytes:
    """A model's archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in {"serving.properties": properties, "model.py": handler}.items():
            if text is not None:
                member = tarfile.TarInfo(name)
                member.size = len(text.encode())
                tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


class Aws:
    """One multi-model endpoint on one instance of 16 GiB, behind a front door."""

    def __init__(self, door: FrontDoor) -> None:
        self._door = door
        self.s3, self.runtime, self.cloudwatch = map(door.client, ("s3", "sagemaker-runtime", "cloudwatch"))
        self.s3.create_bucket(Bucket="models")
        self._deploy()

    def _deploy(self) -> None:
        sagemaker, iam = self._door.client("sagemaker"), self._door.client("iam")
        role = serving_role(iam, "r")
        container = {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": "s3://models/p/"}
        sagemaker.create_model(ModelName="m", PrimaryContainer=container, ExecutionRoleArn=role)
        variant = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1}
        sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
        sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
        wait_for(lambda: sagemaker.describe_endpoint(EndpointName="e")["EndpointStatus"] == "InService")

    def push(self, name: str, content: bytes) -> None:
        """Upload an archive."""
        self.s3.put_object(Bucket="models", Key=f"p/{name}.tar.gz", Body=content)

    def call(self, name: str, text: str) -> Any:
        """Return a model's answer to one text."""
        body = json.dumps({"inputs": text}).encode()
        answer = self.runtime.invoke_endpoint(
            EndpointName="e", TargetModel=f"{name}.tar.gz", ContentType="application/json", Body=body
        )
        return json.loads(answer["Body"].read())

    def ask(self, name: str) -> None:
        """Call a model as `cohost invoke` does, whose errors have the reason from the log."""
        with reason_from_log(self._door.client("logs"), "e", name):
            try:
                self.call(name, "x")
            except ClientError as error:
                raise refusal_of(name, error) from error

    def load(self, name: str, content: bytes) -> None:
        """Upload an archive and call its model until it is loaded; the limit is far below SageMaker's 60 s."""
        self.push(name, content)
        self.wait_until_it_answers(name)

    def wait_until_it_answers(self, name: str) -> float:
        """Call a model until it answers, ignoring its errors, and return the seconds."""
        begun = time.monotonic()
        while True:
            try:
                self.call(name, "hello")
            except (self.runtime.exceptions.ModelNotReadyException, self.runtime.exceptions.ModelError):
                assert time.monotonic() - begun < LIMIT_S, f"{name} does not answer"
                time.sleep(0.05)
            else:
                return time.monotonic() - begun

    def switch(self, **wanted: float) -> None:
        """Set fault switches."""
        self._door.page("/_cohost/faults", **wanted)

    def strike(self, name: str, fault: str) -> None:
        """Have something happen to a worker process of a model at once."""
        page: Any = self._door.page
        page("/_cohost/faults", worker_fault={"endpoint": "e", "model": name, "fault": fault})

    @property
    def restarts(self) -> int:
        """Return the number of replaced containers on the instance."""
        return int(self._instance()["restarts"])

    @property
    def log(self) -> str:
        """The instance's log."""
        return Path(self._instance()["log_file"]).read_text()

    @property
    def evictions(self) -> int:
        """Return how often the instance has unloaded a model to make room."""
        return int(self._instance()["evictions"])

    @property
    def loaded(self) -> list[str]:
        """The models that are loaded, the least recently used first."""
        return [model["target"].removesuffix(".tar.gz") for model in self._instance()["models"] if model["loaded"]]

    def _instance(self) -> dict[str, Any]:
        snapshot = self._door.page("/_cohost/endpoints")
        found: dict[str, Any] = snapshot["endpoints"][0]["variants"][0]["instances"][0]
        return found


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """Start the whole path with an echo and an NLI model loaded, and stop all processes afterwards."""
    limits = SageMakerSettings(load_wait_s=LOAD_WAIT_S, publish_interval_s=0.2)
    make = functools.partial(SageMaker, start_container=Container.start, settings=limits)
    state, roots = tmp_path_factory.mktemp("state"), tuple(default_roots())
    with leaving_no_process(), running(state, make, hub_roots=roots) as door:
        made = Aws(door)
        made.load("echo", archive(ONE_WORKER, ECHO))
        made.load("nli", archive(NLI))
        yield made


def _repeatedly(call: Callable[[], Any], ended: threading.Event, outcomes: list[str]) -> None:
    """Call until the end, and record each outcome: "ok" or the error code."""
    while not ended.is_set():
        try:
            call()
        except ClientError as error:
            outcomes.append(error.response["Error"]["Code"])
        else:
            outcomes.append("ok")


@contextlib.contextmanager
def callers(aws: Aws, names: Sequence[str]) -> Iterator[list[list[str]]]:
    """Start one caller per name until the block ends, and yield the outcomes of each."""
    ended, outcomes = threading.Event(), [list[str]() for _ in names]
    with ThreadPoolExecutor(len(names)) as pool:
        for name, one in zip(names, outcomes, strict=True):
            pool.submit(_repeatedly, functools.partial(aws.call, name, "hello"), ended, one)
        try:
            yield outcomes
        finally:
            ended.set()


def all_called(outcomes: list[list[str]], times: int = 3) -> None:
    """Wait until each caller has this number of further outcomes."""
    wanted = [len(one) + times for one in outcomes]
    wait_for(lambda: all(len(one) >= least for one, least in zip(outcomes, wanted, strict=True)))


def test_a_synchronous_worker_that_ends_in_a_call_takes_the_whole_instance_down(aws: Aws) -> None:
    """A synchronous worker that ends in a call fails the pings: no model answers until the container is replaced."""
    aws.switch(ping_interval_s=0.1, ping_failures=2, replacement_delay_s=1)
    aws.load("mortal", archive(ONE_WORKER, MORTAL))
    aws.wait_until_it_answers("echo")
    restarts = aws.restarts
    with callers(aws, ["echo", "nli"]) as outcomes:
        all_called(outcomes)
        with pytest.raises(aws.runtime.exceptions.ModelError) as caught:
            aws.call("mortal", "end")
        assert caught.value.response["OriginalStatusCode"] == 503
        wait_for(lambda: all("ServiceUnavailable" in one for one in outcomes))
        wait_for(lambda: aws.restarts == restarts + 1)
        all_called(outcomes)
        wait_for(lambda: all(one[-1] == "ok" for one in outcomes))
    assert "mortal" not in aws.loaded
    assert any("out of service" in line and '"FAILED"' in line for line in aws.log.splitlines())
    aws.wait_until_it_answers("mortal")
    assert aws.restarts == restarts + 1
    aws.switch(ping_interval_s=5, ping_failures=3)


def test_a_stock_worker_that_dies_idle_is_silent_for_ever_and_unseen(aws: Aws) -> None:
    """A stock worker that dies idle gives the server's 400 at each call; other models lose no call."""
    aws.switch(ping_interval_s=0.1, ping_failures=2)
    aws.load("stock", archive(NLI))
    aws.wait_until_it_answers("echo")
    restarts = aws.restarts
    with callers(aws, ["echo"] * 4) as outcomes:
        aws.strike("stock", "die")
        for _ in range(5):
            with pytest.raises(aws.runtime.exceptions.ModelError) as caught:
                aws.call("stock", "hello")
            assert caught.value.response["OriginalStatusCode"] == 400
            assert "Backend Python process is stopped." in caught.value.response["OriginalMessage"]
        all_called(outcomes, 10)
    assert set(itertools.chain(*outcomes)) == {"ok"}
    assert (aws.restarts, "stock" in aws.loaded) == (restarts, True)
    aws.switch(ping_interval_s=5, ping_failures=3)


def test_an_asynchronous_worker_under_a_threshold_comes_back_by_itself(aws: Aws) -> None:
    """A killed asynchronous worker is restarted; other models lose no call, and the instance is not replaced."""
    aws.switch(ping_interval_s=0.1, ping_failures=2)
    restarting = f"{ONE_WORKER}option.async_mode=true\noption.entryPoint=model.py\nretry_threshold=3\n"
    aws.load("restarting", archive(restarting, ASYNC_ECHO))
    aws.wait_until_it_answers("echo")
    restarts, victim = aws.restarts, aws.call("restarting", "x")["pid"]
    with callers(aws, ["echo", "restarting"] * 4) as outcomes:
        all_called(outcomes)
        aws.strike("restarting", "die")
        aws.wait_until_it_answers("restarting")
        all_called(outcomes)
        wait_for(lambda: all(one[-1] == "ok" for one in outcomes))
    assert set(itertools.chain(*outcomes[::2])) == {"ok"}
    assert set(itertools.chain(*outcomes[1::2])) <= {"ok", "ModelError"}
    assert aws.call("restarting", "x")["pid"] != victim
    assert aws.restarts == restarts
    aws.switch(ping_interval_s=5, ping_failures=3)


def test_a_load_beyond_the_limit_is_not_ready_and_then_answers(aws: Aws, tmp_path: Path) -> None:
    """A load over the limit gives ModelNotReadyException, and later calls wait for the same load."""
    gate = tmp_path / "gate"
    aws.push("slow", archive(f"{ONE_WORKER}option.gate={gate}\n", ECHO))
    begun = time.monotonic()
    for _ in range(2):
        with pytest.raises(aws.runtime.exceptions.ModelNotReadyException) as caught:
            aws.call("slow", "x")
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
    assert time.monotonic() - begun >= LOAD_WAIT_S
    gate.touch()
    aws.wait_until_it_answers("slow")
    assert gate.with_suffix(".starts").read_text() == "x"


def test_a_corrupt_archive_fails_its_own_calls_until_it_is_mended(aws: Aws) -> None:
    """A corrupt archive gives a typed error with the fault, and a corrected one loads at the next call."""
    aws.push("corrupt", archive(ONE_WORKER, ECHO)[:-20])
    with pytest.raises(aws.runtime.exceptions.ValidationError):
        aws.call("corrupt", "x")
    assert aws.call("echo", "still here")["text"] == "still here"
    aws.load("corrupt", archive(ONE_WORKER, ECHO))


def test_a_handler_that_cannot_start_is_a_model_error(aws: Aws) -> None:
    """A handler that cannot start gives the container's error, to which `cohost invoke` adds the log's reason."""
    aws.push("broken", archive(ONE_WORKER, "raise RuntimeError('broken on purpose')"))
    with pytest.raises(aws.runtime.exceptions.ModelError) as caught:
        aws.call("broken", "x")
    assert caught.value.response["OriginalStatusCode"] == 500
    assert "Python stream closed unexpectedly" in caught.value.response["OriginalMessage"]
    with refused("endpoint-answer", "model broken", kind=InvocationError) as told:
        aws.ask("broken")
    assert "RuntimeError: broken on purpose" in told.value.problem
    assert aws.call("echo", "still here")["text"] == "still here"


def test_a_removed_archive_matters_to_models_that_are_not_loaded_only(aws: Aws) -> None:
    """A loaded model answers after its archive is deleted, and a model never loaded gives an error."""
    aws.load("kept", archive(ONE_WORKER, ECHO))
    aws.push("unfetched", archive(ONE_WORKER, ECHO))
    for name in ("kept", "unfetched"):
        aws.s3.delete_object(Bucket="models", Key=f"p/{name}.tar.gz")
    assert aws.call("kept", "from the copy")["text"] == "from the copy"
    with pytest.raises(aws.runtime.exceptions.ValidationError):
        aws.call("unfetched", "x")


def test_three_models_in_memory_for_two_are_all_answered(aws: Aws) -> None:
    """With memory for two of three models each call is answered, and evicts the least recently used model."""
    order = ["a", "b", "c", "a", "b", "c"]
    for name in "abc":
        aws.push(name, archive(f"{ONE_WORKER}required_memory_mb=7000\n", ECHO))
    for number, name in enumerate(order):
        evicted = aws.evictions
        aws.wait_until_it_answers(name)
        assert aws.call(name, f"{name}{number}")["text"] == f"{name}{number}"
        if number >= 2:
            assert aws.evictions > evicted
    held = [name for name in aws.loaded if name in {"a", "b", "c"}]
    assert held == ["b", "c"]
    metric = {"Namespace": "AWS/SageMaker", "MetricName": "ModelUnloadingTime"}
    wait_for(lambda: aws.cloudwatch.list_metrics(**metric)["Metrics"])


def test_callers_of_three_models_at_once_are_all_answered(aws: Aws) -> None:
    """Three callers whose models do not fit into memory together all get the answers of their own models."""
    for name in "abc":
        aws.push(name, archive(f"{ONE_WORKER}required_memory_mb=7000\n", ECHO))

    def caller(name: str) -> list[bool]:
        right = []
        for number in range(5):
            while True:
                try:
                    right.append(aws.call(name, f"{name} {number}")["text"] == f"{name} {number}")
                    break
                except aws.runtime.exceptions.ModelNotReadyException:
                    continue
        return right

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(caller, "abc")) == [[True] * 5] * 3


def test_a_thousand_mixed_requests_are_neither_lost_nor_mixed_up(aws: Aws) -> None:
    """A thousand requests of 32 callers to five kinds of models each get their own answer."""
    aws.load("two", archive(ONE_WORKER.replace("=1", "=2"), ECHO))
    aws.load("batched", archive(f"{ONE_WORKER}batch_size=8\nmax_batch_delay=5\n", BATCH_ECHO))
    aws.load("async", archive(f"{ONE_WORKER}option.async_mode=true\noption.entryPoint=model.py\n", ASYNC_ECHO))
    aws.wait_until_it_answers("echo")
    aws.wait_until_it_answers("nli")
    sentences = ["the movie was great", "the movie was bad", "한국어 문장입니다", "a"]
    expected = {sentence: aws.call("nli", sentence) for sentence in sentences}
    assert len({answer[0]["score"] for answer in expected.values()}) == len(sentences)

    def one(number: int) -> bool:
        name = ("echo", "two", "batched", "async", "nli")[number % 5]
        if name == "nli":
            sentence = sentences[number // 5 % len(sentences)]
            return bool(aws.call(name, sentence) == expected[sentence])
        text = f"{name} {number} 한글 {'x' * (number % 97)}"
        return bool(aws.call(name, text)["text"] == text)

    with ThreadPoolExecutor(32) as pool:
        right = list(pool.map(one, range(1000)))
    assert right == [True] * 1000
