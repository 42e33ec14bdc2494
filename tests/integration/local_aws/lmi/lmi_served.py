"""One container for all tests of a file, with handlers to load into it; the tests must not end it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from local_aws.lmi.container import Container
from local_aws.lmi.models.hub import default_roots

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ECHO = """
import os, pathlib, time
from djl_python import Output

def handle(inputs):
    if inputs.is_empty():
        return None
    body = inputs.get_as_json()
    if "mark" in body:
        pathlib.Path(body["mark"]).write_text(str(os.getpid()))
    time.sleep(body.get("sleep", 0))
    return Output().add_as_json({"echo": body, "pid": os.getpid(), "properties": inputs.get_properties()})
"""
BATCH_ECHO = """
from djl_python import Output

def handle(inputs):
    if inputs.is_empty():
        return None
    output = Output()
    for index, item in enumerate(inputs.get_batches()):
        output.add_as_json(item.get_as_json(), batch_index=index)
    return output
"""


class Served:
    """A container and a client on one event loop."""

    def __init__(self, runner: asyncio.Runner, folder: Path, memory_mb: int | None = None) -> None:
        self.folder = folder
        self._runner = runner
        start = Container.start(
            model_store=folder / "none",
            multi_model=True,
            hub_roots=default_roots(),
            log_file=folder / "container.log",
            memory_mb=memory_mb,
        )
        self.container = runner.run(start)
        self.client = httpx.AsyncClient(
            base_url=self.container.url, headers=self.container.headers, timeout=60, trust_env=False
        )

    def run(self, work: Any) -> Any:
        """The result of a coroutine."""
        return self._runner.run(work)

    def load(self, name: str, lines: str, handler: str | None = None) -> httpx.Response:
        """Load a model with these properties and, if given, this model.py."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "serving.properties").write_text(f"engine=Python\noption.rolling_batch=disable\n{lines}")
        if handler:
            (folder / "model.py").write_text(handler)
        answer: httpx.Response = self.run(self.client.post("/models", json={"model_name": name, "url": str(folder)}))
        return answer

    async def invoke(self, name: str, body: Any) -> httpx.Response:
        """Make one call."""
        return await self.client.post(f"/models/{name}/invoke", json=body)

    def load_usual_models(self) -> None:
        """Load an echo model with two workers and a tiny NLI model."""
        two = "cpu.minWorkers=2\ncpu.maxWorkers=2\n"
        assert self.load("echo", two, ECHO).status_code == 200
        one = "option.task=text-classification\ncpu.minWorkers=1\ncpu.maxWorkers=1\n"
        assert self.load("nli", f"option.model_id=lmi-cohost/tiny-minilm-nli\n{one}").status_code == 200

    def stop(self) -> None:
        """Stop container and client."""
        self.run(self.client.aclose())
        self.run(self.container.stop())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A file's container with a budget of 20,000 MiB, an echo model with two workers and a tiny NLI model."""
    with asyncio.Runner() as runner:
        served = Served(runner, tmp_path_factory.mktemp("served"), memory_mb=20_000)
        served.load_usual_models()
        yield served
        served.stop()
