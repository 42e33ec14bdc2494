"""A model as torch runs it: the reference of every export, and what is exported.

Imports torch and transformers; import it where a model is about to be exported.
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
"""Old enough for the onnxruntime 1.20.0 of the cpu-full image (DJL Serving 0.36.0: Dockerfile)."""

# The order in which DJL's translators hand them over (DJL 0.36.0: Encoding.toNDList, OrtSymbolBlock).
_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
_SINGLE_FILE_BYTES: Final = 1_900_000_000
"""A protobuf holds 2 GiB; above this the weights go into a file of their own."""

_FEATURES: Final = "feature-extraction"
_SAMPLES: Final = ("One short text.", "Another text that is a little longer than the first.")


class _FirstOutput(torch.nn.Module):
    """A model whose inputs come by position and whose only output is its first one: logits, or hidden states."""

    def __init__(self, model: torch.nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self._model = model
        self._names = tuple(names)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self._model(**dict(zip(self._names, inputs, strict=True)))[0]
        return output


class TorchModel:
    """A model of a folder in single precision on the CPU; `limit` is the most tokens of a sequence.

    Raises:
        OnnxError: the folder holds no model of the task, or no fast tokenizer.
    """

    def __init__(self, folder: Path, task: str) -> None:
        loaded, self.tokenizer = _load(folder, task)
        if not self.tokenizer.is_fast:
            raise OnnxError(
                f"{folder}: has no fast tokenizer, so there is no tokenizer.json to serve with; fix: save the model "
                "with one, or leave it out of the CPU design"
            )
        self._model = loaded.eval()
        self.config: Any = loaded.config
        shape = ModelShape.from_config(self.config.to_dict())
        self.limit = min(shape.longest_input, self.tokenizer.model_max_length)
        self.input_names = _INPUTS if shape.token_types > 1 else _INPUTS[:2]
        self.labels = [] if task == _FEATURES else [self.config.id2label[i] for i in range(self.config.num_labels)]

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Arrays:
        """Texts, or pairs of texts, as one batch, cut at the model's limit: sequences by tokens each."""
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
        """The first output: sequences by labels, or by tokens by hidden."""
        with torch.inference_mode():
            output: Floats = self._model(**{name: torch.from_numpy(array) for name, array in arrays.items()})[0].numpy()
        return output

    def export(self, file: Path) -> None:
        """Write the model as ONNX, in `file` alone or, where it is too large for one, beside it in `file`.data.

        Raises:
            OnnxError: torch cannot export the architecture.
        """
        example = tuple(torch.from_numpy(array) for array in self.encode(_SAMPLES).values())
        axes = tuple({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for _ in self.input_names)
        weights = sum(parameter.numel() * parameter.element_size() for parameter in self._model.parameters())
        try:
            with _quiet():
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
            first = str(error).splitlines()[0]
            raise OnnxError(
                f"{self.config.model_type}: torch cannot export it ({first}); fix: leave it out of the CPU design"
            ) from error
        assert program is not None  # noqa: S101 - only the former exporter gives none
        program.save(file, external_data=weights > _SINGLE_FILE_BYTES)


def _load(folder: Path, task: str) -> tuple[Any, Any]:
    """A folder's model and tokenizer.

    Raises:
        OnnxError: the folder holds no such model, or none that was trained for the task.
    """
    kind = transformers.AutoModel if task == _FEATURES else transformers.AutoModelForSequenceClassification
    try:
        with _quiet():
            # Written out, attention becomes fewer nodes than torch's own kernel does, and onnxruntime runs it faster.
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
            f"{folder}: cannot be loaded for {task} ({' '.join(str(error).split())}); allowed: a folder with "
            "config.json, model.safetensors and a tokenizer; fix: check model_id and task"
        ) from error
    if task != _FEATURES and info["missing_keys"]:
        # transformers makes up what is missing, and says so in a warning only.
        missing = ", ".join(sorted(info["missing_keys"]))
        raise OnnxError(
            f"{folder}: has no weights for {missing}, so it was not trained for {task}; "
            "allowed: a model with a classification head; fix: check model_id and task"
        )
    return model, tokenizer


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps notes of torch and transformers about their own workings off the user's screen."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
