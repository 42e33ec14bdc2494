"""Draw a memory plan as bars: as text for terminals, and as charts on an HTML page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.text import Text

from cohost.forecast.plan.capacity import first_change, room_of
from cohost.report import frame
from cohost.report.charts import GREY, PALE, Axis, Chart
from cohost.report.formats import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cohost.forecast.plan.memory import MemoryPlan
    from cohost.forecast.plan.workers import SharedEngines


BAR_WIDTH: Final = 72

# Okabe and Ito's palette, which colour-blind readers can distinguish; HTML pages use the same colours.
_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
_GREYS: Final = {GREY: "#7f7f7f", PALE: "#bdbdbd"}
_COLUMNS: Final = (
    *("model", "workers", "dtype", "weights MiB", "batch x tokens"),
    *("GPU idle", "GPU peak", "host", "most workers", "largest batch"),
)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A segment of a bar: its label, its size in MiB, and the number of its colour in `cohost.report.charts`."""

    label: str
    mib: float
    colour: int

    @property
    def style(self) -> str:
        """Return the segment's colour as Rich's style for a terminal."""
        return _GREYS.get(self.colour) or _COLOURS[self.colour % len(_COLOURS)]


def gpu_segments(plan: MemoryPlan) -> list[Segment]:
    """Return the segments of one GPU's memory: one for engine processes (`handler: shared`), and one per model."""
    own = list(_segments((model.name, model.demand.workers, model.gpu_total_mib) for model in plan.models))
    if plan.engines is None:
        return own
    process = Segment(label=_engine_label(plan.engines), mib=plan.engines.gpu_total_mib, colour=GREY)
    return [process, *own, Segment(label="free for a load", mib=plan.engines.gpu_check_mib, colour=PALE)]


def host_segments(plan: MemoryPlan) -> list[Segment]:
    """Return the segments of host memory: system and router, engine processes, each model's workers, the page cache."""
    gpus = max(plan.instance.gpus, 1)
    own = _segments((model.name, model.demand.workers * gpus, model.host_total_mib * gpus) for model in plan.models)
    server = Segment(label="system, router", mib=plan.figures.system_mib + plan.figures.router_mib, colour=GREY)
    cache = Segment(label="page cache", mib=plan.page_cache_mib, colour=PALE)
    if plan.engines is None:
        return [server, *own, cache]
    process = Segment(label=_engine_label(plan.engines, gpus), mib=plan.engines.host_total_mib * gpus, colour=GREY)
    return [server, process, *own, cache, Segment(label="free for a load", mib=plan.host_check_mib, colour=PALE)]


def _engine_label(engines: SharedEngines, devices: int = 1) -> str:
    number = engines.count * devices
    return "engine process" if number == 1 else f"engine process x {number}"


def _segments(parts: Iterable[tuple[str, int, float]]) -> Iterable[Segment]:
    """Yield a segment for each model, which is given as a name, a number of workers and a size in MiB."""
    for index, (name, workers, mib) in enumerate(parts):
        yield Segment(label=name if workers == 1 else f"{name} x {workers}", mib=mib, colour=index)


def terminal_bar(title: str, segments: Sequence[Segment], capacity_mib: float, *, width: int = BAR_WIDTH) -> Text:
    """Return a bar with a legend, as text; `capacity_mib` is `width` characters long, any excess is drawn beyond."""
    used = sum(segment.mib for segment in segments)
    scale = width / max(capacity_mib, 1.0)
    text = Text.assemble((title, "bold"), f"  {used:,.0f} of {capacity_mib:,.0f} MiB\n")
    drawn = 0
    end = 0.0
    for segment in segments:
        end += segment.mib
        cells = min(round(end * scale), 2 * width) - drawn
        text.append("█" * cells, style=segment.style)
        drawn += cells
    text.append("░" * max(width - drawn, 0), style="dim")
    text.append(f"\n{_headroom(used, capacity_mib)}  ")
    for segment in segments:
        text.append("■ ", style=segment.style)
        text.append(f"{segment.label} {segment.mib:,.0f}  ")
    return text


def chart(title: str, segments: Sequence[Segment], capacity_mib: float) -> frame.Plot:
    """Return a bar as a chart for an HTML page, with a tooltip per segment and a line at the capacity."""
    used = sum(segment.mib for segment in segments)
    drawn = Chart(Axis.over([capacity_mib, used], "MiB"), None, title)
    start = 0.0
    for segment in segments:
        label = f"{segment.label}: {segment.mib:,.0f} MiB"
        drawn.bar(start, start + segment.mib, 0, 0.9, segment.colour, label)
        drawn.legend(label, segment.colour)
        start += segment.mib
    drawn.limit(capacity_mib, "capacity")
    return frame.Plot(title, f"{used:,.0f} of {capacity_mib:,.0f} MiB, {_headroom(used, capacity_mib)}.", drawn)


def html_page(plan: MemoryPlan, *, title: str) -> str:
    """Return an HTML page of a memory plan: its bars, a row per model, and the cheapest change that makes it fit."""
    bars = [chart("Host memory", host_segments(plan), plan.instance.memory_mib)]
    if plan.instance.gpus:
        bars.insert(0, chart(f"One {plan.instance.gpu_name}", gpu_segments(plan), plan.gpu_usable_mib))
    rooms = {room.name: room for room in room_of(plan)}
    rows: list[tuple[object, ...]] = [
        (
            *(model.name, model.demand.workers, model.demand.dtype or model.demand.profile.checkpoint_dtype),
            *(f"{model.demand.weight_mib:,.0f}", f"{model.demand.batch} x {model.demand.tokens}"),
            "-" if model.gpu is None else f"{model.gpu.idle:,.0f}",
            "-" if model.gpu is None else f"{model.gpu.peak:,.0f}",
            *(f"{model.host_mib:,.0f}", rooms[model.name].workers, rooms[model.name].batch),
        )
        for model in plan.models
    ]
    rows += [_engines_row(plan.engines)] if plan.engines is not None else []
    change = first_change(plan)
    notes = [
        ("note", "Everything fits.") if change is None else ("warning", f"It does not fit. First change: {change}")
    ]
    if plan.unknown:
        notes.append(("warning", f"Without a profile, not counted: {', '.join(plan.unknown)}"))
    table = frame.table(Table("One worker of each model", _COLUMNS, rows))
    return frame.page(title, f"on {plan.instance_type}", frame.notes(notes), frame.plots(bars), table)


def _engines_row(engines: SharedEngines) -> tuple[object, ...]:
    gpu = engines.gpu
    idle, peak = ("-", "-") if gpu is None else (f"{gpu.idle:,.0f}", f"{gpu.peak:,.0f}")
    return "engine process", engines.count, "-", "-", "-", idle, peak, f"{engines.host_mib:,.0f}", "-", "-"


def _headroom(used: float, capacity: float) -> str:
    left = capacity - used
    return f"{left:,.0f} MiB free" if left >= 0 else f"{-left:,.0f} MiB too much"
