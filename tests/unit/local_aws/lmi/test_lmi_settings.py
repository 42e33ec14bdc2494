"""The container's variables about failed models and waits are read once, and invalid ones rejected."""

from __future__ import annotations

import os

import pytest
from fakes.refusals import refused

from local_aws.lmi.settings import RulesError, ServerRules


def test_without_a_variable_the_real_servers_defaults_hold() -> None:
    """Without variables the real server's defaults apply: no retries, 120 s per part, two threads per core."""
    threads = 2 * (os.cpu_count() or 1)
    assert ServerRules.of({}) == ServerRules(network_threads=threads)
    assert (ServerRules().retry_threshold, ServerRules().chunked_read_timeout_s, ServerRules().speed) == (0, 120, 1)
    assert (ServerRules().health_check_override, ServerRules().fail_fast) == (False, False)


def test_every_variable_is_read() -> None:
    """Each variable of the real server is read, with any case of "true", and the emulator's one for the clock."""
    environment = {
        "SERVING_RETRY_THRESHOLD": "3",
        "SERVING_HEALTH_CHECK_OVERRIDE": "TRUE",
        "SERVING_FAIL_FAST": "true",
        "SERVING_CHUNKED_READ_TIMEOUT": "30",
        "SERVING_NUMBER_OF_NETTY_THREADS": "4",
        "COHOST_LMI_SPEED": "20",
    }
    assert ServerRules.of(environment) == ServerRules(
        retry_threshold=3,
        health_check_override=True,
        fail_fast=True,
        chunked_read_timeout_s=30,
        network_threads=4,
        speed=20,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("SERVING_RETRY_THRESHOLD", "often"), ("COHOST_LMI_SPEED", "0"), ("COHOST_LMI_SPEED", "fast")],
)
def test_a_number_that_cannot_be_read_is_refused_with_its_fix(name: str, value: str) -> None:
    """The container does not start on a guess."""
    with refused("server-variable-wrong", name, kind=RulesError):
        ServerRules.of({name: value})


def test_the_clock_makes_every_wait_shorter() -> None:
    """20 times the speed: the minute of an ended worker is three seconds."""
    assert ServerRules(speed=20).stale_s == 3
    assert ServerRules(speed=20).on_our_clock(120) == 6
