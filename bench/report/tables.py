"""Tables of a result: for a terminal, and as Markdown."""

from msgspec import Struct
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.report.summary import BUSY_ELSEWHERE, Result, Row, Summary, Verdict
from bench.scenarios import CONTESTS, Contest, present

NOTHING = "-"


class Grid(Struct, frozen=True):
    """Table of formatted texts; the first `names` columns are words, the others numbers."""

    title: str
    header: list[str]
    rows: list[list[str]]
    names: int


def print_result(result: Result, console: Console) -> None:
    """Print tables to a terminal; Markdown elsewhere, because its lines need no width."""
    if not console.is_terminal:
        print(render_markdown(result), end="")
        return
    for line in _conditions(result):
        console.print(line, highlight=False, markup=False)
    for grid in _grids(result):
        table = Table(title=grid.title, title_justify="left", box=SIMPLE_HEAD, padding=0)
        for index, name in enumerate(grid.header):
            table.add_column(name, justify="left" if index < grid.names else "right", overflow="fold")
        for row in grid.rows:
            table.add_row(*row)
        console.print(table)
    for note in _notes(result):
        console.print(f"* {note}", highlight=False, markup=False)


def render_markdown(result: Result) -> str:
    """Render the tables as Markdown."""
    parts = ["\n".join(f"- {line}" for line in _conditions(result))]
    for grid in _grids(result):
        ruler = ["---"] * grid.names + ["---:"] * (len(grid.header) - grid.names)
        lines = [grid.header, ruler, *grid.rows]
        parts.append(f"**{grid.title}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))
    notes = _notes(result)
    if notes:
        parts.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts) + "\n"


def _conditions(result: Result) -> list[str]:
    machine = result.machine
    versions = "; ".join(f"{name}: {version}" for name, version in result.versions.items())
    disk = f"; data on {machine.file_system}" if any(row.contest.is_on_disk for row in result.rows) else ""
    return [
        f"{result.when}, {machine.cpu_model}, {machine.cpus} CPUs, {machine.kernel}, "
        f"load average {machine.load_average} before",
        f"{machine.python}, uvloop {machine.uvloop}; {versions}",
        f"median of {result.repeat}, {result.duration_s:g} s each after {result.warm_s:g} s of warm-up; "
        f"loopback, each broker on one core, the generator on another{disk}",
    ]


def _grids(result: Result) -> list[Grid]:
    comparisons = [_comparison(result, contest) for contest in CONTESTS]
    return [*(grid for grid in comparisons if grid.rows), _detail(result)]


def _comparison(result: Result, contest: Contest) -> Grid:
    compared = [row for row in result.rows if row.contest == contest]
    names = [name for name in result.versions if any(name in row.summaries for row in compared)]
    header = ["scenario", "figure", *names, "goal", "reached"]
    rows = []
    for row in compared:
        cells = [_value_and_ratio(row, name, contest.baseline) for name in names]
        goals = "; ".join(_goal(verdict, contest.baseline) for verdict in row.verdicts) or NOTHING
        reached = "; ".join(map(_reached, row.verdicts)) or NOTHING
        rows.append([row.scenario, row.figure, *cells, goals, reached])
    return Grid(contest.title, header, rows, 2)


def _detail(result: Result) -> Grid:
    header = [
        "scenario",
        "figure",
        "broker",
        "median",
        "spread",
        "CPU us per delivery",
        "generator CPU",
        "other CPU",
        "runs",
    ]
    rows = [
        [row.scenario, row.figure, name, *_detail_cells(summary)]
        for row in result.rows
        for name, summary in row.summaries.items()
    ]
    return Grid("How reliable the medians are", header, rows, 3)


def _detail_cells(summary: Summary) -> list[str]:
    counted = f"{summary.runs - summary.failed}/{summary.runs}"
    return [
        number_text(summary.value),
        NOTHING if summary.spread is None else f"{summary.spread:.0%}",
        number_text(summary.cpu_us_per_delivery),
        NOTHING if summary.load_cpu is None else f"{summary.load_cpu:.2f}",
        NOTHING if summary.others_cpu is None else f"{summary.others_cpu:.2f}",
        f"{counted} FAILED" if summary.failed else counted,
    ]


def _value_and_ratio(row: Row, name: str, baseline: str | None) -> str:
    summary = row.summaries.get(name)
    if summary is None:
        return NOTHING
    text = number_text(summary.value)
    if name != present(baseline, row.summaries) and summary.ratio is not None:
        cpu = "" if summary.cpu_ratio is None else f", CPU {number_text(summary.cpu_ratio)}x"
        text = f"{text} ({number_text(summary.ratio)}x{cpu})"
    return f"{text} FAILED" if summary.failed else text


def _goal(verdict: Verdict, baseline: str | None) -> str:
    goal = verdict.goal
    if goal.against is None:
        return f"{goal.sign} {number_text(goal.limit)}"
    peer = "" if goal.against == baseline else f" {goal.against}"
    return f"{goal.sign} {number_text(goal.limit)}x{peer}"


def _reached(verdict: Verdict) -> str:
    if verdict.is_met is None:
        return NOTHING
    word = "yes" if verdict.is_met else "NO"
    unit = "" if verdict.goal.against is None else "x"
    if verdict.stand_in is not None:
        unit += f" {verdict.stand_in}"
    beside = "".join(f" ({number_text(ratio)}x {name})" for name, ratio in verdict.beside.items())
    return word if verdict.reached is None else f"{word}, {number_text(verdict.reached)}{unit}{beside}"


def _notes(result: Result) -> list[str]:
    notes = [f"{name} is left out: {reason}" for name, reason in result.left_out.items()]
    notes += [f"{row.scenario}: {note}" for row in result.rows for note in row.notes]
    if any(map(_is_disturbed, result.rows)):
        notes.append(f"other work on the machine took over {BUSY_ELSEWHERE:g} of a core during some rows")
    return notes


def _is_disturbed(row: Row) -> bool:
    return any((summary.others_cpu or 0.0) > BUSY_ELSEWHERE for summary in row.summaries.values())


def number_text(value: float | None) -> str:
    """Format a number: without decimals from 1,000 on, three digits below."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
