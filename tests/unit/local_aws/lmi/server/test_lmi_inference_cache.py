"""Requests that do not wait for their answer (`x-synchronous: false`) fetch it later, by its token."""

from __future__ import annotations

import asyncio

import pytest

from local_aws.lmi.errors import BadRequest, NotReady
from local_aws.lmi.server.http import Reply
from local_aws.lmi.server.inference import ReplyCache

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
    """So does the server with whatever its model answers by an exception."""

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
    """No more than the given number is kept, the oldest goes first."""

    async def scenario() -> None:
        cache = ReplyCache(most=1)

        async def answer() -> Reply:
            return Reply(200)

        tokens = [(cache.begin(answer()).headers or {})[NEXT] for _ in range(2)]
        await _settled()
        assert cache.get(tokens[1]).status == 200
        with pytest.raises(BadRequest, match="Invalid x-starting-token: "):
            cache.get(tokens[0])

    asyncio.run(scenario())
