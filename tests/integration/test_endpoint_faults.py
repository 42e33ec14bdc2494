"""Faults met through the whole path: boto3, the front door, SageMaker's front, a real container and its workers."""

from __future__ import annotations

import functools
import io
import itertools
import json
import os
import signal
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import boto3
import httpx
import psutil
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from local_aws.hub import default_roots
from local_aws.sagemaker import SageMaker
from local_aws.sagemaker import Settings as SageMakerSettings
from local_aws.server import LocalAws
from local_aws.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130"
LOAD_WAIT_S = 1.5
ONE_WORKER = "engine=Python\noption.rolling_batch=disable\ncpu.minWorkers=1\ncpu.maxWorkers=1\n"
NLI = f"{ONE_WORKER}option.model_id=lmi-cohost/tiny-minilm-nli\noption.task=text-classification\n"
ECHO = """
import os, time
from djl_python import Output

started = False

def handle(inputs):
    global started
    if not started:
        started = True
        time.sleep(float(inputs.get_properties().get("startup", "0")))
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
    """A front door in a thread, and one multi-model endpoint on one instance of 16 GiB."""

    def __init__(self, state_dir: Path) -> None:
        limits = SageMakerSettings(load_wait_s=LOAD_WAIT_S, publish_interval_s=0.2)
        self._server = LocalAws(
            Settings(port=0, state_dir=state_dir, hub_roots=tuple(default_roots()), managed_policies=False),
            functools.partial(SageMaker, settings=limits),
        )
        ready = threading.Event()
        self._thread = threading.Thread(target=self._server.serve, args=(lambda _: ready.set(),))
        self._thread.start()
        assert ready.wait(30)
        httpx.post(f"{self._server.url}/moto-api/reset", trust_env=False).raise_for_status()
        self.s3, self.runtime, self.cloudwatch = map(self._client, ("s3", "sagemaker-runtime", "cloudwatch"))
        self.s3.create_bucket(Bucket="models")
        self._deploy()

    def _client(self, service: str) -> Any:
        session: Any = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
        config = Config(retries={"total_max_attempts": 1}, max_pool_connections=64)
        return session.client(service, endpoint_url=self._server.url, config=config)

    def _deploy(self) -> None:
        sagemaker, iam = self._client("sagemaker"), self._client("iam")
        trust = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        role = iam.create_role(RoleName="r", AssumeRolePolicyDocument=policy)["Role"]["Arn"]
        container = {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": "s3://models/p/"}
        sagemaker.create_model(ModelName="m", PrimaryContainer=container, ExecutionRoleArn=role)
        variant = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1}
        sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
        sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="e", WaiterConfig={"Delay": 1})

    def close(self) -> None:
        """End everything."""
        self._server.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def push(self, name: str, content: bytes) -> None:
        """Upload an archive."""
        self.s3.put_object(Bucket="models", Key=f"p/{name}.tar.gz", Body=content)

    def call(self, name: str, text: str) -> Any:
        """A model's answer to one text."""
        body = json.dumps({"inputs": text}).encode()
        answer = self.runtime.invoke_endpoint(
            EndpointName="e", TargetModel=f"{name}.tar.gz", ContentType="application/json", Body=body
        )
        return json.loads(answer["Body"].read())

    def load(self, name: str, content: bytes) -> None:
        """Upload an archive and call it until it is loaded: the limit here is far below the service's 60 s."""
        self.push(name, content)
        self.wait_until_it_answers(name, 60)

    def wait_until_it_answers(self, name: str, limit_s: float) -> float:
        """Call a model until it answers; the seconds that took. "Not ready" and a model's error are put up with."""
        begun = time.monotonic()
        while True:
            try:
                self.call(name, "hello")
            except (self.runtime.exceptions.ModelNotReadyException, self.runtime.exceptions.ModelError):
                assert time.monotonic() - begun < limit_s, f"{name} does not answer"
                time.sleep(0.05)
            else:
                return time.monotonic() - begun

    @property
    def evictions(self) -> int:
        """How often the instance has unloaded a model to make room."""
        return int(self._instance()["evictions"])

    @property
    def loaded(self) -> list[str]:
        """The models that are loaded, the least recently used first."""
        return [model["target"].removesuffix(".tar.gz") for model in self._instance()["models"] if model["loaded"]]

    def _instance(self) -> dict[str, Any]:
        snapshot = httpx.get(f"{self._server.url}/_cohost/endpoints", trust_env=False).json()
        found: dict[str, Any] = snapshot["endpoints"][0]["variants"][0]["instances"][0]
        return found


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """The whole path, with an echo model and an NLI model loaded; no process is left when it ends."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    running = Aws(tmp_path_factory.mktemp("state"))
    try:
        running.load("echo", archive(ONE_WORKER, ECHO))
        running.load("nli", archive(NLI))
        yield running
    finally:
        running.close()
    assert {child.pid for child in psutil.Process().children(recursive=True)} - before == set()


def _repeatedly(call: Callable[[], Any], ended: threading.Event) -> list[str]:
    """Calls until told to end; the outcome of each: "ok", or the error's code."""
    outcomes = []
    while not ended.is_set():
        try:
            call()
        except ClientError as error:
            outcomes.append(error.response["Error"]["Code"])
        else:
            outcomes.append("ok")
    return outcomes


def test_a_worker_killed_under_load_fails_nobody_elses_request(aws: Aws) -> None:
    """With eight callers: the other model loses no request, this one answers again within 10 s by another process."""
    victim = aws.call("echo", "x")["pid"]
    ended = threading.Event()
    with ThreadPoolExecutor(8) as pool:
        names = ("nli", "echo") * 4
        running = [pool.submit(_repeatedly, functools.partial(aws.call, name, "hello"), ended) for name in names]
        time.sleep(0.5)
        os.kill(victim, signal.SIGKILL)
        seconds = aws.wait_until_it_answers("echo", 10)
        time.sleep(0.5)
        ended.set()
        outcomes = dict(zip(range(8), (future.result() for future in running), strict=True))
    others = list(itertools.chain.from_iterable(outcomes[index] for index in range(0, 8, 2)))
    own = list(itertools.chain.from_iterable(outcomes[index] for index in range(1, 8, 2)))
    assert set(others) == {"ok"}
    assert len(others) > 20
    assert set(own) <= {"ok", "ModelError"}
    assert own[-1] == "ok"
    assert seconds < 10
    assert aws.call("echo", "x")["pid"] != victim


def test_a_load_beyond_the_limit_is_not_ready_and_then_answers(aws: Aws) -> None:
    """429 as the typed exception once the limit is over, and no second load: the one under way is waited for."""
    aws.push("slow", archive(f"{ONE_WORKER}option.startup=4\n", ECHO))
    begun = time.monotonic()
    with pytest.raises(aws.runtime.exceptions.ModelNotReadyException) as caught:
        aws.call("slow", "x")
    assert LOAD_WAIT_S <= time.monotonic() - begun < LOAD_WAIT_S + 2
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
    aws.wait_until_it_answers("slow", 10)
    assert time.monotonic() - begun < 8


def test_a_corrupt_archive_fails_its_own_calls_until_it_is_mended(aws: Aws) -> None:
    """A typed error that names the archive's fault; a good archive under the same key is taken at the next call."""
    aws.push("corrupt", archive(ONE_WORKER, ECHO)[:-20])
    with pytest.raises(aws.runtime.exceptions.ValidationError):
        aws.call("corrupt", "x")
    assert aws.call("echo", "still here")["text"] == "still here"
    aws.load("corrupt", archive(ONE_WORKER, ECHO))


def test_a_handler_that_cannot_start_is_a_model_error(aws: Aws) -> None:
    """The container's own words reach the caller, and the endpoint goes on."""
    aws.push("broken", archive(ONE_WORKER, "raise RuntimeError('broken on purpose')"))
    with pytest.raises(aws.runtime.exceptions.ModelError) as caught:
        aws.call("broken", "x")
    assert caught.value.response["OriginalStatusCode"] == 500
    assert aws.call("echo", "still here")["text"] == "still here"


def test_a_removed_archive_matters_to_models_that_are_not_loaded_only(aws: Aws) -> None:
    """A loaded copy answers on; one that was never fetched is told to be missing."""
    aws.load("kept", archive(ONE_WORKER, ECHO))
    aws.push("unfetched", archive(ONE_WORKER, ECHO))
    for name in ("kept", "unfetched"):
        aws.s3.delete_object(Bucket="models", Key=f"p/{name}.tar.gz")
    assert aws.call("kept", "from the copy")["text"] == "from the copy"
    with pytest.raises(aws.runtime.exceptions.ValidationError, match="Failed to download model data"):
        aws.call("unfetched", "x")


def test_three_models_in_memory_for_two_are_all_answered(aws: Aws) -> None:
    """a, b, c, a, b, c: each call beyond the first two evicts the least recently used one, and each is answered."""
    order = ["a", "b", "c", "a", "b", "c"]
    for name in "abc":
        aws.push(name, archive(f"{ONE_WORKER}required_memory_mb=7000\n", ECHO))
    for number, name in enumerate(order):
        evicted = aws.evictions
        aws.wait_until_it_answers(name, 30)
        assert aws.call(name, f"{name}{number}")["text"] == f"{name}{number}"
        if number >= 2:
            assert aws.evictions > evicted
    held = [name for name in aws.loaded if name in {"a", "b", "c"}]
    assert held == ["b", "c"]
    time.sleep(0.5)  # the metrics are on their way
    statistics = aws.cloudwatch.list_metrics(Namespace="AWS/SageMaker", MetricName="ModelUnloadingTime")
    assert statistics["Metrics"]


def test_callers_of_three_models_at_once_are_all_answered(aws: Aws) -> None:
    """The same memory under three callers at once: models push each other out, no call is lost or given another's."""
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
    """32 callers, five kinds of models (one by one, two workers, batched, asynchronous, NLI): each answer its own."""
    aws.load("two", archive(ONE_WORKER.replace("=1", "=2"), ECHO))
    aws.load("batched", archive(f"{ONE_WORKER}batch_size=8\nmax_batch_delay=5\n", BATCH_ECHO))
    aws.load("async", archive(f"{ONE_WORKER}option.async_mode=true\noption.entryPoint=model.py\n", ASYNC_ECHO))
    aws.wait_until_it_answers("echo", 30)
    aws.wait_until_it_answers("nli", 30)
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
