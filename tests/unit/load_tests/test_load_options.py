"""The load test's options and the steps that follow from them."""

from __future__ import annotations

import argparse

import pytest
from fakes.refusals import refused

from load_tests import LoadError
from load_tests import options as option_values
from load_tests import phases as plan


def given(**changes: object) -> argparse.Namespace:
    """Return the default options with changes."""
    facts: dict[str, object] = {
        "rate": None,
        "sweep_batch": None,
        "sweep_concurrency": None,
        "batch_size": 1,
        "measure": None,
        "warmup": 10.0,
        "models": None,
        "target_model": None,
        "inference_component": None,
        "endpoint": None,
        "pad_to_max": False,
        "max_length": None,
        "texts": None,
    }
    return argparse.Namespace(**{**facts, **changes})


def test_models_take_weights() -> None:
    """A model without a weight has the weight 1, and blanks are ignored."""
    assert option_values.parse_models("mdeberta=3, minilm,xlmr-large=0.5") == {
        "mdeberta": 3,
        "minilm": 1,
        "xlmr-large": 0.5,
    }


@pytest.mark.parametrize("text", ["", "a,", "a,a", "=2", "a=0", "a=-1", "a=nan", "a=x"])
def test_wrong_models_are_told(text: str) -> None:
    """The error for wrong --models has the value and the allowed form."""
    with pytest.raises(argparse.ArgumentTypeError, match="allowed"):
        option_values.parse_models(text)


def test_sweeps_may_have_brackets_and_repeats() -> None:
    """[1, 2, 2] and 1,2 give the same sweep."""
    assert option_values.parse_sweep("[1, 2,2]") == option_values.parse_sweep("1,2") == (1, 2)


@pytest.mark.parametrize("text", ["", "0", "1,", "1025", "1.5", "a"])
def test_wrong_sweeps_are_told(text: str) -> None:
    """A sweep is rejected unless each value is a whole number in range."""
    with pytest.raises(argparse.ArgumentTypeError, match="a whole number from 1 to 1024"):
        option_values.parse_sweep(text)


@pytest.mark.parametrize("text", ["-1", "0", "x", "inf", "nan"])
def test_wrong_rates_are_told(text: str) -> None:
    """A rate must be above 0 and finite."""
    with pytest.raises(argparse.ArgumentTypeError, match="a number above 0"):
        option_values.positive(text)


def test_shares_and_waits() -> None:
    """A share and a wait may be 0, and a share of 1.1 is rejected."""
    assert option_values.share("0") == option_values.not_negative("0") == 0
    with pytest.raises(argparse.ArgumentTypeError, match="a share from 0 to 1"):
        option_values.share("1.1")


def test_a_plain_run_is_one_step_without_an_end() -> None:
    """A load test without a sweep is one step that ends by -t or by the user."""
    (step,) = plan.steps(given(batch_size=4), users=8)

    assert (step.batch, step.concurrency, step.rate, step.seconds, step.settle) == (4, 8, None, None, 10)


def test_sweeps_follow_each_other_without_repeats() -> None:
    """A step that both sweeps contain is measured once, and only the first warm-up is long."""
    steps = plan.steps(given(sweep_batch=(1, 8), sweep_concurrency=(1, 8)), users=1)

    assert [step.name for step in steps] == ["b1 c1", "b8 c1", "b1 c8"]
    assert [step.settle for step in steps] == [10, 2, 2]
    assert {step.seconds for step in steps} == {20}


def test_payloads_are_made_for_every_batch_that_a_step_needs() -> None:
    """Payloads are made for exactly the batch sizes of the steps."""
    assert plan.batches(given(sweep_batch=(2, 8))) == (2, 8)
    assert plan.batches(given(sweep_batch=(2, 8), sweep_concurrency=(1,), batch_size=4)) == (2, 8, 4)
    assert plan.batches(given(batch_size=4)) == (4,)


def test_an_open_load_has_users_for_four_seconds() -> None:
    """An open load without -u has enough users for answers that take four seconds."""
    assert plan.default_users(None) == 1
    assert plan.default_users(1) == 10
    assert plan.default_users(40) == 160
    assert plan.default_users(10_000) == 1000


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"rate": 5.0, "sweep_batch": (1,)}, "--rate"),
        ({"models": {"a": 1}, "target_model": "a.tar.gz"}, "--models"),
        ({"inference_component": "c"}, "--inference-component"),
        ({"max_length": 128}, "--max-length"),
        ({"texts": "x", "pad_to_max": True}, "--texts"),
    ],
)
def test_options_that_exclude_each_other_are_told(changes: dict[str, object], option: str) -> None:
    """Options that exclude each other are rejected with the fix."""
    with refused("load-options-conflict", option, kind=LoadError):
        plan.check(given(**changes))
