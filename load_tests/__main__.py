"""`python -m load_tests …` is `locust -f load_tests/encoders.py …`, and its `--help` shows the options of both.

Locust prints its help before it reads the locustfile (2.47: argument_parser.parse_locustfile_option), so with the plain
command the options of a locustfile work, but are not listed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import locust
import locust.main as locust_main

from load_tests.options import add_options

if __name__ == "__main__":
    events: Any = locust.events
    run: Any = locust_main.main
    events.init_command_line_parser.add_listener(add_options)
    sys.argv = ["locust", "-f", str(Path(__file__).with_name("encoders.py")), *sys.argv[1:]]
    run()
