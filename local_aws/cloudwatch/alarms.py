"""Metric alarms in the form that evaluation needs: their rule, their metrics and expressions, and their state.

CloudWatch reads more periods than it evaluates, so that data which arrive late do not count as missing. The tables of
the user guide ("Configuring how CloudWatch alarms treat missing data") show two additional periods.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from local_aws.cloudwatch.expressions import NotEmulated, names_in, parse, values_of
from local_aws.cloudwatch.metric_store import COARSE, FINE, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from local_aws.cloudwatch.metric_store import MetricStore

    State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]

LOOKED_BACK_MORE: Final = 2
COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanOrEqualToThreshold": operator.le,
    "LessThanThreshold": operator.lt,
}


@dataclass(frozen=True, kw_only=True)
class Rule:
    """An alarm's rule: the alarm goes to ALARM if `to_alarm` of `periods` periods breach the threshold.

    `missing` is the alarm's TreatMissingData.
    """

    comparison: str
    threshold: float
    periods: int
    to_alarm: int
    missing: str

    def breaches(self, value: float) -> bool:
        """Return True if a value breaches the threshold."""
        return COMPARISONS[self.comparison](value, self.threshold)


ACTIONS: Final[dict[State, str]] = {
    "ALARM": "AlarmActions",
    "OK": "OKActions",
    "INSUFFICIENT_DATA": "InsufficientDataActions",
}
_STATISTICS: Final = {"Average", "Maximum", "Minimum", "SampleCount", "Sum"}
_PERCENTILE: Final = re.compile(r"p\d{1,3}(\.\d+)?")
_PLAIN: Final = "m"
_ENOUGH_SAMPLES: Final = 10
_HALF: Final = 50


@dataclass(frozen=True, kw_only=True)
class Query:
    """One metric that an alarm reads: its statistic over a period in seconds."""

    metric: Metric
    statistic: str
    unit: str | None
    period: int


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The outcome of one evaluation.

    Args:
        state: the state that the data give the alarm; None if the alarm keeps its state.
        values: the values that were evaluated, the newest last.
        missing: the number of evaluated periods without a value.
        stale: whether the newest period has no data.
    """

    state: State | None = None
    values: Sequence[float] = ()
    missing: int = 0
    stale: bool = True


@dataclass(kw_only=True)
class Alarm:
    """A metric alarm.

    Args:
        described: the alarm's entry in DescribeAlarms.
        rule: decides the alarm's state from the data.
        queries: the metrics that the alarm reads, by id.
        expressions: the alarm's metric math, by id.
        result: the id of the query or expression whose values are evaluated.
        state: the alarm's present state.
        evaluated_step: the clock's time of the last evaluation, in whole units of `step`.
        last: the last evaluation.
        acted: the clock's time in seconds at which the alarm triggered a scaling policy last.
    """

    described: Mapping[str, Any]
    rule: Rule
    queries: Mapping[str, Query]
    expressions: Mapping[str, ast.expr]
    result: str
    state: State
    evaluated_step: int = -1
    last: Evaluation = Evaluation()
    acted: float = 0.0

    @property
    def name(self) -> str:
        """The alarm's name."""
        return str(self.described["AlarmName"])

    @property
    def period(self) -> int:
        """The length in seconds of the periods that are evaluated."""
        return max(query.period for query in self.queries.values())

    @property
    def step(self) -> int:
        """The seconds between two evaluations: 10 for periods under 60 s, else 60."""
        return FINE if self.period < COARSE else COARSE

    def actions(self, state: State) -> list[str]:
        """Return the alarm's actions for a state; none if ActionsEnabled is false."""
        return list(self.described.get(ACTIONS[state], [])) if self.described.get("ActionsEnabled", True) else []

    def data(self, metrics: MetricStore, end: float) -> list[float | None]:
        """Return the alarm's values of the periods until `end`, newest last; None for a period without data."""
        count = self.rule.periods + LOOKED_BACK_MORE
        starts = [end - self.period * (count - index) for index in range(count)]
        series = {name: self._read(metrics, query, starts) for name, query in self.queries.items()}
        for name in self._order:
            series[name] = values_of(self.expressions[name], series, count)
        return series[self.result]

    def has_few_samples(self, metrics: MetricStore, end: float) -> bool:
        """Return True if the alarm ignores percentiles of few samples, and its newest period has too few samples."""
        if self.described.get("EvaluateLowSampleCountPercentile") != "ignore":
            return False
        query = self.queries.get(self.result)
        if query is None or not query.statistic.startswith("p"):
            return False
        percent = float(query.statistic[1:])
        share = (100 - percent if percent >= _HALF else percent) / 100
        statistics = metrics.between(query.metric, query.unit, end - query.period, end)
        return statistics is not None and share > 0 and statistics.count < _ENOUGH_SAMPLES / share

    def _read(self, metrics: MetricStore, query: Query, starts: Sequence[float]) -> list[float | None]:
        found = (metrics.between(query.metric, query.unit, start, start + self.period) for start in starts)
        return [None if one is None else one.statistic(query.statistic) for one in found]

    @functools.cached_property
    def _order(self) -> list[str]:
        """The ids of the expressions, each after those that it refers to; CloudWatch rejects circular references."""
        done: list[str] = []
        seen: set[str] = set()

        def add(name: str) -> None:
            if name in self.expressions and name not in seen:
                seen.add(name)
                for used in names_in(self.expressions[name]):
                    add(used)
                done.append(name)

        for name in self.expressions:
            add(name)
        return done


def parse_alarm(described: Mapping[str, Any]) -> Alarm:
    """Parse an alarm from its entry in DescribeAlarms.

    Raises:
        NotEmulated: the alarm has metric math, a statistic or a kind of threshold that the emulation lacks.
    """
    if (comparison := described["ComparisonOperator"]) not in COMPARISONS:
        raise NotEmulated(f"ComparisonOperator {comparison} is not part of this emulation")
    queries: dict[str, Query] = {}
    expressions: dict[str, ast.expr] = {}
    result = _PLAIN
    if listed := described.get("Metrics"):
        for entry in listed:
            if (stat := entry.get("MetricStat")) is not None:
                metric = stat["Metric"]
                queries[entry["Id"]] = _query(metric, stat["Stat"], stat.get("Unit"), int(stat["Period"]))
            else:
                expressions[entry["Id"]] = parse(entry["Expression"])
        result = next((entry["Id"] for entry in listed if entry.get("ReturnData", True)), listed[0]["Id"])
        _check_ids(queries, expressions)
    else:
        statistic = described.get("Statistic") or described["ExtendedStatistic"]
        queries[_PLAIN] = _query(described, statistic, described.get("Unit"), int(described["Period"]))
    periods = int(described["EvaluationPeriods"])
    rule = Rule(
        comparison=comparison,
        threshold=float(described["Threshold"]),
        periods=periods,
        to_alarm=int(described.get("DatapointsToAlarm") or periods),
        missing=described.get("TreatMissingData") or "missing",
    )
    state: State = described["StateValue"]
    return Alarm(described=described, rule=rule, queries=queries, expressions=expressions, result=result, state=state)


def _check_ids(queries: Mapping[str, Query], expressions: Mapping[str, ast.expr]) -> None:
    if not queries:
        raise NotEmulated("metric math without a metric is not part of this emulation")
    for tree in expressions.values():
        for name in names_in(tree):
            if name not in queries and name not in expressions:
                raise NotEmulated(f"{ast.unparse(tree)}: no query has the id {name}")


def _query(metric: Mapping[str, Any], statistic: str, unit: str | None, period: int) -> Query:
    if statistic not in _STATISTICS and not _PERCENTILE.fullmatch(statistic):
        raise NotEmulated(f"statistic {statistic} is not part of this emulation")
    dimensions = ((one["Name"], one["Value"]) for one in metric.get("Dimensions", []))
    named = Metric.of(metric["Namespace"], metric["MetricName"], dimensions)
    return Query(metric=named, statistic=statistic, unit=unit, period=period)
