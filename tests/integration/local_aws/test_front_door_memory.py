"""The memory of the emulator's process while callers send it more than it takes."""

from __future__ import annotations

import filecmp
import http.client
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psutil
import pytest

from cohost.deploy import local_aws as local
from local_aws.testing.running import session
from local_aws.testing.signing import signed_headers

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1024 * 1024
PIECE = b"\0" * MIB
READY = re.compile(r"is ready at (http://127\.0\.0\.1:\d+)")


class Emulator:
    """The emulator in a process of its own, whose memory is that of nobody else."""

    def __init__(self, url: str, process: psutil.Process, key: dict[str, str]) -> None:
        self.url, self.key = url, key
        self._process = process

    def put(self, service: str, mebibytes: int, **headers: str) -> tuple[int, bytes]:
        """Send a signed PUT of so many MiB; the status and the body of the answer."""
        parts = urlsplit(self.url)
        form = {} if service == "s3" else {"content-type": "application/x-www-form-urlencoded"}
        url = f"{self.url}/b/k"
        signed = signed_headers(self.key, "PUT", url, service, headers=form, declared="UNSIGNED-PAYLOAD")
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=120)
        try:
            pieces = (PIECE for _ in range(mebibytes))
            chunked = "Content-Length" not in headers
            framing = {"Transfer-Encoding": "chunked"} if chunked else headers
            connection.request("PUT", "/b/k", pieces, {**signed, **framing}, encode_chunked=chunked)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def client(self, service: str) -> Any:
        """A client with the user's key."""
        key, secret = self.key["key_id"], self.key["secret"]
        return session().client(service, endpoint_url=self.url, aws_access_key_id=key, aws_secret_access_key=secret)

    def warm_up(self) -> None:
        """Load what the emulator loads late; the calls wait for those that it makes itself at its start."""
        for service, operation in (("iam", "list_roles"), ("ssm", "describe_parameters"), ("s3", "list_buckets")):
            getattr(self.client(service), operation)()

    def forget_peak(self) -> None:
        """Let the peak begin again at the memory of now (Linux: clear_refs)."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5", encoding="ascii")

    @property
    def peak_bytes(self) -> int:
        """The most memory that the process has had so far (Linux: VmHWM)."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    """An emulator that has just started."""
    command = [sys.executable, "-m", "local_aws", "up", "--port", "0", "--state", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = READY.search(process.stdout.readline())
        assert found
        try:
            yield Emulator(found[1], psutil.Process(process.pid), local.read_key(tmp_path))
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_bodies_that_are_too_large_leave_the_memory_as_it_is(emulator: Emulator) -> None:
    """Half a gigabyte of bodies, stated or in chunks, from one caller or several, is refused, and little of it kept."""
    emulator.warm_up()
    before = emulator.peak_bytes

    status, answer = emulator.put("cloudformation", 60)
    assert (status, b"<Code>RequestEntityTooLarge</Code>" in answer) == (413, True)
    status, answer = emulator.put("s3", 140, **{"Content-Length": str(140 * MIB)})
    assert (status, b"<Code>EntityTooLarge</Code>" in answer) == (400, True)
    assert emulator.peak_bytes - before < 40 * MIB

    with ThreadPoolExecutor(4) as callers:
        answers = list(callers.map(lambda _: emulator.put("s3", 140), range(4)))
    assert {status for status, _ in answers} == {400}
    assert emulator.peak_bytes - before < 400 * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_a_download_of_a_large_object_is_sent_in_pieces(emulator: Emulator, tmp_path: Path) -> None:
    """Ten threads that read ranges of 80 MiB, and one that reads all, need little memory between them."""
    s3, source, target = emulator.client("s3"), tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(MIB) * 80)
    s3.create_bucket(Bucket="large")
    s3.upload_file(str(source), "large", "weights/model.safetensors")
    emulator.forget_peak()
    before = emulator.peak_bytes

    s3.download_file("large", "weights/model.safetensors", str(target))
    assert filecmp.cmp(source, target, shallow=False)
    whole = s3.get_object(Bucket="large", Key="weights/model.safetensors")
    assert whole["ContentLength"] == 80 * MIB
    assert sum(map(len, whole["Body"].iter_chunks(MIB))) == 80 * MIB
    assert emulator.peak_bytes - before < 40 * MIB
