"""Summary of all runs: medians, ratios, spreads, goals met and missed.

Figures are medians over the runs that count; a ratio is a median over the baseline's median. A failed
run is excluded from the median, its row is flagged, and its goals count as missed.
"""

from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct

from bench.measurement import Measurement
from bench.report.machine import Machine
from bench.scenarios import STAND_INS, Contest, Figure, Goal, Scenario, present

NOISY_SPREAD = 0.30
GENERATOR_LIMIT = 0.90
BUSY_ELSEWHERE = 0.30


class Summary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Runs of one broker in one scenario, for one figure."""

    runs: int
    failed: int = 0
    failure: str | None = None
    value: float | None = None
    ratio: float | None = None
    """To the value of the baseline; None without one."""
    cpu_ratio: float | None = None
    """CPU time per delivery of the baseline to that of this broker: above 1 it needs less."""
    spread: float | None = None
    """(max - min) / median over the runs that count; None for a single one."""
    load_cpu: float | None = None
    cpu_us_per_delivery: float | None = None
    others_cpu: float | None = None


class Verdict(Struct, frozen=True):
    """A goal and the value that was reached; `is_met` is None if it cannot be judged."""

    goal: Goal
    reached: float | None
    is_met: bool | None
    beside: dict[str, float] = {}
    """The same ratio to the stand-in of the goal's broker, if both were measured."""
    stand_in: str | None = None
    """Broker of the ratio where the goal's own was not measured."""


class Row(Struct, frozen=True):
    """One figure of one scenario, for all brokers."""

    contest: Contest
    scenario: str
    figure: str
    metric: str
    summaries: dict[str, Summary]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]


class Result(Struct, frozen=True, kw_only=True):
    """A whole bench: machine, options, rows, and every run behind them."""

    when: str
    machine: Machine
    versions: dict[str, str]
    repeat: int
    duration_s: float
    warm_s: float
    rows: list[Row]
    runs: dict[str, dict[str, list[Measurement]]]
    left_out: dict[str, str] = {}
    """Peers that could not be measured here, with the reason."""

    @property
    def failed_runs(self) -> int:
        """Number of runs that do not count."""
        return sum(
            run.failure is not None
            for by_name in self.runs.values()
            for runs in by_name.values()
            for run in runs
        )


def make_rows(
    scenarios: Sequence[Scenario], runs: Mapping[str, Mapping[str, Sequence[Measurement]]]
) -> list[Row]:
    """Rows of a report, in the order of the scenarios."""
    return [
        _make_row(scenario, figure, runs.get(scenario.name, {}))
        for scenario in scenarios
        for figure in scenario.figures
    ]


def _make_row(scenario: Scenario, figure: Figure, runs: Mapping[str, Sequence[Measurement]]) -> Row:
    contest = scenario.contest
    baseline = present(contest.baseline, runs)
    base = _counting(runs.get(baseline or "", ()))
    summaries = {name: _summarise(figure, of_one, base) for name, of_one in runs.items()}
    verdicts = tuple(_judge(goal, contest.subject, summaries) for goal in figure.goals)
    notes = [note for name, summary in summaries.items() for note in _notes(scenario, name, summary)]
    if baseline != contest.baseline and baseline is not None:
        notes.append(f"the ratio is to {baseline}")
    if figure is scenario.figures[0]:
        notes += dict.fromkeys(f"with {run.size}" for of_one in runs.values() for run in of_one if run.size)
    return Row(contest, scenario.name, figure.label, figure.metric, summaries, verdicts, tuple(notes))


def _counting(runs: Sequence[Measurement]) -> list[Measurement]:
    return [run for run in runs if run.failure is None]


def _values(metric: str, runs: Sequence[Measurement]) -> list[float]:
    found = (getattr(run, metric) for run in runs)
    return [float(value) for value in found if value is not None]


def _median(metric: str, runs: Sequence[Measurement]) -> float | None:
    values = _values(metric, runs)
    return median(values) if values else None


def _summarise(figure: Figure, runs: Sequence[Measurement], base: Sequence[Measurement]) -> Summary:
    """Args:
    base: runs of the baseline that count.
    """
    counting = _counting(runs)
    cpu_us = _median("cpu_us_per_delivery", counting)
    failures = [run.failure for run in runs if run.failure is not None]
    values = _values(figure.metric, counting)
    value = median(values) if values else None
    return Summary(
        runs=len(runs),
        failed=len(failures),
        failure=failures[0] if failures else None,
        value=value,
        ratio=_divide(value, _median(figure.metric, base)),
        cpu_ratio=_divide(_median("cpu_us_per_delivery", base), cpu_us),
        spread=_divide(max(values) - min(values), value) if len(values) > 1 else None,
        load_cpu=_median("load_cpu", counting),
        cpu_us_per_delivery=cpu_us,
        others_cpu=_median("others_cpu", counting),
    )


def _divide(value: float | None, by: float | None) -> float | None:
    return None if value is None or not by else value / by


def _judge(goal: Goal, subject: str, summaries: Mapping[str, Summary]) -> Verdict:
    ours = summaries.get(subject)
    if ours is None:
        return Verdict(goal, None, None)
    reached, beside, used = ours.value, {}, None
    if goal.against is not None:
        against = present(goal.against, summaries)
        reached = _ratio_to(against, ours, summaries)
        stand_in = STAND_INS.get(goal.against)
        if against == stand_in:
            used = stand_in
        elif (ratio := _ratio_to(stand_in, ours, summaries)) is not None:
            beside = {str(stand_in): ratio}
    is_met = None if reached is None else goal.holds(reached)
    return Verdict(goal, reached, False if ours.failed else is_met, beside, used)


def _ratio_to(name: str | None, ours: Summary, summaries: Mapping[str, Summary]) -> float | None:
    other = summaries.get(name or "")
    return _divide(ours.value, other.value if other else None)


def _notes(scenario: Scenario, name: str, summary: Summary) -> list[str]:
    notes = []
    if summary.failed:
        notes.append(f"FAILED: {summary.failed} of {summary.runs} runs of {name}: {summary.failure}")
    if (summary.spread or 0.0) > NOISY_SPREAD:
        notes.append(f"{name} spread over {NOISY_SPREAD:.0%}: repeat before quoting")
    if (summary.load_cpu or 0.0) >= GENERATOR_LIMIT and not scenario.is_spinning:
        notes.append(f"generator was the limit for {name}: a lower bound")
    return notes
