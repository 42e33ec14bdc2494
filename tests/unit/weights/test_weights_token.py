"""The Hub's token: read from where it is kept, sent to the Hub, and found nowhere else."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import boto3
import pytest
import yaml
from typer.testing import CliRunner
from weights_models import BUCKET, CONFIG, REVISION, Steps, entry_of, safetensors

from cohost import cli
from cohost.errors import WeightsError
from cohost.weights.push import Pusher
from cohost.weights.source import Hub, read_token
from cohost.weights.store import WeightsStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mypy_boto3_s3 import S3Client

pytestmark = pytest.mark.process

TOKEN = "hf_canaryCanaryCanary"


class FakeHub:
    """A Hub of one gated model on 127.0.0.1."""

    def __init__(self) -> None:
        self.files = {
            "config.json": json.dumps(CONFIG).encode(),
            "tokenizer.json": b"{}",
            "model.safetensors": safetensors(64),
            "README.md": b"words",
        }
        self.tokens: set[str | None] = set()
        self.fetched: set[str] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._answer(with_body=False)

            def do_GET(self) -> None:
                self._answer(with_body=True)

            def _answer(self, *, with_body: bool) -> None:
                outer.tokens.add(self.headers.get("Authorization"))
                status, body, headers = outer.answer(self.path, self.headers.get("Authorization"), with_body=with_body)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if with_body:
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def answer(self, path: str, token: str | None, *, with_body: bool) -> tuple[int, bytes, dict[str, str]]:
        """What the Hub says: facts of the model, its files, or why not."""
        if token != f"Bearer {TOKEN}":
            return 401, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"}
        model, revision = REVISION.model_id, REVISION.revision
        if path.startswith(f"/api/models/{model}"):
            return 200, self._facts(path), {"Content-Type": "application/json"}
        name = path.partition(f"/{model}/resolve/{revision}/")[2]
        if name not in self.files:
            return 404, b"", {"X-Error-Code": "EntryNotFound"}
        if with_body:
            self.fetched.add(name)
        return 200, self.files[name], {"ETag": f'"{len(self.files[name])}"', "X-Repo-Commit": revision}

    def _facts(self, path: str) -> bytes:
        tree = [{"type": "file", "path": name, "size": len(data), "oid": "0" * 40} for name, data in self.files.items()]
        siblings = [{"rfilename": name} for name in self.files]
        facts = {"id": REVISION.model_id, "modelId": REVISION.model_id, "sha": REVISION.revision, "siblings": siblings}
        return json.dumps(tree if "/tree/" in path else facts).encode()

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A Hub that Hugging Face's client asks instead of the public one, with a cache of its own."""
    fake = FakeHub()
    for module in ("constants", "hf_api", "file_download", "_snapshot_download"):
        for name, value in {"ENDPOINT": fake.url, "HF_HUB_CACHE": str(tmp_path / "cache")}.items():
            monkeypatch.setattr(f"huggingface_hub.{module}.{name}", value, raising=False)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", fake.url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    yield fake
    fake.close()


@pytest.fixture
def stored(s3: S3Client) -> boto3.Session:
    """A session of an account that keeps the token in both places."""
    assert s3
    session = boto3.Session()
    session.client("secretsmanager").create_secret(Name="hub/token", SecretString=TOKEN)
    session.client("secretsmanager").create_secret(Name="pair", SecretString=json.dumps({"HF_TOKEN": TOKEN}))
    session.client("secretsmanager").create_secret(Name="empty", SecretString=" ")
    session.client("ssm").put_parameter(Name="/hub/token", Value=TOKEN, Type="SecureString")
    return session


@pytest.mark.parametrize("source", ["secretsmanager:hub/token", "secretsmanager:pair", "ssm:/hub/token"])
def test_token_is_read_from_its_place(source: str, stored: boto3.Session) -> None:
    """Plain text, or the one value of a secret made in the console; parameters are decrypted."""
    assert read_token(source, stored) == TOKEN


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("secretsmanager:nowhere", "secretsmanager:nowhere cannot be read"),
        ("ssm:/nowhere", "ssm:/nowhere cannot be read"),
        ("secretsmanager:empty", "holds no token"),
        (TOKEN, r"allowed: secretsmanager:NAME or ssm:NAME"),
    ],
)
def test_token_that_is_not_there_is_told_without_it(source: str, part: str, stored: boto3.Session) -> None:
    """The place is named, a token given by mistake is not repeated."""
    with pytest.raises(WeightsError, match=part) as caught:
        read_token(source, stored)
    assert TOKEN not in str(caught.value)


def test_hub_without_a_token_says_how_to_give_one(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gated model is no riddle."""
    assert hub
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(WeightsError, match=r"org/nli@a+: is gated; fix: .*--token-from"):
        Hub().fetch(REVISION, allow_pickle=False, with_code=False)


def test_hub_that_cannot_be_reached_is_told_in_one_line(hub: FakeHub) -> None:
    """Not a page of the client's own."""
    hub.close()
    with pytest.raises(
        WeightsError, match=r"cannot be fetched from the Hub \(\w+: .*; fix: check the network"
    ) as caught:
        Hub(TOKEN).fetch(REVISION, allow_pickle=False, with_code=False)
    assert "\n" not in str(caught.value)


def test_only_what_is_uploaded_is_fetched(hub: FakeHub) -> None:
    """Neither other formats nor words."""
    folder = Hub(TOKEN).fetch(REVISION, allow_pickle=False, with_code=False)
    assert hub.fetched == {"config.json", "tokenizer.json", "model.safetensors"}
    assert (folder / "model.safetensors").read_bytes() == hub.files["model.safetensors"]


def test_pickles_are_refused_before_they_are_fetched(hub: FakeHub) -> None:
    """A gigabyte is not downloaded to be refused."""
    hub.files["pytorch_model.bin"] = hub.files.pop("model.safetensors")
    with pytest.raises(WeightsError, match="pickles only"):
        Hub(TOKEN).fetch(REVISION, allow_pickle=False, with_code=False)
    assert hub.fetched == set()


def test_push_with_a_stored_token_leaves_it_nowhere(
    hub: FakeHub, stored: boto3.Session, s3: S3Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The Hub gets the token; screen, log, files of ours and every object with its metadata are without it."""
    assert stored
    path = tmp_path / "catalog.yaml"
    entry = entry_of(gated=True).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    content = {
        "endpoint": {"name": "e", "instance_type": "ml.g5.xlarge", "image": "djl-inference:0.36.0-lmi26.0.0-cu130"},
        "storage": {"weights_bucket": BUCKET},
        "hub_token": "secretsmanager:hub/token",
        "models": {"nli": entry},
    }
    path.write_text(yaml.safe_dump(content))
    caplog.set_level("DEBUG", logger="cohost")

    result = CliRunner().invoke(cli.app, ["weights", "push", "--catalog", str(path)], catch_exceptions=False)

    assert hub.tokens == {f"Bearer {TOKEN}"}
    assert result.exit_code == 0
    seen = [result.output, caplog.text, *(str(vars(found)) for found in caplog.records)]
    for item in s3.list_objects_v2(Bucket=BUCKET)["Contents"]:
        answer = s3.get_object(Bucket=BUCKET, Key=item["Key"])
        seen += [item["Key"], str(answer["Metadata"]), answer["Body"].read().decode("latin-1")]
    seen += [file.read_bytes().decode("latin-1") for file in tmp_path.rglob("*") if file.is_file()]
    assert len(seen) > 10
    assert not any(TOKEN in text for text in seen)


def test_hub_is_not_asked_when_all_is_there(hub: FakeHub, s3: S3Client) -> None:
    """A pinned revision cannot change, so a second push compares with the bucket alone."""
    pusher = Pusher(WeightsStore(s3, BUCKET), Hub(TOKEN), Steps())
    pusher.push("nli", entry_of())
    hub.tokens.clear()
    assert pusher.push("nli", entry_of()).sent == 0
    assert hub.tokens == set()
