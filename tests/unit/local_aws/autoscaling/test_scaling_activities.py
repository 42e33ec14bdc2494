"""A target's bounds, set by requests and by schedules."""

from __future__ import annotations

import pytest

from local_aws.testing.scaling_stage import COMPONENT, Stage, played, register


@pytest.mark.parametrize(
    ("minimum", "maximum", "asked", "cause"),
    [(2, 4, [2], "minimum capacity was set to 2"), (0, 0, [0], "maximum capacity was set to 0"), (0, 4, [], None)],
)
def test_registering_brings_the_capacity_within_the_bounds(
    minimum: int, maximum: int, asked: list[int], cause: str | None
) -> None:
    """Registering a target changes the capacity at once if it is outside the bounds."""

    async def scene(stage: Stage) -> None:
        await register(stage, minimum, maximum)
        await stage.work()

    stage = played(scene)
    assert stage.services.asked == asked
    assert [activity.cause for activity in stage.targets.activities] == ([] if cause is None else [cause])


def test_bounds_that_could_not_be_kept_are_tried_again_each_minute() -> None:
    """Bounds that a running update prevents are applied again each minute."""

    async def scene(stage: Stage) -> None:
        stage.services.busy = True
        await register(stage, 2, 4)
        await stage.pass_time(60)
        stage.services.busy = False
        await stage.pass_time(60)
        await stage.pass_time(120)

    assert played(scene).services.asked == [2]


def test_scheduled_actions_move_the_bounds() -> None:
    """A scheduled action sets a minimum of one copy by day, and another one a minimum of none by night."""

    async def scene(stage: Stage) -> None:
        await register(stage, 0, 4)
        for name, schedule, bounds in (
            ("day", "rate(1 minute)", {"MinCapacity": 2}),
            ("night", "at(2027-01-15T08:02:30)", {"MinCapacity": 0, "MaxCapacity": 0}),
        ):
            action = {"ScheduledActionName": name, "Schedule": schedule, "ScalableTargetAction": bounds}
            await stage.scheduled.put({**COMPONENT, **action})
        await stage.pass_time(50)
        assert stage.services.asked == []
        await stage.pass_time(10)
        assert stage.services.asked == [2]
        await stage.scheduled.delete({**COMPONENT, "ScheduledActionName": "day"})
        await stage.pass_time(100)

    stage = played(scene)
    assert stage.services.asked == [2, 0]
    assert stage.targets.activities[0].cause == (
        "scheduled action name night was triggered, maximum capacity was set to 0"
    )
