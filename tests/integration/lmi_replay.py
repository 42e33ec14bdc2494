"""Replays recorded exchanges of the real DJL Serving 0.36.0 against a container, and says how the answers differ.

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
from typing import Any

VECTORS = Path(__file__).parents[1] / "data" / "djl_vectors"
HUB = Path(__file__).parents[2] / "local_aws" / "data" / "hub" / "lmi-cohost"
WEIGHTS = {"minilm": "tiny-minilm-nli", "deberta": "tiny-mdeberta-nli", "xlmr": "tiny-xlmr-nli", "embed": "tiny-embed"}
LONG = " ".join(["the movie was great and good"] * 100)
TOLERANCE = 1e-4

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
_CUT = re.compile(r"\.\.\.\{TRUNCATED, (\d+) bytes\}$")
_VARYING = {"{UUID}"}
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_START_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_UNORDERED = "/ping"


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
        """Exchanges of one group were sent at the same time: their names differ in a number at the end only."""
        match = re.fullmatch(r"(.*(?:concurrent|batched|double prefix|one bad|request).*?) \d+", self.name)
        return match[1] if match else f"{self.index} alone"

    @property
    def order(self) -> int:
        """The place of the request within its group: the place in the batch that the answer tells, else its number."""
        place = re.match(r'\{\s*"i":(\d+),\s*"n":[2-9]', self.response["body"] or "")
        digits = place or re.search(r"(\d+)$", self.name)
        # These reached the server in the order of the file, as the index of the bad one shows.
        return self.index if "double prefix" in self.name else int(digits[1]) if digits else 0

    def _body(self) -> bytes:
        if self.name in _RAW:
            return _RAW[self.name]
        if self.name in _SHORTENED:
            return json.dumps(_SHORTENED[self.name]).encode()
        return (self.request["body"] or "").encode()


@dataclass(frozen=True)
class Answer:
    """What came back: status line, headers by lower-case name, body."""

    status: int
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
        """A recorded text with its placeholders filled in; `store` is what {MODEL_STORE} stands for."""
        places = {"MODEL_DIR": self.models, "TAR_DIR": self.archives, "WEIGHTS_DIR": self.weights}
        for name, folder in places.items():
            text = text.replace(f"{{{name}}}", str(folder))
        return text.replace("{MODEL_STORE}", str(store or self.stores))

    def store(self, name: str, models: dict[str, str]) -> Path:
        """A model store: folder name ("." is the store itself) → which recorded model it holds.

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
        return await _exchange(port, exchange.payload, is_head=exchange.payload.startswith(b"HEAD"))

    ordered = sorted(group, key=lambda exchange: exchange.order)
    # Requests of the queue recording were sent 20 ms apart; all others at once, here 10 ms apart to keep their order.
    gap = 0.02 if ordered[0].group == "request" else 0.01
    answers = await asyncio.gather(*(one(exchange, gap * place) for place, exchange in enumerate(ordered)))
    return {exchange.index: answer for exchange, answer in zip(ordered, answers, strict=True)}


def groups(exchanges: list[Exchange]) -> list[list[Exchange]]:
    """The exchanges in order, those sent at the same time together."""
    return [list(group) for _, group in itertools.groupby(exchanges, key=lambda exchange: exchange.group)]


def differences(exchange: Exchange, answer: Answer, ignored_keys: frozenset[str] = frozenset()) -> list[str]:
    """How an answer differs from the recorded one, one text a difference; `ignored_keys` are not compared in bodies."""
    expected = exchange.response
    found = []
    if answer.status != expected["status"]:
        found.append(f"status {answer.status}, recorded {expected['status']}: {answer.body[:200]!r}")
    reason = expected.get("reason") or (expected.get("status_line") or "  ").split(" ", 2)[2]
    if reason and answer.reason != reason:
        found.append(f"reason {answer.reason!r}, recorded {reason!r}")
    found += _header_differences(expected["headers"], answer)
    if exchange.request.get("path", "").startswith(_UNORDERED):
        ignored_keys |= {"order"}
    return found + _body_differences(expected["body"], answer.body.decode("utf-8", "replace"), ignored_keys)


async def _exchange(port: int, payload: bytes, *, is_head: bool) -> Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(60):
            writer.write(payload)
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"HTTP/1.1 100"):
                rest = await _read_answer(reader, await reader.readuntil(b"\r\n\r\n"), is_head=is_head)
                return Answer(100, "Continue", {}, _as_text(rest))
            answer = await _read_answer(reader, head, is_head=is_head)
            if payload.count(b" HTTP/1.1\r\n") == 1 or answer.headers.get("connection") == "close":
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


def _header_differences(expected: dict[str, str], answer: Answer) -> list[str]:
    found = [f"header {name} is missing" for name in expected.keys() - answer.headers.keys()]
    found += [f"header {name} was not recorded" for name in answer.headers.keys() - expected.keys()]
    for name in expected.keys() & answer.headers.keys():
        given, recorded = answer.headers[name], expected[name]
        # Numbers may have another length; the client has already read as many bytes as the header says.
        if name != "content-length" and recorded not in _VARYING and given != recorded:
            found.append(f"header {name} is {given!r}, recorded {recorded!r}")
    return found


def _body_differences(expected: str, given: str, ignored_keys: frozenset[str]) -> list[str]:
    if cut := _CUT.search(expected):
        return _prefix_differences(expected[: cut.start()], given, int(cut[1]))
    try:
        recorded_value, value = json.loads(expected), json.loads(given)
    except ValueError:
        return [] if _blurred(expected) == _blurred(given) else [f"body {given[:300]!r}, recorded {expected[:300]!r}"]
    found = list(_value_differences(recorded_value, value, "$", ignored_keys))
    if not found and _shape(expected, ignored_keys) != _shape(given, ignored_keys):
        found.append(f"text {given[:200]!r}, recorded {expected[:200]!r}")
    return found


def _prefix_differences(expected: str, given: str, size: int) -> list[str]:
    """For a body that the recording holds cut off: the numbers up to the cut, and the size to one in a hundred."""
    recorded_numbers = [float(match[0]) for match in _NUMBER.finditer(expected)][:-1]
    numbers = [float(match[0]) for match in _NUMBER.finditer(given)][: len(recorded_numbers)]
    if len(numbers) < len(recorded_numbers) or abs(len(given) - size) > size / 100:
        return [f"{len(given)} bytes, recorded {size}"]
    pairs = zip(recorded_numbers, numbers, strict=True)
    return [f"{ours}, recorded {theirs}" for theirs, ours in pairs if abs(ours - theirs) > TOLERANCE * 10]


def _value_differences(expected: Any, given: Any, path: str, ignored_keys: frozenset[str]) -> Any:
    if isinstance(expected, dict) and isinstance(given, dict):
        if expected.keys() != given.keys():
            yield f"{path} has {sorted(given)}, recorded {sorted(expected)}"
            return
        for key in expected.keys() - ignored_keys:
            yield from _value_differences(expected[key], given[key], f"{path}.{key}", ignored_keys)
    elif isinstance(expected, list) and isinstance(given, list) and len(expected) == len(given):
        for index, (theirs, ours) in enumerate(zip(expected, given, strict=True)):
            yield from _value_differences(theirs, ours, f"{path}[{index}]", ignored_keys)
    elif not _equal(expected, given, path):
        yield f"{path} is {given!r}, recorded {expected!r}"


def _equal(expected: Any, given: Any, path: str) -> bool:
    if path.endswith("].startTime"):
        return _START_TIME.fullmatch(given) is not None
    if re.search(r"workers\[\d+\]\.id$", path):  # counted over the life of a server
        return isinstance(given, int)
    if path.endswith(".status") and {expected, given} == {"PENDING", "Unhealthy"}:
        # A model that loads: its first step takes seconds there and milliseconds here.
        return True
    if isinstance(expected, float) and isinstance(given, float):
        return abs(expected - given) <= TOLERANCE
    return bool(expected == given) and type(expected) is type(given)


def _shape(text: str, ignored_keys: frozenset[str]) -> list[str]:
    """The text without its numbers and times; its lines unordered where the order is a hash map's."""
    lines = _NUMBER.sub("0", text).replace('"PENDING"', '"Unhealthy"').split("\n")
    return sorted(line.rstrip(",") for line in lines) if "order" in ignored_keys else lines


def _blurred(text: str) -> str:
    """Text of several answers: header names have no case, and the real server forgets the id of a second request."""
    return re.sub(r"x-request-id: \S+\r\n", "", text.lower())


def _tar(file: Path, folder: Path, prefix: str) -> None:
    with tarfile.open(file, "w" if file.name.endswith(".tar") else "w:gz") as archive:
        for member in sorted(folder.iterdir()):
            archive.add(member, f"{prefix}/{member.name}" if prefix != "." else member.name)
