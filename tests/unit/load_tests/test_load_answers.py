"""The outcome that the load test records for each answer."""

from __future__ import annotations

import json

import pytest

from cohost.report.samples import Outcome
from load_tests.recorder import LARGE_ANSWER_BYTES, judge

STOPPED = '{\n  "code": 400,\n  "type": "TranslateException",\n  "message": "Backend Python process is stopped."\n}\n'


def outcome(
    status: int, body: object, *, error_type: str = "", items: int = 1, container: bool = False
) -> tuple[Outcome, str]:
    """Return the verdict on an answer, and the failure under which it is counted."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    verdict = judge(status, error_type, data, items=items, container=container)
    return verdict.outcome, verdict.failure


@pytest.mark.parametrize(
    ("body", "items"),
    [
        ([{"label": "a", "score": 0.5}], 1),
        ([[{"label": "a", "score": 0.5}]] * 3, 3),
        ([{"sequence": "x", "labels": ["a"], "scores": [1.0]}] * 2, 2),
        ([[[[0.1, 0.2], [0.3, 0.4]]]] * 2, 2),
    ],
)
def test_one_result_for_each_text_is_an_answer(body: list[object], items: int) -> None:
    """Each form of success of the server counts as an answer if it has one result per text."""
    assert outcome(200, body, items=items) == (Outcome.OK, "")


@pytest.mark.parametrize(
    "body",
    [
        b'"Parameter inputs is required"',
        b"Invalid input",
        b"",
        b"[]",
        b'[{"label": "a"}, {"label": "b"}]',
        b'{"code": 424, "error": "prediction failure"}',
        b'[{"label": "a", "score": NaN}]',
    ],
)
def test_a_200_without_the_right_results_is_a_failure(body: bytes) -> None:
    """An answer 200 with a wrong number of results is a failure."""
    assert outcome(200, body) == (Outcome.WRONG_ANSWER, "200 with a wrong answer")


def test_large_embeddings_are_counted_without_being_read() -> None:
    """The results in a large embedding answer are counted without parsing its numbers."""
    item = [[[0.123456789] * 384] * 40]
    body = json.dumps([item] * 3, separators=(",", ":")).encode()
    assert len(body) > LARGE_ANSWER_BYTES

    assert outcome(200, body, items=3)[0] is Outcome.OK
    assert outcome(200, body, items=4)[0] is Outcome.WRONG_ANSWER
    assert outcome(200, body[:-1], items=3)[0] is Outcome.WRONG_ANSWER


@pytest.mark.parametrize(
    ("status", "error_type", "body", "expected"),
    [
        (400, "ThrottlingException", {"message": "Rate exceeded"}, (Outcome.THROTTLED, "throttled")),
        (429, "ModelNotReadyException", {"Message": "loading"}, (Outcome.NOT_READY, "model not ready")),
        (
            424,
            "ModelError:http://internal.amazon.com/coral/",
            {"OriginalStatusCode": 503, "Message": "full"},
            (Outcome.MODEL_ERROR, "model error (503)"),
        ),
        (
            424,
            "ModelError",
            {"OriginalStatusCode": 0, "Message": "timed out"},
            (Outcome.MODEL_ERROR, "model error (424)"),
        ),
        (
            400,
            "ValidationError",
            {"message": "Inference Component has no capacity to process this request."},
            (Outcome.NO_CAPACITY, "no capacity"),
        ),
        (
            424,
            "ModelError",
            {"OriginalStatusCode": 400, "Message": "no capacity to process this request"},
            (Outcome.MODEL_ERROR, "model error (400)"),
        ),
        (
            424,
            "ModelError",
            {"OriginalStatusCode": 400, "OriginalMessage": STOPPED, "Message": "Received client error (400)"},
            (Outcome.WORKER_STOPPED, "model's process stopped"),
        ),
        (403, "AccessDeniedException", {"Message": "no"}, (Outcome.REFUSED, "refused by the service (403)")),
        (500, "", b"<html>", (Outcome.REFUSED, "refused by the service (500)")),
    ],
)
def test_faults_of_sagemaker_by_their_kind(
    status: int, error_type: str, body: object, expected: tuple[Outcome, str]
) -> None:
    """Each error of SageMaker is recorded by its origin, because the origin decides what a user does next."""
    assert outcome(status, body, error_type=error_type) == expected


def test_faults_of_a_container_are_the_models() -> None:
    """Without SageMaker in front, an error status is recorded as the model's."""
    body = {"code": 503, "type": "ServiceUnavailableException", "message": "queue full"}

    assert outcome(503, body, container=True) == (Outcome.MODEL_ERROR, "model error (503)")
    assert outcome(400, STOPPED.encode(), container=True) == (Outcome.WORKER_STOPPED, "model's process stopped")
    assert outcome(424, STOPPED.encode(), container=True) == (Outcome.MODEL_ERROR, "model error (424)")
