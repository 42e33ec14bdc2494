"""Runs with known numbers for the tests of reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cohost.report.run import Machine, Model, Phase, Price, Run, RunRecord, Target
from cohost.report.samples import SAMPLE, TICK, Outcome

if TYPE_CHECKING:
    from pathlib import Path

START = 1_800_000_000.0
STEP_S = 10.0


def target(**changes: Any) -> Target:
    """An endpoint on AWS."""
    facts = {
        "kind": "sagemaker",
        "url": "https://runtime.sagemaker.us-east-1.amazonaws.com",
        "endpoint_name": "lmi-cohost",
        "variant_name": "AllTraffic",
        "topology": "multi-model",
        "region": "us-east-1",
        "image": "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130",
        "instance_type": "ml.g5.xlarge",
        "instance_count": 1,
    }
    return Target(**{**facts, **changes})


def record(*phases: Phase, **changes: Any) -> RunRecord:
    """Return a record with the price of one GPU and models `a` and `b`."""
    facts = {
        "id": "run-1",
        "label": "LMI <one GPU>",
        "command": "locust -f load_tests/encoders.py",
        "started": START,
        "ended": phases[-1].ended if phases else START,
        "target": target(),
        "models": (
            Model(name="a", task="text-classification", tokens=(512, 512)),
            Model(name="b", task="text-classification"),
        ),
        "phases": phases,
        "payloads": "sentences",
        "price": Price(usd_per_hour=1.408, source="AWS Pricing API", date="2026-08-07"),
        "machine": Machine(host="here", system="Linux", processor="CPU", cores=2, processes=1),
        "versions": {"locust": "2.47.0"},
        "call_timeout_s": 70.0,
        "connections_opened": 1,
    }
    return RunRecord(**{**facts, **changes})


def phase(number: int, batch: int, concurrency: int = 1, **changes: Any) -> Phase:
    """The n-th step of ten seconds."""
    start = START + number * STEP_S
    facts = {"name": f"b{batch} c{concurrency}", "kind": "measured", "batch": batch, "concurrency": concurrency}
    return Phase(**{**facts, "started": start, "ended": start + STEP_S, **changes})


def calls(
    number: int, batch: int, latency_s: float, *, concurrency: int = 1, outcome: Outcome = Outcome.OK
) -> np.ndarray:
    """Return the calls of one step: callers without a pause, a constant latency, and models in turns."""
    count = int(STEP_S / latency_s)
    rows = np.zeros(count * concurrency, SAMPLE)
    begin = START + number * STEP_S + np.arange(count) * latency_s
    rows["planned"] = rows["sent"] = np.repeat(begin, concurrency)
    rows["done"] = rows["sent"] + latency_s
    rows["phase"], rows["items"], rows["outcome"] = number, batch, outcome
    rows["model"] = np.arange(len(rows)) % 2
    rows["status"] = 200 if outcome is Outcome.OK else 503
    return rows


def ticks(seconds: int, *, cpu: float = 0.2, lag_s: float = 0.0003) -> np.ndarray:
    """A look at the generator each second."""
    rows = np.zeros(seconds, TICK)
    rows["at"] = START + np.arange(seconds)
    rows["cpu"], rows["lag_mean"], rows["lag_max"] = cpu, lag_s, 3 * lag_s
    return rows


def table_run(folder: Path, **changes: Any) -> Run:
    """Return a run with 20 items/s at batch 1 and 104 at batch 8, as in the earlier measurement."""
    steps = (phase(0, 1), phase(1, 8))
    samples = np.concatenate([calls(0, 1, 0.05), calls(1, 8, 8 / 104)])
    return Run(record(*steps, **changes), samples, ticks(20), folder)
