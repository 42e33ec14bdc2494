"""The ports of a load test: their addresses, and the answers of Locust's web page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from load_tests.web_page import guard

ROOT = Path(__file__).parents[3]
HOST = "127.0.0.1:8089"


# In a process of its own: Locust replaces sockets and threads as soon as it is imported.
PARSES = """
import locust.argument_parser, sys
from load_tests.options import add_options
parser = locust.argument_parser.get_parser()
add_options(parser)
options = parser.parse_args(sys.argv[1:])
print(options.web_host, options.master_bind_host)
"""


def addresses(*arguments: str, **environment: str) -> list[str]:
    """Give the addresses at which page and master would listen, as Locust reads the options with the load test's."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LOCUST_")}
    command = [sys.executable, "-c", PARSES, *arguments]
    result = subprocess.run(
        command, cwd=ROOT, env={**inherited, **environment}, capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def asked(web_host: str, **environ: str) -> tuple[str, int]:
    """The status that the guarded page answers, and how many requests reached Locust's own."""
    reached: list[dict[str, Any]] = []
    answered: list[str] = []

    def own(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        reached.append(environ)
        start_response("200 OK", [])
        return [b"page"]

    app = SimpleNamespace(wsgi_app=own)
    guard(SimpleNamespace(app=app), web_host)  # type: ignore[arg-type]
    list(app.wsgi_app({"HTTP_HOST": HOST, **environ}, lambda status, _: answered.append(status)))
    return answered[0], len(reached)


@pytest.mark.process
def test_both_ports_are_this_machines_by_default() -> None:
    """Both ports of Locust listen on 127.0.0.1 by default."""
    assert addresses() == ["127.0.0.1", "127.0.0.1"]


@pytest.mark.process
def test_whoever_names_another_address_gets_it() -> None:
    """Locust's page listens on the address of the option or the variable; '*' means all interfaces."""
    assert addresses("--web-host", "*", "--master-bind-host", "192.168.1.1") == ["*", "192.168.1.1"]
    assert addresses(LOCUST_WEB_HOST="10.0.0.1", LOCUST_MASTER_BIND_HOST="*") == ["10.0.0.1", "*"]


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"HTTP_SEC_FETCH_SITE": "none"},
        {"HTTP_SEC_FETCH_SITE": "same-origin"},
        {"HTTP_ORIGIN": f"http://{HOST}", "HTTP_SEC_FETCH_SITE": "same-origin"},
    ],
)
def test_the_page_itself_works(environ: dict[str, str]) -> None:
    """Locust's page works in the user's browser, also for its own POST requests with Origin."""
    assert asked("127.0.0.1", **environ) == ("200 OK", 1)


@pytest.mark.parametrize(
    "environ",
    [
        {"HTTP_ORIGIN": "http://evil.test"},
        {"HTTP_ORIGIN": "null"},
        {"HTTP_ORIGIN": "http://127.0.0.1:9999"},
        {"HTTP_SEC_FETCH_SITE": "cross-site"},
        {"HTTP_SEC_FETCH_SITE": "same-site"},
        {"HTTP_HOST": "evil.test:8089"},
        {"HTTP_HOST": "evil.test:8089", "HTTP_ORIGIN": "http://evil.test:8089", "HTTP_SEC_FETCH_SITE": "same-origin"},
    ],
)
def test_no_other_page_reaches_it(environ: dict[str, str]) -> None:
    """Locust's page rejects requests from other origins and with foreign host names."""
    assert asked("127.0.0.1", **environ) == ("403 Forbidden", 0)


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({"HTTP_HOST": "load.internal:8089", "HTTP_ORIGIN": "http://load.internal:8089"}, "200 OK"),
        ({"HTTP_HOST": "load.internal:8089", "HTTP_ORIGIN": "http://evil.test"}, "403 Forbidden"),
        ({"HTTP_HOST": "load.internal:8089", "HTTP_SEC_FETCH_SITE": "cross-site"}, "403 Forbidden"),
    ],
)
def test_an_address_of_the_users_own_has_any_name(environ: dict[str, str], status: str) -> None:
    """With `--web-host` any host name is accepted, but other origins are rejected."""
    assert asked("*", **environ)[0] == status
