"""serving.properties are read as by the real server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from local_aws.lmi.errors import Arithmetic, Fault, IllegalArgument, ModelNotFound, NumberFormat
from local_aws.lmi.models.serving_properties import java_int, read_settings

if TYPE_CHECKING:
    from pathlib import Path

    from local_aws.lmi.settings import ModelSettings


def _read(folder: Path, text: str, overrides: dict[str, int] | None = None) -> ModelSettings:
    (folder / "serving.properties").write_text(text)
    return read_settings(folder, overrides or {})


def test_defaults_are_the_real_servers(tmp_path: Path) -> None:
    """The defaults are batch 1, 100 ms, idle 60 s, queue 1000, and one worker per core (recorded: 05)."""
    settings = _read(tmp_path, "engine=Python\noption.model_id=a/b\n")
    numbers = (settings.batch_size, settings.max_batch_delay_ms, settings.max_idle_s, settings.queue_size)
    assert numbers == (1, 100, 60, 1000)
    assert (settings.min_workers, settings.max_workers) == (1, os.cpu_count())
    assert (settings.predict_timeout_s, settings.loading_timeout_s, settings.retry_threshold) == (120, 240, None)


def test_gpu_keys_change_nothing_on_a_cpu(tmp_path: Path) -> None:
    """Keys with gpu. have no effect on a CPU, and keys with cpu. have."""
    text = "option.model_id=a/b\ngpu.minWorkers=4\ngpu.maxWorkers=4\ncpu.minWorkers=1\ncpu.maxWorkers=2\n"
    settings = _read(tmp_path, text)
    assert (settings.min_workers, settings.max_workers) == (1, 2)


def test_a_minimum_above_the_maximum_is_lowered(tmp_path: Path) -> None:
    """Recorded (22, minmax_swapped): the model loads."""
    settings = _read(tmp_path, "option.model_id=a/b\ncpu.minWorkers=3\ncpu.maxWorkers=1\n")
    assert settings.min_workers == 1


def test_a_handler_sees_options_without_their_prefix(tmp_path: Path) -> None:
    """Recorded (21_handler_properties): options lose "option.", other keys stay, batching adds batchifier."""
    settings = _read(tmp_path, "engine=Python\noption.my=x\nbatch_size=8\noption.model_id=a/b\n")
    assert settings.properties == {
        "handler": "handle",
        "engine": "Python",
        "my": "x",
        "batch_size": "8",
        "model_id": "a/b",
        "batchifier": "stack",
    }


def test_numbers_of_the_load_request_win(tmp_path: Path) -> None:
    """Numbers of a load request override those of the archive."""
    assert _read(tmp_path, "option.model_id=a/b\nbatch_size=2\n", {"batch_size": 4}).batch_size == 4


@pytest.mark.parametrize(
    ("text", "fault", "message"),
    [
        ("engine=NoSuch\n", IllegalArgument, "Deep learning engine not found: NoSuch"),
        ("engine=Python \n", IllegalArgument, "Deep learning engine not found: Python "),
        ("engine=MPI\noption.model_id=a/b\n", Arithmetic, "/ by zero"),
        ("batch_size=abc\noption.model_id=a/b\n", NumberFormat, 'For input string: "abc"'),
        ("batch_size=8 \noption.model_id=a/b\n", NumberFormat, 'For input string: "8 "'),
        ("cpu.minWorkers=abc\noption.model_id=a/b\n", NumberFormat, 'For input string: "abc"'),
        ("option.model_id=\\u12\n", IllegalArgument, "serving.properties"),
        ("", ModelNotFound, "Failed to detect engine of the model"),
    ],
)
def test_a_wrong_value_is_refused(tmp_path: Path, text: str, fault: type[Fault], message: str) -> None:
    """A wrong value gives the recorded status and text (05, 22); a trailing blank belongs to the value."""
    with pytest.raises(fault) as caught:
        _read(tmp_path, text)
    assert message in str(caught.value)


def test_a_time_out_that_cannot_be_read_keeps_its_default(tmp_path: Path) -> None:
    """An unreadable time-out has its default value, as in the real server."""
    assert _read(tmp_path, "option.model_id=a/b\noption.predict_timeout=soon\n").predict_timeout_s == 120


@pytest.mark.parametrize(
    ("files", "option", "entry_point"),
    [
        ([], "", None),
        (["model.py"], "", "model.py"),
        (["model.py"], "option.entryPoint=my.py\n", "my.py"),
        (["model.py"], "option.entryPoint=djl_python.huggingface\n", None),
    ],
)
def test_the_entry_point_is_the_named_one_else_model_py_else_the_stock_handler(
    tmp_path: Path, files: list[str], option: str, entry_point: str | None
) -> None:
    """The handler is the named entry point, or model.py, or the stock handler."""
    for name in files:
        (tmp_path / name).touch()
    assert _read(tmp_path, f"option.model_id=a/b\n{option}").entry_point == entry_point


def test_environment_variables_are_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OPTION_* variables of the container are defaults for the archive's options."""
    monkeypatch.setenv("OPTION_DTYPE", "fp16")
    monkeypatch.setenv("OPTION_TASK", "text-classification")
    monkeypatch.setenv("OPTION_ENGINE", "Python")
    settings = _read(tmp_path, "option.model_id=a/b\noption.dtype=fp32\n")
    assert (settings.properties["dtype"], settings.properties["task"]) == ("fp32", "text-classification")
    assert settings.properties["engine"] == "Python"


def test_the_workers_environment_is_a_list_of_pairs(tmp_path: Path) -> None:
    """option.env=A=1,B=2 adds variables to the model's workers alone."""
    assert _read(tmp_path, "option.model_id=a/b\noption.env=A=1, B=x=y,C\n").environment == {"A": "1", "B": "x=y"}


@pytest.mark.parametrize("text", ["", " 1", "1_0", "٣", "1.0", "0x1"])
def test_java_reads_digits_only(text: str) -> None:
    """A text that Python would take for a number and Java would not is refused."""
    with pytest.raises(NumberFormat):
        java_int(text)
