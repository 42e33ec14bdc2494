"""The locustfile: puts load on the encoder models; all options of Locust work.

    locust -f load_tests/encoders.py --headless -u 8 -t 60
    locust -f load_tests/encoders.py --headless --sweep-batch --sweep-concurrency 1,2,4,8

Without --host and --endpoint, the endpoint of the stack LmiCohostStack is called, with a mix of all its models.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

# Locust replaces sockets and TLS by gevent's when it is imported, so it is imported before all modules that import ssl.
_SSL_BEFORE_LOCUST = "ssl" in sys.modules and "locust" not in sys.modules
if _SSL_BEFORE_LOCUST:
    raise ImportError(
        "load_tests.encoders: ssl was imported before Locust (boto3 and urllib3 do that), and a connection over TLS "
        "would recurse without end; allowed: Locust first; fix: run `locust -f load_tests/encoders.py`, or "
        "`import locust` before anything else"
    )

import locust  # noqa: E402 - as above
from botocore.exceptions import BotoCoreError, ClientError  # noqa: E402 - as above
from gevent.event import Event  # noqa: E402 - as above

from cohost.errors import CohostError  # noqa: E402 - as above
from load_tests.lifecycle import Lifecycle  # noqa: E402 - as above
from load_tests.options import add_options  # noqa: E402 - as above
from load_tests.web_page import guard  # noqa: E402 - as above

if TYPE_CHECKING:
    from locust.env import Environment
    from locust.web import WebUI

EXIT_FAULT = 1
_lifecycles: dict[int, Lifecycle] = {}
_prepared = Event()
_events: Any = locust.events


class Encoders(locust.User):
    """One caller: a Locust user that makes calls in the phases that the conductor starts."""

    def on_start(self) -> None:
        """Take a number for this user, after the process has found its target; Locust may start users earlier."""
        _prepared.wait()
        self.session = _lifecycles[id(self.environment)].session
        self.slot = self.session.enter()

    def on_stop(self) -> None:
        """Release this user's number."""
        self.session.leave(self.slot)

    @locust.task
    def call(self) -> None:
        """Make calls until Locust stops this user."""
        self.session.play(self.slot)


def _on_init(environment: Environment, web_ui: WebUI | None = None, **_: object) -> None:
    options: Any = environment.parsed_options
    if web_ui is not None:
        guard(web_ui, options.web_host)
    try:
        _lifecycles[id(environment)] = Lifecycle(environment)
    except (CohostError, BotoCoreError, ClientError) as error:
        if not options.worker:
            sys.stderr.write("".join(f"error: {line}\n" for line in str(error).splitlines()))
        sys.exit(EXIT_FAULT)
    _prepared.set()


_events.init_command_line_parser.add_listener(add_options)
_events.init.add_listener(_on_init)
