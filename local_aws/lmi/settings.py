"""Settings of the container, read from its environment, and the settings of one model.

Source of names and defaults: DJL Serving 0.36.0 (ModelInfo, ConfigManager), recorded (tests/data/djl_lifecycle: 26,
27).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from cohost.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping


RETRY_THRESHOLD = "SERVING_RETRY_THRESHOLD"
HEALTH_CHECK_OVERRIDE = "SERVING_HEALTH_CHECK_OVERRIDE"
FAIL_FAST = "SERVING_FAIL_FAST"
CHUNKED_READ_TIMEOUT = "SERVING_CHUNKED_READ_TIMEOUT"
NETTY_THREADS = "SERVING_NUMBER_OF_NETTY_THREADS"
SPEED = "COHOST_LMI_SPEED"

_STALE_S = 60.0
_CHUNKED_READ_TIMEOUT_S = 120
_THREADS_PER_CORE = 2


class RulesError(LocalError):
    """An environment variable of the container has a value that the server cannot read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerRules:
    """Rules that apply to every model of a container; times are in the real server's seconds, which `speed` shortens.

    A model has failed once its workers failed more often than its own `retry_threshold` allows; if the model sets none,
    the `retry_threshold` of these rules applies. With `health_check_override` a failed model is still reported as
    READY; with `fail_fast` the server ends when a failed model's status is next read. The server closes a connection
    when an asynchronous handler sends nothing for `chunked_read_timeout_s`. The server reads requests in
    `network_threads` threads, which all its connections share.

    Two of the rules are this project's own, not DJL Serving's. Waits and time limits pass `speed` times faster than in
    the real server. `interpreter_s` is added to the start of a process while requests are refused: the real server
    starts a Python interpreter then, which takes longer than the emulator's fork (recordings 24 and 27 in
    tests/data/djl_lifecycle).
    """

    retry_threshold: int = 0
    health_check_override: bool = False
    fail_fast: bool = False
    chunked_read_timeout_s: float = _CHUNKED_READ_TIMEOUT_S
    network_threads: int = 2 * _THREADS_PER_CORE
    speed: float = 1.0
    interpreter_s: float = 0.15

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Return the rules that a container's environment variables set.

        Raises:
            RulesError: a variable's number cannot be read.
        """
        threads = _whole(environment, NETTY_THREADS, 0)
        return cls(
            retry_threshold=_whole(environment, RETRY_THRESHOLD, 0),
            health_check_override=_is_true(environment, HEALTH_CHECK_OVERRIDE),
            fail_fast=_is_true(environment, FAIL_FAST),
            chunked_read_timeout_s=_whole(environment, CHUNKED_READ_TIMEOUT, _CHUNKED_READ_TIMEOUT_S),
            network_threads=threads if threads > 0 else _THREADS_PER_CORE * (os.cpu_count() or 1),
            speed=_speed(environment),
        )

    @property
    def stale_s(self) -> float:
        """Return the seconds, on this machine's clock, for which an ended worker still counts as its model's worker."""
        return self.on_our_clock(_STALE_S)

    def on_our_clock(self, seconds: float) -> float:
        """Convert seconds of the real server to seconds on this machine's clock."""
        return seconds / self.speed


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSettings:
    """One model's settings; the names of times and sizes end with their units.

    `properties` are the properties in a handler's first call: all properties of the model, without the prefix
    `option.`. `entry_point` is the handler that the archive names or contains (None: the stock handler). `environment`
    are the variables that `option.env` adds to a worker's environment. If `retry_threshold` is None, the container's
    threshold applies.
    """

    properties: Mapping[str, str]
    entry_point: str | None
    environment: Mapping[str, str]
    async_mode: bool
    batch_size: int
    max_batch_delay_ms: int
    max_idle_s: int
    queue_size: int
    min_workers: int
    max_workers: int
    required_memory_mb: int
    reserved_memory_mb: int
    predict_timeout_s: int
    loading_timeout_s: int
    retry_threshold: int | None


def _whole(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise RulesError(
            "server-variable-wrong",
            name,
            f"{text!r} is not a whole number",
            allowed=f"digits, as in {default}",
            fix="correct or unset it",
        ) from None


def _is_true(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() == "true"


def _speed(environment: Mapping[str, str]) -> float:
    text = environment.get(SPEED, "1")
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise RulesError(
            "server-variable-wrong",
            SPEED,
            f"{text!r} is not a speed",
            allowed="a number above 0, as in 1 or 20",
            fix="correct or unset it",
        )
    return speed
