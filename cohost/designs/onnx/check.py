"""Check an export against torch, with fixed texts in eight languages, short and as long as the model allows.

In an fp32 export, no output number may differ by more than FP32_TOLERANCE, relative to the largest number of the batch
if that number is above 1. An int8 export must give each text and pair the same top label, with probabilities that
differ by at most INT8_TOLERANCE. If the model has no labels, the mean vector of each text must have a cosine of at
least INT8_COSINE to that of torch.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cohost.errors import OnnxError
from cohost.handler.cohost_classification import softmax

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from cohost.designs.onnx.torch_model import Arrays, TorchModel

    Floats = npt.NDArray[np.float32]

FP32_TOLERANCE: Final = 1e-4
INT8_TOLERANCE: Final = 0.1
INT8_COSINE: Final = 0.95

TEXTS: Final = (
    "The delivery came two days early, and nothing was broken.",
    "택배가 이틀이나 늦게 왔는데 상자까지 찢어져 있었다.",
    "Der Zug nach Hamburg fährt heute von Gleis neun.",
    "Le café du coin ferme plus tôt pendant l'hiver.",
    "La reunión se aplazó porque faltaban documentos.",
    "図書館は駅の向かいにあり、夜八時まで開いている。",
    "山上的茶馆可以看见大海和火车。",
    "وصلت الحافلة متأخرة بسبب المطر الغزير.",
)

_LONGEST_REPEAT: Final = 200


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The differences between an export and torch over all sequences.

    `output` is the largest difference of an output number, relative to the largest number of its batch if that number
    is above 1. `probability` is the largest difference of a label's probability, and `flipped` the number of texts
    whose top label differs; both are None without labels. `cosine` is the smallest cosine between the two mean vectors
    of a text; None with labels.
    """

    sequences: int
    output: float
    probability: float | None
    flipped: int | None
    cosine: float | None

    def as_data(self) -> dict[str, Any]:
        """Return the differences as plain values, rounded to two significant digits."""
        figures = asdict(self)
        return {key: float(f"{value:.1e}") if isinstance(value, float) else value for key, value in figures.items()}


def compare(reference: TorchModel, run: Callable[[Arrays], Floats]) -> Agreement:
    """Run torch and the export on all fixed sequences, and return the differences of their outputs.

    `run` returns the export's first output, of shape (sequences, labels) or (sequences, tokens, hidden size).
    """
    differences, probabilities, cosines, flipped, sequences = [0.0], [0.0], [1.0], 0, 0
    for arrays in _batches(reference):
        expected, found = reference.run(arrays), run(arrays)
        real = arrays["attention_mask"].astype(bool)
        sequences += len(real)
        if not reference.labels:
            # Outputs at padding positions belong to no answer.
            expected, found = expected * real[..., None], found * real[..., None]
            cosines.append(_least_cosine(expected.sum(1), found.sum(1)))
        else:
            probabilities.append(float(np.abs(_shares(expected) - _shares(found)).max()))
            flipped += int((expected.argmax(-1) != found.argmax(-1)).sum())
        differences.append(float(np.abs(expected - found).max() / max(1.0, float(np.abs(expected).max()))))
    return Agreement(
        sequences=sequences,
        output=max(differences),
        probability=max(probabilities) if reference.labels else None,
        flipped=flipped if reference.labels else None,
        cosine=None if reference.labels else min(cosines),
    )


def require(name: str, precision: str, agreement: Agreement) -> None:
    """Reject an export that differs too much from torch.

    Raises:
        OnnxError: a difference is beyond the tolerance of the export's precision; the error names difference and fix.
    """
    if precision == "fp32":
        if not agreement.output <= FP32_TOLERANCE:
            raise OnnxError(
                "export-inaccurate",
                name,
                f"the fp32 export differs from torch by {agreement.output:.1e}",
                allowed=f"{FP32_TOLERANCE:.0e}",
                fix="leave the model out of the CPU design, since its architecture is not exported correctly",
            )
        return
    for problem, allowed in _int8_faults(agreement):
        raise OnnxError(
            "export-inaccurate",
            name,
            f"in int8 {problem}",
            allowed=allowed,
            fix=f"write designs.cpu-onnx.overrides.{name}.precision: fp32",
        )


def _int8_faults(agreement: Agreement) -> Iterator[tuple[str, str]]:
    """Yield each fault of an int8 export, with the value that is allowed."""
    if agreement.flipped:
        yield f"{agreement.flipped} of {agreement.sequences} fixed texts get another top label", "none"
    if agreement.probability is not None and not agreement.probability <= INT8_TOLERANCE:
        yield f"a probability differs by {agreement.probability:.3f}", f"{INT8_TOLERANCE}"
    if agreement.cosine is not None and not agreement.cosine >= INT8_COSINE:
        yield f"a text's vector turns to a cosine of {agreement.cosine:.3f}", f"{INT8_COSINE} or more"


def _batches(reference: TorchModel) -> Iterator[Arrays]:
    """Yield batches: each text alone, all texts padded, each text paired with the next, and a text cut at the limit."""
    for text in TEXTS:
        yield reference.encode([text])
    yield reference.encode(TEXTS)
    if reference.labels:
        yield reference.encode(TEXTS, [*TEXTS[1:], TEXTS[0]])
    yield reference.encode([" ".join(TEXTS * _LONGEST_REPEAT)])


def _shares(logits: Floats) -> Floats:
    """Return the labels' probabilities: their softmax, or the sigmoid of a single label."""
    return softmax(np.insert(logits, 0, 0, axis=-1) if logits.shape[-1] == 1 else logits)


def _least_cosine(first: Floats, second: Floats) -> float:
    lengths = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return float(((first * second).sum(-1) / lengths).min())
