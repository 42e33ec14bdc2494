"""Bars of a memory plan: as text for terminals, and as SVG within an HTML page."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from string import Template
from typing import TYPE_CHECKING, Final

from rich.text import Text

from cohost.forecast.plan.capacity import first_change, room_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cohost.forecast.plan.memory import MemoryPlan


BAR_WIDTH: Final = 72

# Okabe and Ito's palette, which colour-blind readers can tell apart.
_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
_OVER: Final = "#b00020"
_SVG_WIDTH: Final = 960
_SVG_HEIGHT: Final = 64


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A segment of a bar: its label, its size in MiB, and a colour per kind of content."""

    label: str
    mib: float
    colour: str


def gpu_segments(plan: MemoryPlan) -> list[Segment]:
    """Return the segments of one GPU's memory, by model."""
    return [
        Segment(
            label=_times(model.name, model.demand.workers),
            mib=model.gpu_total_mib,
            colour=_COLOURS[index % len(_COLOURS)],
        )
        for index, model in enumerate(plan.models)
    ]


def host_segments(plan: MemoryPlan) -> list[Segment]:
    """Return the segments of host memory: system, router, each model's workers, page cache of the largest load."""
    gpus = max(plan.instance.gpus, 1)
    own = [
        Segment(
            label=_times(model.name, model.demand.workers * gpus),
            mib=model.host_total_mib * gpus,
            colour=_COLOURS[index % len(_COLOURS)],
        )
        for index, model in enumerate(plan.models)
    ]
    server = Segment(label="system, router", mib=plan.figures.system_mib + plan.figures.router_mib, colour="#7f7f7f")
    return [server, *own, Segment(label="page cache", mib=plan.page_cache_mib, colour="#bdbdbd")]


def terminal_bar(title: str, segments: Sequence[Segment], capacity_mib: float, *, width: int = BAR_WIDTH) -> Text:
    """Return a bar of `width` characters for `capacity_mib`, with a legend; the excess is drawn beyond the end."""
    used = sum(segment.mib for segment in segments)
    scale = width / max(capacity_mib, 1.0)
    text = Text.assemble((title, "bold"), f"  {used:,.0f} of {capacity_mib:,.0f} MiB\n")
    drawn = 0
    end = 0.0
    for segment in segments:
        end += segment.mib
        cells = min(round(end * scale), 2 * width) - drawn
        text.append("█" * cells, style=segment.colour)
        drawn += cells
    text.append("░" * max(width - drawn, 0), style="dim")
    text.append(f"\n{_headroom(used, capacity_mib)}  ")
    for segment in segments:
        text.append("■ ", style=segment.colour)
        text.append(f"{segment.label} {segment.mib:,.0f}  ")
    return text


def svg_bar(title: str, segments: Sequence[Segment], capacity_mib: float) -> str:
    """Return the same bar as an SVG element, with a tooltip per segment and a line at the capacity."""
    used = sum(segment.mib for segment in segments)
    scale = _SVG_WIDTH / max(capacity_mib, used, 1.0)
    parts, start = [], 0.0
    for segment in segments:
        label = f"{escape(segment.label)}: {segment.mib:,.0f} MiB"
        parts.append(
            f'<rect x="{start * scale:.1f}" y="24" width="{segment.mib * scale:.1f}" height="40" '
            f'fill="{segment.colour}"><title>{label}</title></rect>'
        )
        start += segment.mib
    limit = capacity_mib * scale
    line = f'<line x1="{limit:.1f}" y1="18" x2="{limit:.1f}" y2="70" stroke="{_OVER}" stroke-width="3"/>'
    heading = f"{escape(title)}: {used:,.0f} of {capacity_mib:,.0f} MiB, {_headroom(used, capacity_mib)}"
    frame = f'<rect x="0" y="24" width="{limit:.1f}" height="40" fill="#eeeeee"/>'
    return (
        f'<svg viewBox="0 0 {_SVG_WIDTH + 4} {_SVG_HEIGHT + 10}" role="img" aria-label="{heading}" '
        f'xmlns="http://www.w3.org/2000/svg"><text x="0" y="14" font-size="14">{heading}</text>'
        f"{frame}{''.join(parts)}{line}</svg>"
    )


def html_page(plan: MemoryPlan, *, title: str) -> str:
    """Return a whole page without scripts or external resources: bars, one row per model, and the suggested change."""
    bars = []
    if plan.instance.gpus:
        bars.append(svg_bar(f"One {plan.instance.gpu_name}", gpu_segments(plan), plan.gpu_usable_mib))
    bars.append(svg_bar("Host memory", host_segments(plan), plan.instance.memory_mib))
    rooms = {room.name: room for room in room_of(plan)}
    rows = [
        (
            *(model.name, model.demand.workers, model.demand.dtype or model.demand.profile.checkpoint_dtype),
            *(f"{model.demand.weight_mib:,.0f}", f"{model.demand.batch} x {model.demand.tokens}"),
            "-" if model.gpu is None else f"{model.gpu.idle:,.0f}",
            "-" if model.gpu is None else f"{model.gpu.peak:,.0f}",
            *(f"{model.host_mib:,.0f}", rooms[model.name].workers, rooms[model.name].batch),
        )
        for model in plan.models
    ]
    change = first_change(plan)
    return _PAGE.substitute(
        title=escape(title),
        instance=escape(plan.instance_type),
        bars="\n".join(bars),
        legend=_legend(gpu_segments(plan)),
        rows="\n".join(_row(row) for row in rows),
        verdict="Everything fits." if change is None else f"It does not fit. First change: {escape(change)}",
        unknown=f"<p>Without a profile, not counted: {escape(', '.join(plan.unknown))}</p>" if plan.unknown else "",
    )


def _legend(segments: Iterable[Segment]) -> str:
    return " ".join(f'<span style="color:{s.colour}">&#9632;</span> {escape(s.label)}' for s in segments)


def _row(values: Iterable[object]) -> str:
    return "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in values) + "</tr>"


def _times(name: str, workers: int) -> str:
    return name if workers == 1 else f"{name} x {workers}"


def _headroom(used: float, capacity: float) -> str:
    left = capacity - used
    return f"{left:,.0f} MiB free" if left >= 0 else f"{-left:,.0f} MiB too much"


_PAGE: Final = Template("""\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>$title</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .7rem; border-bottom: 1px solid #ccc; text-align: right; }
td:first-child, th:first-child { text-align: left; } svg { width: 100%; height: auto; margin: .5rem 0; }
</style></head><body>
<h1>$title</h1>
<p>On $instance. $verdict</p>
$bars
<p>$legend</p>
<table><thead><tr><th>model</th><th>workers</th><th>dtype</th><th>weights MiB</th><th>batch x tokens</th>
<th>GPU idle</th><th>GPU peak</th><th>host</th><th>most workers</th><th>largest batch</th></tr></thead>
<tbody>
$rows
</tbody></table>
$unknown
</body></html>
""")
