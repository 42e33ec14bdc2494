"""Programs for PATH that record their calls and give prepared answers, and a setup to start engines."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from local_aws.engines.engine import Setup

if TYPE_CHECKING:
    from collections.abc import Callable

# Answers a call by the longest known beginning of its arguments; a fake of a server then serves the fake API.
SCRIPT = """#!{python}
import json, os, pathlib, signal, sys
folder = pathlib.Path({folder!r})
name, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
seen = {{key: os.environ[key] for key in {watched!r} if key in os.environ}}
with open(folder / "calls.jsonl", "a") as log:
    log.write(json.dumps([name, arguments, seen]) + "\\n")
answers = json.loads((folder / f"{{name}}.answers.json").read_text())
key = max((k for k in answers if " ".join(arguments).startswith(k)), key=len, default=None)
if key is None:
    sys.exit(f"{{name}}: unexpected {{arguments}}")
answer = answers[key]
if answer.get("sets"):
    path, values = answer["sets"]
    target = folder / path
    target.write_text(json.dumps(json.loads(target.read_text()) | values))
sys.stdout.write(answer.get("out", ""))
sys.stderr.write(answer.get("err", ""))
if "serve" not in answer:
    sys.exit(answer.get("code", 0))

import socketserver
from http.server import BaseHTTPRequestHandler
if name == "docker":
    port = next(part.split(":")[1] for part in arguments if part.startswith("127.0.0.1:"))
else:
    configuration = pathlib.Path(arguments[arguments.index("--config-file") + 1]).read_text()
    port = configuration.split("\\n")[0].removeprefix("inference_address=unix:")
models = {{}}

class Api(BaseHTTPRequestHandler):
    def say(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/invoke"):
            return self.say(200, [])
        if asked["model_name"] in answer["serve"]:
            return self.say(507, {{"code": 507, "message": "No enough memory to load the model."}})
        models[asked["model_name"]] = asked["url"]
        self.say(200, {{"status": "registered"}})

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path == "/ping":
            return self.say(200, {{}})
        if path == "/models":
            return self.say(200, {{"models": [{{"modelName": name, "modelUrl": url, "status": "READY"}}
                                            for name, url in models.items()]}})
        if path.startswith("/models/"):
            group = {{"minWorkers": 1, "maxWorkers": 1, "workers": [{{"id": 1, "status": "READY"}}]}}
            described = {{"status": "Healthy", "requestInQueue": 0, "workerGroups": [group]}}
            return self.say(200, [{{"models": [described]}}])
        self.say(404, {{"code": 404}})

    def log_message(self, *_):
        pass

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if name == "docker":
    server = socketserver.TCPServer(("127.0.0.1", int(port)), Api)
else:
    server = socketserver.UnixStreamServer(port, Api)
server.serve_forever()
"""
_WATCHED = ("HF_TOKEN", "MODEL_SERVER_HOME", "PYTHON_EXECUTABLE", "SAGEMAKER_MULTI_MODEL", "LEVEL", "JAVA_OPTS")


@dataclass
class Programs:
    """Fake programs below `folder`, which is to be first on PATH."""

    folder: Path
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def install(self, name: str, answers: dict[str, Any]) -> Path:
        """Install a program that answers by the start of its arguments: "out", "err", "code", "serve", "sets"."""
        self.folder.mkdir(exist_ok=True)
        program = self.folder / name
        program.write_text(SCRIPT.format(python=sys.executable, folder=str(self.folder), watched=_WATCHED))
        program.chmod(0o755)
        (self.folder / f"{name}.answers.json").write_text(json.dumps(answers))
        return program

    @property
    def calls(self) -> list[list[Any]]:
        """Return every call so far: [program, arguments, watched environment]."""
        log = self.folder / "calls.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def arguments(self, name: str) -> list[list[str]]:
        """Return the arguments of every call of one program."""
        return [arguments for program, arguments, _ in self.calls if program == name]


IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130"
LABELS = (
    '{"com.amazonaws.sagemaker.capabilities.multi-models":"true",'
    '"com.amazonaws.sagemaker.capabilities.accept-bind-to-port":"true","maintainer":"x"}\n'
)
DOCKER: dict[str, Any] = {
    "version": {"out": "29.0.1\n"},
    "container inspect": {"code": 1, "err": "No such container\n"},
    "image inspect": {"out": LABELS},
    "rm": {},
}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Hide programs on PATH that no test installed, and the settings of Hugging Face, Java and Python."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("HF_TOKEN", "HF_HOME", "JAVA_HOME", "PYTHON_EXECUTABLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return Programs(tmp_path / "bin")


@pytest.fixture
def make_setup(tmp_path: Path) -> Callable[..., Setup]:
    """Return a setup with the values that a test gives."""

    def make(**given: object) -> Setup:
        values = {
            "image": IMAGE,
            "models": Path("/state/models"),
            "scratch": tmp_path,
            "port": 8084,
            "upstream_port": 8085,
            "token": "the-token",
            "environment": {},
            "handlers": {"stock"},
            "hubs": [],
            "weights": {},
        }
        return Setup(**(values | given))  # type: ignore[arg-type]

    return make
