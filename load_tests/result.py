"""The result of a finished run: its record, its folder and the exit code."""

from __future__ import annotations

import os
import platform
import shlex
import socket
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import botocore.session
from botocore.config import Config

from cohost.errors import CohostError
from cohost.forecast.pricing.price_list import load_prices
from cohost.report.run import Machine, Price, Run, RunRecord

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from cohost.report.run import Mark, Target
    from load_tests.conductor import Conductor
    from load_tests.recorder import Recorder
    from load_tests.session import Session


DEFAULT_OUT = Path(".cohost") / "load"
EXIT_FAULT, EXIT_INVALID = 1, 3
_PACKAGES = ("locust", "gevent", "geventhttpclient", "botocore", "numpy")


def new_folder(options: argparse.Namespace, *, taken: bool) -> Path:
    """Return the folder for a run's result; `taken` is True if an earlier run of this process has used --out."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    if options.out is None:
        return DEFAULT_OUT / stamp
    return Path(options.out) / stamp if taken else Path(options.out)


def make_run(
    options: argparse.Namespace,
    session: Session,
    conductor: Conductor,
    recorder: Recorder,
    folder: Path,
    *,
    payloads: str,
    processes: int,
    connections: int,
) -> Run:
    """Return the run with all samples recorded so far; marks (limits to the use of its numbers) are added later."""
    samples, ticks = recorder.all()
    target = session.resolved.target
    models = zip(session.resolved.models, session.books, strict=True)
    phases = tuple(conductor.phases)
    record = RunRecord(
        id=folder.name,
        label=options.label or target.endpoint_name or target.url,
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        started=phases[0].started,
        ended=phases[-1].ended,
        target=target,
        models=tuple(model.model_copy(update={"tokens": book.tokens}) for model, book in models),
        phases=phases,
        cold=conductor.cold,
        payloads=payloads,
        price=price_of(target, options.price),
        machine=_machine(processes),
        versions={"python": platform.python_version()} | {name: version(name) for name in _PACKAGES},
        call_timeout_s=options.timeout,
        connections_opened=connections,
    )
    return Run(record, samples, ticks, folder)


def metrics_session() -> boto3.Session:
    """Return a session for CloudWatch at the end of a run, with short time-outs and at most one retry."""
    session = botocore.session.Session()
    session.set_default_client_config(Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2}))
    return boto3.Session(botocore_session=session)


def exit_code(marks: Sequence[Mark]) -> int:
    """Return a run's exit code: 3 if the measurement is invalid, 1 if it exceeds a limit of the user, otherwise 0."""
    if any(mark.invalid for mark in marks):
        return EXIT_INVALID
    return EXIT_FAULT if any(mark.code in {"error-rate", "p99"} for mark in marks) else 0


def price_of(target: Target, stated: float | None) -> Price | None:
    """Return the price per hour of the target's instances; None if it is unknown or the target is the emulator.

    A `stated` price, in USD, is used in place of the price list.
    """
    if stated is not None:
        return Price(usd_per_hour=stated, source="--price", date=datetime.now(UTC).date().isoformat())
    if target.emulated or target.region is None or target.instance_type is None or not target.instance_count:
        return None
    try:
        found = load_prices().find(target.region, target.instance_type)
    except CohostError:
        return None
    if found is None:
        return None
    return Price(
        usd_per_hour=found.usd_per_hour * target.instance_count, source=found.source, date=found.date.isoformat()
    )


def _machine(processes: int) -> Machine:
    return Machine(
        host=socket.gethostname(),
        system=platform.platform(terse=True),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        processes=processes,
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
