"""The catalog: a YAML file that names the endpoint and the models on it, read once into frozen objects.

Keys carry the names that AWS (`initial_instance_count`, `inference_ami_version`) and DJL Serving (`required_memory_mb`,
`gpu.minWorkers`) use. Each field's description is what an error message states as allowed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, Field, PrivateAttr, ValidationError, model_validator

from cohost.catalog.checks import scaling_faults
from cohost.catalog.faults import Fault, PlacedFaultsError, faults_of
from cohost.catalog.packages import PACKAGES, Packages, package_faults
from cohost.catalog.sections import rules
from cohost.catalog.sections.deployment import Guardrails, deployment_faults
from cohost.catalog.sections.designs import Designs, design_faults
from cohost.catalog.sections.expiry import ALLOWED_EXPIRES, Expires, expiry_faults
from cohost.catalog.sections.handlers import BatchedSettings, worker_faults
from cohost.catalog.sections.keys import KMS_KEY, KmsKey
from cohost.catalog.sections.monitoring import DEFAULT_MONITORING, DataCapture, Monitoring
from cohost.catalog.sections.network import Network
from cohost.catalog.sections.scaling import MULTI_MODEL, SCALE_TO_ZERO, Scaling, with_default_bounds
from cohost.catalog.sections.settings import EMAIL, EMAIL_CHARACTERS, IMAGE, INSTANCE_TYPE, Settings
from cohost.catalog.sections.storage import Storage
from cohost.catalog.sections.weights import ModelSource, WeightsSettings
from cohost.catalog.yaml_source import YamlSource, read_yaml
from cohost.errors import CatalogError
from cohost.plan.errors import PlanError
from cohost.plan.profiles import load_profiles, profiles_path
from cohost.plan.required import with_derived_memory

Task = Literal["text-classification", "zero-shot-classification", "feature-extraction"]
Seconds = Annotated[int, Field(ge=60, le=3600, description="60 to 3600 seconds")]
Megabytes = Annotated[int, Field(ge=1, le=4_000_000, description="a number of mebibytes of 1 or more")]
Workers = Annotated[int, Field(ge=1, le=64, description="1 to 64 workers")]


class Endpoint(Settings):
    """The SageMaker endpoint and the instances behind it.

    Limits of name, time-outs and environment are SageMaker's (API reference: CreateEndpoint, ProductionVariant,
    ContainerDefinition).
    """

    name: Annotated[str, AfterValidator(rules.check_endpoint_name)] = Field(description=rules.SAGEMAKER_NAME)
    instance_type: str = Field(pattern=INSTANCE_TYPE, description="a SageMaker instance type such as ml.g5.xlarge")
    initial_instance_count: int = Field(
        default=1, ge=1, le=100, description="1 to 100 instances; multi-model endpoints cannot start at 0"
    )
    topology: Literal["multi-model", "scale-to-zero"] = Field(
        default=MULTI_MODEL, description="multi-model or scale-to-zero"
    )
    copy_count: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="1 to 1000 copies at creation; no component is created at 0, but scaling.min: 0 lets it go there",
    )
    image: str = Field(
        pattern=IMAGE,
        description="repository:tag of an AWS deep learning container, such as djl-inference:0.36.0-lmi26.0.0-cu130",
    )
    image_uri: str | None = Field(
        default=None,
        pattern=r"^[^\s/]+/[^\s]+$",
        max_length=255,
        description="a whole image URI of at most 255 characters, used instead of the one that `image` and region give",
    )
    inference_ami_version: str = Field(
        default="default",
        pattern=r"^[a-z0-9.-]+$",
        description="default (chosen by the image's CUDA version), none (left out), or SageMaker's name of an AMI",
    )
    model_data_download_timeout_in_seconds: Seconds = 1200
    container_startup_health_check_timeout_in_seconds: Seconds = 600
    model_cache_setting: Literal["Enabled", "Disabled"] = Field(default="Enabled", description="Enabled or Disabled")
    environment: Annotated[dict[str, str], AfterValidator(rules.check_environment)] = Field(
        default_factory=dict, description="text values by environment variable, no secrets, each 1024 bytes at most"
    )
    kms_key: KmsKey | None = Field(default=None, description=KMS_KEY)


class DeviceSettings(Settings):
    """Workers on one kind of device: the keys under `gpu.` or `cpu.` of serving.properties.

    Both bounds are always written, because DJL Serving's documents and code disagree on the default.
    """

    min_workers: Workers = Field(default=1, alias="minWorkers", description="1 to 64 workers")
    max_workers: Workers = Field(default=1, alias="maxWorkers", description="1 to 64 workers")

    @model_validator(mode="after")
    def _bounds_in_order(self) -> DeviceSettings:
        if self.min_workers > self.max_workers:
            msg = (
                f"minWorkers {self.min_workers} is over maxWorkers {self.max_workers}; "
                "allowed: minWorkers up to maxWorkers; fix: raise maxWorkers or lower minWorkers"
            )
            raise ValueError(msg)
        return self


class GpuSettings(DeviceSettings):
    """Workers on GPUs, and GPU memory where it differs from what the model needs on the host."""

    required_memory_mb: Megabytes | None = Field(default=None, description="a number of mebibytes of 1 or more")


class ModelEntry(ModelSource):
    """One model: where its weights come from, what it does, and how DJL Serving runs it."""

    task: Task = Field(description="text-classification, zero-shot-classification or feature-extraction")
    handler: Literal["stock", "batched"] = Field(default="stock", description="stock or batched")
    batched: BatchedSettings | None = Field(default=None, description="settings of handler: batched")
    required_memory_mb: Megabytes | None = Field(default=None, description="a number of mebibytes of 1 or more")
    reserved_memory_mb: Megabytes | None = Field(default=None, description="a number of mebibytes of 1 or more")
    gpu: GpuSettings = Field(default_factory=GpuSettings, description="minWorkers, maxWorkers, required_memory_mb")
    cpu: DeviceSettings | None = Field(default=None, description="minWorkers, maxWorkers")
    batch_size: int | None = Field(default=None, ge=1, le=1024, description="1 to 1024 requests")
    max_batch_delay: int | None = Field(default=None, ge=0, le=60_000, description="0 to 60000 milliseconds")
    max_idle_time: int | None = Field(default=None, ge=1, le=86_400, description="1 to 86400 seconds")
    job_queue_size: int | None = Field(default=None, ge=1, le=1_000_000, description="1 to 1000000 requests")
    dtype: Literal["fp32", "fp16", "bf16", "auto"] | None = Field(
        default=None, description="fp32, fp16, bf16, or with handler batched auto"
    )
    trust_remote_code: bool | None = Field(default=None, description="true or false")
    packages: Packages = Field(default_factory=list, description=PACKAGES)
    tensor_parallel_degree: int = Field(default=1, ge=1, le=16, description="1 to 16 GPUs for one worker")
    properties: Annotated[dict[str, str], AfterValidator(rules.check_properties)] = Field(
        default_factory=dict, description="text values by DJL Serving key, for keys that the catalog has no field for"
    )

    @model_validator(mode="after")
    def _handler_reads_its_settings(self) -> ModelEntry:
        rules.check_handler_settings(
            self.handler,
            batched=self.batched is not None,
            dtype=self.dtype,
            batching=[name for name in ("batch_size", "max_batch_delay") if getattr(self, name) is not None],
        )
        return self


class Budget(Settings):
    """A limit of what the stack's tags may cost a month, and whom to tell when it is near (AWS Budgets).

    Nothing is stopped by it: a budget tells, a day late at worst.
    """

    monthly_usd: float = Field(gt=0, le=1_000_000, description="USD a month above 0")
    email: str = Field(pattern=EMAIL, max_length=EMAIL_CHARACTERS, description="an e-mail address")


class Catalog(WeightsSettings):
    """One endpoint and its models, in the order of the file."""

    endpoint: Endpoint
    termination_protection: bool = Field(default=False, description="true or false")
    storage: Storage = Field(default_factory=Storage, description=", ".join(Storage.model_fields))
    network: Network | None = Field(default=None, description="vpc, subnets, security_groups, isolation and more")
    tags: Annotated[dict[str, str], AfterValidator(rules.check_tags)] = Field(
        default_factory=dict, description="text values by tag key, at most 50, no key that starts with aws:"
    )
    acknowledge: Annotated[dict[str, str], AfterValidator(rules.check_acknowledged)] = Field(
        default_factory=dict, description="reasons by the id of a warning (docs/checks.md)"
    )
    budget: Budget | None = Field(default=None, description="monthly_usd, email")
    monitoring: Monitoring = Field(default=DEFAULT_MONITORING, description="email, dashboard, kms_key, alarms")
    data_capture: DataCapture | None = Field(default=None, description=", ".join(DataCapture.model_fields))
    deployment: Guardrails | None = Field(default=None, description=", ".join(Guardrails.model_fields))
    expires: Expires | None = Field(default=None, description=ALLOWED_EXPIRES)
    scaling: Scaling | None = Field(
        default=None,
        description="min, max, metric, target, scale_in_cooldown, scale_out_cooldown, idle_minutes, schedule",
    )
    models: dict[str, ModelEntry] = Field(min_length=1, description="at least one model by name")
    designs: Designs | None = Field(default=None, description="cpu-onnx, inference-components")
    _source: Path | None = PrivateAttr(default=None)
    _derived_memory: frozenset[str] = PrivateAttr(default=frozenset())

    @model_validator(mode="before")
    @classmethod
    def _zero_is_the_default(cls, data: Any) -> Any:  # noqa: ANN401 - what the file holds, not yet checked
        """With topology scale-to-zero the bounds that are left out are 0 and 1."""
        return with_default_bounds(data)

    @model_validator(mode="after")
    def _settings_go_together(self) -> Catalog:
        faults = [
            *scaling_faults(self),
            *design_faults(self.designs, self.models),
            *expiry_faults(self),
            *deployment_faults(self),
            *worker_faults(self.models),
            *package_faults(
                {name: entry.packages for name, entry in self.models.items()},
                bundled=self.endpoint.topology == SCALE_TO_ZERO,
            ),
        ]
        if faults:
            raise PlacedFaultsError(faults)
        return self

    @property
    def derived_memory(self) -> frozenset[str]:
        """The models whose memory keys come from their profiles, because the file states none."""
        return self._derived_memory

    @property
    def source(self) -> Path | None:
        """The file this catalog was read from; None for one made in memory."""
        return self._source

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each setting that is taken as it stands although nothing here knows what it does."""
        return tuple(
            warning for name, entry in self.models.items() for warning in rules.warnings_of(name, entry.properties)
        )


def load_catalog(path: Path) -> Catalog:
    """Read and check a catalog file.

    Raises:
        CatalogError: the file cannot be read, is no YAML, or has faults; all faults of the file come together, each as
            `file:line: field: what is wrong; allowed: …; fix: …`.
    """
    source = _read(path)
    faults = [Fault(line=line, location=location, text=text) for line, location, text in source.faults]
    if source.data is None:
        source.data = {}
    if isinstance(source.data, dict):
        faults += [
            Fault(line=source.line_of(("models", name)), location=("models", name), text=text)
            for name, text in rules.check_model_names(source.data.get("models"))
        ]
    catalog: Catalog | None = None
    try:
        catalog = Catalog.model_validate(source.data, context={"folder": path.parent})
    except ValidationError as error:
        faults += faults_of(error, Catalog, source)
    if faults or catalog is None:
        raise CatalogError([fault.render(path) for fault in sorted(faults, key=lambda fault: fault.line)])
    return _complete(catalog, path)


def _complete(catalog: Catalog, path: Path) -> Catalog:
    """The catalog with its source, and with memory keys for the models that state none and have a profile beside it."""
    try:
        completed = with_derived_memory(catalog, load_profiles(profiles_path(path)))
    except PlanError as error:
        raise CatalogError([str(error)]) from error
    changed = {name for name, entry in completed.models.items() if entry is not catalog.models[name]}
    # The one place that may say where a catalog came from.
    completed._source = path  # noqa: SLF001
    completed._derived_memory = frozenset(changed)  # noqa: SLF001
    return completed


def _read(path: Path) -> YamlSource:
    try:
        return read_yaml(path)
    except OSError as error:
        example = "model_configs/encoders.yaml"
        msg = f"{path}: cannot be read ({error.strerror}); fix: name a catalog that exists, such as {example}"
    except UnicodeDecodeError as error:
        msg = f"{path}: byte {error.start} is not UTF-8; fix: save the file as UTF-8"
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        msg = f"{path}:{line}: not readable as YAML: {what}; fix: check indentation, quotes and colons on that line"
    raise CatalogError([msg])
