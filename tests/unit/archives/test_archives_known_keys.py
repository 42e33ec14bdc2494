"""The table of known keys: the allowed values of each, and the nearest key to a wrong one."""

from __future__ import annotations

import pytest

from cohost.archives.known_keys import KNOWN_KEYS, nearest


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("batch_sise", "batch_size"),
        ("option.engine", "engine"),
        ("option.batch_size", "batch_size"),
        ("model_id", "option.model_id"),
        ("gpu.minworkers", "gpu.minWorkers"),
        ("gpu.max_workers", "gpu.maxWorkers"),
        ("entryPoint", "option.entryPoint"),
        ("topK", None),
        ("", None),
    ],
)
def test_nearest_key(wrong: str, right: str | None) -> None:
    """A misspelt key, or one with a wrong case or prefix, leads to the known key."""
    assert nearest(wrong) == right


@pytest.mark.parametrize(
    ("key", "value", "accepted"),
    [
        ("engine", "Python", True),
        ("engine", "Python ", False),
        ("engine", "python", False),
        ("batch_size", "8", True),
        ("batch_size", "0", False),
        ("batch_size", "8.0", False),
        ("batch_size", " 8", False),
        ("batch_size", "1_0", False),
        ("required_memory_mb", "2147483648", False),
        ("gpu.maxWorkers", "0", False),
        ("option.tensor_parallel_degree", "max", True),
        ("option.trust_remote_code", "True", True),
        ("option.trust_remote_code", "yes", False),
        ("option.rolling_batch", "auto", False),
        ("option.model_id", "org/name", True),
        ("option.model_id", "", False),
    ],
)
def test_accepts_what_the_server_takes(key: str, value: str, *, accepted: bool) -> None:
    """Integers as Java parses them, within range; choices literally; switches in any case."""
    assert KNOWN_KEYS[key].accepts(value) is accepted


def test_every_key_says_what_is_allowed() -> None:
    """Each known key describes its allowed values for an error message."""
    assert all(known.allowed and known.name == name for name, known in KNOWN_KEYS.items())
    assert KNOWN_KEYS["batch_size"].allowed == "an integer 1-65536"
    assert KNOWN_KEYS["option.tensor_parallel_degree"].allowed == "an integer 1-64 or max"
