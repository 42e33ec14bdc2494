"""A Hugging Face Hub with one model on 127.0.0.1, and a fresh client of Hugging Face's library."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest


class FakeHub:
    """Serves the `files` of one revision of a model as the Hub does, with a token if one is set.

    `status` and `headers` replace every answer's if `status` is set; without `ranges`, whole files are sent. `away` is
    the address of another server that has the content of `*.safetensors`, to which the Hub redirects. `tokens` are the
    headers of authorization that came, `fetched` the names of files that were read, and `sent` counts bytes.
    """

    def __init__(self, model_id: str, revision: str, files: Mapping[str, bytes], *, token: str | None = None) -> None:
        self.model_id, self.revision, self.files, self.token = model_id, revision, dict(files), token
        self.status, self.headers, self.ranges, self.away = 0, dict[str, str](), True, ""
        self.tokens: set[str | None] = set()
        self.fetched: set[str] = set()
        self.sent = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._answer(with_body=False)

            def do_GET(self) -> None:
                self._answer(with_body=True)

            def _answer(self, *, with_body: bool) -> None:
                outer.tokens.add(self.headers.get("Authorization"))
                wanted = self.headers.get("Range", "")
                status, body, headers = outer.answer(self.path, self.headers.get("Authorization"), with_body=with_body)
                if wanted and outer.ranges and status == 200:
                    first, last = map(int, wanted.removeprefix("bytes=").split("-"))
                    status, body = 206, body[first : last + 1]
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if with_body:
                    self.wfile.write(body)
                    outer.sent += len(body)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def answer(self, path: str, token: str | None, *, with_body: bool) -> tuple[int, bytes, dict[str, str]]:
        """Return status, body and headers for facts of the model, a file, or a rejection."""
        if self.status:
            return self.status, b"", self.headers
        if self.token is not None and token != f"Bearer {self.token}":
            return 401, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"}
        if path.startswith(f"/api/models/{self.model_id}"):
            return 200, self._facts(path), {"Content-Type": "application/json"}
        found = re.fullmatch(f"/{self.model_id}/resolve/{self.revision}/(.+)", path)
        name = found[1] if found else ""
        if name not in self.files:
            return 404, b"", {"X-Error-Code": "EntryNotFound"}
        if with_body:
            self.fetched.add(name)
        if self.away and name.endswith(".safetensors") and with_body:
            return 302, b"", {"Location": self.away + path}
        return 200, self.files[name], {"ETag": f'"{len(self.files[name])}"', "X-Repo-Commit": "a" * 40}

    def _facts(self, path: str) -> bytes:
        tree = [{"type": "file", "path": name, "size": len(data), "oid": "0" * 40} for name, data in self.files.items()]
        siblings = [{"rfilename": name} for name in self.files]
        facts = {"id": self.model_id, "modelId": self.model_id, "sha": self.revision, "siblings": siblings}
        return json.dumps(tree if "/tree/" in path else facts).encode()

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def use_hub(monkeypatch: pytest.MonkeyPatch, url: str, cache: Path) -> None:
    """Direct Hugging Face's client to this Hub, with an empty cache and only a token that a test gives."""
    monkeypatch.setenv("HF_ENDPOINT", url)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    # The client reads these when it is imported.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(cache / "token"))
