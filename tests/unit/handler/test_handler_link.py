"""Proxy and engine process together: an end of the engine process is nobody's error, and nothing is left of it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from engine_process import CODE, LIMIT_S, ended, engine_of, files, happens, kill, linked, server, until
from handler_calls import MINILM, XLMR, properties

from cohost.handler import cohost_link, cohost_place
from cohost.handler.cohost_errors import BusyError, ModelError
from cohost.handler.cohost_frames import Level, TokenSequence
from cohost.handler.cohost_host import Journal
from cohost.handler.cohost_link import EngineEndedError, Link
from cohost.handler.cohost_options import read_options
from cohost.handler.cohost_place import Place
from cohost.handler.cohost_tasks import Want
from cohost.handler.cohost_tokenizer import Encoded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from handler_calls import Caller

GREAT = {"inputs": "the movie was great"}
FACTS = {
    "limit": 512,
    "shortest": 5,
    "rows": None,
    "segment_rows": None,
    "labels": [],
    "label2id": {},
    "problem_type": None,
    "dtype": "fp32",
    "device": "cpu",
    "padding": [0, 0],
    "segments": True,
    "side": "right",
    "plain": False,
}

# An engine process without a model. It answers each sequence with its first token id, and does as some ids say: 666
# ends it, 13 is never answered, 7 is answered after a second. What it is sent is written to a file, a line each.
FAKE = """
import asyncio, json, os, sys
sys.path.insert(0, {root!r})
import numpy as np
from cohost.handler.cohost_frames import Outcome, pack, packed_outcome, read, sequences_of
from cohost.handler.cohost_host import Journal, Settings, _listening

settings = Settings(**json.loads(sys.argv[1]))
journal = Journal(settings.journal)
running, clients = [], 0

def note(*values):
    with open({notes!r}, "a") as file:
        file.write(json.dumps([os.getpid(), *values]) + chr(10))

async def answer(writer, client, head, body):
    mark = f"{{client}}:{{head['id']}}"
    sequences = sequences_of(head["sequences"], body)
    ids = [int(one.encoded.ids[0]) for one in sequences]
    note(head["level"], ids)
    if 666 in ids or 13 in ids:
        running.append(mark)
        journal.write(running)
    if 666 in ids:
        await asyncio.sleep(0.1)
        os._exit(9)
    if 13 in ids:
        return
    if 7 in ids:
        await asyncio.sleep(1)
    outputs = [np.asarray([one], np.float32) for one in ids]
    told, parts = packed_outcome(Outcome(outputs))
    writer.write(pack({{"op": "done", "id": head["id"], **told}}, *parts))

async def serve(reader, writer):
    global clients
    clients += 1
    client = clients
    head, _ = await read(reader)
    note("load", head["rank"])
    if head["properties"].get("refuse"):
        writer.write(pack({{"op": "failed", "text": head["properties"]["refuse"], "kind": "value"}}))
        return
    if os.path.exists({notes!r} + ".broken"):
        os._exit(8)
    if os.path.exists({notes!r} + ".failing"):
        writer.write(pack({{"op": "failed", "text": "no room", "kind": "memory"}}))
        return
    told = {{"op": "loaded", "facts": {facts!r}, "client": client, "journal": str(journal.path)}}
    writer.write(pack(told, b""))
    while True:
        try:
            head, body = await read(reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            os._exit(0)
        if head["op"] == "run":
            asyncio.get_running_loop().create_task(answer(writer, client, head, body))

async def main():
    await asyncio.start_unix_server(serve, sock=_listening(settings))
    await asyncio.sleep({limit_s})

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def _own_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Sockets are a test's own."""
    monkeypatch.setattr(cohost_place, "tempfile", SimpleNamespace(gettempdir=lambda: str(tmp_path)))


class Fake:
    """A fake engine process and a link to it."""

    def __init__(self, folder: Path) -> None:
        self.notes = folder / "notes"
        self.code = folder / "code"
        self.code.mkdir()
        text = FAKE.format(root=str(CODE.parents[1]), notes=str(self.notes), facts=FACTS, limit_s=LIMIT_S)
        (self.code / "cohost_host.py").write_text(text)
        self.link = Link(self.code, os.getpid())

    @property
    def noted(self) -> list[Any]:
        """Return the messages that the engine processes got, without their ids."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        return [json.loads(line)[1:] for line in lines]

    @property
    def runs(self) -> list[Any]:
        """The requests that they were sent: (level, token ids)."""
        return [note for note in self.noted if note[0] != "load"]

    def now(self, name: str) -> Path:
        """From now on its loads end the process ("broken") or fail ("failing")."""
        path = self.notes.with_name(f"{self.notes.name}.{name}")
        path.touch()
        return path

    async def run(self, *ids: int, limit_s: float = 60.0) -> list[int]:
        """A request; its outputs are its ids."""
        sequences = [TokenSequence(Encoded(_ids(one), None, truncated=False), 1, Want.LOGITS) for one in ids]
        outcome = await self.link.run(sequences, level=Level.USUAL, limit_s=limit_s)
        return [int(output[0]) for output in outcome.outputs]

    def serves(self, scenario: Callable[[], Awaitable[Any]], **given: str) -> Any:
        """Loads, and lets a scenario send requests."""

        async def main() -> Any:
            try:
                await asyncio.to_thread(self.link.load, given, read_options(properties(MINILM)))
                self.link.begin()
                return await asyncio.wait_for(scenario(), LIMIT_S)
            finally:
                self.link.close()

        return asyncio.run(main())


def _ids(one: int) -> Any:
    return np.asarray([one], np.int32)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    """A fake engine process that is ended with the test."""
    one = Fake(tmp_path)
    yield one
    for child in one.link._place._children if one.link._place else []:
        child.kill()
        child.wait()


@pytest.mark.process
def test_a_request_that_ends_two_processes_fails_alone(fake: Fake) -> None:
    """It is sent twice, the second time to run alone, and the others that waited are answered."""

    async def scenario() -> list[Any]:
        slow = asyncio.create_task(fake.run(7))
        await asyncio.sleep(0.02)
        poison = asyncio.create_task(fake.run(666))
        return await asyncio.gather(slow, poison, return_exceptions=True)

    slow, poison = fake.serves(scenario)
    assert slow == [7]
    assert isinstance(poison, ModelError)
    assert "ended twice while it ran this request" in str(poison)
    assert [run for run in fake.runs if 666 in run[1]] == [[Level.USUAL, [666]], [Level.ALONE, [666]]]
    assert {run[0] for run in fake.runs if 7 in run[1]} == {Level.USUAL}
    assert fake.link.starts == 3


@pytest.mark.process
def test_without_a_journal_every_request_may_be_the_culprit(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is sent again to run alone."""
    monkeypatch.setattr(Journal, "read", staticmethod(lambda _: None))

    async def scenario() -> list[Any]:
        slow = asyncio.create_task(fake.run(7))
        await asyncio.sleep(0.02)
        return await asyncio.gather(slow, fake.run(666), return_exceptions=True)

    fake.serves(scenario)
    assert [Level.ALONE, [7]] in fake.runs


@pytest.mark.process
def test_a_request_that_is_never_answered_is_refused_at_its_time_limit(fake: Fake) -> None:
    """And the connection still serves others."""

    async def scenario() -> list[int]:
        with pytest.raises(BusyError, match=r"was not answered within 0\.3 s"):
            await fake.run(13, limit_s=0.3)
        return await fake.run(5, 6)

    assert fake.serves(scenario) == [5, 6]


@pytest.mark.process
def test_a_call_that_a_restart_cannot_serve_in_time_is_refused_at_once(fake: Fake) -> None:
    """A call with too little time is refused, whether it waits already or comes later; a patient one is served."""

    async def scenario() -> list[int]:
        fake.link._load_s = 30.0
        patient = asyncio.create_task(fake.run(7))
        waiting = asyncio.create_task(fake.run(13, limit_s=20.0))
        await happens(lambda: len(fake.runs) == 2)
        started = time.monotonic()
        kill(_process(fake))
        with pytest.raises(BusyError, match="is being replaced"):
            await waiting
        if fake.link._writer is None:
            with pytest.raises(BusyError, match="is being replaced"):
                await fake.run(5, limit_s=20.0)
        assert time.monotonic() - started < 20
        return await patient

    assert fake.serves(scenario) == [7]


@pytest.mark.process
def test_a_model_that_cannot_load_says_why(fake: Fake) -> None:
    """With the engine process's words."""
    with pytest.raises(ValueError, match="dtype: fp16 is refused"):
        fake.serves(lambda: asyncio.sleep(0), refuse="dtype: fp16 is refused")


@pytest.mark.process
def test_a_model_for_which_memory_runs_out_says_so(fake: Fake) -> None:
    """As an error of memory, which the server's load is answered with by a status of its own."""
    fake.now("failing")
    with pytest.raises(MemoryError, match="no room"):
        fake.serves(lambda: asyncio.sleep(0))


@pytest.mark.process
def test_a_model_that_ends_every_process_while_it_loads_is_given_up(fake: Fake) -> None:
    """Other models' processes are not ended by it again and again."""
    fake.now("broken")
    with pytest.raises(EngineEndedError, match="ended 3 times while it loaded the model"):
        fake.serves(lambda: asyncio.sleep(0))
    assert fake.noted == [["load", 2]] * 3


@pytest.mark.process
def test_callers_hear_why_a_model_cannot_be_loaded_again_and_it_is_tried_again(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait and those that come meanwhile; then it serves, without a new proxy process."""
    monkeypatch.setattr(cohost_link, "PAUSES_S", (0.5,))

    async def scenario() -> list[int]:
        failing = fake.now("failing")
        waiting = asyncio.create_task(fake.run(13))
        await happens(lambda: len(fake.runs) == 1)
        kill(_process(fake))
        with pytest.raises(BusyError, match=r"cannot be loaded again \(MemoryError: no room\)"):
            await waiting
        with pytest.raises(BusyError, match=r"the next attempt begins within 0\.5 s"):
            await fake.run(5)
        failing.unlink()
        await happens(lambda: fake.link.starts == 2)
        return await fake.run(5)

    assert fake.serves(scenario) == [5]
    assert ["load", 0] in fake.noted


def _process(fake: Fake) -> int:
    assert fake.link._place is not None
    return fake.link._place._children[-1].pid


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701])
def test_a_folder_that_others_can_open_is_refused(mode: int, tmp_path: Path) -> None:
    """Whoever made it could read texts and answer them."""
    folder = tmp_path / f"cohost-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(OSError, match="no folder that this user alone can open; remove it"):
        cohost_place._own_folder()


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_no_folder_is_refused(kind: str, tmp_path: Path) -> None:
    """A link to a folder of this user may be moved by whoever made the link."""
    place, target = tmp_path / f"cohost-{os.geteuid()}", tmp_path / "target"
    target.mkdir(mode=0o700)
    if kind == "link":
        place.symlink_to(target)
    else:
        place.touch(mode=0o700)
    with pytest.raises(OSError, match="no folder that this user alone can open"):
        cohost_place._own_folder()


def test_a_folder_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Even if it has the right name and mode."""
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    (tmp_path / f"cohost-{other}").mkdir(mode=0o700)
    with pytest.raises(OSError, match="no folder that this user alone can open"):
        cohost_place._own_folder()


def test_shared_models_of_a_device_have_one_place_and_others_one_each(tmp_path: Path) -> None:
    """A handler of another version, another device or another server is another engine process."""
    (tmp_path / "cohost_a.py").write_text("1")

    def name(server: int = 1, **given: str) -> str:
        return Place(tmp_path, read_options(properties(MINILM, **given)), server)._settings().name

    shared = name(shared="true")
    assert shared == name(shared="true", dtype="bf16")
    others = [name(), name(shared="true", device_id="0"), name(2, shared="true")]
    (tmp_path / "cohost_a.py").write_text("2")
    others.append(name(shared="true"))
    assert len({shared, *others}) == 5


def test_files_of_servers_that_have_ended_are_swept(tmp_path: Path) -> None:
    """Those of servers that run stay, as does what is no file of ours."""
    own = f"{os.getpid()}-{cohost_place.started_at(os.getpid())}-a.sock"
    for file in (own, f"{2**22 + 1}-77-a.sock", f"{os.getpid()}-1-a.4.running", "notes.txt"):
        (tmp_path / file).touch()
    cohost_place._sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {own, "notes.txt"}


def test_a_journal_is_whole_whenever_it_is_read(tmp_path: Path) -> None:
    """A shorter entry hides what is left of a longer one; a file that is no journal says nothing."""
    journal = Journal(tmp_path / "a.running")
    assert Journal.read(str(journal.path)) == []
    for marks in (["1:22", "3:4"], ["5:6"], []):
        journal.write(marks)
        assert Journal.read(str(journal.path)) == marks
    journal.path.write_bytes(b"00000007[1")
    assert Journal.read(str(journal.path)) is None


@pytest.mark.process
def test_kill_9_of_the_engine_process_fails_no_call_of_two_models() -> None:
    """The real one, with two models in one process: calls before, during and after are all answered 200."""
    models = [properties(model, shared="true", warm_up="false") for model in (MINILM, XLMR)]

    async def scenario(*calls: Caller) -> None:
        first, second = [await engine_of(call) for call in calls]
        assert first == second
        tasks = [asyncio.create_task(call(GREAT)) for call in calls for _ in range(8)]
        await asyncio.sleep(0)
        kill(first)
        replies = [*await asyncio.gather(*tasks), *await asyncio.gather(*(call(GREAT) for call in calls))]
        assert [reply.status for reply in replies] == [200] * 18
        counters = [await call.counters() for call in calls]
        assert {one["engine_starts"] for one in counters} == {2}
        assert len({one["engine_pid"] for one in counters} | {first}) == 2
        assert {one["engine_models"] for one in counters} == {2}

    with server() as owner:
        linked(scenario, *models, server=owner.pid)


@pytest.mark.process
def test_the_engine_process_of_one_model_ends_with_it_and_leaves_no_file() -> None:
    """Its memory is needed for other models at once."""

    async def scenario(call: Caller) -> int:
        assert sorted(Path(name).suffix for name in files()) == [".findings", ".running", ".sock"]
        return await engine_of(call)

    with server() as owner:
        process = linked(scenario, properties(MINILM, warm_up="false"), server=owner.pid)
        until(lambda: ended(process))
    assert files() == []


@pytest.mark.process
def test_the_engine_process_ends_with_the_server() -> None:
    """Whoever else still holds a connection to it; a container's processes must not outlive the server."""

    async def scenario(call: Caller) -> None:
        process = await engine_of(call)
        call.service._backend._reopen = forever  # type: ignore[attr-defined] # no new process
        owner.kill()
        await happens(lambda: ended(process))

    async def forever() -> None:
        await asyncio.sleep(LIMIT_S)

    with server() as owner:
        linked(scenario, properties(MINILM, shared="true", warm_up="false"), server=owner.pid)
    assert files() == []


def test_a_connection_that_fails_unexpectedly_ends_the_proxy_process(tmp_path: Path) -> None:
    """Nobody would answer calls any more, and the server restarts a process only after its end."""
    ends: list[int] = []
    link = Link(tmp_path, os.getpid(), ends.append)

    async def fail() -> None:
        raise KeyError("id")

    async def main() -> None:
        link._keep = fail  # type: ignore[method-assign] # a fault
        link.begin()
        async with asyncio.timeout(10):
            while not ends:  # noqa: ASYNC110 - the end is an entry of a list
                await asyncio.sleep(0)

    asyncio.run(main())
    assert ends == [1]
