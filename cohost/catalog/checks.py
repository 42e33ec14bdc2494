"""The rules between sections of a catalog: settings that are each allowed but not in combination.

Each check yields the path of the value to change, and the fault as `what; allowed: …; fix: …`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final

from cohost.catalog.packages import MIB, WHEELS_MIB, package_of
from cohost.catalog.sections.lifecycle import ALLOWED_SIZE, ROLLBACK_ALARMS, SIZES
from cohost.catalog.sections.rules import SAGEMAKER_NAME, SAGEMAKER_NAME_PATTERN
from cohost.endpoint.scaling_rules import TAIL_MINUTES
from cohost.errors import CatalogError
from cohost.routing import COMPONENT_SUFFIX, MULTI_MODEL, SCALE_TO_ZERO, component_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from cohost.catalog.models import Catalog, Endpoint, ModelEntry
    from cohost.catalog.sections.designs import Designs
    from cohost.catalog.sections.lifecycle import Guardrails
    from cohost.catalog.sections.scaling import Metric, Scaling
    from cohost.catalog.yaml_source import Location

Placed = tuple["Location", str]
"""A path in the file, and the fault there as `what; allowed: …; fix: …`."""

TARGETS: Final[Mapping[Metric, tuple[float, float]]] = {"concurrency": (0.1, 1000), "invocations": (1, 1_000_000)}
NAME_CHARACTERS: Final = 63

_UNITS: Final[Mapping[Metric, str]] = {"concurrency": "calls at a time", "invocations": "calls a minute"}
_ZERO_ALLOWED: Final = "1 or more, because SageMaker takes 0 only for endpoints of inference components"
_ZERO_FIX: Final = "write topology: scale-to-zero under endpoint, or min: 1"


def check_catalog(catalog: Catalog) -> Catalog:
    """Return a catalog that satisfies the rules between its sections, and reject any other.

    `load_catalog` has already checked a catalog from a file. This check is for catalogs made or changed in memory, and
    for stacks, which deploy only checked catalogs.

    Raises:
        CatalogError: settings contradict each other; one line per fault.
    """
    faults = [*name_faults(catalog.models), *catalog_faults(catalog)]
    if faults:
        raise CatalogError([f"{'.'.join(map(str, location))}: {text}" for location, text in faults])
    return catalog


def catalog_faults(catalog: Catalog) -> Iterator[Placed]:
    """Yield every fault between the sections of a catalog."""
    yield from scaling_faults(catalog)
    yield from design_faults(catalog.designs, catalog.models)
    yield from expiry_faults(catalog)
    yield from deployment_faults(catalog)
    yield from worker_faults(catalog.models)
    packages = {name: entry.packages for name, entry in catalog.models.items()}
    yield from package_faults(packages, bundled=catalog.endpoint.topology == SCALE_TO_ZERO)


def name_faults(models: object) -> Iterator[Placed]:
    """Yield a fault for each model name that S3, SageMaker or DJL would reject or could not tell from another name.

    Every remaining name is also unique on the server (`server_name`): of all characters that the server turns into `_`,
    only the hyphen is allowed.
    """
    seen: dict[str, str] = {}
    for name in models if isinstance(models, Mapping) else ():
        if not SAGEMAKER_NAME_PATTERN.fullmatch(name):
            fault = f"the model name {name!r} is not allowed; allowed: {SAGEMAKER_NAME}; fix: rename the model"
            yield ("models", name), fault
            continue
        cleaned = name.replace("-", "").casefold()
        if cleaned in seen:
            fault = (
                f"the model names {seen[cleaned]!r} and {name!r} differ in case or hyphens only; allowed: names that "
                "differ in letters or digits; fix: rename one"
            )
            yield ("models", name), fault
        seen.setdefault(cleaned, name)


def scaling_faults(catalog: Catalog) -> Iterator[Placed]:
    """Yield a fault for each setting of scaling or topology that contradicts the others."""
    yield from _topology_faults(catalog.endpoint)
    if (scaling := catalog.scaling) is None:
        return
    yield from _bound_faults(scaling, catalog.endpoint)
    yield from _tracking_faults(scaling)
    yield from _idle_faults(scaling, catalog.endpoint.topology)
    yield from _schedule_faults(scaling, catalog.endpoint.topology)


def _topology_faults(endpoint: Endpoint) -> Iterator[Placed]:
    """Yield the endpoint's keys that the chosen topology does not read."""
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
            what = f"{key} with topology {endpoint.topology} would do nothing"
            yield _fault(("endpoint", key), what, f"with topology {other} only", fix)
    if endpoint.topology == SCALE_TO_ZERO and len(component_name(endpoint.name)) > NAME_CHARACTERS:
        most = NAME_CHARACTERS - len(COMPONENT_SUFFIX)
        what = f"{endpoint.name!r} has {len(endpoint.name)} characters"
        allowed = f"{most} with topology {SCALE_TO_ZERO}, whose component is named {component_name('NAME')}"
        yield _fault(("endpoint", "name"), what, allowed, "shorten the name")


def _bound_faults(scaling: Scaling, endpoint: Endpoint) -> Iterator[Placed]:
    if scaling.min > scaling.max:
        what = f"min {scaling.min} is over max {scaling.max}"
        yield _fault(("scaling", "min"), what, "min up to max", "raise max or lower min")
        return
    if endpoint.topology == MULTI_MODEL and scaling.min == 0:
        what = f"min 0 with topology {MULTI_MODEL} is not allowed"
        yield _fault(("scaling", "min"), what, _ZERO_ALLOWED, _ZERO_FIX)
    key = "initial_instance_count" if endpoint.topology == MULTI_MODEL else "copy_count"
    start = getattr(endpoint, key)
    if not max(scaling.min, 1) <= start <= scaling.max:
        allowed = f"{max(scaling.min, 1)} to {scaling.max}, within min and max"
        yield _fault(("endpoint", key), f"{key} {start} is outside of scaling", allowed, "change it, or the bounds")


def _tracking_faults(scaling: Scaling) -> Iterator[Placed]:
    place: Location = ("scaling", "target")
    stated = {"metric", "target"} & scaling.model_fields_set
    if len(stated) == 1:
        fix = "state metric: concurrency with calls at a time, or metric: invocations with calls a minute"
        yield _fault(("scaling", *stated), f"{stated.pop()} stands alone", "metric and target, or neither", fix)
        return
    least, most = TARGETS[scaling.metric]
    if not least <= scaling.target <= most:
        what = f"target {scaling.target:g} with metric {scaling.metric} is not allowed"
        allowed = f"{least:g} to {most:.0f} {_UNITS[scaling.metric]} for each instance or copy"
        yield _fault(place, what, allowed, "change the target, or the metric")


def _idle_faults(scaling: Scaling, topology: str) -> Iterator[Placed]:
    place: Location = ("scaling", "idle_minutes")
    minutes = scaling.idle_minutes
    if minutes is None:
        return
    if topology == MULTI_MODEL:
        what = f"idle_minutes with topology {MULTI_MODEL} is not allowed"
        fix = f"take it out, since tracking goes down to min by itself, or write topology: {SCALE_TO_ZERO}"
        yield _fault(place, what, f"with topology {SCALE_TO_ZERO} only", fix)
    elif scaling.tracking_scales_in and minutes > (tail := TAIL_MINUTES[scaling.metric]):
        what = (
            f"{minutes} with up to {scaling.highest} copies would do nothing, because target tracking goes down to min "
            f"after {tail} minutes of idling"
        )
        yield _fault(place, what, f"1 to {tail}, or with max: 1 any", "lower it, or write max: 1")


def _schedule_faults(scaling: Scaling, topology: str) -> Iterator[Placed]:
    names: set[str] = set()
    for index, entry in enumerate(scaling.schedule):
        place: Location = ("scaling", "schedule", index)
        if entry.name in names:
            yield _fault((*place, "name"), f"{entry.name!r} stands twice", "each name once", "rename one")
        names.add(entry.name)
        if "timezone" in entry.model_fields_set and entry.cron.startswith("rate("):
            what = f"timezone with {entry.cron} would do nothing"
            yield _fault((*place, "timezone"), what, "with cron(…) and at(…) only", "take it out")
        if topology == MULTI_MODEL and entry.min == 0:
            what = f"min 0 with topology {MULTI_MODEL} is not allowed"
            yield _fault((*place, "min"), what, _ZERO_ALLOWED, _ZERO_FIX)
        low = scaling.min if entry.min is None else entry.min
        high = scaling.max if entry.max is None else entry.max
        if low > high:
            what = f"{entry.name!r} leaves min {low} over max {high}"
            allowed = "min up to max; what an entry leaves out counts as under scaling"
            yield _fault(place, what, allowed, "state both bounds")


def _fault(place: Location, what: str, allowed: str, fix: str) -> Placed:
    return place, f"{what}; allowed: {allowed}; fix: {fix}"


def deployment_faults(catalog: Catalog) -> Iterator[Placed]:
    """Yield sizes that do not fit the strategy or the number of instances, and rollback alarms that are off."""
    guardrails = catalog.deployment
    if guardrails is None:
        return
    if catalog.endpoint.topology == SCALE_TO_ZERO:
        text = (
            f"deployment with topology {SCALE_TO_ZERO} would do nothing; allowed: with topology multi-model only; a "
            "component is updated copy by copy, and keeps its old copies where a new one does not come up; "
            "fix: take it out"
        )
        yield ("deployment",), text
        return
    yield from _size_faults(guardrails, catalog.endpoint.initial_instance_count)
    yield from _timeout_faults(guardrails)
    if guardrails.rollback_alarms is True and not any(
        getattr(catalog.monitoring.alarms, key) for key in ROLLBACK_ALARMS
    ):
        text = (
            "true without an alarm of errors or latency; allowed: true where one of "
            f"monitoring.alarms.{', '.join(ROLLBACK_ALARMS)} is on; fix: write `monitoring: {{}}`, which switches all "
            "on, or rollback_alarms: false"
        )
        yield ("deployment", "rollback_alarms"), text


def _size_faults(guardrails: Guardrails, instances: int) -> Iterator[Placed]:
    strategy, needed = guardrails.strategy, SIZES.get(guardrails.strategy)
    for key in SIZES.values():
        if key != needed and getattr(guardrails, key) is not None:
            text = f"{key} with strategy {strategy} would do nothing; allowed: {needed or 'no size'}; fix: take it out"
            yield ("deployment", key), text
    if needed is None:
        return
    if (size := guardrails.size) is None:
        yield (
            ("deployment",),
            f"{needed} is missing with strategy {strategy}; allowed: {ALLOWED_SIZE}; fix: {needed}: 1",
        )
        return
    if instances == 1:
        text = (
            f"strategy {strategy} moves calls by at most half of the instances, and there is 1; allowed: with "
            "endpoint.initial_instance_count: 2 or more; fix: write strategy: all-at-once, whose old instance waits "
            "for termination_wait_in_seconds and takes the calls back"
        )
        yield ("deployment", "strategy"), text
    elif isinstance(size, int) and size * 2 > instances:
        text = f"{size} of {instances} instances; allowed: up to {instances // 2}; fix: {needed}: {instances // 2}"
        yield ("deployment", needed), text


def _timeout_faults(guardrails: Guardrails) -> Iterator[Placed]:
    """Yield waits that the strategy does not read, and a time limit that is shorter than the waits."""
    waits = ["wait_interval_in_seconds"] if guardrails.strategy in SIZES else []
    waits += ["termination_wait_in_seconds"] if guardrails.strategy != "rolling" else []
    for key in ("wait_interval_in_seconds", "termination_wait_in_seconds"):
        if key in guardrails.model_fields_set and key not in waits:
            text = f"{key} with strategy {guardrails.strategy} would do nothing; allowed: {waits[0]}; fix: take it out"
            yield ("deployment", key), text
    timeout, waited = guardrails.maximum_execution_timeout_in_seconds, sum(getattr(guardrails, key) for key in waits)
    if timeout is not None and timeout <= waited:
        text = f"{timeout} s end before the waits of {waited} s; allowed: more than {waited}; fix: a longer time"
        yield ("deployment", "maximum_execution_timeout_in_seconds"), text


def expiry_faults(catalog: Catalog) -> Iterator[Placed]:
    """Yield a scaling bound that would keep instances running, and billed, after the endpoint has expired."""
    scaling = catalog.scaling
    if catalog.expires is None or catalog.endpoint.topology != SCALE_TO_ZERO or scaling is None:
        return
    if scaling.lowest > 0:
        text = (
            f"expires with a least number of {scaling.lowest} copies would leave their instances billed; "
            "allowed: with scaling.min: 0 and no entry of scaling.schedule with another least; "
            "fix: write scaling.min: 0, or take expires out"
        )
        yield ("expires",), text


def worker_faults(models: Mapping[str, ModelEntry]) -> Iterator[Placed]:
    """Yield the worker bounds that would let the server stop workers of a batched model, with the path of each.

    When DJL Serving 0.36.0 stops an asynchronous worker above the minimum, it starts the worker's process again: the
    process keeps its weights in memory and receives no calls, or the model fails (recorded: `djl_lifecycle`, 28).
    """
    for name, entry in models.items():
        if entry.handler != "batched":
            continue
        for scope, workers in (("gpu", entry.gpu), ("cpu", entry.cpu)):
            if workers is not None and workers.min_workers != workers.max_workers:
                text = (
                    f"minWorkers {workers.min_workers} under maxWorkers {workers.max_workers} with handler batched is "
                    "not allowed; allowed: the same number for both, because a worker that the server ends for being "
                    "idle leaves its process and memory behind, or fails the model; "
                    f"fix: minWorkers: {workers.max_workers}, or fewer for both"
                )
                yield ("models", name, scope, "minWorkers"), text
        if entry.max_idle_time is not None:
            text = (
                f"{entry.max_idle_time} with handler batched is not allowed; allowed: handler stock only, because it "
                "ends workers above the minimum and batched models have none; fix: take it out"
            )
            yield ("models", name, "max_idle_time"), text


def design_faults(designs: Designs | None, models: Collection[str]) -> Iterator[Placed]:
    """Yield overrides for models that are not in the catalog, and bounds with min above max."""
    onnx = None if designs is None else designs.cpu_onnx
    for name in () if onnx is None else onnx.overrides:
        if name not in models:
            text = f"{name!r} is no model of the catalog; allowed: {', '.join(models)}; fix: name one of these"
            yield ("designs", "cpu-onnx", "overrides", name), text
    components = None if designs is None else designs.inference_components
    if components is not None and components.min_instance_count > components.max_instance_count:
        text = (
            f"{components.max_instance_count} is under min_instance_count {components.min_instance_count}; allowed: "
            "the minimum or more; fix: raise max_instance_count"
        )
        yield ("designs", "inference-components", "max_instance_count"), text


def package_faults(models: Mapping[str, Sequence[str]], *, bundled: bool = False) -> Iterator[Placed]:
    """Yield the packages and wheels that cannot be installed together on one server.

    All models of a server share one Python, so the version installed last is used by all of them. `bundled` is true if
    they also share one archive.
    """
    seen: dict[str, tuple[str, str]] = {}
    for model, texts in models.items():
        for package in map(package_of, texts):
            first, version = seen.setdefault(package.name, (model, package.version))
            if version != package.version:
                text = (
                    f"{package.line} is not allowed beside {package.name}=={version} of the model {first!r}, since all "
                    "models share one Python; allowed: one version of a package in a catalog; fix: write the same"
                )
                yield ("models", model, "packages"), text
    yield from _wheel_faults(models, bundled=bundled)


def _wheel_faults(models: Mapping[str, Sequence[str]], *, bundled: bool) -> Iterator[Placed]:
    named = [package.wheel for package in map(package_of, chain.from_iterable(models.values())) if package.wheel]
    files = set(named)
    by_name = {file.name: file for file in files}
    for file in sorted(files - set(by_name.values())):
        text = (
            f"{str(file)!r} is not allowed beside {str(by_name[file.name])!r}; allowed: one file of a name in a "
            "catalog; fix: name the same file"
        )
        yield ("models",), text
    size = sum(file.stat().st_size for file in (named if bundled else files))
    if size > WHEELS_MIB * MIB:
        copies = ", with a copy for each model that names one," if bundled else ""
        text = (
            f"wheels of {size / MIB:.0f} MiB{copies} are too many; allowed: {WHEELS_MIB} MiB in all; "
            "fix: name what can come from the package index as name==version"
        )
        yield ("models",), text
