"""The storage volume of an instance."""

from __future__ import annotations

import asyncio
import io
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from local_aws.sagemaker.model_cache.disk import ModelDisk, S3Location
from local_aws.testing.sagemaker_cloud import archive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class FakeClients:
    """Clients of an S3 that returns its one object when a test requests it."""

    def __init__(self) -> None:
        self.asked, self.told = threading.Event(), threading.Event()
        self.threads = ThreadPoolExecutor(2)

    async def run(self, function: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """Run in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, lambda: function(*args, **more))

    def s3(self, role: str | None) -> FakeClients:
        """Itself, for the role of the model."""
        assert role == "arn:aws:iam::123456789012:role/r"
        return self

    def get_object(self, **_: str) -> dict[str, io.BytesIO]:
        """Return an archive when the test requests it."""
        self.asked.set()
        assert self.told.wait(60)
        return {"Body": io.BytesIO(archive({"answer": "late"}))}


def test_a_fetch_that_was_given_up_leaves_no_copy(tmp_path: Path) -> None:
    """A fetch that was given up leaves no files, although its thread continues."""
    clients = FakeClients()
    disk = ModelDisk(clients, tmp_path, "arn:aws:iam::123456789012:role/r")  # type: ignore[arg-type]

    async def give_up() -> None:
        fetching = asyncio.create_task(disk.fetch(S3Location(bucket="b", key="k"), "m"))
        await asyncio.to_thread(clients.asked.wait, 60)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching

    asyncio.run(give_up())
    clients.told.set()
    clients.threads.shutdown(wait=True)
    assert not disk.holds("m")
    assert list(tmp_path.iterdir()) == []
