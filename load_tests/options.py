"""The load test's own options beside Locust's, each with an environment variable, and the parsers of their values.

A wrong value ends the run with one line that states the allowed ones.
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


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a type for whole numbers between two bounds, both included."""

    def read(text: str) -> int:
        return _read_whole(text, least, most)

    return read


def _read_whole(text: str, least: int, most: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number from {least} to {most}")
    return value


def _number(text: str, allowed: str, *, least: float, most: float, above: bool) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and (value > least if above else value >= least) and value <= most):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {allowed}")
    return value


def positive(text: str) -> float:
    """Parse a number above 0."""
    return _number(text, "a number above 0", least=0, most=math.inf, above=True)


def not_negative(text: str) -> float:
    """Parse a number of 0 or more."""
    return _number(text, "a number of 0 or more", least=0, most=math.inf, above=False)


def share(text: str) -> float:
    """Parse a number from 0 to 1."""
    return _number(text, "a share from 0 to 1, such as 0.01 for one in a hundred", least=0, most=1, above=False)


def parse_sweep(text: str) -> tuple[int, ...]:
    """Parse the values of a sweep, such as 1,2,4; brackets around them are allowed."""
    parts = [part.strip() for part in text.strip().removeprefix("[").removesuffix("]").split(",")]
    return tuple(dict.fromkeys(_read_whole(part, 1, MAX_BATCH) for part in parts))


def parse_models(text: str) -> dict[str, float]:
    """Parse weights by model from `name=weight,…`; a name alone has the weight 1."""
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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to Locust's parser, in groups of their own in `--help`, and keep its ports on this machine.

    Their values are plain data, paths too, because a master sends them to its workers. Adding them twice is fine.
    """
    stay_at_home(parser)
    if any("--sweep-batch" in action.option_strings for action in parser._actions):  # noqa: SLF001 - it cannot be asked
        return
    _add_target(parser.add_argument_group("encoders: what is called"))
    sent = parser.add_argument_group("encoders: what is sent")
    _add_payloads(sent)
    _add_lengths(sent)
    load = parser.add_argument_group("encoders: how it is sent")
    _add_load(load)
    _add_times(load)
    _add_result(parser.add_argument_group("encoders: result"))


def _add(group: argparse._ArgumentGroup, flag: str, env_var: str, **settings: Any) -> None:
    # `env_var` is Locust's parser's (ConfigArgParse); the web page would show each option as a text box that skips
    # the checks made here, so none is shown there.
    settings["help"] = f"{settings['help']} [{env_var}]"
    extra: dict[str, Any] = {"env_var": env_var}
    action: Any = group.add_argument(flag, **settings, **extra)
    action.include_in_web_ui = False


def _add_target(group: argparse._ArgumentGroup) -> None:
    _add(group, "--endpoint", "COHOST_ENDPOINT", help="A SageMaker endpoint by its name, instead of the stack's.")
    _add(
        group,
        "--stack",
        "COHOST_STACK",
        default=DEFAULT_STACK,
        help="The stack whose outputs name endpoint and models (default: %(default)s). --host URL calls a container.",
    )
    _add(
        group,
        "--catalog",
        "COHOST_CATALOG",
        default="model_configs/encoders.yaml",
        help="The catalog that says each model's task and tokenizer (default: %(default)s).",
    )
    _add(
        group,
        "--models",
        "COHOST_LOAD_MODELS",
        type=parse_models,
        metavar="NAME=WEIGHT,…",
        help="Which models, and how often each (default: all, equally often).",
    )
    _add(
        group,
        "--target-model",
        "COHOST_LOAD_TARGET_MODEL",
        metavar="NAME.tar.gz",
        help="One model by its archive, such as mdeberta.tar.gz.",
    )
    _add(
        group,
        "--inference-component",
        "COHOST_LOAD_INFERENCE_COMPONENT",
        metavar="NAME",
        help="The inference component that serves the models, for --endpoint; a stack names its own.",
    )
    _add(
        group,
        "--task",
        "COHOST_LOAD_TASK",
        choices=TASKS,
        help="The task of all models, for models that the catalog does not have.",
    )


def _add_payloads(group: argparse._ArgumentGroup) -> None:
    _add(
        group,
        "--batch-size",
        "COHOST_LOAD_BATCH_SIZE",
        type=whole(1, MAX_BATCH),
        default=1,
        help="Texts in one call (default: %(default)s).",
    )
    _add(
        group,
        "--texts",
        "COHOST_LOAD_TEXTS",
        metavar="FILE",
        help="Texts to send, one a line, UTF-8 (default: sentences in eight languages, joined to mixed lengths).",
    )


def _add_lengths(group: argparse._ArgumentGroup) -> None:
    _add(
        group,
        "--pad-to-max",
        "COHOST_LOAD_PAD_TO_MAX",
        action="store_true",
        help="Every text has exactly the model's maximum of tokens, counted by its own tokenizer.",
    )
    _add(
        group,
        "--max-length",
        "COHOST_LOAD_MAX_LENGTH",
        type=whole(8, 131_072),
        help="Tokens for --pad-to-max (default: the model's own limit).",
    )
    _add(
        group,
        "--hub",
        "COHOST_LOAD_HUB",
        action="append",
        metavar="DIR",
        help="A folder of tokenizers laid out as org/name; may be repeated.",
    )
    _add(
        group,
        "--seed",
        "COHOST_LOAD_SEED",
        type=whole(0, 2**32 - 1),
        default=1,
        help="The same seed sends the same texts and arrivals (default: %(default)s).",
    )


def _add_load(group: argparse._ArgumentGroup) -> None:
    _add(
        group,
        "--rate",
        "COHOST_LOAD_RATE",
        type=positive,
        metavar="CALLS_PER_S",
        help="Open load: Poisson arrivals at this rate; -u bounds the calls under way; latency counts from the "
        "planned moment. Closed load when left out: each user sends its next call at once.",
    )
    for what, unit in (("batch", "texts a call, each with -u users"), ("concurrency", "callers, with --batch-size")):
        _add(
            group,
            f"--sweep-{what}",
            f"COHOST_LOAD_SWEEP_{what.upper()}",
            type=parse_sweep,
            nargs="?",
            const=DEFAULT_SWEEP,
            metavar="N,N,…",
            help=f"One step after another: {unit} (without values: {DEFAULT_SWEEP}).",
        )


def _add_times(group: argparse._ArgumentGroup) -> None:
    _add(
        group,
        "--warmup",
        "COHOST_LOAD_WARMUP",
        type=not_negative,
        default=10.0,
        metavar="SECONDS",
        help="Calls that are made and dropped before the first step; 2 s at most before each further one "
        "(default: %(default)s).",
    )
    _add(
        group,
        "--measure",
        "COHOST_LOAD_MEASURE",
        type=positive,
        metavar="SECONDS",
        help="How long each step is measured (default: 20 in a sweep; otherwise until -t or a stop).",
    )
    _add(
        group,
        "--wake",
        "COHOST_LOAD_WAKE",
        action="store_true",
        help="First wait for an inference component that is at zero; without, such a run ends at its first calls.",
    )
    _add(
        group,
        "--wake-timeout",
        "COHOST_LOAD_WAKE_TIMEOUT",
        type=positive,
        default=WAKE_TIMEOUT_S,
        metavar="SECONDS",
        help="How long to wait for that at most (default: %(default)s).",
    )
    _add(
        group,
        "--timeout",
        "COHOST_LOAD_TIMEOUT",
        type=positive,
        default=70.0,
        metavar="SECONDS",
        help="A call without an answer for so long has failed (default: %(default)s, above SageMaker's 60).",
    )
    _add(
        group,
        "--skip-cold",
        "COHOST_LOAD_SKIP_COLD",
        action="store_true",
        help="Leave out the first call of each model that is timed by itself.",
    )


def _add_result(group: argparse._ArgumentGroup) -> None:
    _add(
        group,
        "--out",
        "COHOST_LOAD_OUT",
        metavar="DIR",
        help="The folder for the result (default: .cohost/load/DATE-TIME).",
    )
    _add(group, "--label", "COHOST_LOAD_LABEL", help="What the report calls this run (default: the target's name).")
    _add(
        group,
        "--price",
        "COHOST_LOAD_PRICE",
        type=not_negative,
        metavar="USD_PER_HOUR",
        help="The price of all instances together (default: the price list; unknown when it has none).",
    )
    _add(
        group,
        "--max-error-rate",
        "COHOST_LOAD_MAX_ERROR_RATE",
        type=share,
        metavar="SHARE",
        help="More failed calls than this share, such as 0.01, end with exit code 1.",
    )
    _add(
        group,
        "--p99-below",
        "COHOST_LOAD_P99_BELOW",
        type=positive,
        metavar="MS",
        help="A p99 of any model in any step that is not below this ends with exit code 1.",
    )
