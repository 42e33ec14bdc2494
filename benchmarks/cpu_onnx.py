"""Compare int8 ONNX with torch fp32, one text at a time, with all-MiniLM-L6-v2: speed and equality of labels.

ONNX and torch run alternately, on one thread of one process, so that other work on the machine affects both. The goal
is that ONNX runs GOAL times as many texts per second as torch, with equal top labels. A text's top label is the one in
LABELS whose vector is nearest to the text's vector. Each text is clearly about one label. For an unclear text, the
scores of two labels in torch would differ by only a hundredth. The exit code is 1 if the speed misses the goal or a
label differs.

Run it as `python benchmarks/cpu_onnx.py [--rounds N]`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

# OpenMP reads this once, when torch is imported: spinning threads of torch would take the core in ONNX's turn.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch

from cohost.designs.onnx.export import MODEL_FILE, Session, model_folder, quantize, strip
from cohost.designs.onnx.torch_model import TorchModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from cohost.designs.onnx.torch_model import Arrays

    Floats = npt.NDArray[np.float32]

GOAL: Final = 1.5
ROUNDS: Final = 15
MODEL_ID: Final = "sentence-transformers/all-MiniLM-L6-v2"

LABELS: Final = (
    "cooking a meal in the kitchen",
    "travelling by train or plane",
    "money, banks and loans",
    "rain, snow and other weather",
    "a football match or another sport",
    "doctors, diseases and medicine",
)
TEXTS: Final = (
    "Stir the onions until they are golden, then add the rice.",
    "The night train to Busan leaves from platform nine.",
    "The bank raised the interest rate on savings accounts again.",
    "Heavy rain is expected along the coast until Sunday.",
    "She scored twice in the second half and her team won the match.",
    "The doctor prescribed antibiotics for the infection.",
    "My grandmother's soup needs fermented beans, tofu and patience.",
    "Passengers whose flight was cancelled were put on the early train.",
    "Without a credit history it is hard to get a loan for a house.",
    "Snow fell on the hills and the roads froze overnight.",
    "The goalkeeper saved a penalty in the final of the football cup.",
    "The new vaccine protects children from the disease for ten years.",
)
LONG: Final = (" ".join(TEXTS[start::6] * 3) for start in range(6))


def main() -> int:
    """Measure and print the speed-up and the differing labels, and return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"number of measurements of each model (default {ROUNDS})"
    )
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    model = TorchModel(model_folder(MODEL_ID, None, []), "feature-extraction")
    with tempfile.TemporaryDirectory() as scratch:
        session = _int8(model, Path(scratch))
        texts = [*TEXTS, *LONG]
        inputs = [model.encode([text]) for text in texts]
        shortest, longest = min(map(_tokens, inputs)), max(map(_tokens, inputs))
        print(f"{MODEL_ID}, {len(texts)} texts of {shortest} to {longest} tokens, one at a time")
        seconds = _turns({"torch fp32": model.run, "onnx int8": session.run}, inputs, rounds)
        flipped = _flipped(model, session, inputs)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    for name, median in medians.items():
        print(f"{name:10} {1000 * median / len(inputs):6.2f} ms a text, {len(inputs) / median:6.1f} texts/s")
    ratio = medians["torch fp32"] / medians["onnx int8"]
    print(f"int8 is {ratio:.2f} times as fast (goal {GOAL}); {flipped} of {len(inputs)} top labels differ (goal 0)")
    return int(ratio < GOAL or flipped > 0)


def _int8(model: TorchModel, folder: Path) -> Session:
    model.export(folder / MODEL_FILE)
    strip(folder / MODEL_FILE)
    quantize(folder / MODEL_FILE, folder / "int8.onnx")
    return Session(folder / "int8.onnx", threads=1)


def _tokens(arrays: Arrays) -> int:
    return arrays["input_ids"].shape[1]


def _turns(
    ways: dict[str, Callable[[Arrays], Floats]], inputs: Sequence[Arrays], rounds: int
) -> dict[str, list[float]]:
    """Run all inputs with each engine alternately, `rounds` times after a warm-up; return the seconds of each run."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, run in ways.items():
            started = time.perf_counter()
            for arrays in inputs:
                run(arrays)
            if number:
                taken[name].append(time.perf_counter() - started)
    return taken


def _flipped(model: TorchModel, session: Session, inputs: Sequence[Arrays]) -> int:
    """Count the texts whose nearest label differs between int8 and torch; each engine makes its own label vectors."""
    labels = [model.encode([label]) for label in LABELS]
    nearest = []
    for run in (model.run, session.run):
        anchors = np.stack([_vector(run(arrays)) for arrays in labels])
        nearest.append([int((anchors @ _vector(run(arrays))).argmax()) for arrays in inputs])
    return sum(one != other for one, other in zip(*nearest, strict=True))


def _vector(hidden: Floats) -> Floats:
    mean = hidden[0].mean(0)
    unit: Floats = mean / np.linalg.norm(mean)
    return unit


if __name__ == "__main__":
    sys.exit(main())
