"""How busy and how full instances are, which here is all the one machine that they share.

AWS: "Amazon SageMaker AI metrics in Amazon CloudWatch", instance metrics. CloudWatch gets one value a minute from each
instance, so the number of values says how many instances there are. GPUs are not looked at: containers run on the CPU.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import psutil

from local_aws.sagemaker.metrics import INSTANCE_METRICS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from local_aws.sagemaker.metrics import Meter
    from local_aws.scaling.clock import Clock

EVERY_SECONDS: Final = 60.0
_FRESH_SECONDS: Final = 1.0


class Processor:
    """How busy the machine's cores are, for all who ask.

    psutil tells of the time since the same thread asked it before, so that one who asks right behind another is told
    nothing. Whoever asks here within a second of a reading is given that one.

    Args:
        now: seconds of a clock that never goes back.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.prime()

    def prime(self) -> None:
        """Begin to measure; in another thread than that of the constructor, before it asks for the first time."""
        self._read = self._now()
        self._percent = sum(psutil.cpu_percent(percpu=True))

    def percent(self) -> float:
        """The use in percent of a core, summed over the cores, as SageMaker has it."""
        if self._now() >= self._read + _FRESH_SECONDS:
            self.prime()
        return self._percent


class MachineUse:
    """Records the use of a variant's instances once in a minute of the clock.

    Args:
        meter: of the variant.
        clock: says when a minute is over.
        folder: on the disk that instances put archives and weights on.
        processor: the machine's.
    """

    def __init__(self, meter: Meter, clock: Clock, folder: Path, processor: Processor) -> None:
        self._meter = meter
        self._clock = clock
        self._folder = folder
        self._processor = processor
        self._next = 0.0

    def report(self, instances: int) -> None:
        """Record a value of each metric for each instance, if it is time."""
        now = self._clock.now()
        if now < self._next or not instances:
            return
        self._next = now + EVERY_SECONDS
        use = {
            "CPUUtilization": self._processor.percent(),
            "MemoryUtilization": psutil.virtual_memory().percent,
            "DiskUtilization": psutil.disk_usage(str(self._folder)).percent,
        }
        for name, value in use.items():
            for _ in range(instances):
                self._meter.count(name, value, namespace=INSTANCE_METRICS)
