"""Batches are joined and their answers taken apart as the real server does."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from local_aws.lmi.answers import Answer
from local_aws.lmi.errors import TranslateFault
from local_aws.lmi.handler_api import Output
from local_aws.lmi.workers.connection import Frame
from local_aws.lmi.workers.jobs import AsyncAnswer, Job, join, split, take_part


def _job(body: bytes) -> Job:
    return Job({"Content-Type": "application/json"}, [("data", body)], cast("Any", None))


def _frame(*contents: tuple[str | None, bytes], code: int = 200) -> Frame:
    return Frame({"id": 1, "code": code, "message": "m", "properties": {"X": "v"}}, contents)


def test_a_single_request_keeps_its_keys() -> None:
    """One request is no batch: a handler sees "data" and plain headers."""
    assert join([_job(b"1")]) == ({"Content-Type": "application/json"}, [("data", b"1")])


def test_a_batch_prefixes_every_key() -> None:
    """Recorded (21_handler_properties): batch_000.Content-Type, batch_001.data, batch_size."""
    properties, contents = join([_job(b"1"), _job(b"2")])
    assert properties == {
        "batch_size": "2",
        "batch_000.Content-Type": "application/json",
        "batch_001.Content-Type": "application/json",
    }
    assert contents == [("batch_000.data", b"1"), ("batch_001.data", b"2")]


def test_answers_find_their_requests_by_key() -> None:
    """The key, not the order, says whose an answer is."""
    answers = split(_frame(("batch_1.x", b"b"), ("batch_000.data", b"a")), 2)
    assert [answer.body for answer in answers] == [b"a", b"b"]


def test_an_error_is_everybodys() -> None:
    """A handler that fails fails the whole batch, as recorded (08)."""
    assert split(_frame((None, b"e"), code=424), 3) == [Answer(424, "m", {"X": "v"}, b"e")] * 3


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        ([("batch_0.a", b"")], "Batch output size mismatch, expected: 2, actual: 1"),
        ([("batch_0.a", b""), ("b", b"")], "Unexpected batch output key: b"),
        ([("batch_0.a", b""), ("batch_7.b", b"")], "Unexpected batch output key: batch_7.b"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(contents: list[tuple[str | None, bytes]], text: str) -> None:
    """Nobody gets another one's answer when a handler counts wrong (19)."""
    with pytest.raises(TranslateFault, match=text):
        split(_frame(*contents), 2)


def test_an_asynchronous_answer_is_whole_with_its_last_part() -> None:
    """Parts are put together until one says that it is the last."""
    answer = AsyncAnswer({"request_tracking_id": "7"})
    assert answer.add(_frame((None, bytes(Output.binary_encode({"data": "a", "last": False}))))) is None
    whole = answer.add(_frame((None, bytes(Output.binary_encode({"data": "b", "last": True})))))
    assert whole == Answer(200, "OK", {"request_tracking_id": "7", "X": "v"}, b"ab")


def test_an_asynchronous_error_carries_its_status() -> None:
    """Recorded (23): the code is the status, the error both reason and body."""
    part = Output.binary_encode({"data": "", "last": True, "code": 400, "error": "no"})
    answer = AsyncAnswer().add(_frame((None, bytes(part))))
    assert answer is not None
    assert (answer.code, answer.message, answer.body) == (400, "no", b'{"error":"no","code":400}')


def test_a_malformed_asynchronous_answer_is_a_fault() -> None:
    """A handler that forgets binary_encode gets an error, and the container goes on."""
    with pytest.raises(TranslateFault, match="binary_encode"):
        AsyncAnswer().add(_frame((None, b"\x00\x02oops")))


def test_an_asynchronous_code_that_is_no_status_is_a_fault() -> None:
    """It must not reach the connection as an exception, which would cost every other request its answer."""
    part = Output.binary_encode({"data": "", "last": True, "code": "bad"})
    with pytest.raises(TranslateFault, match="the code 'bad'"):
        AsyncAnswer().add(_frame((None, bytes(part))))


def test_a_dead_worker_ends_an_asynchronous_call() -> None:
    """A call whose worker is gone is not left waiting: recorded (27) with 500, after what had come of the answer."""

    async def scenario() -> tuple[int, bytes]:
        job = Job({}, [("data", b"")], asyncio.get_running_loop().create_future())
        take_part(job, AsyncAnswer({"request_tracking_id": "1"}), None)
        answer = await job.future
        assert answer.properties == {}
        return answer.code, answer.body

    code, body = asyncio.run(scenario())
    assert (code, len(body)) == (500, 117)
