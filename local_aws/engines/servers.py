"""Which servers there are to report on: the engine of a state folder, and the containers of the AWS on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cohost import local
from cohost.routing import ARCHIVE_SUFFIX
from local_aws.engines.engine import EngineError
from local_aws.engines.report import Server
from local_aws.engines.serving import recorded_server
from local_aws.lmi import address_of
from local_aws.sagemaker.introspection import PATH as INTROSPECTION_PATH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


def servers_of(state: Path) -> list[Server]:
    """The servers of a state folder: what `cohost local run` runs, and each instance of each endpoint.

    Raises:
        EngineError: nothing runs there.
    """
    engine = recorded_server(state)
    servers = [engine] if engine is not None else []
    if (aws := local.find(state)) is not None:
        servers += _instances(aws.ask(INTROSPECTION_PATH))
    if not servers:
        msg = (
            f"state {str(state)!r}: no server runs there; allowed: an engine or an endpoint; fix: start one with "
            "`cohost local run`, deploy one to `cohost local up`, or name its folder with --state"
        )
        raise EngineError(msg)
    return servers


def _instances(snapshot: Mapping[str, Any]) -> Iterator[Server]:
    for endpoint in snapshot["endpoints"]:
        for variant in endpoint["variants"]:
            for instance in variant["instances"]:
                # The containers of inference components are copies on an instance.
                for container in instance.get("copies", [instance]):
                    if container["ready"] and (address := address_of(container["pid"])) is not None:
                        url, token = address
                        yield Server(
                            name=f"{endpoint['name']}/{variant['name']}/{container['id']}",
                            url=url,
                            token=token,
                            pid=container["pid"],
                            instance_type=variant["instance_type"],
                            names=_names(container.get("models", [])),
                            log=container["log_file"],
                        )


def _names(models: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The catalog's names of a container's models by the names that SageMaker has given them there."""
    return {model["model_id"]: model["target"].removesuffix(ARCHIVE_SUFFIX) for model in models}
