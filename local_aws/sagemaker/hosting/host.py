"""What containers are made with, and where they run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_aws.kit.account import component_log_group, log_group

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import httpx

    from local_aws.kit.clients import ServiceClients
    from local_aws.kit.clock import Clock
    from local_aws.sagemaker.debug.fault_injection import Switches
    from local_aws.sagemaker.hosting.container import StartContainer
    from local_aws.sagemaker.settings import Settings
    from local_aws.sagemaker.state import Quotas
    from local_aws.sagemaker.telemetry.logs import LogShipper
    from local_aws.sagemaker.telemetry.metrics import Metrics, Processor


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a container runs; `replica_id` starts with the instance's id and tells containers of one instance apart."""

    endpoint_name: str
    variant_name: str
    replica_id: str
    component_name: str | None = None

    @property
    def log_group(self) -> str:
        """The log group of the container's output."""
        return (
            log_group(self.endpoint_name) if self.component_name is None else component_log_group(self.component_name)
        )

    @property
    def failure(self) -> str:
        """The service's text for a container that does not come up here."""
        if self.component_name is None:
            whose, what = f"primary container for production variant {self.variant_name}", "endpoint"
        else:
            whose, what = f"container of inference component {self.component_name}", "inference component"
        return f"The {whose} did not pass the ping health check. Please check CloudWatch logs for this {what}."


@dataclass(frozen=True, kw_only=True)
class Host:
    """What containers are made with and report to."""

    clients: ServiceClients
    http: httpx.AsyncClient
    start_container: StartContainer
    hub_roots: Sequence[Path]
    state_dir: Path
    settings: Settings
    quotas: Quotas
    switches: Switches
    metrics: Metrics
    logs: LogShipper
    clock: Clock
    processor: Processor

    async def dwell(self) -> None:
        """Stay in a status that an endpoint or a component passes through, as long as the settings say."""
        await asyncio.sleep(self.settings.transition_delay_s)
