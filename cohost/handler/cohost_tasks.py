"""What a task makes of a call: sequences to run, and how their outputs become an answer."""

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
    """What of the model's output a sequence wants: logits, a vector a token, or the mean or first token's vector."""

    LOGITS = "logits"
    TOKENS = "tokens"
    MEAN = "mean"
    CLS = "cls"


@dataclass(frozen=True, slots=True)
class Plan:
    """A call made ready: `texts` are run as one sequence each, `answer` turns their outputs, in order, into JSON text.

    `large` says that writing the answer takes long enough to be done beside other requests.
    """

    texts: Sequence[Text]
    cut: Cut
    want: Want
    answer: Callable[[Sequence[Floats]], str]
    large: bool = False


class Task(Protocol):
    """One of text-classification, zero-shot-classification, feature-extraction."""

    def plan(self, call: Call) -> Plan:
        """Reads a call.

        Raises:
            BadInputError: it is wrong.
            TooLargeError: it asks for too much.
        """
