"""The clock of scaling."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest
from fakes.refusals import refused
from starlette.applications import Starlette
from starlette.routing import Route

from cohost.errors import LocalError
from local_aws.__main__ import main
from local_aws.kit.clock import PATH, Clock

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


class Machine:
    """A machine's clock that a test moves."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.time


def test_a_fast_clock_runs_ahead_of_the_machine() -> None:
    """At speed 60 a minute of the clock takes a second of the machine."""
    machine = Machine()
    clock = Clock(60, machine)
    machine.time += 1
    assert clock.now() == 1060
    assert clock.real(60) == 1


def test_another_speed_does_not_make_time_jump() -> None:
    """A change of the speed keeps the present time and notifies listeners."""
    machine, heard = Machine(), []
    clock = Clock(60, machine)
    clock.on_change(lambda: heard.append(clock.speed))
    machine.time += 10
    clock.set_speed(1)
    machine.time += 10
    assert clock.now() == 1610
    assert [clock.at(time) for time in (990, 1000, 1005, 1015)] == [990, 1000, 1300, 1605]
    assert heard == [1]


@pytest.mark.parametrize("speed", [0, -1, 3601, float("nan"), "fast", True])
def test_a_wrong_speed_is_refused(speed: Any) -> None:
    """A wrong speed is rejected with the allowed values."""
    with refused("clock-speed-wrong", "speed", kind=LocalError):
        Clock(speed)


def test_the_command_refuses_a_wrong_speed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong --speed is rejected in one line before the server takes a port."""
    assert main(["up", "--port", "0", "--state", str(tmp_path), "--speed", "0"]) == 1
    assert [line[:6] for line in capsys.readouterr().err.splitlines()] == ["speed:"]


def test_the_page_tells_and_sets_the_speed() -> None:
    """GET returns the speed, PUT sets it, and a wrong request changes nothing and names the fix."""
    clock = Clock(2)
    app = Starlette(routes=[Route(PATH, clock.answer, methods=["GET", "PUT"])])

    async def talk() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            bodies = ['{"speed": 60}', '{"speed": 0}', '{"sped": 1}', "fast"]
            return [await client.get(PATH), *[await client.put(PATH, content=body) for body in bodies]]

    told, *put = asyncio.run(talk())
    assert told.json()["speed"] == 2
    assert [answer.status_code for answer in put] == [200, 400, 400, 400]
    assert put[0].json()["speed"] == clock.speed == 60
    assert all("speed" in answer.json()["message"] for answer in put[1:])
