"""Inference requests: their parts reach the handler, and stored answers can be fetched."""

from __future__ import annotations

import asyncio

import pytest
from fakes.faults import faulted
from starlette.requests import Request

from local_aws.lmi.errors import NotReady
from local_aws.lmi.server.http import Reply
from local_aws.lmi.server.inference import Invocation, ReplyCache


def _invocation(headers: dict[str, str] | None = None, query: str = "", body: bytes = b"") -> Invocation:
    fields = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/invocations",
        "query_string": query.encode(),
        "headers": fields,
    }
    return Invocation(Request(scope), body)


@pytest.mark.parametrize(
    ("headers", "query", "name"),
    [
        ({}, "", None),
        ({}, "model_name=a", "a"),
        ({"model_name": "b"}, "model_name=a", "a"),
        ({"model_name": "b"}, "", "b"),
        ({}, "model_name=", ""),
        ({"X-Amzn-SageMaker-Custom-Attributes": "trace=abc;model_name=minilm"}, "", "minilm"),
        ({"X-Amzn-SageMaker-Custom-Attributes": " model_name = minilm "}, "", "minilm"),
        ({"X-Amzn-SageMaker-Custom-Attributes": "MODEL_NAME=minilm"}, "", "minilm"),
        ({"X-Amzn-SageMaker-Custom-Attributes": "model_name=a;model_name=b"}, "", "b"),
        ({"X-Amzn-SageMaker-Custom-Attributes": "model_name=a=x"}, "", "a=x"),
        ({"X-Amzn-SageMaker-Custom-Attributes": "model_name"}, "", None),
        ({"X-Amzn-SageMaker-Target-Model": "m"}, "", None),
    ],
)
def test_the_model_is_named_by_query_then_property(headers: dict[str, str], query: str, name: str | None) -> None:
    """The model's name comes from the query, then the header or custom attribute (recorded: 03, 23)."""
    assert _invocation(headers, query).model_name == name


def test_a_form_field_names_the_model_last() -> None:
    """A form field can name the model, after all other ways."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    invocation = _invocation(form, body=b"model_name=m&inputs=a+b")
    assert invocation.model_name == "m"
    assert invocation.contents == [("model_name", b"m"), ("inputs", b"a b")]


def test_a_multipart_form_becomes_contents() -> None:
    """Each part of a multipart form becomes a content with its name."""
    body = b'--X\r\nContent-Disposition: form-data; name="inputs"\r\n\r\nhello\r\n--X--\r\n'
    assert _invocation({"Content-Type": "multipart/form-data; boundary=X"}, body=body).contents == [
        ("inputs", b"hello")
    ]


@pytest.mark.parametrize("body", [b"", b"--X", b"no form at all", b"--X\r\n\r\n--X--"])
def test_a_broken_multipart_form_is_an_empty_one(body: bytes) -> None:
    """A body that is not a form gives no contents, and the server does not fail."""
    assert _invocation({"Content-Type": "multipart/form-data; boundary=X"}, body=body).contents == []


def test_headers_keep_their_usual_spelling() -> None:
    """Handlers look "Content-Type" up, whatever case the server's own library uses."""
    headers = {"content-type": "a/b", "x-amzn-sagemaker-inference-id": "1", "model_name": "m"}
    assert _invocation(headers).properties == {
        "Content-Type": "a/b",
        "X-Amzn-SageMaker-Inference-Id": "1",
        "model_name": "m",
    }


def test_query_parameters_stand_before_the_body() -> None:
    """Each query parameter is a content before "data" (recorded: 21)."""
    assert _invocation(query="a=1&b=", body=b"x").contents == [("a", b"1"), ("b", b""), ("data", b"x")]


def test_the_handler_cannot_be_chosen() -> None:
    """Recorded (02): a header "handler" is refused."""
    with faulted("BadRequestException", 400, "The handler can't be overridden in a request"):
        _invocation({"handler": "x"})


def test_a_property_is_found_whatever_its_case() -> None:
    """Headers and custom attributes are found in any letter case, and missing ones give None."""
    invocation = _invocation({"X-Synchronous": "false", "X-Amzn-SageMaker-Custom-Attributes": "X-Starting-Token=t"})
    assert invocation.value_of("x-synchronous") == "false"
    assert invocation.value_of("X-STARTING-TOKEN") == "t"
    assert invocation.value_of("x-max-items") is None


NEXT = "x-next-token"


async def _settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_token_gives_202_until_the_answer_is_there() -> None:
    """The first answer is empty and names the token twice, as recorded (02v_tf590, exchange 79)."""

    async def scenario() -> None:
        cache, go = ReplyCache(), asyncio.Event()

        async def answer() -> Reply:
            await go.wait()
            return Reply(200, b"done")

        begun = cache.begin(answer())
        assert begun.headers is not None
        token = begun.headers[NEXT]
        assert (begun.status, begun.body) == (200, b"")
        assert begun.headers["x-amzn-sagemaker-custom-attributes"] == f"{NEXT}={token}"
        pending = cache.get(token)
        assert (pending.status, pending.headers) == (202, begun.headers)
        go.set()
        await _settled()
        assert cache.get(token) == Reply(200, b"done")

    asyncio.run(scenario())


def test_a_failure_is_kept_as_500_with_its_message_as_reason() -> None:
    """The stored answer of a failed request is 500 with the exception's message as reason."""

    async def scenario() -> None:
        cache = ReplyCache()

        async def answer() -> Reply:
            raise NotReady("m")

        begun = cache.begin(answer())
        await _settled()
        assert begun.headers is not None
        assert cache.get(begun.headers[NEXT]) == Reply(500, reason="Model is not ready: m")

    asyncio.run(scenario())


def test_an_unknown_token_is_refused_and_old_answers_go() -> None:
    """An unknown token is rejected; of the stored answers the oldest are deleted above the limit."""

    async def scenario() -> None:
        cache = ReplyCache(most=1)

        async def answer() -> Reply:
            return Reply(200)

        tokens = [(cache.begin(answer()).headers or {})[NEXT] for _ in range(2)]
        await _settled()
        assert cache.get(tokens[1]).status == 200
        with faulted("BadRequestException", 400, "Invalid x-starting-token: "):
            cache.get(tokens[0])

    asyncio.run(scenario())
