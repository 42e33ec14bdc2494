"""Calls of the handler without a server: requests in DJL Serving's form, and parsed answers."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cohost.handler.cohost_hosted import Home, Hosted
from cohost.handler.cohost_service import Service
from local_aws.lmi.handler_api import Input, Output
from local_aws.lmi.workers.connection import Frame
from local_aws.lmi.workers.jobs import AsyncAnswer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from cohost.handler.cohost_facts import Facts
    from cohost.handler.cohost_frames import Level, Outcome, TokenSequence
    from cohost.handler.cohost_options import Options
    from cohost.handler.cohost_request import Cut
    from cohost.handler.cohost_texts import Text
    from cohost.handler.cohost_tokenizer import Encoded

HUB = Path(__file__).parents[3] / "local_aws" / "data" / "hub" / "lmi-cohost"
MINILM, MDEBERTA, XLMR, EMBED = (
    str(HUB / name) for name in ("tiny-minilm-nli", "tiny-mdeberta-nli", "tiny-xlmr-nli", "tiny-embed")
)
LONG = " ".join(["the movie was great and good"] * 100)


@dataclass(frozen=True)
class Reply:
    """An answer as a caller gets it."""

    status: int
    body: Any
    text: str
    headers: dict[str, str]


def properties(model: str, task: str = "text-classification", **options: object) -> dict[str, str]:
    """Return the properties of the server's first call, as recorded, for a model of the local hub."""
    given = {name.replace("__", "."): str(value) for name, value in options.items()}
    return {
        "model_id": model,
        "task": task,
        "device_id": "-1",
        "model_dir": "/tmp/model",  # noqa: S108 - never read
        "threads": "1",
        "pass_cost_tokens": "64",
        "max_batch_tokens": "4096",
        **given,
    }


def request(body: object, **headers: str) -> Input:
    """Return a request; bytes are sent unchanged, other values as JSON."""
    inputs = Input()
    inputs.properties = {"Content-Type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    inputs.content.add("data", body if isinstance(body, bytes) else json.dumps(body).encode())
    return inputs


def reply(output: Output) -> Reply:
    """Return the answer that DJL Serving makes from an asynchronous handler's output."""
    head = {"code": output.code, "message": output.message, "properties": output.properties}
    answer = AsyncAnswer().add(Frame(head, [(None, bytes(value)) for value in output.content.values]))
    assert answer is not None, "no part was the last"
    text = answer.body.decode()
    return Reply(answer.code, json.loads(text), text, {key.lower(): value for key, value in answer.properties.items()})


class InProcess:
    """A model in this process, in place of an engine process; `ends` are the exit codes that would have ended that."""

    starts = 1

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.home = Home(self.ends.append)
        self.hosted = Hosted(self.home)

    def load(self, properties: Mapping[str, Any], options: Options) -> tuple[Facts, str]:
        """Load the model in the calling thread."""
        del options
        facts = self.hosted.load(properties)
        return facts, self.hosted.tokenizer_text or ""

    def begin(self) -> None:
        """Begin to serve."""
        self.hosted.begin()

    async def run(self, sequences: Sequence[TokenSequence], *, level: Level, limit_s: float) -> Outcome:
        """Run a request."""
        del limit_s
        return await self.hosted.run(sequences, level=level)

    async def encode(self, texts: Sequence[Text], cut: Cut, limit_s: float) -> list[Encoded]:
        """Make sequences of texts."""
        del limit_s
        return self.hosted.encode(texts, cut)

    async def summary(self, limit_s: float) -> dict[str, Any]:
        """Return the counters."""
        del limit_s
        return {"counters": asdict(self.hosted.counters), "engine": {}}

    def close(self) -> None:
        """Drop the model, and end all threads."""
        self.hosted.close()
        self.home.close()


class Caller:
    """A service with one loaded model."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def __call__(self, body: object, **headers: str) -> Reply:
        """Return the answer to one request."""
        return reply(await self.service.handle(request(body, **headers)))

    async def counters(self) -> dict[str, Any]:
        """The worker's sums."""
        body: dict[str, Any] = (await self({}, cohost_counters="true")).body
        return body


class HeldForward:
    """A way through a model whose batches wait for `gate`."""

    def __init__(self, forward: Any) -> None:
        self.gate, self.entered = threading.Event(), threading.Event()
        self._forward = forward

    def __getattr__(self, name: str) -> Any:
        """Pass all other attributes on to the model."""
        return getattr(self._forward, name)

    def launch(self, sequences: Any) -> Any:
        """A batch, later."""
        self.entered.set()
        self.gate.wait(60)
        return self._forward.launch(sequences)


def served(
    given: dict[str, str], scenario: Callable[[Caller], Awaitable[Any]], backend: InProcess | None = None
) -> Any:
    """Loads a model in this process, lets a scenario call it, and ends its threads."""

    async def run() -> Any:
        service = Service(Output, backend or InProcess())
        first = Input()
        first.properties = dict(given)
        try:
            await service.handle(first)
            return await asyncio.wait_for(scenario(Caller(service)), 120)
        finally:
            service.close()

    return asyncio.run(run())
