"""The dependencies of hosting: the shared objects that containers need, and those that endpoints need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import httpx

    from local_aws.kit.clients import ServiceClients
    from local_aws.kit.clock import Clock
    from local_aws.sagemaker.containers.api import StartContainer
    from local_aws.sagemaker.fault_injection import FaultSwitches
    from local_aws.sagemaker.settings import Quotas, Settings
    from local_aws.sagemaker.telemetry.logs import LogShipper
    from local_aws.sagemaker.telemetry.metrics import MachineUtilization, Metrics


@dataclass(frozen=True, kw_only=True)
class ContainerContext:
    """The shared objects by which a container is started and supervised, and reports metrics and logs.

    Args:
        start_container: starts a server container.
        hub_roots: folders with Hugging Face models as `org/name`, handed to containers.
        state_dir: holds `logs/<endpoint>/<instance>.log`, and `endpoints/` while endpoints run.
        clients: fetches archives, and makes the environment that lets a container call other services.
        http: the HTTP client of all containers, with one pool of connections.
        settings: time limits and intervals.
        faults: the fault switches: delays, and the intervals and number of pings.
        metrics: takes the metrics of models and instances.
        logs: sends the containers' output to CloudWatch Logs.
    """

    start_container: StartContainer
    hub_roots: Sequence[Path]
    state_dir: Path
    clients: ServiceClients
    http: httpx.AsyncClient
    settings: Settings
    faults: FaultSwitches
    metrics: Metrics
    logs: LogShipper


@dataclass(frozen=True, kw_only=True)
class EndpointContext:
    """The shared objects that the production variants of an endpoint need.

    Args:
        containers: the parts that the variants' containers need.
        settings: time limits and intervals.
        quotas: limits the instances of the account.
        metrics: takes the metrics of variants and components.
        clock: measures idle time and the intervals of metrics.
        machine: measures the utilization of this machine, which all instances share.
    """

    containers: ContainerContext
    settings: Settings
    quotas: Quotas
    metrics: Metrics
    clock: Clock
    machine: MachineUtilization
