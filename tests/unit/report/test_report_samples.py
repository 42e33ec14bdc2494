"""Raw samples on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from fakes.refusals import refused
from report_runs import calls, table_run, ticks

from cohost.errors import ReportError
from cohost.report import samples as raw
from cohost.report.run import load_run, save_run
from cohost.report.samples import Outcome

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    """Saved samples are loaded unchanged."""
    rows, looks = calls(0, 1, 0.013), ticks(3)

    raw.save(tmp_path, rows, looks)

    loaded, loaded_looks = raw.load(tmp_path)
    assert loaded.tobytes() == rows.tobytes()
    assert loaded_looks.tobytes() == looks.tobytes()


def test_a_run_is_loaded_from_its_folder_or_its_record(tmp_path: Path) -> None:
    """A load test can be loaded by its folder or by the path of its record."""
    run = table_run(tmp_path / "run")
    save_run(run)

    assert load_run(tmp_path / "run").record == run.record
    assert len(load_run(tmp_path / "run" / "run.json").samples) == len(run.samples)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"\x93NUMPY"])
def test_damaged_samples_are_told(tmp_path: Path, content: bytes) -> None:
    """A file cut short by a full disk ends with a line, not a traceback."""
    save_run(table_run(tmp_path))
    (tmp_path / raw.SAMPLES_FILE).write_bytes(content)

    with refused("result-unreadable", str(tmp_path / raw.SAMPLES_FILE), kind=ReportError):
        load_run(tmp_path)


def test_other_columns_are_told(tmp_path: Path) -> None:
    """Samples of another version are not misread."""
    save_run(table_run(tmp_path))
    np.savez(tmp_path / raw.SAMPLES_FILE, samples=np.zeros(3), ticks=np.zeros(3))

    with refused("result-other-version", str(tmp_path / raw.SAMPLES_FILE), kind=ReportError):
        load_run(tmp_path)


@pytest.mark.parametrize("text", ["{", '{"format": 2}', "[]"])
def test_a_record_of_another_kind_is_told(tmp_path: Path, text: str) -> None:
    """The file, the field and the fix are named."""
    (tmp_path / "run.json").write_text(text)

    with refused("result-damaged", str(tmp_path / "run.json"), kind=ReportError):
        load_run(tmp_path)


def test_a_missing_run_is_told(tmp_path: Path) -> None:
    """The error of a missing load test has its folder."""
    with refused("result-unreadable", str(tmp_path / "nowhere" / "run.json"), kind=ReportError):
        load_run(tmp_path / "nowhere")


def test_what_the_end_cut_off_is_no_failure() -> None:
    """A call that the end of the load test cut off is not counted as failed."""
    rows = calls(0, 1, 1.0)
    rows["outcome"][:3] = [Outcome.UNFINISHED, Outcome.UNSENT, Outcome.TIMED_OUT]

    assert len(raw.failed(rows)) == 1
    assert len(raw.answered(rows)) == 7
    assert all(outcome.label for outcome in Outcome)
