"""The steps from token vectors to an embedding, as a model's authors state them in the files of sentence-transformers.

`modules.json` lists the modules of a model. Each module has a folder with its own `config.json`: `1_Pooling` names the
pooling, `2_Dense` a projection whose weights lie beside it. `sentence_bert_config.json` has the most tokens of a text,
`config_sentence_transformers.json` has the prompts. Names and defaults are those of sentence-transformers 6.2.0.

Only the standard library is used: catalog checks read the same files without torch, and come to the same verdict.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from .cohost_errors import fault, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

MODULES: Final = "modules.json"
LENGTHS: Final = "sentence_bert_config.json"
PROMPTS: Final = "config_sentence_transformers.json"


class Files(Protocol):
    """The files of a model, by their paths below its folder."""

    def has(self, path: str) -> bool:
        """Return True if the model has a file of this path."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if the model has no file of this path."""


POOLING_MODES: Final = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""The pooling modes. Vectors of several modes are joined in the order that the configuration states."""

_FLAGS: Final = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
ACTIVATIONS: Final = {
    "torch.nn.modules.linear.Identity": "identity",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.SiLU": "silu",
}
"""The activation functions of a Dense module by the name in its configuration."""

_DEFAULT_ACTIVATION: Final = "torch.nn.modules.activation.Tanh"
_WEIGHTS: Final = ("model.safetensors", "pytorch_model.bin")
_SIMILARITIES: Final = ("cosine", "dot", "euclidean", "manhattan")


@dataclass(frozen=True, kw_only=True, slots=True)
class Dense:
    """A linear projection with an activation function; `weights` is the path of its file in the model's folder.

    With `residual` the projection's input is added to its output, projected by a second matrix if the sizes differ.
    """

    inputs: int
    outputs: int
    bias: bool
    activation: str
    residual: bool
    weights: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerNorm:
    """A layer normalization of embeddings; `weights` is the path of its file in the model's folder."""

    size: int
    weights: str


@dataclass(frozen=True, slots=True)
class Normalize:
    """The division of an embedding by its length."""


Step = Dense | LayerNorm | Normalize


@dataclass(frozen=True, kw_only=True, slots=True)
class Modules:
    """The path from token vectors to an embedding.

    `pooling` has one or more of `POOLING_MODES`; if `include_prompt` is False, the prompt's tokens are not pooled.
    `steps` follow the pooling. `prompts` are texts that precede the caller's text, by name; `default_prompt` names the
    one for requests that choose none. `max_length` is the most tokens of a text; with `lower_case`, texts are lowered
    before tokenizing. `similarity` is the comparison that the authors trained for.
    """

    pooling: tuple[str, ...]
    include_prompt: bool = True
    steps: tuple[Step, ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    max_length: int | None = None
    lower_case: bool = False
    similarity: str | None = None

    @property
    def weights(self) -> list[str]:
        """Return the paths of the weight files of the steps, in the model's folder."""
        return [step.weights for step in self.steps if not isinstance(step, Normalize)]

    def size(self, hidden: int) -> int:
        """Return the number of elements of an embedding, for a model with `hidden` elements per token vector."""
        sizes = [step.outputs for step in self.steps if isinstance(step, Dense)]
        return sizes[-1] if sizes else hidden * len(self.pooling)


def read_modules(files: Files, hidden: int | None = None) -> Modules | None:
    """Return the modules that a model's files state; None if the model has no modules.json.

    Args:
        files: the model's files.
        hidden: the elements of a token vector; None leaves the sizes of the first step unchecked.

    Raises:
        ValueError: a file is missing or no JSON, a value is not allowed, the sizes of two steps differ, or a module is
            of a kind that this handler does not compute.
    """
    listed = _json(files, MODULES)
    if listed is None:
        return None
    entries = _entries(listed)
    if not entries or _kind(entries[0]) != "Transformer":
        problem = f"begins with {_kind(entries[0]) if entries else 'no module'}"
        raise _refused(MODULES, problem, allowed="a Transformer module first")
    folder = str(entries[0].get("path", ""))
    pooling, steps = _steps(files, entries[1:])
    if pooling is None:
        raise _refused(MODULES, "has no Pooling module", allowed="Transformer, Pooling, then Dense or Normalize")
    modes, include_prompt = pooling
    limits = _object(files, f"{folder}/{LENGTHS}" if folder else LENGTHS)
    modules = Modules(
        pooling=modes,
        include_prompt=include_prompt,
        steps=tuple(steps),
        max_length=_number(limits, LENGTHS, "max_seq_length"),
        lower_case=_flag(limits, LENGTHS, "do_lower_case", default=False),
        **_prompts(_object(files, PROMPTS)),
    )
    _check_sizes(modules, hidden)
    return modules


def _entries(listed: Any) -> list[dict[str, Any]]:
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise _refused(MODULES, f"is {shown(listed)}", allowed="a list of objects with type and path")
    if not all(isinstance(entry.get("type"), str) and isinstance(entry.get("path", ""), str) for entry in listed):
        raise _refused(MODULES, "has an entry without type or path", allowed="type and path as texts")
    return listed


def _kind(entry: Mapping[str, Any]) -> str:
    """Return the last part of a module's type: sentence_transformers.models.Pooling → Pooling."""
    name: str = entry["type"]
    return name.rpartition(".")[2] if name.startswith("sentence_transformers.") else name


def _steps(files: Files, entries: list[dict[str, Any]]) -> tuple[tuple[tuple[str, ...], bool] | None, list[Step]]:
    pooling: tuple[tuple[str, ...], bool] | None = None
    steps: list[Step] = []
    for entry in entries:
        kind, folder = _kind(entry), str(entry.get("path", "")).rstrip("/")
        if kind == "Pooling" and pooling is None:
            pooling = _pooling(_required(files, f"{folder}/config.json"), f"{folder}/config.json")
        elif kind == "Dense" and pooling is not None:
            steps.append(_dense(files, folder))
        elif kind == "LayerNorm" and pooling is not None:
            config = _required(files, f"{folder}/config.json")
            size = _size(config, f"{folder}/config.json", "dimension")
            steps.append(LayerNorm(size=size, weights=_weights(files, folder)))
        elif kind == "Normalize" and pooling is not None:
            steps.append(Normalize())
        elif kind != "Dropout":  # changes nothing after training
            after = "" if pooling is not None else " before a Pooling module"
            raise _refused(
                MODULES,
                f"has the module {kind}{after}",
                allowed="one Pooling, then Dense, LayerNorm, Normalize, Dropout",
            )
    return pooling, steps


def _pooling(config: Mapping[str, Any], where: str) -> tuple[tuple[str, ...], bool]:
    stated = config.get("pooling_mode")
    if stated is None:
        for name in _FLAGS:
            _flag(config, where, name, default=False)
        modes = tuple(mode for name, mode in _FLAGS.items() if config.get(name)) or ("mean",)
    else:
        modes = (stated,) if isinstance(stated, str) else tuple(stated) if isinstance(stated, list) else ()
    if not modes or any(mode not in POOLING_MODES for mode in modes):
        raise _refused(f"{where}: pooling_mode", f"is {shown(stated)}", allowed=", ".join(POOLING_MODES))
    return modes, _flag(config, where, "include_prompt", default=True)


def _dense(files: Files, folder: str) -> Dense:
    where = f"{folder}/config.json"
    config = _required(files, where)
    name = config.get("activation_function", _DEFAULT_ACTIVATION)
    if name not in ACTIVATIONS:
        raise _refused(f"{where}: activation_function", f"is {shown(name)}", allowed=", ".join(ACTIVATIONS))
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in {None, "sentence_embedding"}:
            raise _refused(f"{where}: {key}", f"is {shown(config[key])}", allowed="sentence_embedding")
    return Dense(
        inputs=_size(config, where, "in_features"),
        outputs=_size(config, where, "out_features"),
        bias=_flag(config, where, "bias", default=True),
        activation=ACTIVATIONS[name],
        residual=_flag(config, where, "use_residual", default=False),
        weights=_weights(files, folder),
    )


def _weights(files: Files, folder: str) -> str:
    for name in _WEIGHTS:
        if files.has(f"{folder}/{name}"):
            return f"{folder}/{name}"
    raise _refused(folder, "has no weights", allowed=" or ".join(_WEIGHTS))


def _prompts(config: Mapping[str, Any]) -> dict[str, Any]:
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise _refused(f"{PROMPTS}: prompts", f"is {shown(prompts)}", allowed="an object of texts by name")
    default = config.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise _refused(f"{PROMPTS}: default_prompt_name", f"is {shown(default)}", allowed=", ".join(prompts) or "null")
    similarity = config.get("similarity_fn_name")
    if similarity is not None and similarity not in _SIMILARITIES:
        raise _refused(f"{PROMPTS}: similarity_fn_name", f"is {shown(similarity)}", allowed=", ".join(_SIMILARITIES))
    return {"prompts": prompts, "default_prompt": default, "similarity": similarity}


def _check_sizes(modules: Modules, hidden: int | None) -> None:
    size = None if hidden is None else hidden * len(modules.pooling)
    for step in modules.steps:
        if isinstance(step, Normalize):
            continue
        takes, gives = (step.inputs, step.outputs) if isinstance(step, Dense) else (step.size, step.size)
        if size is not None and takes != size:
            problem = f"takes {takes} elements, and the step before gives {size}"
            raise _refused(step.weights.rpartition("/")[0], problem)
        size = gives


def _required(files: Files, path: str) -> dict[str, Any]:
    if not files.has(path):
        raise _refused(path, f"is missing, and {MODULES} names it")
    return _object(files, path)


def _object(files: Files, path: str) -> dict[str, Any]:
    content = _json(files, path)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise _refused(path, f"is {shown(content)}", allowed="a JSON object")
    return content


def _json(files: Files, path: str) -> Any:
    content = files.read(path)
    if content is None:
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"is not JSON ({error})") from error


def _number(config: Mapping[str, Any], where: str, key: str) -> int | None:
    return None if config.get(key) is None else _size(config, where, key)


def _size(config: Mapping[str, Any], where: str, key: str) -> int:
    value = config.get(key)
    if type(value) is not int or value < 1:
        raise _refused(f"{where}: {key}", f"is {shown(value)}", allowed="a whole number of 1 or more")
    return value


def _flag(config: Mapping[str, Any], where: str, key: str, *, default: bool) -> bool:
    value = config.get(key, default)
    if type(value) is not bool:
        raise _refused(f"{where}: {key}", f"is {shown(value)}", allowed="true or false")
    return value


def _refused(field: str, problem: str, *, allowed: str = "") -> ValueError:
    fix = "fetch the model's files again, or write pooling in the catalog to leave these modules out"
    return ValueError(fault(field, problem, allowed=allowed, fix=fix))
