"""The Lambda function behind the custom resource `Custom::LmiModelStore`; its handler is `archives.index.on_event`.

Properties of the resource: `Bucket`; `Prefix`, which ends with "/"; `Models`, {name: {property: value}}; and, only for
models that need them, `Requirements`, {name: lines}; `Handlers`, {name: "handler@version"}; `Wheels`, {name:
"file.whl@sha256 …"}; `PackedWeights`, {name: "model id@revision"}; and `WeightsBucket`, the bucket of weights that were
pushed to S3. `Layout` is "archives" (one per model; the default) or "bundle" (one of all models). `KeepGenerations` is
the number of earlier generations (published sets of archives) that stay after an update, 0 if left out. `Generation`,
if given, is the id of a stored generation, which is then served unchanged; the other properties then only state from
which properties this generation was published.

The physical id is the S3 URI of the generation that holds the models. Attributes: `Generation`, the generation's id,
and `ModelDataUrl`, the physical id. With layout "bundle", `ModelDataUrl` is the URI of the generation's one archive.
"""

from __future__ import annotations

import functools
import logging
import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from .bucket import Bucket
from .errors import ArtifactError, MissingBucketError, unknown_request
from .packed import packed_revisions
from .publisher import Publisher
from .reply import Deadline, Reply
from .request import archives_of, is_bundle, kept_in, names_in, pinned_in, place_of, revisions_of
from .store import ModelStore

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mypy_boto3_s3 import S3Client

    from .reply import LambdaContext

    Event = Mapping[str, Any]

_log = logging.getLogger(__package__)
# Lambda's root logger drops all messages below level WARNING.
_log.setLevel(logging.INFO)


@functools.cache
def s3_client() -> S3Client:
    """Return this process's S3 client: it retries after throttling, and waits at most 20 s for a response."""
    return boto3.client(
        "s3",
        config=Config(retries={"mode": "standard", "max_attempts": 8}, connect_timeout=5, read_timeout=20),
    )


def on_event(event: Event, context: LambdaContext) -> None:
    """Carry out CloudFormation's request and send exactly one answer, within the function's time limit.

    The work runs in another thread. If the work hangs, the calling thread sends the answer and returns. Without this
    answer, Lambda would end the run at its time-out, and would repeat the event after CloudFormation has already rolled
    back.

    Raises:
        OSError: the answer could not be delivered; Lambda then repeats the event, which does no harm.
    """
    reply = Reply(event)
    deadline = Deadline(context)
    work: Future[None] = Future()
    threading.Thread(target=_run, args=(work, event, reply, deadline), daemon=True).start()
    wait([work], timeout=deadline.seconds_to_answer)
    if not work.done():
        # If the call returns later, the work must not continue: CloudFormation's next event may already be running.
        deadline.expire()
        reply.fail("time limit: a call to S3 did not return in time; run the deployment again")
        return
    work.result()


def _run(work: Future[None], event: Event, reply: Reply, deadline: Deadline) -> None:
    try:
        _answer(event, reply, deadline)
    except BaseException as error:  # noqa: BLE001 - on_event raises it
        work.set_exception(error)
    else:
        work.set_result(None)


def _answer(event: Event, reply: Reply, deadline: Deadline) -> None:
    try:
        physical_id, data = _handle(event, reply, deadline)
    except Exception as error:  # noqa: BLE001 - without an answer CloudFormation waits for an hour
        _log.exception("%s failed", event.get("RequestType"))
        reply.fail(_reason(error))
    else:
        reply.succeed(physical_id, data)


def _handle(event: Event, reply: Reply, deadline: Deadline) -> tuple[str, dict[str, str]]:
    match event.get("RequestType"):
        case "Create":
            return _create(event, deadline)
        case "Update":
            return _update(event, deadline)
        case "Delete":
            _delete(event, deadline)
            return reply.physical_id, {}
        case other:
            raise unknown_request(other)


def _create(event: Event, deadline: Deadline) -> tuple[str, dict[str, str]]:
    properties = event.get("ResourceProperties", {})
    store = _store(properties, deadline)
    publisher = _publisher(store, deadline, event)
    if (pinned := pinned_in(properties)) is not None:
        generation = publisher.go_back(pinned, names_in(properties), current=None, published_from=None)
    else:
        generation = publisher.create(archives_of(properties))
    return _outcome(store, generation, properties)


def _update(event: Event, deadline: Deadline) -> tuple[str, dict[str, str]]:
    properties, old = event.get("ResourceProperties", {}), event.get("OldResourceProperties")
    store = _store(properties, deadline)
    publisher = _publisher(store, deadline, event)
    current = store.generation_at(event.get("PhysicalResourceId", ""))
    if (pinned := pinned_in(properties)) is not None:
        generation = publisher.go_back(pinned, names_in(properties), current, old)
    else:
        generation = publisher.update(archives_of(properties), current, names_in(old), old)
    return _outcome(store, generation, properties)


def _delete(event: Event, deadline: Deadline) -> None:
    try:
        store = _store(event.get("ResourceProperties", {}), deadline)
    except ArtifactError as error:
        # A resource with such properties was never created, so there is nothing to delete.
        _log.warning("nothing to delete: %s", error)
        return
    publisher = _publisher(store, deadline, event)
    try:
        publisher.sweep()
        generation = store.generation_at(event.get("PhysicalResourceId", ""))
        if generation is None:
            _log.info("nothing to delete: %s is not a generation of this store", event.get("PhysicalResourceId"))
            return
        publisher.delete(generation)
    except MissingBucketError as error:
        _log.info("nothing to delete: %s", error)


def _store(properties: Mapping[str, Any], deadline: Deadline) -> ModelStore:
    place = place_of(properties)
    return ModelStore(s3_client(), place.bucket, place.prefix, checkpoint=deadline.check)


def _publisher(store: ModelStore, deadline: Deadline, event: Event) -> Publisher:
    properties = event.get("ResourceProperties", {})
    return Publisher(
        store,
        before_undo=deadline.allow_undo,
        before_write=lambda names: _check_weights(names, properties, deadline),
        # A delete event uses the number in the record of the served generation, not the one in its own properties.
        keep=0 if event.get("RequestType") == "Delete" else kept_in(properties),
        resource=event.get("LogicalResourceId", ""),
    )


def _check_weights(names: Collection[str], properties: Mapping[str, Any], deadline: Deadline) -> None:
    """Reject models whose weights were not completely pushed to the weights bucket.

    Without this check the container would reject the archive minutes later and without an error text.

    Raises:
        ArtifactError: the weights bucket has no complete upload of a model's weights.
    """
    bundle = is_bundle(properties)
    needed = {
        **{name: revision.manifest for name, revision in revisions_of(properties).items()},
        **{name: revision.packed for name, revision in packed_revisions(properties).items()},
    }
    needed = {name: key for name, key in needed.items() if name in names or bundle}
    if not needed:
        return
    bucket = Bucket(s3_client(), properties["WeightsBucket"], deadline.check)
    there = {key for prefix in {key.partition("/")[0] for key in needed.values()} for key in bucket.keys(f"{prefix}/")}
    if missing := sorted(name for name, key in needed.items() if key not in there):
        raise ArtifactError(
            "weights-not-pushed",
            f"models {', '.join(missing)}",
            f"no whole upload of their weights is in {properties['WeightsBucket']!r} (looked for {needed[missing[0]]})",
            fix=f"run `cohost weights push {' '.join(missing)}` and deploy again",
        )


def _outcome(store: ModelStore, generation: str, properties: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    uri = store.uri(generation)
    data_url = store.bundle_uri(generation) if is_bundle(properties) else uri
    return uri, {"ModelDataUrl": data_url, "Generation": generation}


def _reason(error: Exception) -> str:
    if isinstance(error, ArtifactError):
        return str(error)
    if isinstance(error, ClientError):
        return f"{error.operation_name}: {error}"
    return f"{type(error).__name__}: {error}; this is a fault of the handler, see the function's log"
