"""A test of this folder that starts a process or a server has the mark `process`; `make test-fast` leaves it out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
import urllib3.util.connection  # noqa: F401 - binds a socket as it is imported, to learn of IPv6: not by the first test

if TYPE_CHECKING:
    from collections.abc import Generator

# Python's own events (PEP 578), so it does not matter which library starts something.
STARTS: Final = frozenset(
    {
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "socket.bind",
        "subprocess.Popen",
    }
)


class Watch:
    """The events of starting something, while a test of this folder runs."""

    def __init__(self) -> None:
        self.on = False
        self.seen: set[str] = set()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _: object) -> None:
        if self.on and event in STARTS:
            self.seen.add(event)


_watch = Watch()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Start to watch for processes before the fixtures of a test."""
    _watch.on = True
    _watch.seen.clear()


def pytest_runtest_teardown() -> None:
    """Leave the tests of other folders alone."""
    _watch.on = False


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Fail a test that passed, but started a process without the mark."""
    result = yield
    if _watch.seen and pyfuncitem.get_closest_marker("process") is None:
        pytest.fail(
            f"{pyfuncitem.nodeid}: starts a process or listens ({', '.join(sorted(_watch.seen))}); allowed here: tests "
            "that do neither; fix: mark it with @pytest.mark.process, or move it to tests/integration",
            pytrace=False,
        )
    return result
