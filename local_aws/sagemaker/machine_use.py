"""How busy and how full instances are, which here is all the one machine that they share.

AWS: "Amazon SageMaker AI metrics in Amazon CloudWatch", instance metrics. CloudWatch gets one value a minute from each
instance, so the number of values says how many instances there are. GPUs are not looked at: containers run on the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psutil

from local_aws.sagemaker.metrics import INSTANCE_METRICS

if TYPE_CHECKING:
    from pathlib import Path

    from local_aws.sagemaker.metrics import Meter
    from local_aws.scaling.clock import Clock

EVERY_SECONDS: Final = 60.0


class MachineUse:
    """Records the use of a variant's instances once in a minute of the clock.

    Args:
        meter: of the variant.
        clock: says when a minute is over.
        folder: on the disk that instances put archives and weights on.
    """

    def __init__(self, meter: Meter, clock: Clock, folder: Path) -> None:
        self._meter = meter
        self._clock = clock
        self._folder = folder
        self._next = 0.0

    def report(self, instances: int) -> None:
        """Record a value of each metric for each instance, if it is time."""
        now = self._clock.now()
        if now < self._next or not instances:
            return
        self._next = now + EVERY_SECONDS
        use = {
            # Summed over the cores, as SageMaker has it.
            "CPUUtilization": sum(psutil.cpu_percent(percpu=True)),
            "MemoryUtilization": psutil.virtual_memory().percent,
            "DiskUtilization": psutil.disk_usage(str(self._folder)).percent,
        }
        for name, value in use.items():
            for _ in range(instances):
                self._meter.count(name, value, namespace=INSTANCE_METRICS)
