"""Read and write profiles, the models' sizes for a memory plan, in a small file beside the catalog.

The profiles of `encoders.yaml` are in `encoders.profiles.yaml`. `cohost models inspect` writes the profiles file; `cdk
synth` only reads it. The profiles file is reviewed like code.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cohost.catalog.yaml_source import read_plain_yaml
from cohost.errors import PlanError
from cohost.forecast.plan.model_files import count_elements, read_config
from cohost.forecast.plan.shapes import ModelShape

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cohost.forecast.plan.model_files import ModelFiles


SUFFIX = ".profiles.yaml"

Dtype = Literal["fp32", "fp16", "bf16"]
ELEMENT_BYTES: Mapping[str, int] = {"fp32": 4, "fp16": 2, "bf16": 2}
_SAFETENSORS_NAMES: Mapping[str, str] = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}

# The keys of a config.json that determine memory; the others are left out of the file to keep reviews short.
CONFIG_KEYS = (
    *("model_type", "architectures", "num_labels"),
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("dim", "n_layers", "n_heads", "hidden_dim"),
    *("vocab_size", "max_position_embeddings", "type_vocab_size"),
    *("relative_attention", "position_buckets", "max_relative_positions", "position_biased_input"),
)

_HEAD = """\
# The sizes of the models of {catalog}, by model id, for `cohost plan` and the checks of every synth.
# `cohost models inspect NAME --write` adds or renews an entry; nothing here is read from a network at synth.
"""


class Profile(BaseModel):
    """The profile of one model: the keys of its config.json that determine memory, and its number of weights by dtype.

    `elements` counts floating-point weights by their dtype in the checkpoint. `source` is the folder or URL from which
    config.json and the headers of the safetensors files were read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    revision: str | None = Field(default=None, description="the commit that was read")
    source: str = Field(min_length=1, description="where shape and weights were read, and when")
    elements: dict[Dtype, Annotated[int, Field(ge=1)]] = Field(min_length=1, description="elements by fp32, fp16, bf16")
    config: dict[str, Any] = Field(min_length=1, description="keys of config.json")

    @cached_property
    def shape(self) -> ModelShape:
        """Return the model's dimensions.

        Raises:
            PlanError: a dimension is missing from the config or is not a whole number of 1 or more.
        """
        return ModelShape.from_config(self.config)

    @property
    def checkpoint_dtype(self) -> Dtype:
        """Return the dtype of most weights, which DJL's own handler uses unless the catalog states another dtype."""
        return max(self.elements, key=lambda dtype: self.elements[dtype])

    def weight_bytes(self, dtype: str | None = None) -> int:
        """Return the size of the weights in bytes, if converted to `dtype`; None stands for the checkpoint's dtypes."""
        if dtype is None:
            return sum(ELEMENT_BYTES[own] * count for own, count in self.elements.items())
        return ELEMENT_BYTES[dtype] * sum(self.elements.values())

    @property
    def checkpoint_bytes(self) -> int:
        """Return the size of the weights on disk, in bytes."""
        return self.weight_bytes()


def inspect(files: ModelFiles, *, source: str, revision: str | None = None) -> Profile:
    """Return a model's profile from config.json and the headers of its safetensors files.

    Raises:
        PlanError: a file is missing or damaged, or the model's architecture cannot be planned.
    """
    config = _with_label_count(read_config(files))
    ModelShape.from_config(config)
    counts = count_elements(files)
    if unknown := set(counts) - set(_SAFETENSORS_NAMES):
        raise PlanError(
            "dtype-unknown",
            files.where,
            f"has weights in {', '.join(sorted(unknown))}",
            allowed=", ".join(_SAFETENSORS_NAMES),
            fix="convert the model",
        )
    return Profile(
        revision=revision,
        source=source,
        elements={_SAFETENSORS_NAMES[name]: count for name, count in counts.items()},  # type: ignore[misc]
        config={key: config[key] for key in CONFIG_KEYS if key in config},
    )


def _with_label_count(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with the number of its label names as `num_labels`; only this number affects memory."""
    labels = config.get("id2label")
    return {**config, "num_labels": len(labels)} if labels else dict(config)


def profiles_path(catalog: Path) -> Path:
    """Return the path of a catalog's profiles file; for encoders.yaml, this is encoders.profiles.yaml."""
    return catalog.with_name(catalog.stem + SUFFIX)


def load_profiles(path: Path) -> dict[str, Profile]:
    """Return the profiles of a file by model id; empty if the file does not exist.

    Raises:
        PlanError: the file cannot be read or has faults.
    """
    if not path.is_file():
        return {}
    try:
        data = read_plain_yaml(path) or {}
        return {str(model_id): Profile.model_validate(entry) for model_id, entry in data.items()}
    except ValidationError as error:
        first = error.errors()[0]
        raise PlanError(
            "profiles-invalid",
            str(path),
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
            fix="run `cohost models inspect NAME --write`",
        ) from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError) as error:
        raise PlanError(
            "profiles-unreadable",
            str(path),
            f"cannot be read ({str(error).splitlines()[0]})",
            fix="restore it, or delete it and inspect the models again",
        ) from error


def write_profiles(path: Path, profiles: Mapping[str, Profile]) -> None:
    """Write a profiles file, with the models in the order of the mapping."""
    data = {model_id: profile.model_dump(exclude_none=True) for model_id, profile in profiles.items()}
    head = _HEAD.format(catalog=path.name.replace(SUFFIX, ".yaml"))
    path.write_text(head + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120), encoding="utf-8")
