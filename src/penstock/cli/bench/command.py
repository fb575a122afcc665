"""What the command does, from its options to its exit status."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

import msgspec
from rich.console import Console

from penstock.cli.bench.load import LoadGenerator, build_generator
from penstock.cli.bench.machine import describe_machine
from penstock.cli.bench.measurement import Measurement
from penstock.cli.bench.peers import PENSTOCK, Contender, Standing, choose_peers, make_broker
from penstock.cli.bench.problems import BenchError, WrongOption
from penstock.cli.bench.report import Result, make_rows
from penstock.cli.bench.rounds import Measurements, raise_file_limit, run_rounds
from penstock.cli.bench.scenarios import BASELINE, Scenario, choose
from penstock.cli.bench.tables import number_text, print_result, render_markdown
from penstock.cli.bench.targets import Target, parse_target


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The command's options."""

    scenarios: str
    peers: str
    repeat: int
    duration_s: float
    warm_s: float
    targets: tuple[str, ...]
    with_penstock: bool
    out: Path | None
    markdown: Path | None
    as_json: bool


def run(plan: Plan) -> bool:
    """Measure, write and print; True when every run counted."""
    if not sys.platform.startswith("linux"):
        raise BenchError("the bench pins processes and reads /proc: it runs on Linux only")
    scenarios = choose(plan.scenarios)
    with ExitStack() as stack:
        stack.enter_context(_orderly_end())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        result = _measure(plan, scenarios, folder, stack)
    _write(result, plan)
    if plan.as_json:
        sys.stdout.write(_as_json(result).decode() + "\n")
    else:
        print_result(result, Console())
    return result.failed_runs == 0


def _measure(plan: Plan, scenarios: list[Scenario], folder: Path, stack: ExitStack) -> Result:
    broker_cpu, load_cpu = _cores()
    machine = describe_machine()  # before the brokers run: its load average is other people's
    contenders = _contenders(plan, folder, broker_cpu, stack)
    program = build_generator(_say)
    generator = LoadGenerator(program, cpu=load_cpu, duration_s=plan.duration_s, warm_s=plan.warm_s)

    def on_measured(scenario: Scenario, number: int, name: str, found: Measurement) -> None:
        figure = scenario.figures[0]
        value = found.failure or f"{number_text(getattr(found, figure.metric))} {figure.label}"
        _say(f"  {scenario.name} {number + 1}/{plan.repeat} {name}: {value}")

    runs: Measurements = run_rounds(scenarios, contenders, generator, plan.repeat, on_measured)
    return Result(
        when=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        machine=machine,
        versions={contender.target.name: contender.version for contender in contenders},
        baseline=BASELINE,
        repeat=plan.repeat,
        duration_s=plan.duration_s,
        warm_s=plan.warm_s,
        rows=make_rows(scenarios, runs),
        runs=runs,
    )


def _cores() -> tuple[int, int | None]:
    """The core of the brokers and the core of the generator; with one core only they have to share."""
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        _say("only one core: brokers and load generator share it, so rates are far too low")
    return first, others[0] if others else None


def _contenders(plan: Plan, folder: Path, cpu: int, stack: ExitStack) -> list[Contender]:
    """All brokers, those of ours started and sure to be stopped."""
    targets = [parse_target(text) for text in plan.targets]
    recipes = [PENSTOCK] if plan.with_penstock else []
    recipes += choose_peers(plan.peers)
    _refuse_twins([recipe.name for recipe in recipes], targets)
    raise_file_limit()
    contenders: list[Contender] = []
    for recipe in recipes:
        broker = make_broker(recipe, folder, cpu, _say)
        stack.callback(broker.stop)
        broker.start()
        contenders.append(broker)
    contenders += [Standing(target) for target in targets]
    if not contenders:
        raise WrongOption("nothing to measure: no Penstock, no peers, no target")
    return contenders


def _refuse_twins(names: list[str], targets: Sequence[Target]) -> None:
    for target in targets:
        if target.name in names:
            hint = "; add --no-penstock" if target.name == PENSTOCK.name else ""
            raise WrongOption(f"two brokers are called {target.name}{hint}")
        names.append(target.name)


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


def _write(result: Result, plan: Plan) -> None:
    out = plan.out or _default_out()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(_as_json(result) + b"\n")
    _say(f"raw results: {out}")
    if plan.markdown is not None:
        plan.markdown.write_text(render_markdown(result))


def _default_out() -> Path:
    name = time.strftime("%Y-%m-%d-%H%M%S.json", time.gmtime())
    return Path("bench/results", name) if Path("bench").is_dir() else Path(name)


def _as_json(result: Result) -> bytes:
    return msgspec.json.format(msgspec.json.encode(result), indent=1)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
