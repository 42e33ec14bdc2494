"""The catalog's model in torch: the reference for every export, and the source of the ONNX file.

The module `torch_model` imports torch and transformers, so only code that exports a model may import the module.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
import transformers

from cohost.errors import OnnxError
from cohost.forecast.plan.shapes import ModelShape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    Arrays = Mapping[str, npt.NDArray[np.int64]]
    Floats = npt.NDArray[np.float32]

OPSET: Final = 18
"""An ONNX opset that onnxruntime 1.20.0 of the cpu-full image supports (DJL Serving 0.36.0: Dockerfile)."""

# The order in which DJL's translators pass the inputs (DJL 0.36.0: Encoding.toNDList, OrtSymbolBlock).
_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
_SINGLE_FILE_BYTES: Final = 1_900_000_000
"""The most bytes of weights in one ONNX file: a protobuf holds at most 2 GiB. Larger weights go into another file."""

_FEATURES: Final = "feature-extraction"
_SAMPLES: Final = ("One short text.", "Another text that is a little longer than the first.")


class _FirstOutput(torch.nn.Module):
    """A wrapper that takes a model's inputs by position and returns only its first output, logits or hidden states."""

    def __init__(self, model: torch.nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self._model = model
        self._names = tuple(names)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self._model(**dict(zip(self._names, inputs, strict=True)))[0]
        return output


class TorchModel:
    """A model from a folder, in fp32 on the CPU; `limit` is the largest number of tokens in a sequence.

    Raises:
        OnnxError: the folder holds no model of the task, or no fast tokenizer.
    """

    def __init__(self, folder: Path, task: str) -> None:
        loaded, self.tokenizer = _load(folder, task)
        if not self.tokenizer.is_fast:
            raise OnnxError(
                "tokenizer-slow",
                str(folder),
                "has no fast tokenizer, so there is no tokenizer.json to serve with",
                fix="save the model with one, or leave it out of the CPU design",
            )
        self._model = loaded.eval()
        self.config: Any = loaded.config
        shape = ModelShape.from_config(self.config.to_dict())
        self.limit = min(shape.longest_input, self.tokenizer.model_max_length)
        self.input_names = _INPUTS if shape.token_types > 1 else _INPUTS[:2]
        self.labels = [] if task == _FEATURES else [self.config.id2label[i] for i in range(self.config.num_labels)]

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Arrays:
        """Return texts, or texts paired with `pairs`, as one batch: arrays of (sequences, tokens), cut at the limit."""
        batch = self.tokenizer(
            list(texts),
            None if pairs is None else list(pairs),
            padding=True,
            truncation=True,
            max_length=self.limit,
            return_tensors="np",
        )
        return {name: batch[name].astype(np.int64) for name in self.input_names}

    def run(self, arrays: Arrays) -> Floats:
        """Return the model's first output, of shape (sequences, labels) or (sequences, tokens, hidden size)."""
        with torch.inference_mode():
            output: Floats = self._model(**{name: torch.from_numpy(array) for name, array in arrays.items()})[0].numpy()
        return output

    def export(self, file: Path) -> None:
        """Write the model as ONNX; weights too large for one file go into a second file, `file`.data.

        Raises:
            OnnxError: torch cannot export the architecture.
        """
        example = tuple(torch.from_numpy(array) for array in self.encode(_SAMPLES).values())
        axes = tuple({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for _ in self.input_names)
        weights = sum(parameter.numel() * parameter.element_size() for parameter in self._model.parameters())
        try:
            with quiet():
                program = torch.onnx.export(
                    _FirstOutput(self._model, self.input_names).eval(),
                    example,
                    input_names=list(self.input_names),
                    output_names=["logits" if self.labels else "last_hidden_state"],
                    dynamic_shapes=(axes,),
                    opset_version=OPSET,
                    dynamo=True,
                    verbose=False,
                )
        except torch.onnx.errors.OnnxExporterError as error:
            raise OnnxError(
                "export-unsupported",
                str(self.config.model_type),
                f"torch cannot export it ({str(error).splitlines()[0]})",
                fix="leave it out of the CPU design",
            ) from error
        assert program is not None  # noqa: S101 - only torch's former exporter returns None
        program.save(file, external_data=weights > _SINGLE_FILE_BYTES)


def _load(folder: Path, task: str) -> tuple[Any, Any]:
    """Load and return the model and the tokenizer of a folder.

    Raises:
        OnnxError: the folder holds no model that can be loaded, or a model that was not trained for the task.
    """
    kind = transformers.AutoModel if task == _FEATURES else transformers.AutoModelForSequenceClassification
    try:
        with quiet():
            # Eager attention exports to fewer nodes than torch's own kernel, and onnxruntime runs them faster.
            model, info = kind.from_pretrained(
                folder,
                dtype=torch.float32,
                attn_implementation="eager",
                use_safetensors=True,
                output_loading_info=True,
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise OnnxError(
            "model-unloadable",
            str(folder),
            f"cannot be loaded for {task} ({' '.join(str(error).split())})",
            allowed="a folder with config.json, model.safetensors and a tokenizer",
            fix="check model_id and task",
        ) from error
    if task != _FEATURES and info["missing_keys"]:
        # transformers fills missing weights with random numbers, and only warns.
        raise OnnxError(
            "head-missing",
            str(folder),
            f"has no weights for {', '.join(sorted(info['missing_keys']))}, so it was not trained for {task}",
            allowed="a model with a classification head",
            fix="check model_id and task",
        )
    return model, tokenizer


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide messages of torch and transformers about their internals from the user."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
