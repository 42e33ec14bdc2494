"""The interface of a task, which plans the sequences to run for a call, and makes the answer from their outputs."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from .cohost_request import Call, Cut
    from .cohost_texts import Text

    Floats = npt.NDArray[np.float32]


class Want(enum.Enum):
    """The requested part of a sequence's output: logits, all tokens' vectors, their mean, or the first vector."""

    LOGITS = "logits"
    TOKENS = "tokens"
    MEAN = "mean"
    CLS = "cls"


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for a call: the model runs each of `texts` as a sequence, and `answer` turns the outputs into JSON text.

    `cut` states the truncation, and `want` the requested part of the output. `large` is true if `answer` takes so long
    that it must run outside the event loop's thread.
    """

    texts: Sequence[Text]
    cut: Cut
    want: Want
    answer: Callable[[Sequence[Floats]], str]
    large: bool = False


class Task(Protocol):
    """The interface of the tasks text-classification, zero-shot-classification and feature-extraction."""

    def plan(self, call: Call) -> Plan:
        """Return the plan for a call.

        Raises:
            BadInputError: the call's inputs or parameters have a wrong type or value.
            TooLargeError: the call exceeds a limit of the catalog.
        """
