"""What the catalog says to the batching handler; the handler's own words are in `docs/handlers.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from cohost.catalog.sections.settings import Settings
from cohost.handler.cohost_options import PASS_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cohost.catalog.models import ModelEntry
    from cohost.catalog.yaml_source import Location

Auto = Literal["auto"]


class BatchedSettings(Settings):
    """Settings of `handler: batched`. What is left out is the handler's default.

    Lengths and sizes are in tokens with padding; a sequence is a text, a pair, or a text with one label's hypothesis.
    """

    max_length: Annotated[int, Field(ge=8, le=1_000_000)] | Auto | None = Field(
        default=None, description="8 to 1000000 tokens, or auto: what the model can take"
    )
    truncation: bool | None = Field(default=None, description="true (cut longer texts) or false (refuse them with 400)")
    pooling: Literal["none", "mean", "cls"] | None = Field(default=None, description="none, mean or cls")
    normalize: bool | None = Field(default=None, description="true or false")
    max_batch_tokens: Annotated[int, Field(ge=64, le=10_000_000)] | Auto | None = Field(
        default=None, description="64 to 10000000 tokens in one forward pass, or auto"
    )
    max_batch_sequences: int | None = Field(default=None, ge=1, le=4096, description="1 to 4096 sequences in a pass")
    pass_cost_tokens: Annotated[int, Field(ge=0, le=1_000_000)] | Auto | None = Field(
        default=None, description="0 to 1000000 tokens of padding that another pass costs as much as, or auto"
    )
    attention: Literal["auto", "sdpa", "eager", "disentangled-flash", "flashdeberta"] | None = Field(
        default=None, description="auto, sdpa, eager, or for DeBERTa disentangled-flash or flashdeberta"
    )
    packing: bool | None = Field(default=None, description="true or false: run without padding where the model can")
    compile: bool | None = Field(
        default=None, description="true or false: let torch.compile make a program for each of a few lengths"
    )
    dtype_fallback: bool | None = Field(default=None, description="true (serve fp32 instead) or false (refuse to load)")
    threads: Annotated[int, Field(ge=1, le=256)] | Auto | None = Field(
        default=None, description="1 to 256 threads of a worker on the CPU, or auto"
    )
    max_texts_per_request: int | None = Field(default=None, ge=1, le=1_000_000, description="1 to 1000000 texts")
    max_sequences_per_request: int | None = Field(
        default=None, ge=1, le=1_000_000, description="1 to 1000000 sequences (labels x texts)"
    )
    max_characters_per_text: int | None = Field(
        default=None, ge=1, le=10_000_000, description="1 to 10000000 characters"
    )
    max_queued_sequences: int | None = Field(
        default=None, ge=1, le=10_000_000, description="1 to 10000000 sequences that wait before others get 503"
    )
    max_queue_time_ms: int | None = Field(
        default=None, ge=1, le=3_600_000, description="1 to 3600000 milliseconds in the queue before 503"
    )
    pass_timeout_s: int | None = Field(
        default=None,
        ge=PASS_TIMEOUT_S[0],
        le=PASS_TIMEOUT_S[1],
        description="1 to 3600 seconds that a forward pass may take before the process ends",
    )
    warm_up: bool | None = Field(default=None, description="true (READY means fast) or false (load sooner)")
    log_interval_s: int | None = Field(default=None, ge=1, le=86_400, description="1 to 86400 seconds")

    @model_validator(mode="after")
    def _settings_go_together(self) -> BatchedSettings:
        """What the handler would refuse when it loads the model."""
        if self.attention == "disentangled-flash" and (self.packing is False or self.compile):
            raise ValueError(
                "attention 'disentangled-flash' with packing false or compile true is not allowed; allowed: attention "
                "disentangled-flash with packing true and compile false, since it runs sequences packed; "
                "fix: leave packing and compile out"
            )
        queue = 16_384 if self.max_queued_sequences is None else self.max_queued_sequences
        request = 4096 if self.max_sequences_per_request is None else self.max_sequences_per_request
        if queue < request:
            raise ValueError(
                f"max_queued_sequences {queue} is under max_sequences_per_request {request}, so the largest request "
                "could never be taken; allowed: a queue that takes it; fix: raise max_queued_sequences or lower "
                "max_sequences_per_request"
            )
        return self


def worker_faults(models: Mapping[str, ModelEntry]) -> Iterator[tuple[Location, str]]:
    """Yield the settings by which the server would end workers of a batched model, with the path of each.

    DJL Serving 0.36.0 starts the process of an asynchronous worker again when it ends one above the minimum: the
    process stays with its weights and serves nobody, or the model fails (recorded: `djl_lifecycle`, 28).
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
