"""The subcommands about models before a deploy: `cohost models`, `models inspect`, `plan` and `engines`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from cohost.archives.handlers import ENGINE_HANDLERS
from cohost.catalog.serving import instance_bounds
from cohost.commands import console
from cohost.commands.options import DEFAULT_CATALOG, CatalogOption, JsonOption, entry_of, load_with_warnings
from cohost.endpoint.stack_outputs import DEFAULT_REGION
from cohost.engine_support import BACKENDS, FACTS_DATED, judge
from cohost.errors import CatalogError
from cohost.forecast.fleet import plan_fleet, read_loads
from cohost.forecast.plan.capacity import first_change, room_of
from cohost.forecast.plan.drawing import gpu_segments, host_segments, html_page, terminal_bar
from cohost.forecast.plan.memory import plan_catalog, required_memory
from cohost.forecast.plan.model_files import Folder, HubFiles
from cohost.forecast.plan.profiles import inspect as inspect_files
from cohost.forecast.plan.profiles import load_profiles, profiles_path, write_profiles
from cohost.forecast.pricing.price_list import load_prices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cohost.catalog.models import ModelEntry
    from cohost.catalog_file import LoadedCatalog
    from cohost.engine_support import Backend, ModelVerdicts, Reason
    from cohost.forecast.fleet import Fleet
    from cohost.forecast.plan.memory import MemoryPlan, ModelPlan, RequiredMemory
    from cohost.forecast.plan.profiles import Profile
    from cohost.forecast.plan.workers import SharedEngines, WorkerMemory


def plan_as_data(loaded: LoadedCatalog, plan: MemoryPlan) -> dict[str, Any]:
    """Return a memory plan as data for JSON; keys that end in `_mib` are in MiB."""
    rooms = {room.name: room for room in room_of(plan)}
    needed = required_memory(loaded.catalog, loaded.profiles)
    return {
        "instance_type": plan.instance_type,
        "instances": dict(zip(("least", "most"), instance_bounds(loaded.catalog), strict=True)),
        "gpus": plan.instance.gpus,
        "gpu_name": plan.instance.gpu_name,
        "gpu_usable_mib": plan.gpu_usable_mib,
        "gpu_idle_mib": _mib(plan.gpu_idle_mib),
        "gpu_used_mib": _mib(plan.gpu_used_mib),
        "gpu_margin_mib": _mib(plan.gpu_margin_mib) if plan.instance.gpus else None,
        "gpu_uncertain_mib": _mib(plan.gpu_uncertain_mib) if plan.instance.gpus else None,
        "host_mib": plan.instance.memory_mib,
        "host_used_mib": _mib(plan.host_used_mib),
        "engine_processes": _engines(plan),
        "fits": plan.fits,
        "tight": plan.tight,
        "first_change": first_change(plan),
        "models": {
            model.name: _model(loaded, model, needed)
            | {"largest_workers": rooms[model.name].workers, "largest_batch": rooms[model.name].batch}
            for model in plan.models
        },
        "without_profile": list(plan.unknown),
    }


def fleet_as_data(fleet: Fleet) -> dict[str, Any]:
    """Return a fleet (the placements of all models on endpoints) as data for JSON.

    Each option of the fleet is an instance type, with the models on each endpoint of that type.
    """
    return {
        "models": fleet.models,
        "workers": fleet.workers,
        "options": [
            {
                "instance_type": option.instance_type,
                "endpoints": [list(placement.names) for placement in option.placements],
                "usd_per_hour": option.usd_per_hour,
                "usd_per_month": option.usd_per_month,
                "usd_per_million": option.usd_per_million,
            }
            for option in fleet.options
        ],
        "left_out": list(fleet.left_out),
    }


def _parts(gpu: WorkerMemory | None) -> dict[str, float] | None:
    if gpu is None:
        return None
    values = asdict(gpu) | {"idle": gpu.idle, "peak": gpu.peak}
    return {f"{name}_mib": _mib(value) for name, value in values.items()}


def _engines(plan: MemoryPlan) -> dict[str, Any] | None:
    """Return data on one device's engine processes of models with `handler: shared`; None if there is no such model."""
    if plan.engines is None:
        return None
    return {
        "per_device": plan.engines.count,
        "models": [model.name for model in plan.models if model.demand.shared],
        "gpu_process": _parts(plan.engines.gpu),
        "host_process_mib": _mib(plan.engines.host_mib),
        "free_for_a_load": {"gpu_mib": _mib(plan.engines.gpu_check_mib), "host_mib": _mib(plan.host_check_mib)},
    }


def _model(loaded: LoadedCatalog, model: ModelPlan, needed: Mapping[str, RequiredMemory]) -> dict[str, Any]:
    demand = model.demand
    return {
        "handler": demand.handler,
        "workers": demand.workers,
        "batch": demand.batch,
        "tokens": demand.tokens,
        "dtype": demand.dtype or demand.profile.checkpoint_dtype,
        "gpu_worker": _parts(model.gpu),
        "host_worker_mib": _mib(model.host_mib),
        **{
            key: {"catalog": stated, "planned": planned}
            for key, (stated, planned) in _memory_keys(loaded, model, needed).items()
        },
    }


def _memory_keys(
    loaded: LoadedCatalog, model: ModelPlan, needed: Mapping[str, RequiredMemory]
) -> dict[str, tuple[int | None, int]]:
    """Return each memory key's value in the catalog (None if the catalog states none) and its value in the plan."""
    entry = loaded.catalog.models[model.name]
    planned = needed[model.name]
    keys = {
        "required_memory_mb": (entry.required_memory_mb, planned.required_memory_mb),
        "gpu.required_memory_mb": (entry.gpu.required_memory_mb, planned.gpu_required_memory_mb),
        "reserved_memory_mb": (entry.reserved_memory_mb, planned.reserved_memory_mb),
    }
    if planned.gpu_reserved_memory_mb is not None:
        keys["gpu.reserved_memory_mb"] = (entry.gpu.reserved_memory_mb, planned.gpu_reserved_memory_mb)
    if model.name in loaded.derived_memory:
        return {key: (None, derived) for key, (_, derived) in keys.items()}
    return keys


def _mib(value: float) -> float:
    return round(value, 1)


RegionOption = Annotated[str, typer.Option("--region", envvar="AWS_REGION", help="The region whose prices are used.")]

InstanceTypeOption = Annotated[
    str | None, typer.Option("--instance-type", help="Plan for this instance type instead of the catalog's.")
]


def plan(
    catalog: CatalogOption = DEFAULT_CATALOG,
    instance_type: InstanceTypeOption = None,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, max=1024, help="The number of texts in the largest forward pass.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option("--tokens", min=1, max=1_000_000, help="The number of tokens in the longest text.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write a chart of the memory to this HTML file.")
    ] = None,
    fleet: Annotated[
        bool,
        typer.Option("--fleet", help="Place all models on as few endpoints as possible, and compare instance types."),
    ] = False,
    loads: Annotated[
        Path | None,
        typer.Option("--loads", help="For --fleet: a YAML file, model → items_per_second, capacity, replicas."),
    ] = None,
    region: RegionOption = DEFAULT_REGION,
    as_json: JsonOption = False,
) -> None:
    """Show the GPU and host memory that the models need and, if they do not fit, changes that make them fit.

    Ends with exit code 1 if the models do not fit into memory at the same time.

    Example: cohost plan --batch 8 --html plan.html
    """
    loaded = load_with_warnings(catalog)
    if fleet:
        stated = {} if loads is None else read_loads(loads)
        placed = plan_fleet(loaded.catalog, loaded.profiles, prices=load_prices(), region=region, loads=stated)
        _print_fleet(placed, as_json=as_json)
        return
    planned = plan_catalog(loaded.catalog, loaded.profiles, instance_type=instance_type, batch=batch, tokens=tokens)
    if html is not None:
        console.write_page(html, html_page(planned, title=f"Memory plan of {catalog.name}"))
    if as_json:
        console.print_json(plan_as_data(loaded, planned))
    else:
        _print_plan(loaded, planned)
    if not planned.fits:
        raise typer.Exit(console.EXIT_FAULT)


def inspect(
    name: Annotated[str, typer.Argument(help="A model of the catalog.")],
    catalog: CatalogOption = DEFAULT_CATALOG,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Read the model's files from this folder instead of the Hub.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Save the result in the catalog's profiles file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Read a model's dimensions and weight sizes from config.json and its safetensors headers, without its weights.

    Without --folder, config.json and the headers are read from the Hub.

    Example: cohost models inspect mdeberta --write
    """
    loaded = load_with_warnings(catalog)
    entry = entry_of(loaded, name)
    if folder is None and entry.model_id.startswith("s3://"):
        field, fix = f"models.{name}.model_id", "copy its files here and name them with --folder"
        raise CatalogError("model-not-on-hub", field, f"got {entry.model_id!r}", allowed="a Hub id", fix=fix)
    files = HubFiles(entry.model_id, entry.revision) if folder is None else Folder(folder)
    source = f"read from {'its files' if folder else files.where}"
    found = inspect_files(files, source=source, revision=entry.revision)
    if write:
        path = profiles_path(catalog)
        write_profiles(path, {**load_profiles(path), entry.model_id: found})
        console.err.print(Text(f"written: {path}"), soft_wrap=True)
    if as_json:
        console.print_json(found.model_dump(exclude_none=True))
    else:
        _print_profile(name, found)


def _print_plan(loaded: LoadedCatalog, planned: MemoryPlan) -> None:
    rooms = {room.name: room for room in room_of(planned)}
    needed = required_memory(loaded.catalog, loaded.profiles)
    columns = ("model", "workers", "dtype", "weights", "idle", "peak", "host", "needs (plan)")
    rows: list[tuple[object, ...]] = [
        (
            *(model.name, model.demand.workers, model.demand.dtype or model.demand.profile.checkpoint_dtype),
            f"{model.demand.weight_mib:,.0f}",
            None if model.gpu is None else f"{model.gpu.idle:,.0f}",
            None if model.gpu is None else f"{model.gpu.peak:,.0f}",
            *(f"{model.host_mib:,.0f}", _needs(loaded, model, needed)),
        )
        for model in planned.models
    ]
    rows += [_engines_row(planned.engines)] if planned.engines is not None else []
    title = f"One worker on {planned.instance_type}, MiB; peak: {_largest_passes(planned)}"
    console.print_table(title, columns, rows)
    if planned.instance.gpus:
        title = f"{planned.instance.gpus} x {planned.instance.gpu_name}, each"
        console.out.print(terminal_bar(title, gpu_segments(planned), planned.gpu_usable_mib))
        console.out.print(
            f"Margin of each GPU at all peaks: {planned.gpu_margin_mib:,.0f} MiB, "
            f"of which {planned.gpu_uncertain_mib:,.0f} are uncertain (docs/memory.md)."
        )
    console.out.print(terminal_bar("host memory", host_segments(planned), planned.instance.memory_mib))
    least, most = instance_bounds(loaded.catalog)
    if most > 1:
        count = most if least == most else f"{least} to {most}"
        console.out.print(
            f"Each of the {count} instances holds all models: more instances serve more calls, not more models."
        )
    room_rows = [(name, room.workers, room.batch) for name, room in rooms.items()]
    console.print_table("Largest values that fit, all others unchanged", ("model", "workers", "batch"), room_rows)
    for model in planned.models if planned.instance.gpus else ():
        entry = loaded.catalog.models[model.name]
        # A library for DeBERTa's attention is the only package that changes how an engine process runs the model.
        deberta = model.demand.profile.shape.attention == "disentangled"
        if entry.handler in ENGINE_HANDLERS and deberta and not entry.packages:
            console.print_warning(
                f"models.{model.name}: without a library for DeBERTa's attention a pass launches about 800 kernels, "
                "four times as many as BERT's; fix: packages: ['disentangled-flash==1.1.1'], which the load tries"
                + (", for all models with handler: shared" if model.demand.shared else "")
            )
    for name in planned.unknown:
        console.print_warning(f"models.{name}: no profile, not counted; fix: cohost models inspect {name} --write")
    if change := first_change(planned):
        console.print_warning(f"it does not fit at the same time; first change: {change}")


def _engines_row(engines: SharedEngines) -> tuple[object, ...]:
    """Return the row for the engine processes of models with `handler: shared` in the table of workers."""
    gpu = engines.gpu
    idle, peak = (None, None) if gpu is None else (f"{gpu.idle:,.0f}", f"{gpu.peak:,.0f}")
    return "engine process", engines.count, None, None, idle, peak, f"{engines.host_mib:,.0f}", None


def _needs(loaded: LoadedCatalog, model: ModelPlan, needed: Mapping[str, RequiredMemory]) -> str:
    """Format a model's `required_memory_mb`: the catalog's value, and in parentheses the plan's value."""
    stated, planned = _memory_keys(loaded, model, needed)["required_memory_mb"]
    if model.name in loaded.derived_memory:
        return f"{planned} derived"
    return f"{'none' if stated is None else stated} ({planned})"


def _largest_passes(planned: MemoryPlan) -> str:
    passes = {f"{model.demand.batch} x {model.demand.tokens} tokens" for model in planned.models}
    return ", ".join(sorted(passes))


def _print_profile(name: str, found: Profile) -> None:
    shape = found.shape
    facts = (
        ("source", found.source),
        ("architecture", f"{shape.model_type}, {shape.layers} layers, hidden {shape.hidden}, {shape.heads} heads"),
        ("parameters", f"{sum(found.elements.values()):,}"),
        ("weights", f"{found.weight_bytes() / 1024 / 1024:,.1f} MiB in {found.checkpoint_dtype}"),
        ("longest input", f"{shape.longest_input} tokens"),
    )
    console.print_table(name, ("", ""), facts)


def _print_fleet(fleet: Fleet, *, as_json: bool) -> None:
    if as_json:
        console.print_json(fleet_as_data(fleet))
        return
    columns = ("instance type", "endpoints", "USD/hour", "USD/month", "USD per 1M", "fullest", "models each")
    rows = [
        (
            *(option.instance_type, len(option.placements)),
            *(_usd(option.usd_per_hour, 3), _usd(option.usd_per_month, 0)),
            *(_usd(option.usd_per_million, 2), f"{option.fullest_share:.0%}"),
            f"{option.fewest_models} to {option.most_models}",
        )
        for option in fleet.options
    ]
    console.print_table(f"{fleet.workers} workers of {fleet.models} models", columns, rows)
    for reason in fleet.left_out:
        console.print_warning(reason)


def _usd(amount: float | None, digits: int) -> str:
    return "unknown" if amount is None else f"{amount:,.{digits}f}"


models_app = typer.Typer()
models_app.command()(inspect)


@models_app.callback(invoke_without_command=True)
def models(context: typer.Context, catalog: CatalogOption = DEFAULT_CATALOG, as_json: JsonOption = False) -> None:
    """List the models of the catalog.

    Example: cohost models --catalog model_configs/offline.yaml
    """
    if context.invoked_subcommand is not None:
        return
    loaded = load_with_warnings(catalog).catalog
    if as_json:
        console.print_json(
            {name: entry.model_dump(mode="json", by_alias=True) for name, entry in loaded.models.items()}
        )
        return
    columns = ("model", "model id", "revision", "task", "MiB")
    console.print_table(f"{len(loaded.models)} models of {catalog}", columns, map(_row, loaded.models.items()))


def _row(item: tuple[str, ModelEntry]) -> tuple[object, ...]:
    name, entry = item
    return name, entry.model_id, entry.revision[:8] if entry.revision else None, entry.task, entry.required_memory_mb


def engines(
    names: Annotated[list[str] | None, typer.Argument(help="Names of models in the catalog (default: all).")] = None,
    hub: Annotated[
        list[Path] | None,
        typer.Option("--hub", help="A folder of models, each in org/name, whose config.json is read."),
    ] = None,
    catalog: CatalogOption = DEFAULT_CATALOG,
    as_json: JsonOption = False,
) -> None:
    """Show which backends can serve each model, and the reasons against the others, with the source of each fact.

    Example: cohost engines mdeberta
    """
    loaded = load_with_warnings(catalog)
    chosen = [name for name in names or loaded.catalog.models if entry_of(loaded, name)]
    found = judge(loaded.catalog, loaded.profiles, chosen, hub or [])
    if as_json:
        console.print_json(
            {"image": loaded.catalog.endpoint.image, "dated": FACTS_DATED, "models": [m.as_data() for m in found]}
        )
        return
    rows = [(m.model.name, m.model.architecture, *(verdict.word for verdict in m.backends.values())) for m in found]
    console.print_table(f"Backends, as of {FACTS_DATED}", ("model", "architecture", *BACKENDS), rows)
    for backend in BACKENDS:
        _explain(backend, found)


def _explain(backend: Backend, found: Sequence[ModelVerdicts]) -> None:
    """Print each reason and remark about a backend once, with the names of the models to which it applies."""
    reasons: dict[Reason, list[str]] = {}
    for judged in found:
        verdict = judged.backends[backend]
        for reason in (*verdict.against, *verdict.place, *verdict.notes):
            reasons.setdefault(reason, []).append(judged.model.name)
    if reasons:
        console.out.print(Text(backend, style="bold"))
        for line in _lines(reasons.items(), len(found)):
            console.out.print(Text(line), soft_wrap=True)


def _lines(reasons: Iterable[tuple[Reason, list[str]]], models: int) -> Iterable[str]:
    for reason, names in reasons:
        which = "" if len(names) == models else f"{', '.join(names)}: "
        yield f"  {which}{reason.text} [{reason.source}]"
