"""The replay compared with hand-computed cases: waking takes 9 min 24 s, ending 11 and 12 minutes."""

from __future__ import annotations

import pytest
from simulation_cases import multi, trace, zero

from cohost.forecast.pricing.running_hours import Service
from cohost.forecast.simulation.replay import replay

DAY = 24 * 60
SERVICE = Service()
OFFICE_DAY = [60 if 8 * 60 <= minute < 18 * 60 else 0 for minute in range(DAY)]


def test_a_day_without_traffic_costs_the_tail_of_the_deploy_or_the_whole_day() -> None:
    """Without calls a scale-to-zero endpoint bills 27 minutes, and a multi-model endpoint the whole day."""
    asleep, awake = (replay(trace([0] * DAY), one, SERVICE) for one in (zero(), multi()))
    assert asleep.instance_hours == pytest.approx(27 / 60)
    assert asleep.desired == [(0, 1), (900, 0)]
    assert awake.instance_hours == 24
    assert (asleep.cold_starts, asleep.unserved_share, asleep.latency_s) == (0, 0, None)


def test_constant_load_costs_the_same_in_both_topologies() -> None:
    """Under constant load neither topology scales to zero: 24 hours bill, and no call is slower than a single one."""
    for one in (zero(), multi()):
        found = replay(trace([60] * DAY), one, SERVICE)
        assert found.instance_hours == 24
        assert (found.tally.answered, found.tally.refused, found.cold_starts) == (60 * DAY, 0, 0)
        assert found.latency_s is not None
        assert found.latency_s[50] == pytest.approx(SERVICE.service_s)


def test_office_hours_bill_from_the_alarm_to_the_tail() -> None:
    """Office hours from 8:00 bill from 8:01 to 18:27 besides the 27 minutes of the deploy."""
    found = replay(trace(OFFICE_DAY), zero(), SERVICE)
    assert found.instance_hours == pytest.approx(27 / 60 + 10 + 26 / 60)
    assert found.serving[2] == (8 * 3600 + 564.5, 1)
    assert (found.tally.refused, found.cold_starts) == (565, 1)
    assert found.tally.answered == 36_000 - 565


@pytest.mark.parametrize("idle", [5, 30])
def test_office_hours_with_an_idle_time_bill_that(idle: int) -> None:
    """With at most one copy only `idle_minutes` decides when it ends, whether shorter or longer than 15 minutes."""
    found = replay(trace(OFFICE_DAY), zero(idle_minutes=idle, tracking_scales_in=False), SERVICE)
    assert found.instance_hours == pytest.approx((idle + 12) / 60 + 10 + (idle + 11) / 60)


def test_a_burst_at_zero_is_refused_and_wakes_once() -> None:
    """A burst of 120 calls at zero copies is rejected and wakes one copy, which ends after 15 idle minutes."""
    found = replay(trace([0] * 60 + [120] + [0] * 120), zero(), SERVICE)
    assert (found.tally.refused, found.tally.answered, found.cold_starts) == (120, 0, 1)
    ready = 3600.25 + 564
    assert found.serving == [(0, 1), (900, 0), (ready, 1), (5100, 0)]
    assert found.instances == [(0, 1), (1620, 0), (3660, 1), (5820, 0)]
    assert found.tally.lost == {60: 120}


def test_callers_that_wait_are_answered_late() -> None:
    """Callers that wait at zero copies are all answered, half of them after the wake-up less half a minute."""
    found = replay(trace([0] * 60 + [120] + [0] * 120), zero(), SERVICE, patient=True)
    assert (found.tally.answered, found.tally.delayed, found.tally.refused, found.unanswered) == (120, 120, 0, 0)
    assert found.delay_s is not None
    assert found.delay_s[50] == pytest.approx(564.25 - 30 + 1.5, abs=5)
    assert found.tally.late == {69: 120}
    assert found.instances == [(0, 1), (1620, 0), (3660, 1), (5820, 0)]


def test_callers_that_wait_too_short_a_time_give_up() -> None:
    """Callers that wait at most five minutes give up before the copy answers."""
    found = replay(trace([0] * 60 + [120] + [0] * 60), zero(), Service(wake_timeout_s=300), patient=True)
    assert (found.tally.refused, found.tally.answered) == (120, 0)
    assert set(found.tally.lost) == {65}


def test_an_instance_on_its_way_out_is_taken_by_the_next_copy() -> None:
    """A call within the 12 minutes of an ending instance reuses it, so only one instance bills."""
    found = replay(trace([0] * 15 + [1] + [0] * 60), zero(), SERVICE)
    assert found.desired[:3] == [(0, 1), (900, 0), (960, 1)]
    assert found.instances[0] == (0, 1)
    assert found.instances[1][0] > 960


def test_an_overloaded_instance_answers_what_it_can_and_times_out_the_rest() -> None:
    """At 50 calls per second and a rate of 39, calls wait up to a minute and the others time out."""
    found = replay(trace([3000] * 10), multi(), SERVICE)
    assert (found.tally.answered, found.unanswered, found.tally.timed_out) == (39 * 600, 39 * 60, 6600 - 39 * 60)
    assert found.latency_s is not None
    assert found.latency_s[99] == pytest.approx(60, abs=2)


def test_time_without_calls_is_not_saved_for_later() -> None:
    """A second overloaded minute waits as long as the first, whether quiet minutes lie between or not."""
    once, twice = (replay(trace(one), multi(), SERVICE).tally.waits for one in ([3000, 0], [3000, 0, 3000, 0]))
    assert max(once) == pytest.approx(660 / 39, abs=2)
    assert twice == {wait: 2 * calls for wait, calls in once.items()}


def test_half_busy_copies_make_half_of_the_calls_wait() -> None:
    """At half load (M/M/1) half of the calls wait: p50 has no wait, and p90 the exponential one."""
    found = replay(trace([1170] * 60), multi(), SERVICE)
    assert found.latency_s is not None
    assert found.latency_s[50] == pytest.approx(SERVICE.service_s)
    assert found.latency_s[90] == pytest.approx(SERVICE.service_s + 1.609 / 19.5, rel=0.05)


def test_callers_give_up_while_others_are_answered_too() -> None:
    """Callers that wait ten minutes are rejected if a burst takes longer to be answered."""
    found = replay(trace([0] * 60 + [7020] + [0] * 30), zero(), Service(wake_timeout_s=600), patient=True)
    assert found.tally.refused > 2000
    assert found.tally.answered + found.tally.refused == 7020
    assert max(found.tally.delays) <= 600 + 60


@pytest.mark.parametrize(("metric", "target", "alarm"), [("invocations", 60.0, 180), ("concurrency", 0.06, 30)])
def test_growth_follows_three_values_above_the_target(metric: str, target: float, alarm: int) -> None:
    """Target tracking scales out after three values above the target: 3 min for invocations, 30 s for concurrency."""
    found = replay(trace([120] * 20), multi(max=3, metric=metric, target=target), SERVICE)
    assert found.desired[:2] == [(0, 1), (alarm, 2)]
    assert found.serving[:2] == [(0, 1), (alarm + SERVICE.growth_s, 2)]


@pytest.mark.parametrize(("metric", "minutes"), [("invocations", 15), ("concurrency", 15)])
def test_shrinking_needs_the_whole_window_below_the_target(metric: str, minutes: int) -> None:
    """A scale-in needs 15 minutes below the target with either metric, and keeps the minimum."""
    found = replay(trace([0] * 40), multi(max=3, start=3, metric=metric), SERVICE)
    assert found.desired == found.instances == [(0, 3), (minutes * 60, 1)]


def test_nine_tenths_of_the_target_are_enough_to_stay() -> None:
    """Twenty copies stay at a load for nineteen, because the low alarm is at nine tenths of the target."""
    rules = multi(max=20, start=20, metric="invocations", target=60.0)
    assert replay(trace([20 * 55] * 40), rules, SERVICE).desired == [(0, 20)]
    assert replay(trace([20 * 53] * 40), rules, SERVICE).desired == [(0, 20), (900, 18)]


def test_nothing_shrinks_while_copies_start() -> None:
    """While a copy starts for an hour, quiet minutes do not reduce the desired number of copies."""
    rules = multi(max=3, metric="invocations", target=60.0)
    found = replay(trace([120] * 3 + [0] * 90), rules, Service(start_s=3600))
    assert found.desired == [(0, 1), (180, 2), (3780, 1)]


@pytest.mark.parametrize(("cooldown", "second"), [(60, 2400), (3600, 4800)])
def test_the_scale_in_cooldown_puts_off_the_next_shrinking(cooldown: int, second: int) -> None:
    """A scale-in waits for 15 low minutes, and for the end of the cooldown of the previous scale-in."""
    counts = [170] * 5 + [100] * 20 + [50] * 60
    one = multi(max=3, start=3, metric="invocations", target=60.0, scale_in_cooldown=cooldown)
    assert replay(trace(counts), one, SERVICE).desired == [(0, 3), (1200, 2), (second, 1)]


@pytest.mark.parametrize(("cooldown", "second"), [(60, 960), (600, 1320)])
def test_the_scale_out_cooldown_counts_what_was_added(cooldown: int, second: int) -> None:
    """During the scale-out cooldown a second scale-out adds only what the first one did not."""
    counts = [120] * 13 + [180] * 20
    one = multi(max=9, metric="invocations", target=60.0, scale_out_cooldown=cooldown)
    assert replay(trace(counts), one, SERVICE).desired[:3] == [(0, 1), (180, 2), (second, 3)]


def test_waking_ends_the_cooldown_of_going_to_sleep() -> None:
    """A scale-out ends the scale-in cooldown, so cooldowns have no effect with at most one copy."""
    counts = [0] * 60 + [60] * 60 + [0] * 60
    hours = {
        replay(trace(counts), zero(scale_in_cooldown=inn, scale_out_cooldown=out), SERVICE).instance_hours
        for inn, out in ((0, 0), (86_400, 0), (0, 86_400))
    }
    assert len(hours) == 1


def test_while_copies_start_the_same_alarm_adds_none() -> None:
    """An alarm that lasts while copies start adds no further copies."""
    grown = replay(trace([120] * 11), multi(max=9, metric="invocations", target=60.0), SERVICE)
    woken = replay(trace([0] * 30 + [60] * 9), zero(max=9), SERVICE)
    assert (grown.grown, grown.desired[-1]) == (1, (180, 2))
    assert (woken.cold_starts, woken.desired[-1][1]) == (1, 1)


def test_an_alarm_that_lasts_triggers_its_policy_each_minute() -> None:
    """A lasting alarm triggers its policy each minute, so a load that rises later is answered then."""
    rules = multi(max=9, metric="concurrency", target=0.06)
    found = replay(trace([120] + [480] * 3), rules, SERVICE)
    assert [second for second, _ in found.desired[:3]] == [0, 30, 90]


def test_a_woken_copy_is_measured_before_more_are_asked_for() -> None:
    """After a wake-up a second copy is requested only after half a minute of too many calls to the first."""
    found = replay(trace([0] * 60 + [3000] + [0] * 20), zero(max=3), Service(wake_s=590), patient=True)
    ready = found.serving[2][0]
    assert ready == pytest.approx(3600 + 590, abs=1)
    assert [copies for _, copies in found.desired[:4]] == [1, 0, 1, 3]
    assert found.desired[3][0] >= ready + 30


def test_a_schedule_takes_copies_away_at_once() -> None:
    """A lower maximum of a schedule applies at once, whatever the load."""
    found = replay(trace([6000] * 30), multi(max=3, start=3), SERVICE, bounds=[(600, 1, 1)])
    assert found.desired == [(0, 3), (600, 1)]


def test_a_schedule_keeps_copies_through_the_working_hours() -> None:
    """With a minimum of 1 from 7:30 to 18:00 no call of the office day is rejected, and the night costs nothing."""
    bounds = [(7.5 * 3600, 1, 1), (18 * 3600, 0, 1)]
    found = replay(trace(OFFICE_DAY), zero(), SERVICE, bounds=bounds)
    assert (found.tally.refused, found.cold_starts) == (0, 0)
    assert found.instance_hours == pytest.approx(27 / 60 + 10.5 + 27 / 60)


def test_copies_share_an_instance_of_several_gpus() -> None:
    """Four copies on an instance with four GPUs bill one instance, and a fifth copy bills a second."""
    for copies, instances in ((4, 1), (5, 2)):
        found = replay(trace([0] * 5), zero(min=copies, max=copies, start=copies, per_instance=4), SERVICE)
        assert found.instances == [(0, instances)]


def test_an_unknown_price_stays_unknown() -> None:
    """A replay without a price has no cost; with a price a month has 730 hours."""
    found = replay(trace([0] * DAY), multi(), SERVICE)
    assert (found.per_day(None), found.per_month(None)) == (None, None)
    assert found.per_month(1.408) == pytest.approx(1.408 * 730)
