"""ONNX files: stripped of what differs between machines, and quantized. Imports onnx and onnxruntime."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

if TYPE_CHECKING:
    from pathlib import Path

MODEL_FILE: Final = "model.onnx"
DATA_FILE: Final = "model.onnx.data"

PRODUCER: Final = "lmi-cohost"


def strip(file: Path) -> None:
    """Take traces of the exporting machine out of an ONNX file: paths of its sources, stack traces, versions.

    What is computed stays as it is, and weights in a file of their own are not touched.
    """
    model = onnx.load(str(file), load_external_data=False)
    model.producer_name, model.producer_version, model.doc_string = PRODUCER, "", ""
    del model.metadata_props[:]
    graph = model.graph
    graph.doc_string = ""
    del graph.metadata_props[:]
    for part in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.doc_string = ""
        del part.metadata_props[:]
    # Shapes of what lies between are hints, and hold names that torch counts up.
    del graph.value_info[:]
    file.write_bytes(model.SerializeToString(deterministic=True))


def quantize(source: Path, target: Path) -> None:
    """Write a copy whose weights are 8-bit integers, embeddings too, with a scale for each output channel.

    Activations are quantized as they come, so no texts are needed to calibrate (onnxruntime: dynamic quantization).
    """
    disabled = logging.root.manager.disable
    # It recommends optimizing the file beforehand, which changes no weight and ties the file to this machine.
    logging.disable(logging.WARNING)
    try:
        quantize_dynamic(str(source), str(target), per_channel=True, weight_type=QuantType.QInt8)
    finally:
        logging.disable(disabled)
    strip(target)
