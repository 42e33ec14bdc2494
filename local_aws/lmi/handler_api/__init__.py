"""The handler interface of DJL Serving's Python engine, reimplemented: a `model.py` imports it as `djl_python`.

`install()` registers these modules under that name, so that the same `model.py` runs here and in the image:

    from djl_python import Input, Output

    def handle(inputs: Input) -> Output | None:
        if inputs.is_empty():            # the first call: properties of the model, no content
            return None
        outputs = Output()
        for index, request in enumerate(inputs.get_batches()):
            outputs.add_as_json(request.get_as_json(), key=inputs.get_content().key_at(index))
        return outputs

Tensors (`get_as_numpy`, `add_as_numpy`), images, streaming and adapters are not emulated; a handler that uses one of
them gets an AttributeError.
"""

from __future__ import annotations

import sys

from local_aws.lmi.handler_api import inputs, outputs
from local_aws.lmi.handler_api.inputs import Input
from local_aws.lmi.handler_api.outputs import Output

__all__ = ["Input", "Output", "input_parser", "inputs", "install", "outputs", "pair_list", "request_io"]

# The image has a separate module for each of these; here they are parts of `inputs`.
input_parser = pair_list = request_io = inputs

_PACKAGE = "djl_python"
_MODULES = {
    "input_parser": inputs,
    "inputs": inputs,
    "outputs": outputs,
    "pair_list": inputs,
    "request_io": inputs,
}


def install() -> None:
    """Make this package and its modules importable as `djl_python`."""
    sys.modules[_PACKAGE] = sys.modules[__name__]
    for name, module in _MODULES.items():
        sys.modules[f"{_PACKAGE}.{name}"] = module
