"""The `cohost` command: output, rejections and exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import typer.main
from botocore.exceptions import ClientError
from fakes.refusals import refused
from typer.testing import CliRunner

from cohost import cli
from cohost.archives.archive import pack
from cohost.archives.errors import ArtifactError
from cohost.archives.properties import loads
from cohost.catalog.models import BatchedSettings, Endpoint, GpuSettings, ModelEntry, Storage
from cohost.commands import options
from cohost.deploy import local_aws as local
from cohost.errors import CatalogError, CohostError, InvocationError, LocalError, PackagesError, PlanError

if TYPE_CHECKING:
    from click import Command, Result

ROOT = Path(__file__).parents[2]
ENCODERS = str(ROOT / "model_configs" / "encoders.yaml")


def run(*arguments: str) -> Result:
    """Run the command in this process; an unexpected exception fails the test."""
    return CliRunner().invoke(cli.app, arguments, catch_exceptions=False)


def commands() -> dict[str, Command]:
    """Return every subcommand by its full name."""
    root = typer.main.get_command(cli.app)
    found = {}
    for name, lazy in root.commands.items():  # type: ignore[attr-defined]
        command = lazy.load()
        found |= {f"{name} {sub}": c for sub, c in getattr(command, "commands", {}).items()} or {name: command}
        assert lazy.help == command.help.partition("\n")[0], f"the list of commands has another help of {name}"
    return found


def end(monkeypatch: pytest.MonkeyPatch, error: Exception, *arguments: str) -> None:
    """Run `cohost models` as the program does, with a catalog that cannot be read for this reason."""

    def fail(_: Path) -> NoReturn:
        raise error

    monkeypatch.setattr(options, "load_catalog", fail)
    monkeypatch.setattr(sys, "argv", ["cohost", "models", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1


def test_every_command_has_help_with_an_example_and_a_row_on_its_page() -> None:
    """A user finds each command by --help and on docs/commands.md."""
    page = (ROOT / "docs" / "commands.md").read_text()
    for name, command in commands().items():
        assert "Example: cohost" in (command.help or "").replace('eval "$(', ""), name
        assert re.search(rf"^\|.*`cohost {name}\b.*` \| .+ \|$", page, re.MULTILINE), name


def test_every_key_of_the_catalog_is_documented() -> None:
    """docs/catalog.md has each key of the catalog."""
    text = (ROOT / "docs" / "catalog.md").read_text()
    for settings in (Endpoint, Storage, ModelEntry, GpuSettings, BatchedSettings):
        for name, info in settings.model_fields.items():
            assert f"`{info.alias or name}`" in text, f"{settings.__name__}.{name}"


def test_models_lists_the_catalog() -> None:
    """`cohost models` lists all models of the catalog."""
    result = run("models", "--catalog", ENCODERS)

    assert result.exit_code == 0
    assert all(name in result.stdout for name in ("mdeberta", "minilm", "xlmr-large"))


def test_models_as_json_is_data() -> None:
    """A script reads every setting by DJL's and AWS's names."""
    data = json.loads(run("models", "--catalog", ENCODERS, "--json").stdout)

    assert data["mdeberta"]["gpu"] == {
        "minWorkers": 1,
        "maxWorkers": 1,
        "required_memory_mb": None,
        "reserved_memory_mb": None,
    }


def test_render_prints_the_file_that_is_deployed() -> None:
    """`cohost render` prints a file that Java's rules read back."""
    properties = loads(run("render", "mdeberta", "--catalog", ENCODERS).stdout)

    assert properties["option.model_id"] == "MoritzLaurer/mDeBERTa-v3-base-xnli-multilingual-nli-2mil7"
    assert properties == json.loads(run("render", "mdeberta", "--catalog", ENCODERS, "--json").stdout)


def test_render_of_an_unknown_model_names_the_nearest() -> None:
    """`cohost render` of a misspelt model names the nearest one."""
    with refused("model-not-in-catalog", kind=CatalogError) as caught:
        run("render", "mdebert", "--catalog", ENCODERS)
    assert "'mdeberta'" in caught.value.fix


def test_bundle_writes_the_same_bytes_twice(tmp_path: Path) -> None:
    """`cohost bundle` writes the same bytes twice."""
    for out in ("a", "b"):
        assert run("bundle", "--out", str(tmp_path / out), "--catalog", ENCODERS).exit_code == 0

    first, second = ({path.name: path.read_bytes() for path in (tmp_path / out).iterdir()} for out in ("a", "b"))
    assert sorted(first) == ["mdeberta.tar.gz", "minilm.tar.gz", "xlmr-large.tar.gz"]
    assert first == second


def test_bundle_of_an_unknown_model_writes_nothing(tmp_path: Path) -> None:
    """`cohost bundle` with one unknown model writes no archive."""
    with pytest.raises(CatalogError):
        run("bundle", "mdeberta", "nope", "--out", str(tmp_path / "out"), "--catalog", ENCODERS)

    assert not (tmp_path / "out").exists()


def test_verify_finds_our_own_archives_right(tmp_path: Path) -> None:
    """An archive from `cohost bundle` passes `cohost verify`."""
    run("bundle", "--out", str(tmp_path), "--catalog", ENCODERS)

    result = run("verify", *map(str, tmp_path.iterdir()))

    assert result.exit_code == 0
    assert result.stdout.count("no fault") == 3


def test_bundle_of_scale_to_zero_is_one_archive_that_passes_its_own_check(tmp_path: Path) -> None:
    """`cohost bundle` writes the one archive that a deploy publishes, so it rejects the name of a single model."""
    zero = str(Path(ENCODERS).parent / "examples" / "scale-to-zero.yaml")

    assert run("bundle", "--out", str(tmp_path), "--catalog", zero).exit_code == 0
    with refused("names-of-a-bundle", kind=ArtifactError):
        run("bundle", "mdeberta", "--out", str(tmp_path / "x"), "--catalog", zero)

    assert [path.name for path in tmp_path.iterdir()] == ["models.tar.gz"]
    assert run("verify", "--bundle", str(tmp_path / "models.tar.gz")).exit_code == 0
    assert run("verify", str(tmp_path / "models.tar.gz")).exit_code == 1


def test_verify_ends_with_1_on_a_foreign_archive_with_errors(tmp_path: Path) -> None:
    """A pipeline stops at an archive that the server would refuse."""
    path = tmp_path / "x.tar.gz"
    path.write_bytes(pack({"serving.properties": b"engine=Python \n"}))

    result = run("verify", str(path), "--json")

    assert result.exit_code == 1
    assert any(fault["severity"] == "error" for fault in json.loads(result.stdout)[str(path)])


def test_pairs_must_match_the_texts() -> None:
    """`cohost invoke` with a missing second text is rejected before a call."""
    with refused("pairs-unmatched", "--pair", kind=InvocationError):
        run("invoke", "--model", "nli", "a", "b", "--pair", "c")


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_parameters_must_be_a_json_object(text: str) -> None:
    """`cohost invoke` with wrong parameters is rejected before a call."""
    with refused("parameters-not-json", "--parameters", kind=InvocationError):
        run("invoke", "--model", "nli", "a", "--parameters", text)


def test_down_without_a_server_is_no_fault(tmp_path: Path) -> None:
    """`cohost local down` without an emulator succeeds."""
    assert run("local", "down", "--state", str(tmp_path)).exit_code == 0


def test_up_prints_what_a_shell_can_evaluate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`cohost local up` prints only export lines on stdout, so a shell can evaluate them."""
    server = local.LocalServer(url="http://127.0.0.1:4599", pid=1, state=tmp_path)
    (tmp_path / local.KEY_FILE).write_text('{"key_id": "AKIA1", "secret": "s"}')
    monkeypatch.setattr(local, "start", lambda **_: server)

    result = run("local", "up", "--catalog", ENCODERS, "--state", str(tmp_path))

    assert re.fullmatch(r"(export [A-Z_0-9]+=\S+\n)+", result.stdout)
    assert "export AWS_ENDPOINT_URL=http://127.0.0.1:4599" in result.stdout
    assert "export AWS_SECRET_ACCESS_KEY=s\n" in result.stdout
    assert f"until `cohost local down --state {tmp_path}`" in result.stderr


def test_env_prints_the_same_lines_for_a_server_that_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`cohost local env` prints the lines of `up`, and without a server the command that starts one."""
    server = local.LocalServer(url="http://127.0.0.1:4599", pid=1, state=tmp_path, catalog=Path(ENCODERS))
    (tmp_path / local.KEY_FILE).write_text('{"key_id": "AKIA1", "secret": "s"}')
    monkeypatch.setattr(local, "start", lambda **_: server)
    monkeypatch.setattr(local, "find", lambda state: server if state == tmp_path else None)
    up = run("local", "up", "--catalog", ENCODERS, "--state", str(tmp_path))

    assert run("local", "env", "--state", str(tmp_path)).stdout == up.stdout
    assert json.loads(run("local", "env", "--state", str(tmp_path), "--json").stdout) == {
        "url": server.url,
        "pid": 1,
        "environment": server.environment(Path(ENCODERS)),
    }
    with refused("server-missing", kind=LocalError):
        run("local", "env", "--state", str(tmp_path / "other"))


def test_an_error_with_json_is_data_on_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error with --json has code, field and fix on stdout, and a line on stderr."""
    end(monkeypatch, PlanError("some-code", "a.b", "got 7", allowed="1 to 3", fix="choose one"), "--json")

    printed = capsys.readouterr()
    text = "a.b: got 7; allowed: 1 to 3; fix: choose one"
    parts = {"code": "some-code", "field": "a.b", "problem": "got 7", "allowed": "1 to 3", "fix": "choose one"}
    assert json.loads(printed.out) == {"errors": [{**parts, "message": text}]}
    assert printed.err == f"error: {text}\n"


def test_all_faults_of_a_catalog_are_entries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each fault of a catalog is an entry in the JSON and a line on stderr."""

    class SeveralFaultsError(CohostError):
        def entries(self) -> list[dict[str, str]]:
            return [{"code": "first"}, {"code": "second"}]

    end(monkeypatch, SeveralFaultsError("several", "a", "one\ntwo"), "--json")

    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"errors": [{"code": "first"}, {"code": "second"}]}
    assert printed.err == "error: a: one\nerror: two\n"


def test_a_refusal_of_aws_is_an_entry_with_its_own_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error of boto3 is printed without a traceback, with the keys of the project's own errors."""
    denied: Any = {"Error": {"Code": "AccessDenied", "Message": "no right"}}
    end(monkeypatch, ClientError(denied, "DescribeEndpoint"), "--json")

    (entry,) = json.loads(capsys.readouterr().out)["errors"]
    assert (entry["code"], entry["field"]) == ("aws-error", "AWS")
    assert "AccessDenied" in entry["problem"]
    assert "AWS_PROFILE" in entry["fix"]


def test_an_error_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception keeps its traceback."""
    monkeypatch.setattr(options, "load_catalog", lambda _: 1 / 0)
    monkeypatch.setattr(sys, "argv", ["cohost", "models"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_missing_packages_are_named_with_their_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deploy machine without torch stops before anything is started."""
    monkeypatch.setattr(options.importlib.util, "find_spec", lambda name: None if name == "torch" else object())

    with refused("packages-missing", kind=PackagesError) as caught:
        run("local", "up", "--catalog", ENCODERS)
    assert "torch" in caught.value.problem
    assert "--group local" in caught.value.fix


@pytest.mark.process
def test_help_loads_neither_boto3_nor_pydantic() -> None:
    """`cohost --help` imports neither boto3 nor pydantic."""
    script = "import sys; from cohost.cli import app; app(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    loaded = {*done.stdout.splitlines()[-1].split()}
    assert "cohost.cli" in loaded
    assert not loaded & {"boto3", "botocore", "jinja2", "pydantic", "typer.rich_utils"}
    assert all(f" {name} " in done.stdout for name in cli.COMMANDS)


@pytest.mark.process
def test_fault_is_one_line_and_exit_code_1() -> None:
    """An error is one line on stderr with exit code 1."""
    done = subprocess.run(
        [sys.executable, "-m", "cohost", "models", "--catalog", "nowhere.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, ""), "without --json nothing is printed on stdout"
    assert done.stderr.startswith("error: nowhere.yaml: cannot be read")
    assert done.stderr.count("\n") == 1


def test_wrong_usage_is_exit_code_2() -> None:
    """An unknown option ends with exit code 2."""
    assert CliRunner().invoke(cli.app, ["models", "--nope"]).exit_code == 2
