"""EventBridge Scheduler: moto keeps the schedules, this package acts them out on the emulation's clock."""

from __future__ import annotations

from local_aws.scheduler.runner import Scheduler

__all__ = ["Scheduler"]
