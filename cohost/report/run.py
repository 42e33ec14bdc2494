"""Read and write the record of a load test's run: all about the run except its samples, as JSON in the run's folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cohost.errors import ReportError
from cohost.report import samples as raw

if TYPE_CHECKING:
    from pathlib import Path

    from cohost.report.samples import Samples

RECORD_FILE = "run.json"
FORMAT: Literal[1] = 1

PhaseKind = Literal["cold", "warm-up", "measured"]


class Record(BaseModel):
    """The base of the data classes of records and reports: they are immutable and reject unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Phase(Record):
    """One phase of a run. `started` and `ended` are in seconds since the epoch.

    `batch` is the number of texts per call, `concurrency` the number of callers. `rate` is in calls per second; None in
    a closed load, in which each caller sends its next call as soon as the last one is answered.
    """

    name: str
    kind: PhaseKind
    batch: int = Field(ge=1)
    concurrency: int = Field(ge=1)
    rate: float | None = None
    started: float
    ended: float

    @property
    def seconds(self) -> float:
        """Return the duration of the phase in seconds."""
        return self.ended - self.started


class ColdCall(Record):
    """The first call of a model in a run.

    `first_s` is the seconds until its answer, including refused attempts; `refused` is the number of these attempts.
    `second_s` is the seconds of the model's next call. `first_s` and `second_s` are None if the call failed.
    """

    model: str
    first_s: float | None
    second_s: float | None
    refused: int
    failure: str | None = None


class Model(Record):
    """One model that a run called.

    `tokens` has the fewest and the most tokens of a text, None if they were not counted. `settings` are the model's
    serving.properties, handler and packages in the catalog that the load test was given; None if the catalog lacks the
    model.
    """

    name: str
    task: str
    model_id: str | None = None
    handler: str | None = None
    settings: dict[str, str] | None = None
    weight: float = 1.0
    tokens: tuple[int, int] | None = None


class Target(Record):
    """The target of a run's calls.

    A field whose value could not be determined is None, and reports show it as unknown. `partitions` are the partitions
    of each GPU; empty if the endpoint's GPUs are not partitioned.
    """

    kind: Literal["sagemaker", "container"]
    url: str
    endpoint_name: str | None = None
    variant_name: str | None = None
    inference_component_name: str | None = None
    topology: str | None = None
    region: str | None = None
    image: str | None = None
    instance_type: str | None = None
    instance_count: int | None = None
    partitions: tuple[str, ...] = ()
    emulated: bool = False


class Price(Record):
    """The price per hour in USD of all instances of the endpoint together, with its source and date."""

    usd_per_hour: float = Field(ge=0)
    source: str
    date: str | None = None


class Machine(Record):
    """The machine that made the calls of a run."""

    host: str
    system: str
    processor: str
    cores: int
    processes: int = Field(ge=1)


class Mark(Record):
    """A mark on a run, which limits the use of the run's numbers; if `invalid`, they must not be used at all."""

    code: str
    message: str
    invalid: bool


class RunRecord(Record):
    """The whole record of one run; `started` and `ended` are in seconds since the epoch."""

    format: Literal[1] = FORMAT
    id: str
    label: str
    command: str
    started: float
    ended: float
    target: Target
    models: tuple[Model, ...]
    phases: tuple[Phase, ...]
    cold: tuple[ColdCall, ...] = ()
    payloads: str
    price: Price | None = None
    machine: Machine
    versions: dict[str, str]
    call_timeout_s: float
    connections_opened: int
    marks: tuple[Mark, ...] = ()

    @property
    def valid(self) -> bool:
        """Return True if no mark makes the run's numbers unusable."""
        return not any(mark.invalid for mark in self.marks)


Content = TypeVar("Content", bound=Record)


@dataclass(frozen=True)
class Run:
    """One run: its record, its calls (`samples`), and the load generator's measurements of itself (`ticks`)."""

    record: RunRecord
    samples: Samples
    ticks: Samples
    folder: Path

    def of_phase(self, index: int, model: int | None = None) -> Samples:
        """Return the calls of the phase with this index, of one model or (`model` None) of all models."""
        chosen = self.samples["phase"] == index
        return raw.choose(self.samples, chosen if model is None else chosen & (self.samples["model"] == model))

    def answered_in(self, phase: Phase, model: int | None = None) -> Samples:
        """Return the calls that were answered during a phase, including calls that were sent before it began.

        Rates are computed from all calls answered during a phase, because the target spends some of the phase's time on
        the last calls of the warm-up.
        """
        good = raw.answered(self.samples)
        chosen = (good["done"] > phase.started) & (good["done"] <= phase.ended)
        return raw.choose(good, chosen if model is None else chosen & (good["model"] == model))

    def generator_in(self, phase: Phase) -> tuple[float, float] | None:
        """Return how busy the load generator was during a phase; None if that was not recorded.

        The returned pair is the share of a CPU core (0 to 1) that the busiest process used, and the mean delay in
        seconds of all processes' timers.
        """
        at = self.ticks["at"]
        ticks = raw.choose(self.ticks, (at >= phase.started) & (at <= phase.ended + 1))
        if not len(ticks):
            return None
        cpu = [float(ticks["cpu"][ticks["worker"] == worker].mean()) for worker in set(ticks["worker"])]
        return max(cpu), float(ticks["lag_mean"].mean())


def save_run(run: Run) -> None:
    """Write a run to its folder; the record is written last, so that any folder with a record is complete."""
    run.folder.mkdir(parents=True, exist_ok=True)
    raw.save(run.folder, run.samples, run.ticks)
    (run.folder / RECORD_FILE).write_text(run.record.model_dump_json(indent=2) + "\n", encoding="utf-8")


def load_run(path: Path) -> Run:
    """Read a run from its folder, or from the path of its record.

    Raises:
        ReportError: the run does not exist, is damaged, or was written by another version.
    """
    folder = path.parent if path.name == RECORD_FILE else path
    file = folder / RECORD_FILE
    record = read_result(file, RunRecord, f"a run's folder with a record of format {FORMAT}", "repeat the run")
    samples, ticks = raw.load(folder)
    return Run(record, samples, ticks, folder)


def read_result(file: Path, kind: type[Content], allowed: str, fix: str) -> Content:
    """Return the content of a JSON file of results, as an object of the class `kind`.

    Raises:
        ReportError: the file cannot be read, or its content does not fit the class; in this case the error's fix is
            `fix`.
    """
    try:
        return kind.model_validate_json(file.read_bytes())
    except OSError as error:
        raise ReportError(
            "result-unreadable", str(file), f"cannot be read ({error.strerror})", allowed=allowed, fix="name one"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        place, message = ".".join(map(str, first["loc"])) or "the file", first["msg"]
        raise ReportError("result-damaged", str(file), f"{place}: {message}", allowed=allowed, fix=fix) from error
