"""The route of the counters, as the real server has it and at a path of our own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from local_aws.lmi.server.routes import LmiApp
from local_aws.lmi.workers.metrics import ModelMetrics


def _get(path: str, query: str = "") -> tuple[int, bytes]:
    pool = SimpleNamespace(metrics=ModelMetrics(), waiting=0, workers=[])
    registry: Any = SimpleNamespace(models={"m": SimpleNamespace(pool=pool, pids=[])})
    sent: list[Any] = []
    scope: Any = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [],
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(LmiApp(registry)(scope, receive, send))
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize(("setting", "status"), [(None, 400), ("false", 400), ("true", 200), ("TRUE", 200)])
def test_the_real_servers_route_tells_counters_when_it_is_asked_to(
    monkeypatch: pytest.MonkeyPatch, setting: str | None, status: int
) -> None:
    """SERVING_PROMETHEUS decides, as recorded (03: 400 without it); our own route needs no setting."""
    monkeypatch.delenv("SERVING_PROMETHEUS", raising=False)
    if setting is not None:
        monkeypatch.setenv("SERVING_PROMETHEUS", setting)
    answered, body = _get("/server/metrics")
    assert answered == status
    assert (b'QueueTime_count{Model="m"} 0' in body) is (status == 200)
    assert _get("/_cohost/metrics")[0] == 200
    assert _get("/_cohost/metrics", "x=1")[0] == 200
    assert _get("/_cohost/other")[0] == 404
