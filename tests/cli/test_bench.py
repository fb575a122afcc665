"""The bench's arithmetic from literal runs, its load generator against real brokers, good and bad."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from threading import Thread

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from penstock.cli.bench import bench
from penstock.cli.bench.brokers import Broker
from penstock.cli.bench.building import build_program
from penstock.cli.bench.load import LoadGenerator
from penstock.cli.bench.machine import Machine
from penstock.cli.bench.measurement import Measurement
from penstock.cli.bench.packages import find
from penstock.cli.bench.peers import PEERS, choose_peers
from penstock.cli.bench.problems import BenchError, WrongOption
from penstock.cli.bench.report import Result, Row, Verdict, make_rows
from penstock.cli.bench.scenarios import QUICK, SCENARIOS, choose
from penstock.cli.bench.tables import render_markdown
from penstock.cli.bench.targets import Target, parse_target

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="the load generator needs gcc")
needs_mosquitto = pytest.mark.skipif(find("mosquitto") is None, reason="mosquitto is not installed")

MACHINE = Machine("Some CPU", 2, "Linux 6", "CPython 3.11", "0.21", 0.0, "some disk")


def rates(*values: float) -> list[Measurement]:
    return [Measurement(delivered_per_s=value, lost=0, order_errors=0) for value in values]


def only_row(scenario: str, **runs: list[Measurement]) -> Row:
    [row] = make_rows([SCENARIOS[scenario]], {scenario: runs})
    return row


def result_of(row: Row, runs: dict[str, list[Measurement]]) -> Result:
    return Result(
        when="today",
        machine=MACHINE,
        versions=dict.fromkeys(runs, "1.0"),
        repeat=3,
        duration_s=1.5,
        warm_s=0.4,
        rows=[row],
        runs={row.scenario: runs},
    )


# Arithmetic


def test_figure_is_the_median_and_ratio_is_of_medians() -> None:
    row = only_row("one2one", penstock=rates(900, 3000, 1200), mosquitto=rates(90, 500, 100))
    assert row.summaries["penstock"].value == 1200
    assert row.summaries["penstock"].ratio == 12.0
    assert row.summaries["mosquitto"].ratio == 1.0


def test_spread_is_the_range_over_the_median_and_a_wide_one_is_noted() -> None:
    row = only_row("one2one", penstock=rates(80, 100, 130), mosquitto=rates(100, 101, 102))
    assert row.summaries["penstock"].spread == 0.5
    assert row.notes == ("penstock spread over 30%: repeat before quoting",)


def test_single_run_has_no_spread() -> None:
    assert only_row("one2one", penstock=rates(80)).summaries["penstock"].spread is None


def test_failed_runs_are_left_out_of_the_median_but_flagged() -> None:
    lossy = Measurement(delivered_per_s=9_999_999, lost=3)
    row = only_row("one2one", penstock=[*rates(1000, 1100), lossy], mosquitto=rates(100, 100, 100))
    ours = row.summaries["penstock"]
    assert (ours.value, ours.runs, ours.failed, ours.failure) == (1050, 3, 1, "lost 3")
    assert "FAILED: 1 of 3 runs of penstock: lost 3" in row.notes


def test_goal_counts_as_missed_when_a_run_failed_however_fast_the_others_were() -> None:
    row = only_row("one2one", penstock=[*rates(5000), Measurement(lost=1)], mosquitto=rates(100))
    [verdict] = row.verdicts
    assert (verdict.reached, verdict.is_met) == (50.0, False)


def test_broker_whose_runs_all_failed_has_no_figure() -> None:
    row = only_row("one2one", penstock=[Measurement(error="gone")], mosquitto=rates(100))
    assert row.summaries["penstock"].value is None
    assert [verdict.is_met for verdict in row.verdicts] == [False]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (Measurement(lost=0, order_errors=0, format_errors=0), None),
        (Measurement(error="connect: refused"), "connect: refused"),
        (Measurement(lost=1200), "lost 1,200"),
        (Measurement(lost=-1), "1 delivered twice"),
        (Measurement(lost=0, order_errors=2), "2 out of order"),
        (Measurement(lost=0, order_errors=0, format_errors=4), "4 malformed"),
    ],
)
def test_run_counts_only_without_loss_doubles_disorder_and_damage(
    found: Measurement, reason: str | None
) -> None:
    assert found.failure == reason


# Goals


def test_mixed_is_judged_against_mosquitto_and_against_nats() -> None:
    row = only_row("mixed", penstock=rates(500), mosquitto=rates(100), nats=rates(2500))
    assert [(verdict.reached, verdict.is_met) for verdict in row.verdicts] == [(5.0, True), (0.2, False)]


def test_latency_goal_is_an_upper_bound_on_the_ratio_of_medians() -> None:
    def p50(*values: float) -> list[Measurement]:
        return [Measurement(p50_us=value, lost=0) for value in values]

    assert only_row("latency", penstock=p50(130), mosquitto=p50(100)).verdicts[0].is_met is True
    assert only_row("latency", penstock=p50(131), mosquitto=p50(100)).verdicts[0].is_met is False


def test_idle_has_a_row_for_memory_and_one_for_the_connect_rate() -> None:
    ours = Measurement(bytes_per_connection=6144, connects_per_s=4_000)
    theirs = Measurement(bytes_per_connection=1000, connects_per_s=10_001)
    memory, connects = make_rows([SCENARIOS["idle"]], {"idle": {"penstock": [ours], "mosquitto": [theirs]}})
    assert [(verdict.reached, verdict.is_met) for verdict in memory.verdicts] == [(6144, True)]
    assert connects.verdicts[0].is_met is False


def test_disconnects_goal_needs_no_other_broker_and_excludes_its_limit() -> None:
    assert only_row("disconnects", penstock=[Measurement(disconnect_cpu_s=0.99)]).verdicts[0].is_met is True
    assert only_row("disconnects", penstock=[Measurement(disconnect_cpu_s=1.0)]).verdicts[0].is_met is False


def test_goal_is_not_judged_without_a_baseline_or_without_penstock() -> None:
    alone = only_row("one2one", penstock=rates(100))
    absent = only_row("one2one", mosquitto=rates(100))
    assert [alone.verdicts[0].is_met, absent.verdicts[0].is_met] == [None, None]


def test_every_figure_has_its_goal() -> None:
    goals = {
        f"{name} {figure.label}": [(goal.sign, goal.limit, goal.against) for goal in figure.goals]
        for name, scenario in SCENARIOS.items()
        for figure in scenario.figures
    }
    assert goals == {
        "mixed deliveries/s": [(">=", 5, "mosquitto"), (">=", 0.25, "nats")],
        "qos1 deliveries/s": [(">=", 4, "mosquitto")],
        "pingpong deliveries/s": [(">=", 0.7, "mosquitto")],
        "fanout_w1 deliveries/s": [(">=", 0.9, "mosquitto")],
        "fanout_w10 deliveries/s": [(">=", 5, "mosquitto")],
        "unbatched deliveries/s": [(">=", 1.3, "mosquitto")],
        "fanout deliveries/s": [(">=", 100, "mosquitto")],
        "one2one deliveries/s": [(">=", 10, "mosquitto")],
        "fanin deliveries/s": [(">=", 10, "mosquitto")],
        "one2one_1k deliveries/s": [(">=", 7, "mosquitto")],
        "one2one_16k deliveries/s": [(">=", 1.3, "mosquitto")],
        "latency p50 us": [("<=", 1.3, "mosquitto")],
        "idle bytes/connection": [("<=", 6144, None)],
        "idle connects/s": [(">=", 0.4, "mosquitto")],
        "disconnects broker CPU s": [("<", 1, None)],
        "ws_fanout deliveries/s": [(">=", 10, "nchan")],
        "ws_fanout_w1 deliveries/s": [],
        "ws_one2one deliveries/s": [(">=", 40_000, None)],
        "ws_latency p50 us": [("<", 1_000, None)],
        "ws_idle cores used at rest": [("<", 0.01, None)],
        "streams_send sends/s": [(">=", 22_000, None)],
        "streams_pairs sends and receives/s": [(">=", 22_000, None)],
        "streams_match p50 us": [("<=", 500, None)],
        "grpc_unary calls/s": [(">=", 12_000, None)],
        "grpc_one2one deliveries/s": [(">=", 10_000, None)],
        "grpc_fanout deliveries/s": [(">=", 85_000, None)],
        "grpc_latency p50 us": [("<=", 450, None)],
        "grpc_v1_one2one deliveries/s": [(">=", 500_000, None)],
        "durable acknowledged/s": [(">=", 0.5, "penstock"), (">=", 5, "mosquitto-saving")],
        "durable_alone acknowledged/s": [(">=", 0.5, "penstock")],
        "durable_one acknowledged/s": [],
        "log_read rows/s per core": [(">=", 1_000_000, None)],
        "log_read rows/s per core, not sealed": [],
        "log_http rows/s per core": [(">=", 1_000_000, None)],
        "log_http rows/s": [],
        "log_http_load deliveries, with : without": [(">=", 0.5, None)],
        "log_http_load rows/s meanwhile": [],
        "log_start s to the first CONNACK": [("<", 3, None)],
        "log_start ms to read the tail": [("<", 50, None)],
        "owed bytes/delivery": [("<=", 16, None)],
        "owed s until they have everything": [("<=", 15, None)],
        "restart s to the first CONNACK": [("<", 1, None)],
    }


def test_durable_rates_are_judged_with_a_data_directory_against_memory_and_a_saving_peer() -> None:
    def acked(value: float) -> list[Measurement]:
        return [Measurement(acked_per_s=value, lost=0)]

    brokers = {"penstock": acked(100), "penstock-fsync": acked(60), "mosquitto-saving": acked(20)}
    [row] = make_rows([SCENARIOS["durable"]], {"durable": brokers})
    assert [(verdict.reached, verdict.is_met) for verdict in row.verdicts] == [(0.6, True), (3.0, False)]
    assert row.summaries["penstock"].ratio == 5.0


# Notes and tables


def test_generator_at_its_limit_is_noted_except_where_it_always_spins() -> None:
    busy = Measurement(delivered_per_s=1, p50_us=1, lost=0, load_cpu=0.99)
    assert only_row("fanout", penstock=[busy]).notes == (
        "generator was the limit for penstock: a lower bound",
    )
    assert only_row("latency", penstock=[busy]).notes == ()


def test_markdown_has_value_ratio_goal_verdict_and_flag_in_one_line() -> None:
    runs = {
        "penstock": [*rates(1_500_000), Measurement(lost=7)],
        "mosquitto": rates(100_000),
        "nats": rates(2_000_000),
    }
    text = render_markdown(result_of(only_row("mixed", **runs), runs))
    assert (
        "| mixed | deliveries/s | 1,500,000 (15x) FAILED | 100,000 | 2,000,000 (20x) "
        "| >= 5x; >= 0.25x nats | NO, 15x; NO, 0.75x |"
    ) in text
    assert "- mixed: FAILED: 1 of 2 runs of penstock: lost 7" in text
    assert "uvloop 0.21" in text


def test_each_contest_has_a_table_with_its_own_brokers() -> None:
    runs = {
        "one2one": {"penstock": rates(200), "mosquitto": rates(100)},
        "durable_one": {"penstock-fsync": [Measurement(acked_per_s=50)], "mosquitto-saving": []},
        "restart": {"penstock": [Measurement(start_s=0.5, size="7 messages")]},
    }
    rows = make_rows([SCENARIOS[name] for name in runs], runs)
    versions = dict.fromkeys(("penstock", "mosquitto", "penstock-fsync", "mosquitto-saving"), "1.0")
    text = render_markdown(
        msgspec.structs.replace(result_of(rows[0], {}), versions=versions, rows=rows, runs=runs)
    )
    assert "| scenario | figure | penstock | mosquitto | goal | reached |" in text
    assert "| scenario | figure | penstock-fsync | mosquitto-saving | goal | reached |" in text
    assert "| scenario | figure | penstock | goal | reached |" in text
    assert "- restart: with 7 messages" in text
    assert "data on some disk" in text


def test_raw_result_survives_a_round_trip_through_json() -> None:
    runs = {"penstock": rates(10, 20), "mosquitto": [Measurement(error="gone")]}
    result = result_of(only_row("mixed", **runs), runs)
    again = msgspec.json.decode(msgspec.json.encode(result), type=Result)
    assert again == result
    assert again.failed_runs == 1
    assert isinstance(again.rows[0].verdicts[0], Verdict)


# Options


def test_scenarios_that_need_fresh_brokers_or_a_disk_come_last() -> None:
    assert [scenario.name for scenario in choose("restart,durable,disconnects,mixed,idle,fanout,mixed")] == [
        "mixed",
        "fanout",
        "disconnects",
        "idle",
        "durable",
        "restart",
    ]


def test_all_and_quick_name_many_scenarios() -> None:
    assert [scenario.name for scenario in choose("all")] == list(SCENARIOS)
    assert [scenario.name for scenario in choose("quick")] == list(QUICK)


@pytest.mark.parametrize("names", ["", "mixed,nonsense", "all,mixed"])
def test_unknown_scenarios_are_refused_by_name(names: str) -> None:
    with pytest.raises(WrongOption, match="known are all, quick, mixed"):
        choose(names)


def test_unknown_peers_are_refused_and_none_means_none() -> None:
    assert choose_peers("none") == []
    with pytest.raises(WrongOption, match="unknown peer kafka"):
        choose_peers("mosquitto,kafka")


def test_target_is_a_name_and_a_loopback_address() -> None:
    assert parse_target("mine=nats://localhost:4222") == Target("mine", "nats", "127.0.0.1", 4222)


@pytest.mark.parametrize(
    "text",
    [
        "mqtt://127.0.0.1:1883",
        "a=mqtt://127.0.0.1",
        "a=amqp://127.0.0.1:5672",
        "a=mqtt://192.0.2.1:1883",
        "a=mqtt://h:x",
    ],
)
def test_targets_without_name_port_or_loopback_are_refused(text: str) -> None:
    with pytest.raises(WrongOption, match="--target"):
        parse_target(text)


def invoke(*arguments: str) -> tuple[int, str, str]:
    app = typer.Typer()
    app.command()(bench)
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


def test_two_brokers_of_one_name_are_refused_before_anything_starts() -> None:
    status, _, said = invoke("--peers", "none", "--target", "penstock=mqtt://127.0.0.1:1")
    assert status == 2
    assert "--no-penstock" in said


def test_command_imports_nothing_heavy_before_it_runs() -> None:
    probe = "import penstock.cli.bench, sys; print([m for m in sys.modules if 'cli.bench.' in m])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Real runs


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadGenerator]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        program = build_program(lambda _: None)
        assert build_program(lambda _: None) == program
        yield LoadGenerator(program, cpu=None, duration_s=0.2, warm_s=0.05)


@needs_gcc
@needs_mosquitto
def test_bench_of_mosquitto_writes_figures_versions_and_raw_runs(
    generator: LoadGenerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bench").mkdir()
    monkeypatch.chdir(tmp_path)
    brief = ("--repeat", "1", "--duration", "0.2", "--warm", "0.05", "--no-penstock", "--peers", "mosquitto")
    status, output, said = invoke("--scenario", "pingpong", *brief, "-o", "json", "--markdown", "table.md")
    assert status == 0, said
    result = msgspec.json.decode(output, type=Result)
    [run] = result.runs["pingpong"]["mosquitto"]
    assert (run.lost, run.order_errors, run.window) == (0, 0, 1)
    assert run.delivered_per_s is not None and run.delivered_per_s > 0
    assert run.broker_cpu is not None and 0 <= run.broker_cpu < 1.5
    assert result.versions["mosquitto"].startswith("mosquitto version")
    [raw] = (tmp_path / "bench" / "results").glob("*.json")
    assert msgspec.json.decode(raw.read_bytes(), type=Result) == result
    assert "| pingpong | deliveries/s |" in (tmp_path / "table.md").read_text()


@needs_mosquitto
def test_broker_leaves_nothing_running_after_stop(tmp_path: Path) -> None:
    program = find("mosquitto")
    assert program is not None
    broker = Broker(PEERS["mosquitto"], program, tmp_path, cpu=0)
    broker.start()
    first = broker.target
    broker.restart()
    second = broker.target
    broker.stop()
    for target in (first, second):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((target.host, target.port), timeout=1)


def test_broker_that_does_not_start_is_reported_with_what_it_said(tmp_path: Path) -> None:
    broken = msgspec.structs.replace(
        PEERS["mosquitto"],
        command=lambda program, _port, _config: [program, "-c", "raise SystemExit('no such luck')"],
        version=lambda _: "none",
    )
    with pytest.raises(BenchError, match=r"did not start .*no such luck"):
        Broker(broken, sys.executable, tmp_path, cpu=0).start()


@needs_gcc
@pytest.mark.parametrize(
    ("order", "lost", "order_errors", "failure"),
    [
        ("012", 0, 0, None),
        ("021", 0, 3, "3 out of order"),  # 2 comes early, 1 late, and 3 not after 2
        ("0112", None, 1, None),  # whether the run ends before the last message or after it is a race
        ("02", 1, 1, "lost 1"),
    ],
)
def test_generator_notices_what_a_broker_does_to_the_first_three_messages(
    generator: LoadGenerator, order: str, lost: int | None, order_errors: int, failure: str | None
) -> None:
    with tampering_broker(order) as port:
        found = generator.measure(SCENARIOS["one2one"], Target("bad", "mqtt", "127.0.0.1", port))
    assert found.error is None
    assert found.order_errors == order_errors
    if lost is None:
        assert found.failure is not None
    else:
        assert (found.lost, found.failure) == (lost, failure)


@needs_gcc
def test_run_against_nobody_is_a_failed_run_and_not_a_crash(generator: LoadGenerator) -> None:
    found = generator.measure(SCENARIOS["mixed"], Target("nobody", "mqtt", "127.0.0.1", 1))
    assert found.failure == "connect: Connection refused"


CONNACK = bytes([0x20, 2, 0, 0])
SUBACK = bytes([0x90, 3, 0, 1, 0])


@contextmanager
def tampering_broker(order: str) -> Iterator[int]:
    """A broker for one publisher that hands on the first three messages as told: swapped, doubled, lost."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=tamper, args=(server, order))
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)


def tamper(server: socket.socket, order: str) -> None:
    with ExitStack() as stack:
        subscriber, asked = accept_client(server, stack)
        take_packet(asked)
        subscriber.sendall(SUBACK)
        _, published = accept_client(server, stack)
        first = [take_packet(published) for _ in range(3)]
        for index in order:
            subscriber.sendall(first[int(index)])
        with suppress(EOFError, ConnectionError):
            while True:
                subscriber.sendall(take_packet(published))


def accept_client(server: socket.socket, stack: ExitStack) -> tuple[socket.socket, BufferedReader]:
    client = stack.enter_context(server.accept()[0])
    stream = stack.enter_context(client.makefile("rb"))
    take_packet(stream)
    client.sendall(CONNACK)
    return client, stream


def take_packet(stream: BufferedReader) -> bytes:
    header = stream.read(2)
    if not header:
        raise EOFError
    return header + stream.read(header[1])  # every packet here is shorter than 128 bytes
