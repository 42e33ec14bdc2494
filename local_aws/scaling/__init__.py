"""Scaling, acted out: metrics over time, CloudWatch's alarms and Application Auto Scaling, on a clock of their own."""

from local_aws.scaling.clock import Clock
from local_aws.scaling.service import Scaling

__all__ = ["Clock", "Scaling"]
