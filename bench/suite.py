"""One bench, from its options to its exit status: interleaved rounds over all brokers, then the report.

All brokers take turns within a round, so that a ratio compares runs made seconds apart.
"""

import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import msgspec
from msgspec.structs import replace
from rich.console import Console

from bench.errors import BenchError, WrongOption
from bench.load.build import build_program
from bench.load.generator import LoadGenerator
from bench.measurement import Measurement
from bench.peers.broker import Contender
from bench.peers.contenders import Contenders
from bench.peers.recipes import PENSTOCK, choose_peers
from bench.peers.target import parse_target
from bench.report.machine import describe_machine
from bench.report.summary import Result, make_rows
from bench.report.tables import number_text, print_result, render_markdown
from bench.scenarios import (
    CONNECTIONS,
    DURABLE,
    GRPC,
    LOG,
    PEERS,
    STREAMS,
    WEBSOCKETS,
    Scenario,
    choose_scenarios,
)
from bench.trials.server import Site
from penstock.errors import InvalidConfig
from penstock.extras import require_extra

Measurements = dict[str, dict[str, list[Measurement]]]
"""By scenario, then by broker, in the order in which they were made."""
OnMeasured = Callable[[Scenario, int, str, Measurement], None]

PAUSE_S = 0.1  # a broker tears down one run's connections before the next broker is measured on its core
FILES_NEEDED = CONNECTIONS + 600
MEMORY_ONLY = ("tmpfs", "ramfs")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a bench."""

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
    """Measure, write and print; True if no run failed."""
    if not sys.platform.startswith("linux"):
        raise BenchError("the bench pins processes and reads /proc: it runs on Linux only")
    scenarios = _possible(choose_scenarios(plan.scenarios), plan)
    if any(scenario.contest.is_on_disk for scenario in scenarios):
        _require_extra()
    out = plan.out or _default_out()
    out.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(_exiting_on_sigterm())
        # Beside the results and not in a folder for temporary files, which may have no disk below it.
        folder = tempfile.TemporaryDirectory(prefix=".bench-", dir=out.parent.resolve())
        result = _measure(plan, scenarios, Path(stack.enter_context(folder)), stack)
    _write(result, out, plan.markdown)
    if plan.as_json:
        sys.stdout.write(_as_json(result).decode() + "\n")
    else:
        print_result(result, Console())
    return result.failed_runs == 0


def run_rounds(
    scenarios: Sequence[Scenario],
    contenders: Sequence[Contender],
    generator: LoadGenerator,
    repeat: int,
    on_measured: OnMeasured,
) -> Measurements:
    """Measure every scenario on every broker that speaks its protocol; those with fresh brokers last."""
    measurements: Measurements = {scenario.name: {} for scenario in scenarios}
    for are_fresh in (False, True):
        for number in range(repeat):
            for scenario in scenarios:
                if scenario.is_fresh is not are_fresh:
                    continue
                for contender in _rotated(contenders, number):
                    if contender.target.scheme not in scenario.schemes:
                        continue
                    found = _run_once(scenario, contender, generator)
                    name = contender.target.name
                    measurements[scenario.name].setdefault(name, []).append(found)
                    on_measured(scenario, number, name, found)
                    time.sleep(PAUSE_S)
    return measurements


def run_trials(
    scenarios: Sequence[Scenario], name: str, site: Site, repeat: int, on_measured: OnMeasured
) -> Measurements:
    """Run scenarios without a load generator, each in a folder of its own."""
    from bench.trials.table import TRIALS  # noqa: PLC0415 - needs the extra `log`

    measurements: Measurements = {}
    for scenario in scenarios:
        runs = measurements[scenario.name] = {name: []}
        folder = site.folder / scenario.name
        folder.mkdir()
        trial = TRIALS[scenario.name](replace(site, folder=folder), repeat)
        try:
            for number, found in enumerate(trial):
                runs[name].append(found)
                on_measured(scenario, number, name, found)
        except BenchError as error:
            runs[name].append(Measurement(error=str(error)))
            on_measured(scenario, len(runs[name]) - 1, name, runs[name][-1])
        finally:
            shutil.rmtree(folder)
    return measurements


def _possible(scenarios: list[Scenario], plan: Plan) -> list[Scenario]:
    """Scenarios that this plan can run: without Penstock there is no log to measure."""
    possible = [each for each in scenarios if plan.with_penstock or each.contest is not LOG]
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
    machine = describe_machine(folder)  # before the brokers run: its load average is that of other work
    if machine.file_system in MEMORY_ONLY and any(scenario.contest.is_on_disk for scenario in scenarios):
        _say(f"the results are on {machine.file_system}, so data directories reach no disk; see --out")
    _raise_file_limit()
    contenders = _make_contenders(plan, folder, cores[0])
    stack.callback(contenders.stop)
    versions, runs = _run_contests(plan, scenarios, contenders, cores[1])
    trials = [scenario for scenario in scenarios if scenario.contest is LOG]
    if trials:
        contenders.stop()
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
        left_out=contenders.left_out,
    )


def _make_contenders(plan: Plan, folder: Path, cpu: int) -> Contenders:
    return Contenders(
        [PENSTOCK] if plan.with_penstock else [],
        choose_peers(plan.peers),
        [parse_target(text) for text in plan.targets],
        folder,
        cpu,
        _say,
    )


def _run_contests(
    plan: Plan, scenarios: list[Scenario], contenders: Contenders, cpu: int | None
) -> tuple[dict[str, str], Measurements]:
    """Measure brokers under load; returns their versions and the measurements."""
    versions: dict[str, str] = {}
    runs: Measurements = {}
    contests = (
        (PEERS, contenders.start_brokers),
        (WEBSOCKETS, contenders.start_websocket_servers),
        (STREAMS, contenders.start_stream_servers),
        (GRPC, contenders.start_grpc_servers),
        (DURABLE, contenders.make_durable_brokers),
    )
    for contest, prepare in contests:
        chosen = [scenario for scenario in scenarios if scenario.contest is contest]
        if chosen:
            prepared = prepare()
            versions |= {contender.target.name: contender.version for contender in prepared}
            program = build_program(_say, contest.generator)
            generator = LoadGenerator(program, cpu=cpu, duration_s=plan.duration_s, warm_s=plan.warm_s)
            runs |= run_rounds(chosen, prepared, generator, plan.repeat, partial(_say_found, plan.repeat))
    return versions, runs


def _rotated(contenders: Sequence[Contender], number: int) -> list[Contender]:
    """Start each round with another broker, so that none always follows the same neighbour's teardown."""
    first = number % len(contenders)
    return [*contenders[first:], *contenders[:first]]


def _run_once(scenario: Scenario, contender: Contender, generator: LoadGenerator) -> Measurement:
    if scenario.is_fresh:
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if allowed < FILES_NEEDED:
            return Measurement(error=f"needs ulimit -n {FILES_NEEDED}, has {allowed}")
        contender.restart()
    try:
        return generator.measure(scenario, contender.target)
    finally:
        if scenario.contest is DURABLE:  # a broker that compacts its files would disturb the next one
            contender.stop()


def _say_found(repeat: int, scenario: Scenario, number: int, name: str, found: Measurement) -> None:
    figure = scenario.figures[0]
    value = found.failure or f"{number_text(getattr(found, figure.metric))} {figure.label}"
    _say(f"  {scenario.name} {number + 1}/{repeat} {name}: {value}")


def _cores() -> tuple[int, int | None]:
    """Cores of the brokers and of the generator; None if there is only one."""
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        _say("only one core: brokers and load generator share it, so rates are far too low")
    return first, others[0] if others else None


def _raise_file_limit() -> None:
    """Allow this process and the brokers as many open files as the system permits."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def _exiting_on_sigterm() -> Iterator[None]:
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
