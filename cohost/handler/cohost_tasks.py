"""The interface of a task: it plans the sequences to run for a call, and makes the answer from their outputs."""

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
    """The requested part of a sequence's output: logits, every token's vector, their mean, or the first one."""

    LOGITS = "logits"
    TOKENS = "tokens"
    MEAN = "mean"
    CLS = "cls"


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for a call: the model runs each of `texts` as a sequence, and `answer` makes JSON text of the outputs.

    `cut` is the truncation, and `want` the requested output. `large` is true if `answer` takes so long that it runs in
    another thread than the event loop's.
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
