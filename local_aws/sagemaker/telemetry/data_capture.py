"""Data capture: a share of an endpoint's calls, written as JSON lines below an S3 prefix by the execution role.

Source: SageMaker developer guide, "Capture data from real-time endpoint" (keys of the objects, fields of a line). The
guide does not say whether multi-model and component endpoints capture, nor whether failed calls are captured: in the
emulator both kinds of endpoint capture calls, and only answered calls are captured.
"""

from __future__ import annotations

import base64
import json
import logging
import random
import uuid
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_aws.kit.clients import ServiceClients


_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CapturePlan:
    """The DataCaptureConfig of an endpoint configuration, with the role that writes the records.

    Args:
        bucket: the destination's bucket.
        prefix: the beginning of every key, with a "/" at its end unless it is empty.
        percentage: the share of calls that is captured, 0 to 100.
        modes: the captured sides of a call, `Input` and `Output`.
        text_types: the content types whose bodies are written as text, with the encoding's name; others are written
            in base64.
        kms_key: the KMS key that encrypts the records; None for the bucket's own encryption.
        role: the execution role's ARN; None for a container without a role.
    """

    bucket: str
    prefix: str
    percentage: int
    modes: frozenset[str]
    text_types: tuple[tuple[str, str], ...]
    kms_key: str | None
    role: str | None

    @classmethod
    def of(cls, config: Mapping[str, Any] | None, role: str | None) -> CapturePlan | None:
        """Return the plan of a DataCaptureConfig; None if there is none, or if it is switched off."""
        if not config or not config.get("EnableCapture", False):
            return None
        bucket, _, prefix = str(config["DestinationS3Uri"]).removeprefix("s3://").partition("/")
        stated = {option["CaptureMode"] for option in config["CaptureOptions"]}
        types = config.get("CaptureContentTypeHeader") or {}
        return cls(
            bucket=bucket,
            prefix=f"{prefix.rstrip('/')}/" if prefix else "",
            percentage=int(config["InitialSamplingPercentage"]),
            modes=frozenset({"Input", "Output"}) if "InputAndOutput" in stated else frozenset(stated),
            text_types=(
                *((one, "CSV") for one in types.get("CsvContentTypes", ())),
                *((one, "JSON") for one in types.get("JsonContentTypes", ())),
            ),
            kms_key=config.get("KmsKeyId"),
            role=role,
        )


@dataclass(frozen=True, kw_only=True)
class Side:
    """The body of a call or of its answer, with its content type."""

    content_type: str
    body: bytes

    def captured(self, plan: CapturePlan, mode: str) -> dict[str, str]:
        """Return the body and its content type in the form that a record has."""
        encoding = dict(plan.text_types).get(self.content_type.partition(";")[0].strip(), "BASE64")
        data = base64.b64encode(self.body).decode() if encoding == "BASE64" else self.body.decode(errors="replace")
        return {"observedContentType": self.content_type, "mode": mode, "data": data, "encoding": encoding}


class DataCapture:
    """Collects the records of calls, and writes them to S3 with every `publish`.

    Args:
        clients: the clients that write as the execution role.
    """

    def __init__(self, clients: ServiceClients) -> None:
        self._clients = clients
        self._lines: defaultdict[tuple[CapturePlan, str], list[str]] = defaultdict(list)

    def record(self, plan: CapturePlan | None, place: str, call: Side, answer: Side) -> None:
        """Capture a call if it belongs to the share to capture; `place` is `ENDPOINT/VARIANT`."""
        if plan is None or random.uniform(0, 100) >= plan.percentage:  # noqa: S311 - a share of calls, no secret
            return
        sides = {
            **({"endpointInput": call.captured(plan, "INPUT")} if "Input" in plan.modes else {}),
            **({"endpointOutput": answer.captured(plan, "OUTPUT")} if "Output" in plan.modes else {}),
        }
        event = {"eventId": str(uuid.uuid4()), "inferenceTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        line = json.dumps({"captureData": sides, "eventMetadata": event, "eventVersion": "0"})
        self._lines[plan, place].append(line)

    async def publish(self) -> None:
        """Write all new records, one object per variant; as on SageMaker, an object that S3 refuses is lost."""
        waiting, self._lines = self._lines, defaultdict(list)
        for (plan, place), lines in waiting.items():
            try:
                await self._clients.run(self._write, plan, place, lines)
            except (BotoCoreError, ClientError) as error:
                _logger.warning("captured calls of %s were not written: %s", place, error)

    def _write(self, plan: CapturePlan, place: str, lines: list[str]) -> None:
        now = datetime.now(UTC)
        key = f"{plan.prefix}{place}/{now:%Y/%m/%d/%H/%M-%S-%f}-{uuid.uuid4()}.jsonl"
        encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": plan.kms_key} if plan.kms_key else {}
        s3: Any = self._clients.s3(plan.role)
        s3.put_object(Bucket=plan.bucket, Key=key, Body="".join(f"{line}\n" for line in lines).encode(), **encryption)
