"""Servers are found by an endpoint's snapshot, and failed loads explained by the server's log."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from local_aws.engines import serving
from local_aws.engines.serving import LoadResult, explained

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_instances_tell_names_and_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The introspection route gives each instance's log and the names of its models without their ending."""
    container = {"id": "i", "ready": True, "pid": os.getpid(), "log_file": "/logs/i.log"}
    models = [{"model_id": "0a1b", "target": "minilm.tar.gz"}]
    variant = {"name": "v", "instance_type": "ml.g5.xlarge", "instances": [{**container, "models": models}]}
    monkeypatch.setattr(serving, "address_of", lambda _pid: ("http://127.0.0.1:9", "t"))
    (server,) = serving.endpoint_servers({"endpoints": [{"name": "e", "variants": [variant]}]})
    assert (server.names, server.log) == ({"0a1b": "minilm"}, "/logs/i.log")


def test_a_refused_load_that_says_nothing_is_told_with_the_logs_reason(tmp_path: Path) -> None:
    """A failed load without a reason gets the last error of the model's worker from the log."""
    log = tmp_path / "engine.log"
    log.write_text(
        "W-1-nli-stdout: Traceback (most recent call last):\nW-1-nli-stdout:   File x\n"
        "W-1-nli-stdout: OSError: no file named model.safetensors\n"
    )
    fault = "500 Failed to initialize model: invoke handler failure"
    loads = [
        LoadResult(name="nli", seconds=1, fault=fault),
        LoadResult(name="other", seconds=1, fault=fault),
        LoadResult(name="big", seconds=1, fault="507 No enough memory to load the model."),
        LoadResult(name="good", seconds=1, fault=None),
    ]
    assert [load.fault for load in explained(loads, log)] == [
        f"{fault} (OSError: no file named model.safetensors)",
        fault,
        "507 No enough memory to load the model.",
        None,
    ]
