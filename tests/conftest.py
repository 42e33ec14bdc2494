"""Fixtures and checks for the tests of every folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

TRIED_AGAIN = pytest.StashKey[list[str]]()
_OUTPUT = "tried_again"

# For tools/fuzz.py: random examples, and no failure of a test that is slow, or whose examples are often thrown away.
settings.register_profile(
    "fuzz",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


@pytest.fixture(autouse=True, scope="module")
def _environment_of_its_own() -> Iterator[None]:
    """Restore the environment after each test file, so that settings for moto or torch do not reach other files."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
    # boto3 makes its default session once: a fake in the place of boto3.Session would stay for the tests after it.
    if "boto3" in sys.modules:
        sys.modules["boto3"].DEFAULT_SESSION = None  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def tried_again(pytestconfig: pytest.Config) -> list[str]:
    """Collect the steps that tests repeated before they passed; the summary of the run prints them."""
    return pytestconfig.stash.setdefault(TRIED_AGAIN, [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the repeated steps to the process that prints, if tests run in several processes."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None and TRIED_AGAIN in session.config.stash:
        output[_OUTPUT] = session.config.stash[TRIED_AGAIN]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Receive the repeated steps of another test process."""
    again = getattr(node, "workeroutput", {}).get(_OUTPUT)
    if again is not None:
        node.config.stash.setdefault(TRIED_AGAIN, []).extend(again)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the repeated steps, also into the file that `.ci/run` prints at its end."""
    again = config.stash.get(TRIED_AGAIN, None)
    if again is None:
        return
    terminalreporter.write_line(f"tried again before it passed: {len(again)} ({', '.join(again) or 'nothing'})")
    if told := os.environ.get("TRIED_AGAIN"):
        with Path(told).open("a", encoding="utf-8") as file:
            file.writelines(f"replay of {name}\n" for name in again)
