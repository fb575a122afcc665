"""Cost view: exact counts, stages, saved runs and their comparison."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
import typer
from typer.testing import CliRunner

from bench.cost import mqtt
from bench.cost.__main__ import main
from bench.cost.cases import CASES, Figure, choose_cases, measure
from bench.cost.harness import Laps, Site, SteppedLoop, Workload, open_site
from bench.cost.history import Entry, append, last_like
from bench.errors import BenchError, WrongOption
from bench.report.machine import build_of_server

MESSAGES = 400
COUNTS = {
    "mixed": 400,
    "varying": 400,
    "one_topic": 400,
    "lone": 100,
    "unbatched": 200,
    "fanout": 400,
    "qos1": 100,
    "qos2": 100,
    "durable": 5_000,
    "grpc": 16,
    "ws": 32,
    "streams": 16,
}
"""Messages or deliveries of a round of each case; each is checked with every round."""
QOS_0 = ["read", "publish", "deliver", "rest"]
ACKNOWLEDGED = ["publish", "deliver", "acknowledge"]
STAGES = {
    **dict.fromkeys(["mixed", "varying", "one_topic", "lone", "unbatched", "fanout"], QOS_0),
    **dict.fromkeys(["qos1", "qos2"], ACKNOWLEDGED),
    "durable": ["loop", "disk threads"],
    "grpc": [],
    "ws": ["publish", "deliver"],
    "streams": ["send", "receive"],
}


@pytest.mark.parametrize("name", CASES)
def test_case_delivers_and_acknowledges_exactly_what_it_publishes(name: str) -> None:
    if CASES[name].is_on_disk:
        pytest.importorskip("rocksdict")
    figure = measure(CASES[name], MESSAGES, rounds=2)
    assert figure.count == COUNTS[name]
    assert 0 < figure.best_us <= figure.median_us
    assert list(figure.stages) == STAGES[name]


def on_stepped_loop(test: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with open_site() as site:
            await test(site)

    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        runner.run(run())


@pytest.mark.parametrize("prepare", [mqtt.mixed, mqtt.lone])
def test_round_that_does_not_deliver_everything_is_an_error(
    prepare: Callable[[Site, int], Coroutine[Any, Any, Workload]],
) -> None:
    async def lose(site: Site) -> None:
        workload = await prepare(site, 100)
        await workload.run(Laps())
        workload.check()
        with pytest.raises(BenchError, match="0 deliveries, expected 100"):
            workload.check()

    on_stepped_loop(lose)


def test_chunk_at_a_new_time_is_a_turn_of_its_own_and_others_wait_for_the_flush() -> None:
    async def publish(site: Site) -> None:
        publisher, subscriber = mqtt.Client(site, "publisher"), mqtt.Client(site, "subscriber")
        await subscriber.subscribe(mqtt.FILTER, 0)
        site.loop.pass_time()
        publisher.feed(mqtt.message(0))
        assert subscriber.transport.take() == mqtt.message(0)
        publisher.feed(mqtt.message(1))
        assert subscriber.transport.take() == b""
        site.flush()
        assert subscriber.transport.take() == mqtt.message(1)

    on_stepped_loop(publish)


def test_unknown_cases_are_refused() -> None:
    assert choose_cases("all") == list(CASES.values())
    with pytest.raises(WrongOption, match="unknown case qos3; known are all, mixed"):
        choose_cases("mixed,qos3")


@pytest.mark.parametrize(("is_compiled", "name"), [(True, "compiled"), (False, "interpreted")])
def test_build_is_the_one_of_the_server(
    monkeypatch: pytest.MonkeyPatch, is_compiled: bool, name: str
) -> None:
    monkeypatch.setattr("bench.report.machine.is_compiled", lambda: is_compiled)
    assert build_of_server() == name


def entry_of(commit: str, build: str = "interpreted", cpu_model: str = "Some CPU") -> Entry:
    return Entry(
        when="today",
        commit=commit,
        build=build,
        python="CPython 3.11",
        cpu_model=cpu_model,
        rounds=1,
        messages=1,
        figures={"mixed": Figure(1.0, 2.0, {"read": 0.5}, 100)},
    )


def test_runs_are_compared_with_the_last_one_of_the_same_build_and_cpu(tmp_path: Path) -> None:
    path = tmp_path / "new" / "cost.jsonl"
    assert last_like(entry_of("now"), path) is None
    for saved in (entry_of("a"), entry_of("b"), entry_of("c", "compiled"), entry_of("d", cpu_model="Other")):
        append(saved, path)
    assert last_like(entry_of("now"), path) == entry_of("b")
    assert last_like(entry_of("now", "compiled"), path) == entry_of("c", "compiled")
    assert last_like(entry_of("now", "compiled", "Other"), path) is None


def test_damaged_file_of_saved_runs_is_reported_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "cost.jsonl"
    append(entry_of("a"), path)
    with path.open("a") as file:
        file.write('{"when": 1}\n')
    with pytest.raises(BenchError, match=r"cost\.jsonl, line 2: .*--results"):
        last_like(entry_of("now"), path)


def invoke(*arguments: str) -> tuple[int, str, str]:
    app = typer.Typer()
    app.command()(main)
    before = structlog.get_config()
    try:
        done = CliRunner().invoke(app, ["--rounds", "1", "--messages", "200", *arguments])
    finally:
        structlog.configure(**before)
    return done.exit_code, done.stdout, done.stderr


def test_saved_run_is_one_line_and_the_next_run_is_compared_with_it(tmp_path: Path) -> None:
    path = tmp_path / "cost.jsonl"
    brief = ("--case", "mixed,qos1", "--results", str(path))
    status, first, said = invoke(*brief, "--save")
    assert status == 0, said
    assert "no saved run of this build and CPU" in first
    [line] = path.read_bytes().splitlines()
    saved = msgspec.json.decode(line, type=Entry)
    assert list(saved.figures) == ["mixed", "qos1"]
    assert (saved.build, saved.rounds, saved.messages) == (build_of_server(), 1, 200)
    assert saved.cpu_model and saved.python.startswith("CPython 3.")
    status, output, said = invoke(*brief, "-o", "json")
    assert status == 0, said
    assert list(msgspec.json.decode(output, type=Entry).figures) == ["mixed", "qos1"]
    # A run that was a thousand times faster, so that this one is slower on every machine.
    quick = {name: Figure(figure.best_us / 1000, 1.0, {}, 1) for name, figure in saved.figures.items()}
    append(msgspec.structs.replace(saved, commit="quick", figures=quick), path)
    status, second, said = invoke(*brief)
    assert status == 0, said
    assert "commit quick" in second
    assert second.count("x SLOWER |") == 2
    assert len(path.read_bytes().splitlines()) == 2


def test_wrong_options_of_the_cost_view_are_refused() -> None:
    assert invoke("--case", "everything")[0] == 2
    assert invoke("--rounds", "0")[0] == 2
