"""The estimated size of the model store's event, compared with the event that is sent."""

from __future__ import annotations

import json

from constructs_lib.storage.model_store import EVENT_LIMIT_BYTES, event_bytes, event_fault


def sent(models: dict[str, dict[str, str]]) -> int:
    """Return the size in bytes of an update event as CloudFormation writes it, with a long response URL."""
    arn = "arn:aws:lambda:ap-northeast-2:123456789012:function:" + "f" * 64
    properties = {
        "ServiceToken": arn,
        "ServiceTimeout": "960",
        "Bucket": "b" * 63,
        "Prefix": "p" * 512,
        "Models": models,
    }
    event = {
        "RequestType": "Update",
        "ServiceToken": arn,
        "ResponseURL": "https://cloudformation-custom-resource-response.s3.amazonaws.com/" + "x" * 1500,
        "StackId": "arn:aws:cloudformation:ap-northeast-2:123456789012:stack/" + "s" * 170,
        "RequestId": "0" * 36,
        "LogicalResourceId": "l" * 255,
        "PhysicalResourceId": "s3://" + "p" * 600,
        "ResourceType": "Custom::LmiModelStore",
        "ResourceProperties": properties,
        "OldResourceProperties": properties,
    }
    return len(json.dumps(event, ensure_ascii=False).encode())


def test_estimate_is_never_below_what_is_sent() -> None:
    """The estimated size of an event is never below its real size, with names and text in any script."""
    models = {f"model-{number}": {"engine": "Python", "option.note": "한국어 텍스트"} for number in range(200)}
    assert sent(models) <= event_bytes({"Models": models, "Requirements": {}})


def test_limit_is_sharp() -> None:
    """An event that is one byte too long is rejected, and one of exactly the allowed length is not."""
    models = {"m": {"note": ""}}
    room = (EVENT_LIMIT_BYTES - event_bytes({"Models": models, "Requirements": {}})) // 2
    assert event_fault({"m": {"note": "x" * room}}, {}) is None
    assert event_fault({"m": {"note": "x" * (room + 1)}}, {}) is not None


def test_requirements_count_too() -> None:
    """The estimated size includes the requirements of the CPU image."""
    assert event_fault({"m": {"engine": "Python"}}, {"m": "x" * EVENT_LIMIT_BYTES}) is not None
