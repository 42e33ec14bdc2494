"""The pydantic classes of a catalog: the endpoint, the models on it and all sections, as frozen objects.

The catalog's keys have the names that AWS (`initial_instance_count`, `inference_ami_version`) and DJL Serving
(`required_memory_mb`, `gpu.minWorkers`) use. Each field's description is the "allowed" part of its error messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from cohost.archives.handlers import ENGINE_HANDLERS, SHARED
from cohost.catalog.packages import PACKAGES, Packages
from cohost.catalog.sections import rules
from cohost.catalog.sections.designs import Designs
from cohost.catalog.sections.lifecycle import ALLOWED_EXPIRES, Expires, Guardrails
from cohost.catalog.sections.monitoring import DEFAULT_MONITORING, Budget, DataCapture, Monitoring
from cohost.catalog.sections.rules import IMAGE, INSTANCE_TYPE, KMS_KEY, KmsKey, Settings
from cohost.catalog.sections.scaling import MULTI_MODEL, Scaling, with_topology_defaults
from cohost.catalog.sections.storage import ModelSource, Storage, WeightsSettings
from cohost.errors import refuse
from cohost.handler.cohost_options import LIMITS, LIMITS_OR_AUTO

Task = Literal["text-classification", "zero-shot-classification", "feature-extraction"]
Seconds = Annotated[int, Field(ge=60, le=3600, description="60 to 3600 seconds")]
Megabytes = Annotated[int, Field(ge=1, le=4_000_000, description="a number of mebibytes of 1 or more")]
Workers = Annotated[int, Field(ge=1, le=64, description="1 to 64 workers")]

Auto = Literal["auto"]

_ID = "([0-9a-f]{8}|[0-9a-f]{17})$"

Subnet = Annotated[str, Field(pattern=f"^subnet-{_ID}")]
SecurityGroup = Annotated[str, Field(pattern=f"^sg-{_ID}")]
RouteTable = Annotated[str, Field(pattern=f"^rtb-{_ID}")]


class Endpoint(Settings):
    """The catalog's section `endpoint`: the SageMaker endpoint, its instances and its server image.

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
        description="1 to 1000 copies at creation; 0 copies are possible only later, with scaling.min: 0",
    )
    image: str = Field(
        pattern=IMAGE,
        description="repository:tag of an AWS deep learning container, such as djl-inference:0.36.0-lmi26.0.0-cu130",
    )
    image_uri: str | None = Field(
        default=None,
        pattern=r"^[^\s/]+/[^\s]+$",
        max_length=255,
        description="a whole image URI of at most 255 characters",
    )
    inference_ami_version: str = Field(
        default="default",
        pattern=r"^[a-z0-9.-]+$",
        description="default (fits the image's CUDA version), none (SageMaker chooses), or the name of an AMI",
    )
    model_data_download_timeout_in_seconds: Seconds = 1200
    container_startup_health_check_timeout_in_seconds: Seconds = 600
    model_cache_setting: Literal["Enabled", "Disabled"] = Field(default="Enabled", description="Enabled or Disabled")
    engines_per_device: int = Field(
        default=LIMITS["engines_per_device"][2],
        ge=LIMITS["engines_per_device"][0],
        le=LIMITS["engines_per_device"][1],
        description="1 to 4 engine processes for the models with handler: shared on each GPU, or on a CPU instance",
    )
    environment: Annotated[
        dict[str, str], rules.each(rules.check_variable), AfterValidator(rules.check_environment_size)
    ] = Field(
        default_factory=dict, description="a text of at most 1024 bytes for each environment variable; no secrets"
    )
    kms_key: KmsKey | None = Field(default=None, description=KMS_KEY)


class Network(Settings):
    """The catalog's section `network`: the VPC of the containers, and their network isolation.

    All ids must be stated, because `cdk synth` makes no AWS calls. The catalog also has to state two facts that an id
    does not show: if the subnets have a route to the internet, and how the containers reach S3. The limits are
    SageMaker's (API reference: VpcConfig).
    """

    vpc: str | None = Field(default=None, pattern=f"^vpc-{_ID}", description="vpc- and 8 or 17 hexadecimal digits")
    subnets: list[Subnet] = Field(
        default_factory=list, max_length=16, description="1 to 16 ids: subnet- and 8 or 17 hexadecimal digits"
    )
    security_groups: list[SecurityGroup] = Field(
        default_factory=list, max_length=5, description="1 to 5 ids: sg- and 8 or 17 hexadecimal digits"
    )
    isolation: bool = Field(default=False, description="true (the container has no network access) or false")
    internet: bool = Field(default=False, description="true (the subnets' default route is a NAT gateway) or false")
    s3_endpoint: Literal["given"] | None = Field(
        default=None, description="given (the VPC has an S3 gateway endpoint on the subnets' route tables)"
    )
    route_tables: list[RouteTable] = Field(
        default_factory=list, max_length=50, description="ids: rtb- and 8 or 17 hexadecimal digits"
    )

    @property
    def in_vpc(self) -> bool:
        """Return True if the containers run in the user's VPC."""
        return self.vpc is not None

    @model_validator(mode="after")
    def _vpc_is_whole(self) -> Network:
        parts = {"vpc": self.vpc, "subnets": self.subnets, "security_groups": self.security_groups}
        missing = [name for name, value in parts.items() if not value]
        if len(missing) not in {0, len(parts)}:
            refuse(
                "field-missing",
                f"has no {' and no '.join(missing)}",
                allowed="vpc, subnets and security_groups together, or none of them",
                fix="name all three",
            )
        if missing and not self.isolation:
            refuse("value-empty", "is empty", allowed="a vpc, isolation, or both", fix="name them, or leave it out")
        ways = [name for name in ("internet", "s3_endpoint", "route_tables") if getattr(self, name)]
        if ways and missing:
            fix = "name the vpc, or take it out"
            refuse("settings-conflict", f"has {ways[0]} without a vpc", allowed="with a vpc only", fix=fix)
        if self.s3_endpoint is not None and self.route_tables:
            refuse(
                "settings-conflict",
                "has s3_endpoint: given beside route_tables",
                allowed="one of them",
                fix="take route_tables out if the VPC has the endpoint, else s3_endpoint",
            )
        return self


class DeviceSettings(Settings):
    """The workers of a model on one kind of device: the keys under `gpu.` or `cpu.` of serving.properties.

    The minimum and the maximum of workers are always written to serving.properties, because DJL Serving's documentation
    and code disagree on their defaults.
    """

    min_workers: Workers = Field(default=1, alias="minWorkers", description="1 to 64 workers")
    max_workers: Workers = Field(default=1, alias="maxWorkers", description="1 to 64 workers")

    @model_validator(mode="after")
    def _bounds_in_order(self) -> DeviceSettings:
        if self.min_workers > self.max_workers:
            refuse(
                "bounds-crossed",
                f"has minWorkers {self.min_workers} over maxWorkers {self.max_workers}",
                allowed="minWorkers up to maxWorkers",
                fix="raise maxWorkers or lower minWorkers",
            )
        return self


class GpuSettings(DeviceSettings):
    """The workers of a model on GPUs, and its GPU memory in MiB if that differs from its host memory."""

    required_memory_mb: Megabytes | None = Field(default=None, description="a number of mebibytes of 1 or more")
    reserved_memory_mb: Megabytes | None = Field(default=None, description="a number of mebibytes of 1 or more")


# The limits of the fields that are not the same in all engine settings, or not in the section of a model's handler.
_RANGES = {name: limit[:2] for name, limit in {**LIMITS, **LIMITS_OR_AUTO}.items()}
_OTHER_FIELDS = {
    *("cpu.maxWorkers", "gpu.maxWorkers", "gpu.required_memory_mb", "gpu.reserved_memory_mb", "reserved_memory_mb"),
    *("threads", "share", "engines_per_device"),
}


def _number(name: str, unit: str) -> Any:  # pydantic types a field as Any
    """Return a pydantic field for a number, whose description states the limits of the batching handler."""
    least, most = _RANGES[name]
    return Field(default=None, description=f"{least} to {most} {unit}")


def _within_the_handlers_limits(value: int | Auto | None, info: ValidationInfo) -> int | Auto | None:
    least, most = _RANGES[str(info.field_name)]
    if isinstance(value, int) and not least <= value <= most:
        allowed = f"{least} to {most}" + (" or auto" if info.field_name in LIMITS_OR_AUTO else "")
        refuse("value-not-allowed", f"got {value}", allowed=allowed, fix="change the value to an allowed one")
    return value


class EngineSettings(Settings):
    """The settings of a model with `handler: batched` or `shared`; a key that is left out has the handler's default.

    Lengths and sizes are in tokens including padding. A sequence is one input of the model: a text, a pair of texts, or
    a text with the hypothesis of one label.
    """

    max_length: int | Auto | None = _number("max_length", "tokens, or auto (the model's limit)")
    truncation: bool | None = Field(default=None, description="true (longer texts are cut) or false (they get 400)")
    pooling: Literal["none", "mean", "cls"] | None = Field(default=None, description="none, mean or cls")
    normalize: bool | None = Field(default=None, description="true or false")
    max_batch_tokens: int | Auto | None = _number("max_batch_tokens", "tokens in one forward pass, or auto")
    max_batch_sequences: int | None = _number("max_batch_sequences", "sequences in one forward pass")
    pass_cost_tokens: int | Auto | None = _number("pass_cost_tokens", "tokens, or auto (measured when the model loads)")
    attention: Literal["auto", "sdpa", "eager", "disentangled-flash", "flashdeberta"] | None = Field(
        default=None, description="auto, sdpa, eager, or for DeBERTa disentangled-flash or flashdeberta"
    )
    packing: bool | None = Field(default=None, description="true (no padding, if the model supports it) or false")
    compile: bool | None = Field(
        default=None, description="true (torch.compile compiles the model for a few lengths) or false"
    )
    dtype_fallback: bool | None = Field(
        default=None, description="true (serves fp32 instead) or false (the load fails)"
    )
    max_texts_per_request: int | None = _number("max_texts_per_request", "texts")
    max_sequences_per_request: int | None = _number("max_sequences_per_request", "sequences (texts times labels)")
    max_characters_per_text: int | None = _number("max_characters_per_text", "characters")
    max_queued_sequences: int | None = _number("max_queued_sequences", "waiting sequences; further requests get 503")
    max_queue_time_ms: int | None = _number("max_queue_time_ms", "milliseconds of waiting, then 503")
    pass_timeout_s: int | None = _number(
        "pass_timeout_s", "seconds that a forward pass may take before the process ends"
    )
    warm_up: bool | None = Field(default=None, description="true (first calls are fast) or false (loads sooner)")
    log_interval_s: int | None = _number("log_interval_s", "seconds")

    _limits = field_validator(*_RANGES.keys() - _OTHER_FIELDS)(_within_the_handlers_limits)

    @model_validator(mode="after")
    def _settings_go_together(self) -> EngineSettings:
        """Reject combinations of settings that the handler would reject when it loads the model."""
        if self.attention == "disentangled-flash" and (self.packing is False or self.compile):
            refuse(
                "settings-conflict",
                "has attention disentangled-flash with packing false or compile true",
                allowed="with packing true and compile false, since it runs sequences packed",
                fix="leave packing and compile out",
            )
        queue, request = (
            LIMITS[name][2] if (stated := getattr(self, name)) is None else stated
            for name in ("max_queued_sequences", "max_sequences_per_request")
        )
        if queue < request:
            refuse(
                "bounds-crossed",
                f"has max_queued_sequences {queue} under max_sequences_per_request {request}, so the largest request "
                "could never be taken",
                allowed="a queue that takes it",
                fix="raise max_queued_sequences or lower max_sequences_per_request",
            )
        return self


class BatchedSettings(EngineSettings):
    """The settings of a model with `handler: batched`: those of every engine process, and the number of CPU threads."""

    threads: int | Auto | None = _number("threads", "threads of a worker on the CPU, or auto")

    _limit_of_threads = field_validator("threads")(_within_the_handlers_limits)


class SharedSettings(EngineSettings):
    """The settings of a model with `handler: shared`: those of every engine process, and its share of device time.

    The number of CPU threads is a setting of the whole process, so no single model can state it.
    """

    share: int | None = _number("share", "parts of the device's time, against the other shared models' parts")

    _limit_of_share = field_validator("share")(_within_the_handlers_limits)

    @model_validator(mode="before")
    @classmethod
    def _threads_are_the_engines(cls, data: Any) -> Any:  # the file's content, not yet checked
        if isinstance(data, Mapping) and "threads" in data:
            refuse(
                "settings-conflict",
                "has threads, which apply to the whole engine process",
                allowed="threads under `batched` only, whose engine process has one model",
                fix="take threads out, or write handler: batched",
            )
        return data


class ModelEntry(ModelSource):
    """One model's entry in a catalog: the source of its weights, its task, and its settings for DJL Serving."""

    task: Task = Field(description="text-classification, zero-shot-classification or feature-extraction")
    handler: Literal["stock", "batched", "shared"] = Field(default="stock", description="stock, batched or shared")
    batched: BatchedSettings | None = Field(default=None, description="settings of handler: batched")
    shared: SharedSettings | None = Field(default=None, description="settings of handler: shared")
    required_memory_mb: Megabytes | None = Field(default=None, description="a number of mebibytes of 1 or more")
    reserved_memory_mb: Megabytes | None = Field(default=None, description="a number of mebibytes of 1 or more")
    gpu: GpuSettings = Field(
        default_factory=GpuSettings, description="minWorkers, maxWorkers, required_memory_mb, reserved_memory_mb"
    )
    cpu: DeviceSettings | None = Field(default=None, description="minWorkers, maxWorkers")
    batch_size: int | None = Field(default=None, ge=1, le=1024, description="1 to 1024 requests")
    max_batch_delay: int | None = Field(default=None, ge=0, le=60_000, description="0 to 60000 milliseconds")
    max_idle_time: int | None = Field(default=None, ge=1, le=86_400, description="1 to 86400 seconds")
    job_queue_size: int | None = Field(default=None, ge=1, le=1_000_000, description="1 to 1000000 requests")
    dtype: Literal["fp32", "fp16", "bf16", "tf32", "auto"] | None = Field(
        default=None, description="fp32, fp16, bf16, or auto with handler batched or shared, or tf32 with batched"
    )
    trust_remote_code: bool | None = Field(default=None, description="true or false")
    packages: Packages = Field(default_factory=list, description=PACKAGES)
    tensor_parallel_degree: int = Field(default=1, ge=1, le=16, description="1 to 16 GPUs for one worker")
    properties: Annotated[dict[str, str], rules.each(rules.check_property)] = Field(
        default_factory=dict, description="a text for each DJL Serving key that has no catalog key of its own"
    )

    @property
    def engine_settings(self) -> EngineSettings | None:
        """Return the section for the model's handler; None if the entry lacks the section, or with `handler: stock`."""
        return self.shared if self.handler == SHARED else self.batched

    @model_validator(mode="after")
    def _handler_reads_its_settings(self) -> ModelEntry:
        rules.check_handler_settings(
            self.handler,
            sections=[name for name in ENGINE_HANDLERS if getattr(self, name) is not None],
            dtype=self.dtype,
            batching=[name for name in ("batch_size", "max_batch_delay") if getattr(self, name) is not None],
        )
        if self.handler == SHARED:
            rules.check_shared(self.dtype, self.tensor_parallel_degree, own_code=bool(self.trust_remote_code))
        return self


class Catalog(WeightsSettings):
    """The whole catalog: one endpoint, its models in the order of the file, and all other sections."""

    endpoint: Endpoint
    termination_protection: bool = Field(default=False, description="true or false")
    storage: Storage = Field(default_factory=Storage, description=", ".join(Storage.model_fields))
    network: Network | None = Field(default=None, description="vpc, subnets, security_groups, isolation and more")
    tags: Annotated[dict[str, str], rules.each(rules.check_tag), AfterValidator(rules.check_number_of_tags)] = Field(
        default_factory=dict, description="text values by tag key, at most 50, no key that starts with aws:"
    )
    acknowledge: Annotated[dict[str, str], rules.each(rules.check_acknowledged)] = Field(
        default_factory=dict, description="reasons by the id of a warning (docs/checks.md)"
    )
    budget: Budget | None = Field(default=None, description="monthly_usd, email")
    monitoring: Monitoring = Field(
        default=DEFAULT_MONITORING, description="email, dashboard, kms_key, model_metrics, alarms"
    )
    data_capture: DataCapture | None = Field(default=None, description=", ".join(DataCapture.model_fields))
    deployment: Guardrails | None = Field(default=None, description=", ".join(Guardrails.model_fields))
    expires: Expires | None = Field(default=None, description=ALLOWED_EXPIRES)
    scaling: Scaling | None = Field(
        default=None,
        description="min, max, metric, target, scale_in_cooldown, scale_out_cooldown, idle_minutes, schedule",
    )
    models: dict[str, ModelEntry] = Field(min_length=1, description="at least one model by name")
    designs: Designs | None = Field(default=None, description="cpu-onnx, inference-components")

    @model_validator(mode="before")
    @classmethod
    def _topology_decides(cls, data: Any) -> Any:  # the unchecked content of the file
        """Fill in the missing keys of `scaling` whose default depends on the topology."""
        return with_topology_defaults(data)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return one line for each key of a model's `properties` that this version neither knows nor checks."""
        return tuple(
            warning for name, entry in self.models.items() for warning in rules.warnings_of(name, entry.properties)
        )
