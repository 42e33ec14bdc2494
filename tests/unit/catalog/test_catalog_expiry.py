"""The values that the catalog and `cohost expire` accept as an expiry."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.catalog.sections.lifecycle import is_past, read_expiry
from cohost.catalog_file import load_catalog
from cohost.errors import CatalogError

if TYPE_CHECKING:
    from pathlib import Path

NOON = dt.datetime(2026, 12, 1, 12, 0, tzinfo=dt.UTC)
CATALOG = """\
endpoint: {name: e, instance_type: ml.g5.xlarge, image: 'djl-inference:0.36.0-lmi26.0.0-cu130'REST}
expires: EXPIRES
models: {m: {model_id: org/m, task: text-classification}}
"""


def loaded(folder: Path, expires: str, *, endpoint: str = "", rest: str = "") -> str | None:
    """Return `expires` of a catalog file with this text."""
    path = folder / "catalog.yaml"
    path.write_text(CATALOG.replace("EXPIRES", expires).replace("REST", endpoint) + rest)
    return load_catalog(path).catalog.expires


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("8h", "2026-12-01T20:00:00+00:00"),
        ("90m", "2026-12-01T13:30:00+00:00"),
        ("7d", "2026-12-08T12:00:00+00:00"),
        ("2026-12-31", "2027-01-01T00:00:00+00:00"),
        ("2026-12-31T18:00+09:00", "2026-12-31T09:00:00+00:00"),
        ("2026-12-31T18:00Z", "2026-12-31T18:00:00+00:00"),
    ],
)
def test_end_is_a_moment_in_utc(tmp_path: Path, text: str, end: str) -> None:
    """A duration counts from the given start, a day ends when it is over, and YAML dates are read as written."""
    stated = loaded(tmp_path, text)
    assert stated is not None
    assert read_expiry(stated).moment(NOON).isoformat() == end


def test_moment_that_yaml_reads_itself_keeps_its_zone(tmp_path: Path) -> None:
    """A moment with seconds, which YAML parses as a date, keeps its time zone."""
    stated = loaded(tmp_path, "2026-12-31T18:00:00+09:00")
    assert stated is not None
    assert read_expiry(stated).at == dt.datetime(2026, 12, 31, 9, 0, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *((text, "value-not-allowed") for text in ("soon", "'8'", "'0h'", "10m", "400d", "2026-02-30T10:00Z", "[8h]")),
        ("'2026-12-31T18:00'", "zone-missing"),
    ],
)
def test_what_says_no_end_is_refused(tmp_path: Path, text: str, code: str) -> None:
    """Unreadable text, a duration out of range, and a moment without a time zone are rejected."""
    with refused(code, "expires", kind=CatalogError):
        loaded(tmp_path, text)


def test_past_is_of_moments_alone() -> None:
    """Only a moment can be past, and not a duration."""
    assert not is_past("15m", NOON)
    assert not is_past("2026-12-01", NOON)
    assert is_past("2026-11-30", NOON)
    assert is_past("2026-12-01T12:00Z", NOON)


def test_copies_at_zero_must_leave_no_instance(tmp_path: Path) -> None:
    """An expiry that sets copies to zero is rejected with a minimum above 0, because instances would bill on."""
    topology = ", topology: scale-to-zero"
    assert loaded(tmp_path, "8h", endpoint=topology) == "8h"
    with refused("settings-conflict", "expires"):
        loaded(tmp_path, "8h", endpoint=topology, rest="scaling: {min: 1, max: 2}\n")
