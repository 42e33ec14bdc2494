"""Whether the weights of each model are where the container will look for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cohost.artifacts.weights import Revision
from cohost.plan.errors import PlanError
from cohost.plan.remote_files import HubFiles
from cohost.preflight.finding import Finding, failed, passed, unknown
from cohost.weights.errors import WeightsError
from cohost.weights.place import find_bucket
from cohost.weights.store import WeightsStore

if TYPE_CHECKING:
    import boto3

    from cohost.catalog.models import Catalog, ModelEntry

CONFIG_FILE: Final = "config.json"


def check_on_hub(name: str, entry: ModelEntry) -> Finding:
    """Ask the Hub for the model's configuration in its revision; `HF_ENDPOINT` names another Hub."""
    check = f"model {name}"
    where = f"{entry.model_id} at {entry.revision or 'main'}"
    try:
        found = HubFiles(entry.model_id, entry.revision).read(CONFIG_FILE)
    except PlanError as error:
        return unknown(check, str(error))
    if found is None:
        return failed(check, f"the Hub has no {CONFIG_FILE} of {where}; fix: check model_id and revision")
    return passed(check, f"the Hub has {where}")


def check_pushed(session: boto3.Session, catalog: Catalog, name: str, entry: ModelEntry) -> Finding:
    """Whether the weights of a model that go to S3 were pushed, and pushed whole."""
    check = f"model {name}"
    revision = Revision(entry.model_id, str(entry.revision))
    try:
        bucket = find_bucket(catalog, session)
        packed = entry.weights == "archive"
        there = WeightsStore(session.client("s3"), bucket).is_there(revision, packed=packed)
    except WeightsError as error:
        return unknown(check, str(error))
    where = f"s3://{bucket}/{revision.packed}" if packed else revision.uri(bucket)
    if not there:
        return failed(check, f"{where} is not there, or not whole; fix: cohost weights push {name}")
    return passed(check, f"{where} is there as a whole")
