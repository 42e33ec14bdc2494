"""Replays of recorded exchanges of the real DJL Serving 0.36.0 with a container, and their differences.

The recordings lie in tests/data/djl_vectors; `Fixture` lays out the files that they name ({MODEL_DIR} and so on).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shutil
import tarfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

VECTORS = Path(__file__).parents[3] / "data" / "djl_vectors"
HUB = Path(__file__).parents[4] / "local_aws" / "data" / "hub" / "lmi-cohost"
WEIGHTS = {"minilm": "tiny-minilm-nli", "deberta": "tiny-mdeberta-nli", "xlmr": "tiny-xlmr-nli", "embed": "tiny-embed"}
_LAST = 99
LONG = " ".join(["the movie was great and good"] * 100)

# Bodies that the recordings hold shortened or with characters replaced, by file and name.
_SHORTENED = {
    "600 tokens, no truncation (bert)": {"inputs": LONG},
    "600 tokens, no truncation (deberta)": {"inputs": LONG},
    "600 tokens, truncation (bert)": {"inputs": LONG, "parameters": {"truncation": True}},
    "600 tokens, truncation max_length 16": {"inputs": LONG, "parameters": {"truncation": True, "max_length": 16}},
    "batch with one too long": {"inputs": ["the movie was great", LONG]},
    "600 tokens pair truncation": {
        "inputs": {"text": LONG, "text_pair": "good"},
        "parameters": {"truncation": True},
    },
    "600 tok pair only_first": {
        "inputs": {"text": LONG, "text_pair": "good"},
        "parameters": {"truncation": "only_first"},
    },
    "3 concurrent, one too long (600 tokens, no truncation) 1": {"inputs": LONG},
    "big body 1MB no trunc 1 char tokens": {"inputs": "a" * 1_000_000, "parameters": {"truncation": True}},
}
_RAW = {
    "invalid utf8": b'{"inputs":"\xff\xfe"}',
    "body 65MB (limit 64MB)": b'{"inputs":"' + b"a" * (65 * 1024 * 1024) + b'"}',
}


@dataclass(frozen=True)
class Exchange:
    """One recorded request and its answer, with the placeholders filled in."""

    index: int
    name: str
    request: dict[str, Any]
    response: dict[str, Any]

    @property
    def payload(self) -> bytes:
        """The request as bytes on the wire."""
        if "raw" in self.request:
            return str(self.request["raw"]).encode("latin-1")
        body = self._body()
        headers = {"Host": "127.0.0.1"} | self.request["headers"]
        if body or self.request["method"] in {"POST", "PUT", "PATCH"}:
            headers["Content-Length"] = str(len(body))
        head = [f"{self.request['method']} {self.request['path']} HTTP/1.1"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*head, "", ""]).encode("latin-1") + body

    @property
    def group(self) -> str:
        """Return the name without the number at its end, which simultaneous exchanges share."""
        match = re.fullmatch(r"(.*(?:concurrent|batched|double prefix|one bad|request).*?) \d+", self.name)
        return match[1] if match else f"{self.index} alone"

    @property
    def order(self) -> int:
        """Return the place of a request in its group: the place in the batch, or its number."""
        place = re.match(r'\{\s*"i":(\d+),\s*"n":[2-9]', self.response.get("body") or "")
        if "query string" in self.name and not self.response["body"]:
            return _LAST  # a batch of requests with query parameters has too few answers: the last request's is lost
        digits = place or re.search(r"(\d+)$", self.name)
        # These reached the server in the order of the file, as the index of the bad one shows.
        return self.index if "double prefix" in self.name else int(digits[1]) if digits else 0

    def with_headers(self, headers: Mapping[str, str]) -> Exchange:
        """Return the exchange with header fields added to each of its requests.

        Raw requests name a host of this machine then, as the container's own callers do; some were recorded without.
        """
        request = dict(self.request)
        if "raw" not in request:
            request["headers"] = {**request["headers"], **headers}
        elif headers:
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            own = str(request["raw"]).replace("\r\nHost: x\r\n", "\r\nHost: 127.0.0.1\r\n")
            own = own.replace(" HTTP/1.0\r\n", f" HTTP/1.0\r\nHost: 127.0.0.1\r\n{lines}")
            request["raw"] = own.replace(" HTTP/1.1\r\n", f" HTTP/1.1\r\n{lines}")
        return replace(self, request=request)

    def _body(self) -> bytes:
        if self.name in _RAW:
            return _RAW[self.name]
        if self.name in _SHORTENED:
            return json.dumps(_SHORTENED[self.name]).encode()
        return (self.request["body"] or "").encode()


@dataclass(frozen=True)
class Answer:
    """An answer: status line, headers by lower-case name, body; no status and a reason where nothing answered."""

    status: int | None
    reason: str
    headers: dict[str, str]
    body: bytes


class Fixture:
    """The folders and archives that the recordings name, below `root`."""

    def __init__(self, root: Path) -> None:
        self.models, self.archives, self.weights, self.stores = (
            root / name for name in ("models", "tars", "weights", "stores")
        )
        for folder in (self.archives, self.weights, self.stores):
            folder.mkdir(parents=True)
        for name, ours in WEIGHTS.items():
            (self.weights / name).symlink_to(HUB / ours)
        self._lay_out_models()
        self._pack()

    def fill(self, text: str, store: Path | None = None) -> str:
        """Return a recorded text with filled placeholders; `store` replaces {MODEL_STORE}."""
        places = {"MODEL_DIR": self.models, "TAR_DIR": self.archives, "WEIGHTS_DIR": self.weights}
        for name, folder in places.items():
            text = text.replace(f"{{{name}}}", str(folder))
        return text.replace("{MODEL_STORE}", str(store or self.stores))

    def store(self, name: str, models: dict[str, str]) -> Path:
        """Create a model store: folder name ("." is the store itself) → the recorded model in it.

        A model may be followed by "@weights", which it then serves instead of its own.
        """
        store = self.stores / name
        store.mkdir()
        for folder, model in models.items():
            source, _, weights = model.partition("@")
            if not source:  # archives, which a store at start-up ignores
                shutil.copytree(self.archives, store / folder)
                continue
            shutil.copytree(self.models / source, store / folder, dirs_exist_ok=True)
            if weights:
                file = store / folder / "serving.properties"
                file.write_text(file.read_text().replace("/weights/minilm", f"/weights/{weights}"))
        return store

    def _lay_out_models(self) -> None:
        shutil.copytree(VECTORS / "models", self.models, ignore=shutil.ignore_patterns("README.md"))
        (self.models / "emptydir" / "README").touch()
        for file in self.models.glob("*/serving.properties"):
            file.write_text(self.fill(file.read_text()))
        for marker in self.models.glob("*/FILES"):
            shutil.copytree(HUB / WEIGHTS["minilm"], marker.parent, dirs_exist_ok=True)
            marker.unlink()

    def _pack(self) -> None:
        for name in ("minilm", "bundled", "slow", "cbatch"):
            _tar(self.archives / f"{name}.tar.gz", self.models / name, ".")
        _tar(self.archives / "nested.tar.gz", self.models / "cbatch", "nested")
        _tar(self.archives / "dotslash.tar.gz", self.models / "cbatch", "./")
        _tar(self.archives / "plain.tar", self.models / "cbatch", ".")
        (self.archives / "broken.tar.gz").write_bytes(b"this is no gzip file")
        with zipfile.ZipFile(self.archives / "zipped.zip", "w") as archive:
            for file in (self.models / "cbatch").iterdir():
                archive.write(file, file.name)


def load(file: str, fixture: Fixture, store: Path | None = None) -> list[Exchange]:
    """The exchanges of a recording."""
    recording = json.loads(fixture.fill((VECTORS / file).read_text(), store))
    return [
        Exchange(index, vector["name"], vector["request"], vector["response"])
        for index, vector in enumerate(recording["vectors"])
    ]


async def replay(port: int, group: list[Exchange]) -> dict[int, Answer]:
    """Sends the requests of a group at once and returns the answers by index."""

    async def one(exchange: Exchange, delay: float) -> Answer:
        await asyncio.sleep(delay)
        if exchange.response["status"] is None:
            return await _refused(port)
        return await send(port, exchange.payload)

    ordered = sorted(group, key=lambda exchange: exchange.order)
    # Requests of the queue recording were sent 20 ms apart; all others at once, here 10 ms apart to keep their order.
    gap = 0.02 if ordered[0].group == "request" else 0.01
    answers = await asyncio.gather(*(one(exchange, gap * place) for place, exchange in enumerate(ordered)))
    return {exchange.index: answer for exchange, answer in zip(ordered, answers, strict=True)}


def groups(exchanges: list[Exchange]) -> list[list[Exchange]]:
    """Return the exchanges in order, with simultaneous ones in one group."""
    return [list(group) for _, group in itertools.groupby(exchanges, key=lambda exchange: exchange.group)]


async def _refused(port: int) -> Answer:
    """Return the recorder's note of a server that no longer listens, after waiting for this state."""
    for _ in range(600):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError as error:
            return Answer(None, f"{type(error).__name__}: [Errno {error.errno}] Connection refused", {}, b"")
        writer.close()
        await asyncio.sleep(0.1)
    return Answer(None, "still listening after a minute", {}, b"")


async def send(port: int, payload: bytes, limit_s: float = 60) -> Answer:
    """Send a request as bytes on its own connection, and return the answer.

    Raises:
        TimeoutError: there was none within `limit_s` seconds.
        OSError, asyncio.IncompleteReadError: the connection was refused or closed without one.
    """
    is_head = payload.startswith(b"HEAD")
    async with asyncio.timeout(limit_s):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(limit_s):
            writer.write(payload)
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"HTTP/1.1 100"):
                rest = await _read_answer(reader, await reader.readuntil(b"\r\n\r\n"), is_head=is_head)
                return Answer(100, "Continue", {}, _as_text(rest))
            answer = await _read_answer(reader, head, is_head=is_head)
            if payload.count(b" HTTP/1.1\r\n") <= 1 or answer.headers.get("connection") == "close":
                return answer
            # Two requests were written at once; the recording holds the second answer as text after the first.
            second = await _read_answer(reader, await reader.readuntil(b"\r\n\r\n"), is_head=is_head)
            return replace(answer, body=answer.body + _as_text(second))
    finally:
        writer.close()


async def _read_answer(reader: asyncio.StreamReader, head: bytes, *, is_head: bool) -> Answer:
    status_line, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    _, status, reason = status_line.split(" ", 2)
    headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
    length = 0 if is_head else int(headers.get("content-length", "0"))
    return Answer(int(status), reason, headers, await reader.readexactly(length))


def _as_text(answer: Answer) -> bytes:
    head = [f"HTTP/1.1 {answer.status} {answer.reason}", *(f"{k}: {v}" for k, v in answer.headers.items())]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + answer.body


def _tar(file: Path, folder: Path, prefix: str) -> None:
    with tarfile.open(file, "w" if file.name.endswith(".tar") else "w:gz") as archive:
        for member in sorted(folder.iterdir()):
            archive.add(member, f"{prefix}/{member.name}" if prefix != "." else member.name)
