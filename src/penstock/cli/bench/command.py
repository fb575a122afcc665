"""What the command does, from its options to its exit status."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import msgspec
from rich.console import Console

from penstock.cli.bench.building import build_program
from penstock.cli.bench.crew import Crew
from penstock.cli.bench.load import LoadGenerator
from penstock.cli.bench.machine import describe_machine
from penstock.cli.bench.measurement import Measurement
from penstock.cli.bench.peers import PENSTOCK, choose_peers
from penstock.cli.bench.problems import BenchError, WrongOption
from penstock.cli.bench.report import Result, make_rows
from penstock.cli.bench.rounds import Measurements, raise_file_limit, run_rounds, run_trials
from penstock.cli.bench.scenarios import PEERS, SAVING, SIDECAR, SOCKETS, STORED, STREAMS, Scenario, choose
from penstock.cli.bench.tables import number_text, print_result, render_markdown
from penstock.cli.bench.targets import parse_target
from penstock.cli.bench.trials.site import Site
from penstock.errors import InvalidConfig
from penstock.extras import require_extra

MEMORY_ONLY = ("tmpfs", "ramfs")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The command's options."""

    scenarios: str
    peers: str
    repeat: int
    duration_s: float
    warm_s: float
    scale: float
    targets: tuple[str, ...]
    with_penstock: bool
    out: Path | None
    markdown: Path | None
    as_json: bool


def run(plan: Plan) -> bool:
    """Measure, write and print; True when every run counted."""
    if not sys.platform.startswith("linux"):
        raise BenchError("the bench pins processes and reads /proc: it runs on Linux only")
    scenarios = _possible(choose(plan.scenarios), plan)
    if any(scenario.contest.is_on_disk for scenario in scenarios):
        _require_extra()
    out = plan.out or _default_out()
    out.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(_orderly_end())
        # Beside the results and not in a folder for temporary files, which may have no disk below it.
        folder = tempfile.TemporaryDirectory(prefix=".bench-", dir=out.parent.resolve())
        result = _measure(plan, scenarios, Path(stack.enter_context(folder)), stack)
    _write(result, out, plan.markdown)
    if plan.as_json:
        sys.stdout.write(_as_json(result).decode() + "\n")
    else:
        print_result(result, Console())
    return result.failed_runs == 0


def _possible(scenarios: list[Scenario], plan: Plan) -> list[Scenario]:
    """Those that can be done: without Penstock there is no log to look at."""
    possible = [each for each in scenarios if plan.with_penstock or each.contest is not STORED]
    if not possible:
        raise WrongOption("these scenarios are about Penstock alone; leave out --no-penstock")
    return possible


def _require_extra() -> None:
    try:
        require_extra("log", "scenarios with a data directory")
    except InvalidConfig as error:
        raise BenchError(str(error)) from error


def _measure(plan: Plan, scenarios: list[Scenario], folder: Path, stack: ExitStack) -> Result:
    cores = _cores()
    machine = describe_machine(folder)  # before the brokers run: its load average is other people's
    if machine.file_system in MEMORY_ONLY and any(scenario.contest.is_on_disk for scenario in scenarios):
        _say(f"the results lie on {machine.file_system}: what is saved there reaches no disk, see --out")
    raise_file_limit()
    crew = _make_crew(plan, folder, cores[0])
    stack.callback(crew.dismiss)
    versions, runs = _run_contests(plan, scenarios, crew, cores[1])
    trials = [scenario for scenario in scenarios if scenario.contest is STORED]
    if trials:
        crew.dismiss()
        versions |= {PENSTOCK.name: PENSTOCK.version(PENSTOCK.program)}
        site = Site(folder, cores[0], cores[0] if cores[1] is None else cores[1], plan.scale, _say)
        runs |= run_trials(trials, PENSTOCK.name, site, plan.repeat, partial(_say_found, plan.repeat))
    return Result(
        when=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        machine=machine,
        versions=versions,
        repeat=plan.repeat,
        duration_s=plan.duration_s,
        warm_s=plan.warm_s,
        rows=make_rows(scenarios, runs),
        runs=runs,
    )


def _make_crew(plan: Plan, folder: Path, cpu: int) -> Crew:
    return Crew(
        [PENSTOCK] if plan.with_penstock else [],
        choose_peers(plan.peers),
        [parse_target(text) for text in plan.targets],
        folder,
        cpu,
        _say,
    )


def _run_contests(
    plan: Plan, scenarios: list[Scenario], crew: Crew, cpu: int | None
) -> tuple[dict[str, str], Measurements]:
    """Measure what brokers do under load; answers their versions, and what was found."""
    versions: dict[str, str] = {}
    runs: Measurements = {}
    contests = (
        (PEERS, crew.peers),
        (SOCKETS, crew.socket_servers),
        (STREAMS, crew.stream_servers),
        (SIDECAR, crew.sidecars),
        (SAVING, crew.savers),
    )
    for contest, choose_contenders in contests:
        chosen = [scenario for scenario in scenarios if scenario.contest is contest]
        if chosen:
            contenders = choose_contenders()
            versions |= {contender.target.name: contender.version for contender in contenders}
            program = build_program(_say, contest.generator)
            generator = LoadGenerator(program, cpu=cpu, duration_s=plan.duration_s, warm_s=plan.warm_s)
            runs |= run_rounds(chosen, contenders, generator, plan.repeat, partial(_say_found, plan.repeat))
    return versions, runs


def _say_found(repeat: int, scenario: Scenario, number: int, name: str, found: Measurement) -> None:
    figure = scenario.figures[0]
    value = found.failure or f"{number_text(getattr(found, figure.metric))} {figure.label}"
    _say(f"  {scenario.name} {number + 1}/{repeat} {name}: {value}")


def _cores() -> tuple[int, int | None]:
    """The core of the brokers and the core of the generator; with one core only they have to share."""
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        _say("only one core: brokers and load generator share it, so rates are far too low")
    return first, others[0] if others else None


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Turn SIGTERM into an ordinary exit, so that no broker outlives the bench."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _write(result: Result, out: Path, markdown: Path | None) -> None:
    out.write_bytes(_as_json(result) + b"\n")
    _say(f"raw results: {out}")
    if markdown is not None:
        markdown.write_text(render_markdown(result))


def _default_out() -> Path:
    name = time.strftime("%Y-%m-%d-%H%M%S.json", time.gmtime())
    return Path("bench/results", name) if Path("bench").is_dir() else Path(name)


def _as_json(result: Result) -> bytes:
    return msgspec.json.format(msgspec.json.encode(result), indent=1)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
