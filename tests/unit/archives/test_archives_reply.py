"""The answer to CloudFormation: exactly one, small enough, and sent again after a failure."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from cohost.archives import reply
from cohost.archives.reply import Reply

if TYPE_CHECKING:
    from tests.unit.artifacts.conftest import CloudFormation

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "_PAUSES_SECONDS", (0.0, 0.0, 0.0))


def test_success_carries_id_and_attributes(cloudformation: CloudFormation) -> None:
    """A success has CloudFormation's fields and an empty content type, for which the URL is signed."""
    Reply(cloudformation.event("Create")).succeed("s3://b/p/1/", {"Generation": "1"})
    assert cloudformation.answers == [
        {
            "Status": "SUCCESS",
            "PhysicalResourceId": "s3://b/p/1/",
            "Data": {"Generation": "1"},
            "StackId": "arn:aws:cloudformation:us-east-1:123456789012:stack/LmiCohostStack/1",
            "RequestId": "request-1",
            "LogicalResourceId": "Models",
        }
    ]
    assert cloudformation.content_types == [""]


def test_failure_names_the_id_that_the_resource_has(cloudformation: CloudFormation) -> None:
    """A failed update keeps the old id; a failed create has a made-up id, the same when repeated."""
    Reply(cloudformation.event("Update", PhysicalResourceId="old")).fail("why")
    Reply(cloudformation.event("Create")).fail("why")
    Reply(cloudformation.event("Create")).fail("why")
    ids = [answer["PhysicalResourceId"] for answer in cloudformation.answers]
    assert ids == ["old", "cohost-failed-create-request-1", "cohost-failed-create-request-1"]


@pytest.mark.parametrize("reason", ["x" * 10_000, "안" * 10_000, "😀" * 10_000, "line\n" * 3000, ""])
def test_answer_is_small_enough(cloudformation: CloudFormation, reason: str) -> None:
    """An answer with a reason of any length and script is under 4096 bytes, in one line."""
    Reply(cloudformation.event("Create", PhysicalResourceId="i" * 1024)).fail(reason)
    (answer,) = cloudformation.answers
    assert cloudformation.sizes[0] < 4096
    assert answer["Reason"]
    assert "\n" not in answer["Reason"]


def test_answer_is_sent_again_if_not_taken(cloudformation: CloudFormation) -> None:
    """An answer that is rejected twice is sent a third time."""
    cloudformation.refuse = 2
    Reply(cloudformation.event("Create")).succeed("id", {})
    assert len(cloudformation.answers) == 1


def test_answer_that_is_never_taken_is_an_error(cloudformation: CloudFormation) -> None:
    """An answer that is rejected three times raises an error, so that Lambda repeats the event."""
    cloudformation.refuse = 3
    answer = Reply(cloudformation.event("Create"))
    with pytest.raises(OSError, match="503"):
        answer.succeed("id", {})
    answer.succeed("id", {})
    assert len(cloudformation.answers) == 1


def test_only_the_first_answer_is_sent(cloudformation: CloudFormation) -> None:
    """If several threads answer at once, only one answer is sent."""
    answer = Reply(cloudformation.event("Create"))
    threads = [threading.Thread(target=answer.fail, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answer.succeed("id", {})
    assert len(cloudformation.answers) == 1
