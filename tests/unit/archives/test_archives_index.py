"""The Lambda function from event to answer, once per request type and once per way to fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.awsrequest import AWSResponse

import cohost.archives
from cohost.archives import index, reply
from cohost.archives.reply import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mypy_boto3_s3 import S3Client
    from tests.unit.artifacts.conftest import CloudFormation, Context, Spy

    Send = Callable[..., dict[str, Any]]
    Keys = Callable[[], set[str]]

pytestmark = pytest.mark.process

A = {"a": {"engine": "Python", "option.model_id": "org/a"}}
AB = {**A, "b": {"engine": "Python", "option.model_id": "org/b"}}
CHANGED = {"a": {"engine": "Python", "option.model_id": "org/a", "batch_size": "8"}}


def test_create_publishes_and_tells_where(send: Send, cloudformation: CloudFormation, keys: Keys) -> None:
    """The physical id and ModelDataUrl are the URI of the archives."""
    answer = send(cloudformation.event("Create", AB))
    uri = answer["PhysicalResourceId"]
    generation = answer["Data"]["Generation"]
    assert answer["Status"] == "SUCCESS"
    assert uri == answer["Data"]["ModelDataUrl"] == f"s3://models/encoders/{generation}/"
    assert keys() == {f"encoders/{generation}/a.tar.gz", f"encoders/{generation}/b.tar.gz"}


def test_life_of_a_stack(send: Send, cloudformation: CloudFormation, keys: Keys) -> None:
    """Create, add, change and delete events give a new id exactly for new content, and leave nothing."""
    event = cloudformation.event
    first = send(event("Create", A))["PhysicalResourceId"]
    assert send(event("Update", AB, old=A, PhysicalResourceId=first))["PhysicalResourceId"] == first
    second = send(event("Update", CHANGED, old=AB, PhysicalResourceId=first))["PhysicalResourceId"]
    assert second != first
    assert send(event("Delete", AB, PhysicalResourceId=first))["Status"] == "SUCCESS"
    assert keys() == {f"{second.removeprefix('s3://models/')}a.tar.gz"}
    assert send(event("Delete", CHANGED, PhysicalResourceId=second))["Status"] == "SUCCESS"
    assert keys() == set()


def test_update_that_is_rolled_back(send: Send, cloudformation: CloudFormation, keys: Keys) -> None:
    """A rolled back update returns the old id, and the new one can be deleted."""
    event = cloudformation.event
    old = send(event("Create", A))["PhysicalResourceId"]
    before = keys()
    new = send(event("Update", CHANGED, old=A, PhysicalResourceId=old))["PhysicalResourceId"]
    assert send(event("Update", A, old=CHANGED, PhysicalResourceId=new))["PhysicalResourceId"] == old
    send(event("Delete", CHANGED, PhysicalResourceId=new))
    assert keys() == before


def test_every_event_can_be_repeated(send: Send, cloudformation: CloudFormation, keys: Keys) -> None:
    """A repeated event has the same answer and leaves the same bucket, because Lambda may repeat events."""
    created = cloudformation.event("Create", A)
    first = send(created)
    events = [
        created,
        cloudformation.event("Update", AB, old=A, PhysicalResourceId=first["PhysicalResourceId"]),
        cloudformation.event("Update", CHANGED, old=AB, PhysicalResourceId=first["PhysicalResourceId"]),
        cloudformation.event("Delete", AB, PhysicalResourceId=first["PhysicalResourceId"]),
    ]
    for event in events:
        answer, there = send(event), keys()
        assert send(event) == answer
        assert keys() == there


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"PhysicalResourceId": "cohost-failed-create-request-1"},
        {"PhysicalResourceId": "LmiCohostStack-Models-1ABC"},
        {"PhysicalResourceId": "s3://other/encoders/0123456789ab/"},
        {"PhysicalResourceId": "s3://models/elsewhere/0123456789ab/"},
        {"PhysicalResourceId": "s3://models/encoders/0123456789ab/"},
        {"ResourceProperties": {}},
        {"ResourceProperties": {"Bucket": "models", "Prefix": "no-slash"}},
        {"ResourceProperties": {"Bucket": "gone", "Prefix": "encoders/"}},
    ],
)
def test_delete_of_what_is_not_there_is_done(
    send: Send, cloudformation: CloudFormation, s3: S3Client, keys: Keys, fields: Mapping[str, Any]
) -> None:
    """A Delete of an unknown id or a missing bucket succeeds without a deletion."""
    send(cloudformation.event("Create", A))
    s3.put_object(Bucket="models", Key="elsewhere/0123456789ab/a.tar.gz", Body=b"")
    before = keys()
    answer = send(cloudformation.event("Delete", A, **fields))
    assert answer["Status"] == "SUCCESS"
    assert answer["PhysicalResourceId"]
    assert keys() == before


def test_delete_that_s3_refuses_fails(send: Send, cloudformation: CloudFormation, spy: Spy) -> None:
    """A Delete event fails if S3 denies the deletion, because then the objects still exist."""
    uri = send(cloudformation.event("Create", A))["PhysicalResourceId"]
    spy.fail("delete_objects", 1, "AccessDenied")
    answer = send(cloudformation.event("Delete", A, PhysicalResourceId=uri))
    assert answer["Status"] == "FAILED"
    assert answer["PhysicalResourceId"] == uri
    assert "AccessDenied" in answer["Reason"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"RequestType": "Rename"}, "RequestType: got 'Rename'"),
        ({"RequestType": None}, "RequestType: got None"),
        ({"ResourceProperties": {"Prefix": "p/", "Models": A}}, "Bucket: got None"),
        ({"ResourceProperties": {"Bucket": "models", "Prefix": "p", "Models": A}}, "Prefix: got 'p'"),
        ({"ResourceProperties": {"Bucket": "models", "Prefix": "p/", "Models": {}}}, "Models: got {}"),
        ({"ResourceProperties": {"Bucket": "models", "Prefix": "p/", "Models": {"../x": A["a"]}}}, "rename the model"),
        ({"ResourceProperties": {"Bucket": "models", "Prefix": "p/", "Models": {"a": {"x": []}}}}, "Models.a.x"),
        ({"ResourceProperties": {"Bucket": "none", "Prefix": "p/", "Models": A}}, "NoSuchBucket"),
        ({"ResourceProperties": "text"}, "AttributeError"),
    ],
)
def test_bad_event_fails_with_its_reason(
    send: Send, cloudformation: CloudFormation, keys: Keys, change: Mapping[str, Any], reason: str
) -> None:
    """A bad event writes nothing and fails with the name of the field; the Delete that follows has no effect."""
    answer = send({**cloudformation.event("Create", A), **change})
    assert answer["Status"] == "FAILED"
    assert reason in answer["Reason"]
    assert keys() == set()
    later = send(cloudformation.event("Delete", A, PhysicalResourceId=answer["PhysicalResourceId"]))
    assert later["Status"] == "SUCCESS"


def test_failed_update_keeps_the_old_id(send: Send, cloudformation: CloudFormation, spy: Spy, keys: Keys) -> None:
    """A failed update answers with the old id, so CloudFormation rolls back to it."""
    old = send(cloudformation.event("Create", A))["PhysicalResourceId"]
    before = keys()
    spy.fail("put_object", 2)
    answer = send(cloudformation.event("Update", CHANGED, old=A, PhysicalResourceId=old))
    assert answer["Status"] == "FAILED"
    assert answer["PhysicalResourceId"] == old
    assert keys() == before


def test_unexpected_error_is_answered_too(
    send: Send, cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected exception is answered with FAILED at once."""
    monkeypatch.setattr(index, "archives_of", lambda _: 1 // 0)
    answer = send(cloudformation.event("Create", A))
    assert answer["Status"] == "FAILED"
    assert answer["Reason"].startswith("ZeroDivisionError")


def test_time_running_out_stops_undoes_and_answers(
    send: Send, cloudformation: CloudFormation, spy: Spy, keys: Keys, context: type[Context]
) -> None:
    """Work that exceeds the time limit is undone and answered, because the clock is read before each request."""
    clock = context(300)

    def hurry() -> None:
        clock.seconds = 9

    spy.before("put_object", 2, hurry)
    answer = send(cloudformation.event("Create", AB), clock)
    assert answer["Status"] == "FAILED"
    assert answer["Reason"].startswith("time limit")
    assert keys() == set()


def test_hanging_call_is_answered_for(
    send: Send,
    cloudformation: CloudFormation,
    spy: Spy,
    keys: Keys,
    context: type[Context],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call that never returns does not delay the answer, and the next Delete removes its objects."""
    hanging, release = threading.Event(), threading.Event()

    class Over(Deadline):
        @property
        def seconds_to_answer(self) -> float:
            """Return no remaining seconds from the time when the call hangs until it returns."""
            assert hanging.wait(60)
            return super().seconds_to_answer if release.is_set() else 0.0

    def hang() -> None:
        hanging.set()
        release.wait(60)

    monkeypatch.setattr(index, "Deadline", Over)
    spy.before("put_object", 3, hang)
    before = set(threading.enumerate())
    try:
        answer = send(cloudformation.event("Create", AB), context(300))
        assert answer["Status"] == "FAILED"
        assert "did not return in time" in answer["Reason"]
        assert len(keys()) == 2
    finally:
        release.set()
        for thread in set(threading.enumerate()) - before:
            thread.join(60)
    # The late thread's call went through, but nothing after it, and its own answer was dropped.
    assert len(cloudformation.answers) == 1
    send(cloudformation.event("Delete", AB, PhysicalResourceId=answer["PhysicalResourceId"]))
    assert keys() == set()


def test_deletion_after_a_hanging_creation_sweeps(
    send: Send, cloudformation: CloudFormation, s3: S3Client, keys: Keys
) -> None:
    """A Delete after a create that never finished deletes its generation."""
    for key in ("unfinished/0123456789ab", "removed/0123456789ab/a/d"):
        s3.put_object(Bucket="models", Key=f"encoders/{key}", Body=b"")
    s3.put_object(Bucket="models", Key="encoders/0123456789ab/a.tar.gz", Body=b"", Metadata={"cohost-digest": "d"})
    answer = send(cloudformation.event("Delete", A, PhysicalResourceId="cohost-failed-create-request-1"))
    assert answer["Status"] == "SUCCESS"
    assert keys() == set()


def test_answer_that_cannot_be_delivered_is_lambda_s_to_repeat(
    send: Send, cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that cannot be sent raises an error, and the repeated event is answered."""
    monkeypatch.setattr(reply, "_PAUSES_SECONDS", (0.0, 0.0, 0.0))
    cloudformation.refuse = 3
    event = cloudformation.event("Create", A)
    with pytest.raises(OSError, match="503"):
        send(event)
    assert send(event)["Status"] == "SUCCESS"


def test_throttling_is_waited_out(s3: S3Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function's client retries if S3 throttles it."""
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    index.s3_client.cache_clear()
    client = index.s3_client()
    asked: list[str] = []

    def slow_down(request: Any, **_: object) -> AWSResponse | None:
        asked.append(request.url)
        if len(asked) > 3:
            return None
        return AWSResponse(request.url, 503, {}, _Raw(b"<Error><Code>SlowDown</Code></Error>"))

    client.meta.events.register_first("before-send.s3.PutObject", slow_down)
    client.put_object(Bucket="models", Key="k", Body=b"1")
    index.s3_client.cache_clear()
    assert len(asked) == 4
    assert s3.get_object(Bucket="models", Key="k")["Body"].read() == b"1"


class _Raw:
    """The part of an HTTP response that botocore reads."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> list[bytes]:
        """Return the body at once."""
        return [self._body]


def test_one_client_serves_a_process(s3: S3Client) -> None:
    """All events of a warm function use one client."""
    assert s3 is not None
    index.s3_client.cache_clear()
    assert index.s3_client() is index.s3_client()
    index.s3_client.cache_clear()


def test_folder_works_alone_as_in_lambda(tmp_path: Path) -> None:
    """The folder cohost/archives works without the rest of cohost, as in Lambda."""
    source = Path(cohost.archives.__file__).parent
    shutil.copytree(source, tmp_path / "archives", ignore=shutil.ignore_patterns("__pycache__"))
    check = (
        "import sys, archives.index as index, archives.verify\n"
        "assert callable(index.on_event)\n"
        "more = {name.split('.')[0] for name in sys.modules} & {'cohost', 'pydantic', 'yaml', 'aws_cdk'}\n"
        "assert not more, more\n"
        f"assert index.__file__.startswith({str(tmp_path)!r}), index.__file__\n"
    )
    subprocess.run([sys.executable, "-c", check], cwd=tmp_path, check=True, env={"PYTHONPATH": str(tmp_path)})
