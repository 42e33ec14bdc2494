"""The options that the load test adds to Locust's, each with an environment variable, and parsers of their values.

A wrong value ends the program with one line that states the allowed values.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from cohost.endpoint.copies import WAKE_TIMEOUT_S
from cohost.endpoint.stack_outputs import DEFAULT_STACK
from load_tests.web_page import stay_at_home

if TYPE_CHECKING:
    from collections.abc import Callable


MAX_BATCH = 1024


def _read(
    text: str,
    allowed: str,
    *,
    least: float,
    most: float = math.inf,
    above: bool = False,
    kind: Callable[[str], float] = float,
) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and (value > least if above else value >= least) and value <= most):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {allowed}")
    return value


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a parser for an option whose value is a whole number from `least` to `most`."""

    def read(text: str) -> int:
        return int(_read(text, f"a whole number from {least} to {most}", least=least, most=most, kind=int))

    return read


def positive(text: str) -> float:
    """Parse an option's value, a number above 0."""
    return _read(text, "a number above 0", least=0, above=True)


def not_negative(text: str) -> float:
    """Parse an option's value, a number of 0 or more."""
    return _read(text, "a number of 0 or more", least=0)


def share(text: str) -> float:
    """Parse an option's value, a number from 0 to 1."""
    return _read(text, "a share from 0 to 1, such as 0.01 for one in a hundred", least=0, most=1)


def parse_sweep(text: str) -> tuple[int, ...]:
    """Parse the values of a sweep, such as 1,2,4 or [1,2,4]."""
    parts = [part.strip() for part in text.strip().removeprefix("[").removesuffix("]").split(",")]
    return tuple(dict.fromkeys(map(whole(1, MAX_BATCH), parts)))


def parse_models(text: str) -> dict[str, float]:
    """Parse the weights of models, such as mdeberta=2,minilm; a name without a weight gets the weight 1."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, weight = part.strip().partition("=")
        if not name or name in weights:
            allowed = "each name once, as name or name=weight, with commas between"
            raise argparse.ArgumentTypeError(f"{text!r}; allowed: {allowed}")
        weights[name] = positive(weight) if equals else 1.0
    return weights


TASKS = ("text-classification", "zero-shot-classification", "feature-extraction")
DEFAULT_SWEEP = "1,2,4,8,16,32"
_SHARED_VARIABLES = {"--endpoint", "--stack", "--catalog"}
"""Options that other commands have too; their variables begin with COHOST_ instead of COHOST_LOAD_."""

_SWEEP: dict[str, Any] = {"type": parse_sweep, "nargs": "?", "const": DEFAULT_SWEEP, "metavar": "N,N,…"}
_OPTIONS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "encoders: targets": {
        "--endpoint": ("The name of a SageMaker endpoint to call instead of the stack's endpoint.", {}),
        "--stack": (
            "The stack whose outputs name endpoint and models (default: %(default)s). --host URL names a container.",
            {"default": DEFAULT_STACK},
        ),
        "--catalog": (
            "The catalog with each model's task and tokenizer (default: %(default)s).",
            {"default": "model_configs/encoders.yaml"},
        ),
        "--models": (
            "The models to call, each with its weight (default: all, equally often).",
            {"type": parse_models, "metavar": "NAME=WEIGHT,…"},
        ),
        "--target-model": ("The archive of a single model to call.", {"metavar": "NAME.tar.gz"}),
        "--inference-component": (
            "The inference component that serves the models of --endpoint; a stack's outputs name its component.",
            {"metavar": "NAME"},
        ),
        "--task": ("The task of all models, if the catalog does not have the models.", {"choices": TASKS}),
    },
    "encoders: payloads": {
        "--batch-size": (
            "Number of texts per call (default: %(default)s).",
            {"type": whole(1, MAX_BATCH), "default": 1},
        ),
        "--texts": (
            "A UTF-8 file, one text per line (default: sentences in eight languages, joined to mixed lengths).",
            {"metavar": "FILE"},
        ),
        "--pad-to-max": (
            "Send only texts with the model's maximum number of tokens, counted by the model's tokenizer.",
            {"action": "store_true"},
        ),
        "--max-length": ("Tokens per text for --pad-to-max (default: the model's limit).", {"type": whole(8, 131_072)}),
        "--hub": (
            "A folder with tokenizers in subfolders org/name; may be repeated.",
            {"action": "append", "metavar": "DIR"},
        ),
        "--seed": (
            "The same seed gives the same texts and arrivals (default: %(default)s).",
            {"type": whole(0, 2**32 - 1), "default": 1},
        ),
    },
    "encoders: how it is sent": {
        "--rate": (
            (
                "Send calls as Poisson arrivals at this rate, at most -u at a time; latency counts from the "
                "planned moment. Without --rate each user sends its next call after the answer to the last one."
            ),
            {"type": positive, "metavar": "CALLS_PER_S"},
        ),
        "--sweep-batch": (
            f"Run one step per number of texts in a call, each with -u users (without values: {DEFAULT_SWEEP}).",
            _SWEEP,
        ),
        "--sweep-concurrency": (
            f"Run one step per number of callers, each with --batch-size (without values: {DEFAULT_SWEEP}).",
            _SWEEP,
        ),
        "--warmup": (
            (
                "The seconds of unmeasured calls before the first step; before each further step 2 s at most "
                "(default: %(default)s)."
            ),
            {"type": not_negative, "default": 10.0, "metavar": "SECONDS"},
        ),
        "--measure": (
            "The seconds for which each step is measured (default: 20 in a sweep; otherwise until -t or a stop).",
            {"type": positive, "metavar": "SECONDS"},
        ),
        "--wake": (
            "Wait for a copy if no copy of the component runs; without --wake such a test ends at its first calls.",
            {"action": "store_true"},
        ),
        "--wake-timeout": (
            "The longest wait for a copy with --wake (default: %(default)s).",
            {"type": positive, "default": WAKE_TIMEOUT_S, "metavar": "SECONDS"},
        ),
        "--timeout": (
            "A call without an answer in this time has failed (default: %(default)s, above SageMaker's 60).",
            {"type": positive, "default": 70.0, "metavar": "SECONDS"},
        ),
        "--skip-cold": (
            "Do not measure the first call of each model separately.",
            {"action": "store_true"},
        ),
    },
    "encoders: result": {
        "--out": ("The folder for the results (default: .cohost/load/DATE-TIME).", {"metavar": "DIR"}),
        "--label": ("The name of this run in the report (default: the target's name).", {}),
        "--price": (
            "The price of all instances per hour (default: from the price list, or unknown).",
            {"type": not_negative, "metavar": "USD_PER_HOUR"},
        ),
        "--max-error-rate": (
            "End with exit code 1 if more than this share of the calls failed, such as 0.01.",
            {"type": share, "metavar": "SHARE"},
        ),
        "--p99-below": (
            "End with exit code 1 unless the p99 of every model in every step is below this.",
            {"type": positive, "metavar": "MS"},
        ),
    },
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to Locust's parser, in groups of their own in `--help`, and bind Locust's ports to this machine.

    All values, also paths, are plain data, because a master sends them to its workers. A second call has no effect.
    """
    stay_at_home(parser)
    if any("--sweep-batch" in action.option_strings for action in parser._actions):  # noqa: SLF001 - argparse has no public list
        return
    for title, options in _OPTIONS.items():
        group = parser.add_argument_group(title)
        for flag, (meaning, settings) in options.items():
            prefix = "COHOST_" if flag in _SHARED_VARIABLES else "COHOST_LOAD_"
            # Locust's parser (ConfigArgParse) reads the environment variable. On Locust's web page each option would be
            # a text box whose value is not checked, so the page does not show these options.
            extra: dict[str, Any] = {"env_var": prefix + flag.removeprefix("--").replace("-", "_").upper()}
            action: Any = group.add_argument(flag, help=f"{meaning} [{extra['env_var']}]", **settings, **extra)
            action.include_in_web_ui = False
