"""Bars for terminals and browsers: to scale, complete, and safe to open."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from cohost.forecast.plan.drawing import Segment, chart, gpu_segments, host_segments, html_page, terminal_bar
from cohost.forecast.plan.memory import plan_catalog

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog
    from cohost.forecast.plan.profiles import Profile

SEGMENTS = [Segment(label="a & b", mib=25.0, colour=0), Segment(label="<c>", mib=50.0, colour=1)]


def test_terminal_bar_is_to_scale() -> None:
    """A bar in the terminal is to scale: three quarters of the memory fill three quarters of the characters."""
    text = terminal_bar("card", SEGMENTS, 100.0, width=40).plain
    assert text.count("█") == 30
    assert text.count("░") == 10
    assert "25 MiB free" in text


def test_terminal_bar_shows_what_is_too_much() -> None:
    """A bar over its capacity has no empty part and prints the excess."""
    text = terminal_bar("card", SEGMENTS, 50.0, width=40).plain
    assert text.count("█") == 60
    assert "░" not in text
    assert "25 MiB too much" in text


@pytest.mark.parametrize(("capacity", "told"), [(100.0, "25 MiB free"), (50.0, "25 MiB too much")])
def test_chart_is_to_scale_and_escaped(capacity: float, told: str) -> None:
    """Each segment of the chart is as wide as its share, and names of models are escaped."""
    plot = chart("<script>", SEGMENTS, capacity)
    svg = plot.chart.svg()
    root = ET.fromstring(svg[: svg.index("</svg>") + len("</svg>")])  # noqa: S314 - our own text
    bars = [node for node in root.iter("rect") if node.get("class", "").startswith("bar ")]
    assert [bar.findtext("title") for bar in bars] == ["a & b: 25 MiB", "<c>: 50 MiB"]
    first, second = (float(bar.get("width", "0")) for bar in bars)
    assert second == pytest.approx(2 * first, abs=0.2)
    limit = next(node for node in root.iter("line") if node.get("class", "").startswith("line "))
    end = float(bars[-1].get("x", "0")) + second
    assert (float(limit.get("x1", "0")) > end) == (capacity == 100.0)
    assert told in plot.what


def test_segments_add_up_to_the_plan(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """The segments of the chart add up to the plan's memory."""
    plan = plan_catalog(encoders, encoder_profiles)
    assert sum(segment.mib for segment in gpu_segments(plan)) == pytest.approx(plan.gpu_used_mib)
    assert sum(segment.mib for segment in host_segments(plan)) == pytest.approx(plan.host_used_mib)


def test_page_stands_alone(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """The page has every model and loads nothing from the network."""
    page = html_page(plan_catalog(encoders, encoder_profiles), title="a <b>")
    assert all(name in page for name in encoders.models)
    assert "a &lt;b&gt;" in page
    assert "Everything fits." in page
    assert re.findall(r"<script|https?://(?!www\.w3\.org/2000/svg)", page) == []


def test_page_says_what_to_change(encoders: Catalog, encoder_profiles: dict[str, Profile]) -> None:
    """A plan that does not fit names the first change, and who is not counted."""
    known = {model_id: profile for model_id, profile in encoder_profiles.items() if "joeddav" not in model_id}
    page = html_page(plan_catalog(encoders, known, batch=512), title="t")
    assert "First change: models.mdeberta.batch_size: 256" in page
    assert "not counted: xlmr-large" in page
