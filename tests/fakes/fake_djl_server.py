"""A process that takes the place of DJL Serving before the Python processes that it starts.

    python fake_djl_server.py --config-file FILE LISTEN ANSWERS

It listens on LISTEN (a path, or 0 for a free TCP port of 127.0.0.1), answers GET requests with what the JSON file
ANSWERS holds for their path ("text" as it is, anything else as JSON; {"hang": true} never), and starts a Python process
for each line of its input, a JSON list of arguments. Its own output is a line with its port, then one for each process:
{"code", "out"}.
"""

from __future__ import annotations

import json
import socketserver
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path


class _Handler(BaseHTTPRequestHandler):
    answers: Path

    def do_GET(self) -> None:
        """Answer with the file's present content."""
        known = json.loads(self.answers.read_text())
        answer = known.get(self.path)
        if answer == {"hang": True}:
            time.sleep(60)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        self.send_response(404 if self.path not in known else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def address_string(self) -> str:
        """A Unix socket's client has none."""
        return "client"

    def log_message(self, *_: object) -> None:
        """Stay silent."""


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class _TcpServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True


def main() -> None:
    """Serve, and start processes, until the input ends."""
    listen, answers = sys.argv[-2:]
    _Handler.answers = Path(answers)
    server: socketserver.BaseServer = (
        _TcpServer(("127.0.0.1", 0), _Handler) if listen == "0" else _UnixServer(listen, _Handler)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1] if isinstance(server, _TcpServer) else 0
    print(port, flush=True)  # noqa: T201 - the test reads it
    for line in sys.stdin:
        done = subprocess.run([sys.executable, *json.loads(line)], capture_output=True, text=True, check=False)
        answer = {"code": done.returncode, "out": done.stdout.strip(), "log": done.stderr}
        print(json.dumps(answer), flush=True)  # noqa: T201 - as above


if __name__ == "__main__":
    main()
