"""The interface of a task: the sequences to run for a call, and the answer from their outputs."""

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
    """The requested part of a sequence's output: logits, a vector per token, or the mean or first token's vector."""

    LOGITS = "logits"
    TOKENS = "tokens"
    MEAN = "mean"
    CLS = "cls"


@dataclass(frozen=True, slots=True)
class Plan:
    """A prepared call: `texts` are run as one sequence each, `answer` turns their outputs, in order, into JSON text.

    `large` is true if writing the answer takes long enough to be done in parallel with other requests.
    """

    texts: Sequence[Text]
    cut: Cut
    want: Want
    answer: Callable[[Sequence[Floats]], str]
    large: bool = False


class Task(Protocol):
    """One of text-classification, zero-shot-classification, feature-extraction."""

    def plan(self, call: Call) -> Plan:
        """Read a call.

        Raises:
            BadInputError: the call is wrong.
            TooLargeError: the call exceeds a limit.
        """
