"""Checks across the sections of a catalog: they find settings that are allowed alone, but not together.

Each check yields one fault per value that the user has to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final

from cohost.archives.handlers import ENGINE_HANDLERS, SHARED
from cohost.catalog.packages import MIB, WHEELS_MIB, package_of
from cohost.catalog.sections.lifecycle import ALLOWED_SIZE, ROLLBACK_ALARMS, SIZES
from cohost.catalog.sections.rules import SAGEMAKER_NAME, SAGEMAKER_NAME_PATTERN
from cohost.endpoint.scaling_rules import TAIL_MINUTES
from cohost.errors import CatalogError
from cohost.routing import COMPONENT_SUFFIX, MULTI_MODEL, SCALE_TO_ZERO, component_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from cohost.catalog.models import Catalog, DeviceSettings, Endpoint, ModelEntry
    from cohost.catalog.sections.designs import Designs, InferenceComponents
    from cohost.catalog.sections.lifecycle import Guardrails
    from cohost.catalog.sections.scaling import Metric, Scaling

TARGETS: Final[Mapping[Metric, tuple[float, float]]] = {"concurrency": (0.1, 1000), "invocations": (1, 1_000_000)}
NAME_CHARACTERS: Final = 63

_UNITS: Final[Mapping[Metric, str]] = {"concurrency": "calls at a time", "invocations": "calls a minute"}


def check_catalog(catalog: Catalog) -> Catalog:
    """Return the given catalog if its sections do not contradict each other.

    `load_catalog` has already checked a catalog from a file. `check_catalog` is for catalogs that were made or changed
    in memory, and for stacks, which deploy only checked catalogs.

    Raises:
        CatalogError: settings contradict each other; the text has one line per fault.
    """
    if faults := [*name_faults(catalog.models), *catalog_faults(catalog)]:
        raise CatalogError.gathered(faults)
    return catalog


def catalog_faults(catalog: Catalog) -> Iterator[CatalogError]:
    """Yield one error per contradiction between settings; `name_faults` yields the errors in model names."""
    yield from scaling_faults(catalog)
    yield from _design_faults(catalog.designs, catalog.models)
    yield from _expiry_faults(catalog)
    yield from _deployment_faults(catalog)
    yield from _weights_key_faults(catalog)
    yield from _worker_faults(catalog.models)
    yield from _shared_faults(catalog)
    packages = {name: entry.packages for name, entry in catalog.models.items()}
    yield from package_faults(packages, bundled=catalog.endpoint.topology == SCALE_TO_ZERO)


def name_faults(models: object) -> Iterator[CatalogError]:
    """Yield a fault for each model name that S3, SageMaker or DJL Serving would reject or confuse with another name.

    Two names without a fault also differ on the server (`server_name`). The server turns many characters into `_`, but
    a name may contain only one of them, the hyphen.
    """
    seen: dict[str, str] = {}
    for name in models if isinstance(models, Mapping) else ():
        field = f"models.{name}"
        if not SAGEMAKER_NAME_PATTERN.fullmatch(name):
            fix = "rename the model"
            yield CatalogError("name-not-allowed", field, f"got {name!r}", allowed=SAGEMAKER_NAME, fix=fix)
            continue
        first = seen.setdefault(name.replace("-", "").casefold(), name)
        if first != name:
            problem = f"{name!r} differs from {first!r} in case or hyphens only"
            allowed = "names that differ in letters or digits"
            yield CatalogError("name-twice", field, problem, allowed=allowed, fix="rename one")


def scaling_faults(catalog: Catalog) -> Iterator[CatalogError]:
    """Yield a fault for each setting of `scaling` or of the topology that contradicts another setting."""
    yield from _topology_faults(catalog.endpoint)
    if (scaling := catalog.scaling) is None:
        return
    yield from _bound_faults(scaling, catalog.endpoint)
    yield from _tracking_faults(scaling)
    yield from _idle_faults(scaling, catalog.endpoint.topology)
    yield from _schedule_faults(scaling, catalog.endpoint.topology)


def _topology_faults(endpoint: Endpoint) -> Iterator[CatalogError]:
    """Yield a fault for each key of `endpoint` that the topology ignores, and for an endpoint name that is too long."""
    if endpoint.topology == MULTI_MODEL:
        fixes = {"copy_count": "write initial_instance_count"}
        other = SCALE_TO_ZERO
    else:
        fixes = {
            "initial_instance_count": "write copy_count, and the bounds under scaling",
            "model_cache_setting": "take it out; the component holds all models all the time",
        }
        other = MULTI_MODEL
    for key, fix in fixes.items():
        if key in endpoint.model_fields_set:
            yield _unused(f"endpoint.{key}", f"topology {endpoint.topology}", f"with topology {other} only", fix)
    if endpoint.topology == SCALE_TO_ZERO and len(component_name(endpoint.name)) > NAME_CHARACTERS:
        most = NAME_CHARACTERS - len(COMPONENT_SUFFIX)
        problem = f"{endpoint.name!r} has {len(endpoint.name)} characters"
        allowed = f"{most} with topology {SCALE_TO_ZERO}, whose component is named {component_name('NAME')}"
        yield CatalogError("name-too-long", "endpoint.name", problem, allowed=allowed, fix="shorten the name")


def _unused(field: str, beside: str, allowed: str, fix: str = "take it out") -> CatalogError:
    """Return the fault of a setting that has no effect because of another setting, `beside`."""
    return CatalogError("setting-unused", field, f"has no effect with {beside}", allowed=allowed, fix=fix)


def _zero_of_multi_model(field: str) -> CatalogError:
    return CatalogError(
        "zero-not-allowed",
        field,
        f"got 0 with topology {MULTI_MODEL}",
        allowed="1 or more, because SageMaker takes 0 only for endpoints of inference components",
        fix="write topology: scale-to-zero under endpoint, or min: 1",
    )


def _bound_faults(scaling: Scaling, endpoint: Endpoint) -> Iterator[CatalogError]:
    if scaling.min > scaling.max:
        problem, fix = f"{scaling.min} is over max {scaling.max}", "raise max or lower min"
        yield CatalogError("bounds-crossed", "scaling.min", problem, allowed="min up to max", fix=fix)
        return
    if endpoint.topology == MULTI_MODEL and scaling.min == 0:
        yield _zero_of_multi_model("scaling.min")
    key = "initial_instance_count" if endpoint.topology == MULTI_MODEL else "copy_count"
    start = getattr(endpoint, key)
    if not max(scaling.min, 1) <= start <= scaling.max:
        yield CatalogError(
            "count-outside-bounds",
            f"endpoint.{key}",
            f"got {start}",
            allowed=f"{max(scaling.min, 1)} to {scaling.max}, within scaling.min and max",
            fix="change it, or the bounds",
        )


def _tracking_faults(scaling: Scaling) -> Iterator[CatalogError]:
    stated = {"metric", "target"} & scaling.model_fields_set
    if len(stated) == 1:
        (alone,) = stated
        yield CatalogError(
            "setting-incomplete",
            f"scaling.{alone}",
            "is stated alone",
            allowed="metric and target, or neither",
            fix="state metric: concurrency with calls at a time, or metric: invocations with calls a minute",
        )
        return
    least, most = TARGETS[scaling.metric]
    if not least <= scaling.target <= most:
        yield CatalogError(
            "value-not-allowed",
            "scaling.target",
            f"got {scaling.target:g} with metric {scaling.metric}",
            allowed=f"{least:g} to {most:.0f} {_UNITS[scaling.metric]} for each instance or copy",
            fix="change the target, or the metric",
        )


def _idle_faults(scaling: Scaling, topology: str) -> Iterator[CatalogError]:
    field, minutes = "scaling.idle_minutes", scaling.idle_minutes
    if minutes is None:
        return
    if topology == MULTI_MODEL:
        fix = f"remove it, because target tracking scales in to min by itself, or write topology: {SCALE_TO_ZERO}"
        yield _unused(field, f"topology {MULTI_MODEL}", f"with topology {SCALE_TO_ZERO} only", fix)
    elif scaling.tracking_scales_in and minutes > (tail := TAIL_MINUTES[scaling.metric]):
        beside = f"up to {scaling.highest} copies, because target tracking scales in to min after {tail} idle minutes"
        yield _unused(field, beside, f"1 to {tail}, or with max: 1 any", "lower it, or write max: 1")


def _schedule_faults(scaling: Scaling, topology: str) -> Iterator[CatalogError]:
    names: set[str] = set()
    for index, entry in enumerate(scaling.schedule):
        field = f"scaling.schedule.{index}"
        if entry.name in names:
            problem, fix = f"{entry.name!r} is a duplicate", "rename one"
            yield CatalogError("name-twice", f"{field}.name", problem, allowed="each name once", fix=fix)
        names.add(entry.name)
        if "timezone" in entry.model_fields_set and entry.cron.startswith("rate("):
            yield _unused(f"{field}.timezone", entry.cron, "with cron(…) and at(…) only")
        if topology == MULTI_MODEL and entry.min == 0:
            yield _zero_of_multi_model(f"{field}.min")
        low = scaling.min if entry.min is None else entry.min
        high = scaling.max if entry.max is None else entry.max
        if low > high:
            problem = f"{entry.name!r} leaves min {low} over max {high}"
            allowed = "min up to max; a bound that an entry leaves out is that of scaling"
            yield CatalogError("bounds-crossed", field, problem, allowed=allowed, fix="state both bounds")


def _deployment_faults(catalog: Catalog) -> Iterator[CatalogError]:
    """Yield the faults of `deployment`: unsuitable sizes and waits, and rollback alarms that are switched off."""
    guardrails = catalog.deployment
    if guardrails is None:
        return
    if catalog.endpoint.topology == SCALE_TO_ZERO:
        allowed = (
            "with topology multi-model only; a component is updated copy by copy, and keeps its old copies where a "
            "new one does not come up"
        )
        yield _unused("deployment", f"topology {SCALE_TO_ZERO}", allowed)
        return
    yield from _size_faults(guardrails, catalog.endpoint.initial_instance_count)
    yield from _timeout_faults(guardrails)
    alarms = catalog.monitoring.alarms
    if guardrails.rollback_alarms is True and not any(getattr(alarms, key) for key in ROLLBACK_ALARMS):
        yield CatalogError(
            "alarm-missing",
            "deployment.rollback_alarms",
            "is true without an alarm of errors or latency",
            allowed=f"true where one of monitoring.alarms.{', '.join(ROLLBACK_ALARMS)} is on",
            fix="write `monitoring: {}`, which switches all on, or rollback_alarms: false",
        )


def _size_faults(guardrails: Guardrails, instances: int) -> Iterator[CatalogError]:
    strategy, needed = guardrails.strategy, SIZES.get(guardrails.strategy)
    for key in SIZES.values():
        if key != needed and getattr(guardrails, key) is not None:
            yield _unused(f"deployment.{key}", f"strategy {strategy}", needed or "no size")
    if needed is None:
        return
    if (size := guardrails.size) is None:
        problem, fix = f"has no {needed} with strategy {strategy}", f"{needed}: 1"
        yield CatalogError("field-missing", "deployment", problem, allowed=ALLOWED_SIZE, fix=fix)
        return
    if instances == 1:
        yield CatalogError(
            "instances-too-few",
            "deployment.strategy",
            f"{strategy} moves calls by at most half of the instances, and there is 1",
            allowed="with endpoint.initial_instance_count: 2 or more",
            fix="write strategy: all-at-once, whose old instance waits for termination_wait_in_seconds and takes the "
            "calls back",
        )
    elif isinstance(size, int) and size * 2 > instances:
        yield CatalogError(
            "value-too-large",
            f"deployment.{needed}",
            f"got {size} of {instances} instances",
            allowed=f"up to {instances // 2}",
            fix=f"{needed}: {instances // 2}",
        )


def _timeout_faults(guardrails: Guardrails) -> Iterator[CatalogError]:
    """Yield a fault for each wait that the deployment strategy ignores, and for a time limit shorter than the waits."""
    waits = ["wait_interval_in_seconds"] if guardrails.strategy in SIZES else []
    waits += ["termination_wait_in_seconds"] if guardrails.strategy != "rolling" else []
    for key in ("wait_interval_in_seconds", "termination_wait_in_seconds"):
        if key in guardrails.model_fields_set and key not in waits:
            yield _unused(f"deployment.{key}", f"strategy {guardrails.strategy}", waits[0])
    timeout, waited = guardrails.maximum_execution_timeout_in_seconds, sum(getattr(guardrails, key) for key in waits)
    if timeout is not None and timeout <= waited:
        yield CatalogError(
            "time-too-short",
            "deployment.maximum_execution_timeout_in_seconds",
            f"{timeout} s end before the waits of {waited} s",
            allowed=f"more than {waited}",
            fix="write a longer time",
        )


def _weights_key_faults(catalog: Catalog) -> Iterator[CatalogError]:
    """Yield a fault for `storage.weights_kms_key` if no model's weights lie in a bucket that the user owns.

    The bucket of lmi-cohost's own weights stack is encrypted with `storage.kms_key`.
    """
    storage = catalog.storage
    elsewhere = any(entry.model_id.startswith("s3://") for entry in catalog.models.values())
    if storage.weights_kms_key is not None and storage.weights_bucket is None and not elsewhere:
        yield _unused(
            "storage.weights_kms_key",
            "weights in no bucket of yours",
            "with storage.weights_bucket, or a model_id that starts with s3://",
            "name the bucket, or write storage.kms_key instead",
        )


def _expiry_faults(catalog: Catalog) -> Iterator[CatalogError]:
    """Yield a fault if a lower scaling bound would keep instances billed after the endpoint has expired."""
    scaling = catalog.scaling
    if catalog.expires is None or catalog.endpoint.topology != SCALE_TO_ZERO or scaling is None:
        return
    if scaling.lowest > 0:
        yield CatalogError(
            "settings-conflict",
            "expires",
            f"would leave the instances of {scaling.lowest} copies billed, the least number",
            allowed="with scaling.min: 0 and no entry of scaling.schedule with a higher min",
            fix="write scaling.min: 0, or take expires out",
        )


def _worker_faults(models: Mapping[str, ModelEntry]) -> Iterator[CatalogError]:
    """Yield a fault for each setting of workers that a model with a handler of this project cannot have.

    When DJL Serving 0.36.0 stops an idle asynchronous worker, because there are more workers than the minimum, the
    server starts the worker's process again. The new process keeps memory but receives no calls, or the model fails
    (recording 28 in `tests/data/djl_lifecycle`).
    """
    for name, entry in models.items():
        if entry.handler not in ENGINE_HANDLERS:
            continue
        for scope, workers in (("gpu", entry.gpu), ("cpu", entry.cpu)):
            if workers is not None:
                yield from _bounds_of_workers(f"models.{name}.{scope}", workers, entry.handler)
        if entry.max_idle_time is not None:
            allowed = "handler stock only, because it ends workers above the minimum and other handlers have none"
            yield _unused(f"models.{name}.max_idle_time", f"handler {entry.handler}", allowed)


def _bounds_of_workers(field: str, workers: DeviceSettings, handler: str) -> Iterator[CatalogError]:
    if handler == SHARED and workers.max_workers > 1:
        yield CatalogError(
            "workers-of-shared",
            f"{field}.maxWorkers",
            f"got {workers.max_workers} with handler shared",
            allowed="1, because one engine process per device computes for all shared models, and a second proxy "
            "process would only hand on to the same one",
            fix="minWorkers: 1 and maxWorkers: 1, or leave both out; endpoint.engines_per_device adds engine processes",
        )
    elif workers.min_workers != workers.max_workers:
        yield CatalogError(
            "worker-bounds-differ",
            f"{field}.minWorkers",
            f"got {workers.min_workers} under maxWorkers {workers.max_workers} with handler {handler}",
            allowed="the same number for both, because a worker that the server ends for being idle leaves its "
            "process and memory behind, or fails the model",
            fix=f"minWorkers: {workers.max_workers}, or fewer for both",
        )


def _shared_faults(catalog: Catalog) -> Iterator[CatalogError]:
    """Yield a fault for each setting that models with `handler: shared` cannot have in their common engine process."""
    shared = {name: entry for name, entry in catalog.models.items() if entry.handler == SHARED}
    if not shared and "engines_per_device" in catalog.endpoint.model_fields_set:
        yield _unused("endpoint.engines_per_device", "no model with handler shared", "with handler: shared only")
    if catalog.monitoring.model_metrics and all(
        entry.handler not in ENGINE_HANDLERS for entry in catalog.models.values()
    ):
        allowed = "with a model with handler batched or shared, since the server's own handler counts nothing"
        yield _unused("monitoring.model_metrics", "handler stock", allowed)
    packages = {
        name: {(package.name, package.version) for package in map(package_of, entry.packages)}
        for name, entry in shared.items()
    }
    first = next(iter(packages), "")
    for name, wanted in packages.items():
        if wanted != packages[first]:
            yield CatalogError(
                "shared-packages-differ",
                f"models.{name}.packages",
                f"is not equal to the packages of the model {first!r}, which has the same engine process",
                allowed="the same packages for all models with handler: shared",
                fix=f"write the packages of {first!r}, or handler: batched for one of the two",
            )


def _design_faults(designs: Designs | None, models: Collection[str]) -> Iterator[CatalogError]:
    """Yield the faults of `designs`: overrides for models that the catalog lacks, and a minimum above the maximum."""
    onnx = None if designs is None else designs.cpu_onnx
    for name in () if onnx is None else onnx.overrides:
        if name not in models:
            field, problem = f"designs.cpu-onnx.overrides.{name}", "is not a model of the catalog"
            yield CatalogError(
                "model-not-in-catalog", field, problem, allowed=", ".join(models), fix="name one of these"
            )
    components = None if designs is None else designs.inference_components
    if components is not None and components.min_instance_count > components.max_instance_count:
        yield CatalogError(
            "bounds-crossed",
            "designs.inference-components.max_instance_count",
            f"{components.max_instance_count} is under min_instance_count {components.min_instance_count}",
            allowed="the minimum or more",
            fix="raise max_instance_count",
        )
    if components is not None and components.partitions:
        yield from _partition_faults(components, models)


def _partition_faults(design: InferenceComponents, models: Collection[str]) -> Iterator[CatalogError]:
    """Yield the faults of `partitions` that depend on no GPU: its models are not exactly the catalog's models."""
    field = "designs.inference-components.partitions"
    for name in design.partitions:
        if name not in models:
            problem = "is not a model of the catalog"
            yield CatalogError(
                "model-not-in-catalog", f"{field}.{name}", problem, allowed=", ".join(models), fix="name one of these"
            )
    for name in models:
        if name not in design.partitions:
            yield CatalogError(
                "partition-missing",
                field,
                f"has none for the model {name!r}; on an endpoint with partitions, every component needs one",
                allowed="a partition for each model, or for none",
                fix=f"add {name}, or take the key partitions out",
            )


def package_faults(models: Mapping[str, Sequence[str]], *, bundled: bool = False) -> Iterator[CatalogError]:
    """Yield a fault for each package or wheel that cannot be installed together with the others on one server.

    `models` are the entries of `packages` by model name. All models of a server share one Python, so all use the
    version that was installed last. `bundled` is true if the models also share one archive.
    """
    seen: dict[str, tuple[str, str]] = {}
    for model, texts in models.items():
        for package in map(package_of, texts):
            first, version = seen.setdefault(package.name, (model, package.version))
            if version != package.version:
                yield CatalogError(
                    "package-versions-differ",
                    f"models.{model}.packages",
                    f"has {package.line} beside {package.name}=={version} of the model {first!r}",
                    allowed="one version of a package in a catalog, since all models share one Python",
                    fix="write the same version",
                )
    yield from _wheel_faults(models, bundled=bundled)


def _wheel_faults(models: Mapping[str, Sequence[str]], *, bundled: bool) -> Iterator[CatalogError]:
    named = [package.wheel for package in map(package_of, chain.from_iterable(models.values())) if package.wheel]
    files = set(named)
    by_name = {file.name: file for file in files}
    for file in sorted(files - set(by_name.values())):
        problem, allowed = f"{file} is not the same file as {by_name[file.name]}", "one file of a name in a catalog"
        yield CatalogError("wheels-differ", "models", problem, allowed=allowed, fix="name the same file")
    size = sum(file.stat().st_size for file in (named if bundled else files))
    if size > WHEELS_MIB * MIB:
        copies = ", with a copy for each model that names one" if bundled else ""
        yield CatalogError(
            "value-too-large",
            "models",
            f"has wheels of {size / MIB:.0f} MiB{copies}",
            allowed=f"{WHEELS_MIB} MiB in all",
            fix="name what can come from the package index as name==version",
        )
