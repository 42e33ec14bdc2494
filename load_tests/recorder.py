"""Keeps the calls of one process until they are sent to the master or written to the run's folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cohost.report.samples import SAMPLE, TICK, Samples, merge

if TYPE_CHECKING:
    Row = tuple[float, float, float, int, int, int, int, int, int]
    Tick = tuple[float, int, float, float, float]


class Recorder:
    """Rows as they come; a tuple a call, because filling an array row by row costs ten times as much."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._ticks: list[Tick] = []
        self._received: list[Samples] = []
        self._received_ticks: list[Samples] = []

    def add(self, row: Row) -> None:
        """Record a call: the fields of SAMPLE in order."""
        self._rows.append(row)

    def tick(self, row: Tick) -> None:
        """Record a look at the generator: the fields of TICK in order."""
        self._ticks.append(row)

    def take(self) -> dict[str, bytes]:
        """What was recorded since the last time, as bytes to send; it is forgotten here."""
        rows, self._rows = self._rows, []
        ticks, self._ticks = self._ticks, []
        return {"samples": np.array(rows, SAMPLE).tobytes(), "ticks": np.array(ticks, TICK).tobytes()}

    def receive(self, parts: dict[str, bytes]) -> None:
        """Keep what another process took."""
        self._received.append(np.frombuffer(parts["samples"], SAMPLE))
        self._received_ticks.append(np.frombuffer(parts["ticks"], TICK))

    def all(self) -> tuple[Samples, Samples]:
        """Every call and every look at the generator, ordered by time."""
        samples = merge([*self._received, np.array(self._rows, SAMPLE)])
        ticks = merge([*self._received_ticks, np.array(self._ticks, TICK)], TICK)
        return np.sort(samples, order="planned"), np.sort(ticks, order="at")

    def clear(self) -> None:
        """Forget everything, for a new run."""
        self.__init__()  # type: ignore[misc]
