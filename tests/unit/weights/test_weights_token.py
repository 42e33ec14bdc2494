"""The Hub's token: read from its location, sent to the Hub, and stored nowhere else."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import boto3
import pytest
import yaml
from fakes.hub import FakeHub, use_hub
from fakes.refusals import refused
from typer.testing import CliRunner
from weights_models import BUCKET, CONFIG, REVISION, Steps, entry_of, safetensors

from cohost import cli
from cohost.errors import HubAccessError, WeightsError
from cohost.weights.push import Pusher
from cohost.weights.source import Hub, read_token
from cohost.weights.store import WeightsStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mypy_boto3_s3 import S3Client

pytestmark = pytest.mark.process

TOKEN = "hf_canaryCanaryCanary"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """Start a Hub with one gated model, which Hugging Face's client calls."""
    files = {"config.json": json.dumps(CONFIG).encode(), "tokenizer.json": b"{}", "README.md": b"words"}
    files["model.safetensors"] = safetensors(64)
    with closing(FakeHub(REVISION.model_id, REVISION.revision, files, token=TOKEN)) as fake:
        use_hub(monkeypatch, fake.url, tmp_path / "cache")
        yield fake


@pytest.fixture
def stored(s3: S3Client) -> boto3.Session:
    """Return a session of an account with the token in both locations."""
    assert s3
    session = boto3.Session()
    session.client("secretsmanager").create_secret(Name="hub/token", SecretString=TOKEN)
    session.client("secretsmanager").create_secret(Name="pair", SecretString=json.dumps({"HF_TOKEN": TOKEN}))
    session.client("secretsmanager").create_secret(Name="empty", SecretString=" ")
    session.client("ssm").put_parameter(Name="/hub/token", Value=TOKEN, Type="SecureString")
    return session


@pytest.mark.parametrize("source", ["secretsmanager:hub/token", "secretsmanager:pair", "ssm:/hub/token"])
def test_token_is_read_from_its_place(source: str, stored: boto3.Session) -> None:
    """A token is read from plain text, from the one value of a secret, or from a decrypted parameter."""
    assert read_token(source, stored) == TOKEN


@pytest.mark.parametrize(
    ("source", "field", "code"),
    [
        ("secretsmanager:nowhere", "secretsmanager:nowhere", "token-unreadable"),
        ("ssm:/nowhere", "ssm:/nowhere", "token-unreadable"),
        ("secretsmanager:empty", "secretsmanager:empty", "token-invalid"),
        (TOKEN, "--token-from", "token-source-invalid"),
    ],
)
def test_token_that_is_not_there_is_told_without_it(source: str, field: str, code: str, stored: boto3.Session) -> None:
    """The place is named, a token given by mistake is not repeated."""
    with refused(code, field, kind=WeightsError) as caught:
        read_token(source, stored)
    assert TOKEN not in str(caught.value)


@pytest.mark.usefixtures("hub")
def test_hub_without_a_token_says_how_to_give_one() -> None:
    """The error names the options that take a token."""
    with refused("hub-gated", str(REVISION), kind=HubAccessError) as caught:
        Hub().fetch(REVISION, allow_pickle=False, with_code=False)
    assert "--token-from" in caught.value.fix


def test_hub_that_cannot_be_reached_is_told_in_one_line(hub: FakeHub) -> None:
    """The error for an unreachable Hub is one line."""
    hub.close()
    with refused("hub-unreachable", str(REVISION), kind=HubAccessError) as caught:
        Hub(TOKEN).fetch(REVISION, allow_pickle=False, with_code=False)
    assert "\n" not in str(caught.value)


def test_revision_that_the_hub_does_not_have_is_told(hub: FakeHub) -> None:
    """The digits were copied wrongly, or the author removed the commit."""
    hub.status, hub.headers = 404, {"X-Error-Code": "RevisionNotFound"}
    with refused("hub-revision-missing", str(REVISION), kind=HubAccessError):
        Hub(TOKEN).fetch(REVISION, allow_pickle=False, with_code=False)


def test_token_stays_with_the_hub(hub: FakeHub) -> None:
    """The Hub sends weights from another address, which has no business with the token."""
    with closing(FakeHub(REVISION.model_id, REVISION.revision, hub.files)) as away:
        hub.away = away.url
        folder = Hub(TOKEN).fetch(REVISION, allow_pickle=False, with_code=False)
    assert away.fetched == {"model.safetensors"}
    assert (folder / "model.safetensors").is_file()
    assert (hub.tokens, away.tokens) == ({f"Bearer {TOKEN}"}, {None})


def test_only_what_is_uploaded_is_fetched(hub: FakeHub) -> None:
    """A push fetches neither other weight formats nor documents from the Hub."""
    folder = Hub(TOKEN).fetch(REVISION, allow_pickle=False, with_code=False)
    assert hub.fetched == {"config.json", "tokenizer.json", "model.safetensors"}
    assert (folder / "model.safetensors").read_bytes() == hub.files["model.safetensors"]


def test_pickles_are_refused_before_they_are_fetched(hub: FakeHub) -> None:
    """A gigabyte is not downloaded to be refused."""
    hub.files["pytorch_model.bin"] = hub.files.pop("model.safetensors")
    with refused("pickle", str(REVISION), kind=WeightsError):
        Hub(TOKEN).fetch(REVISION, allow_pickle=False, with_code=False)
    assert hub.fetched == set()


def test_push_with_a_stored_token_leaves_it_nowhere(
    hub: FakeHub, stored: boto3.Session, s3: S3Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A push sends the token to the Hub, and leaves it in no output, log, file or object."""
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
    """A second push of a stored revision sends no request to the Hub."""
    pusher = Pusher(WeightsStore(s3, BUCKET), Hub(TOKEN), Steps())
    pusher.push("nli", entry_of())
    hub.tokens.clear()
    assert pusher.push("nli", entry_of()).sent == 0
    assert hub.tokens == set()
