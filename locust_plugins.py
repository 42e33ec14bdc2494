"""Makes `locust --help` list the options of load_tests/encoders.py.

Locust prints its help before it reads the locustfile, and asks for options of others only in a module of this name, the
one hook that it has so early. Adding them a second time, when the locustfile is read, does no harm.
"""

import locust

from load_tests.options import add_options

locust.events.init_command_line_parser.add_listener(add_options)
