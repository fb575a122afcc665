"""Report: medians, ratios, goals, tables and JSON, from literal runs."""

from pathlib import Path

import msgspec
import pytest

from bench.measurement import Measurement
from bench.report.machine import Machine, describe_machine
from bench.report.summary import Result, Row, Verdict, make_rows
from bench.report.tables import render_markdown
from bench.scenarios import BASELINE, DURABLE_BASELINE, SCENARIOS

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


def test_figure_is_the_median_and_ratio_is_of_medians() -> None:
    row = only_row("one2one", penstock=rates(900, 3000, 1200), **{BASELINE: rates(90, 500, 100)})
    assert row.summaries["penstock"].value == 1200
    assert row.summaries["penstock"].ratio == 12.0
    assert row.summaries[BASELINE].ratio == 1.0


def test_spread_is_the_range_over_the_median_and_a_wide_one_is_noted() -> None:
    row = only_row("one2one", penstock=rates(80, 100, 130), **{BASELINE: rates(100, 101, 102)})
    assert row.summaries["penstock"].spread == 0.5
    assert row.notes == ("penstock spread over 30%: repeat before quoting",)


def test_single_run_has_no_spread() -> None:
    assert only_row("one2one", penstock=rates(80)).summaries["penstock"].spread is None


def test_failed_runs_are_left_out_of_the_median_but_flagged() -> None:
    lossy = Measurement(delivered_per_s=9_999_999, lost=3)
    row = only_row("one2one", penstock=[*rates(1000, 1100), lossy], **{BASELINE: rates(100, 100, 100)})
    ours = row.summaries["penstock"]
    assert (ours.value, ours.runs, ours.failed, ours.failure) == (1050, 3, 1, "lost 3")
    assert "FAILED: 1 of 3 runs of penstock: lost 3" in row.notes


def test_goal_counts_as_missed_when_a_run_failed_however_fast_the_others_were() -> None:
    row = only_row("one2one", penstock=[*rates(5000), Measurement(lost=1)], **{BASELINE: rates(100)})
    [verdict] = row.verdicts
    assert (verdict.reached, verdict.is_met) == (50.0, False)


def test_broker_whose_runs_all_failed_has_no_figure() -> None:
    row = only_row("one2one", penstock=[Measurement(error="gone")], **{BASELINE: rates(100)})
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


def test_mixed_is_judged_against_mosquitto_and_against_nats() -> None:
    row = only_row("mixed", penstock=rates(500), **{BASELINE: rates(100)}, nats=rates(2500))
    assert [(verdict.reached, verdict.is_met) for verdict in row.verdicts] == [(5.0, True), (0.2, False)]


def test_latency_goal_is_an_upper_bound_on_the_ratio_of_medians() -> None:
    def p50(*values: float) -> list[Measurement]:
        return [Measurement(p50_us=value, lost=0) for value in values]

    assert only_row("latency", penstock=p50(130), **{BASELINE: p50(100)}).verdicts[0].is_met is True
    assert only_row("latency", penstock=p50(131), **{BASELINE: p50(100)}).verdicts[0].is_met is False


def test_idle_has_a_row_for_memory_and_one_for_the_connect_rate() -> None:
    ours = Measurement(bytes_per_connection=4096, connects_per_s=4_000)
    theirs = Measurement(bytes_per_connection=1000, connects_per_s=10_001)
    memory, connects = make_rows([SCENARIOS["idle"]], {"idle": {"penstock": [ours], BASELINE: [theirs]}})
    assert [(verdict.reached, verdict.is_met) for verdict in memory.verdicts] == [(4096, True)]
    assert connects.verdicts[0].is_met is False


def test_disconnects_goal_needs_no_other_broker_and_excludes_its_limit() -> None:
    assert only_row("disconnects", penstock=[Measurement(disconnect_cpu_s=0.99)]).verdicts[0].is_met is True
    assert only_row("disconnects", penstock=[Measurement(disconnect_cpu_s=1.0)]).verdicts[0].is_met is False


def test_goal_is_not_judged_without_a_baseline_or_without_penstock() -> None:
    alone = only_row("one2one", penstock=rates(100))
    absent = only_row("one2one", **{BASELINE: rates(100)})
    assert [alone.verdicts[0].is_met, absent.verdicts[0].is_met] == [None, None]


def test_durable_rates_are_judged_with_a_data_directory_against_memory_and_a_saving_peer() -> None:
    def acked(value: float) -> list[Measurement]:
        return [Measurement(acked_per_s=value, lost=0)]

    brokers = {"penstock": acked(100), "penstock-fsync": acked(60), DURABLE_BASELINE: acked(20)}
    [row] = make_rows([SCENARIOS["durable"]], {"durable": brokers})
    assert [(verdict.reached, verdict.is_met) for verdict in row.verdicts] == [(0.6, True), (3.0, False)]
    assert row.summaries["penstock"].ratio == 5.0


def test_generator_at_its_limit_is_noted_except_where_it_always_spins() -> None:
    busy = Measurement(delivered_per_s=1, p50_us=1, lost=0, load_cpu=0.99)
    assert only_row("fanout", penstock=[busy]).notes == (
        "generator was the limit for penstock: a lower bound",
    )
    assert only_row("latency", penstock=[busy]).notes == ()


def test_markdown_has_value_ratio_goal_verdict_and_flag_in_one_line() -> None:
    runs = {
        "penstock": [*rates(1_500_000), Measurement(lost=7)],
        BASELINE: rates(100_000),
        "nats": rates(2_000_000),
    }
    text = render_markdown(result_of(only_row("mixed", **runs), runs))
    assert (
        "| mixed | deliveries/s | 1,500,000 (15x) FAILED | 100,000 | 2,000,000 (20x) "
        "| >= 5x; >= 0.7x nats | NO, 15x; NO, 0.75x |"
    ) in text
    assert "- mixed: FAILED: 1 of 2 runs of penstock: lost 7" in text
    assert "uvloop 0.21" in text


def test_cpu_ratio_is_that_of_the_baseline_to_the_broker_and_stands_beside_the_ratio_of_rates() -> None:
    def run(rate: float, cpu_us: float) -> list[Measurement]:
        return [Measurement(delivered_per_s=rate, lost=0, cpu_us_per_delivery=cpu_us)]

    runs = {"penstock": run(600, 2.0), BASELINE: run(100, 14.0)}
    row = only_row("mixed", **runs)
    assert row.summaries["penstock"].cpu_ratio == 7.0
    assert "| mixed | deliveries/s | 600 (6x, CPU 7x) | 100 |" in render_markdown(result_of(row, runs))


def test_goal_is_judged_by_debian_s_mosquitto_and_the_ratio_to_the_newest_stands_beside_it() -> None:
    runs = {"penstock": rates(600), "mosquitto": rates(200), "mosquitto-debian": rates(100)}
    row = only_row("mixed", **runs)
    verdict = row.verdicts[0]
    assert (verdict.reached, verdict.is_met, verdict.beside) == (6.0, True, {"mosquitto": 3.0})
    assert row.notes == ()
    text = render_markdown(result_of(row, runs))
    assert "ratio to mosquitto-debian)" in text
    assert "| mixed | deliveries/s | 600 (6x) | 200 (2x) | 100 |" in text
    assert "| yes, 6x (3x mosquitto); - |" in text


def test_goal_is_judged_by_the_only_version_that_was_measured_and_the_table_names_it() -> None:
    runs = {"penstock": rates(600), "mosquitto": rates(200), "nats-debian": rates(800)}
    row = only_row("mixed", **runs)
    assert [(verdict.reached, verdict.is_met) for verdict in row.verdicts] == [(3.0, False), (0.75, True)]
    assert row.notes == ("the ratio is to mosquitto",)
    text = render_markdown(result_of(row, runs))
    assert "| mixed | deliveries/s | 600 (3x) | 200 | 800 (4x) |" in text
    assert "| NO, 3x mosquitto; yes, 0.75x nats-debian |" in text


def test_durable_goal_is_judged_by_debian_s_mosquitto_too() -> None:
    acked = {"penstock": 100, "penstock-fsync": 60, "mosquitto-debian-saving": 10, "mosquitto-saving": 20}
    runs = {name: [Measurement(acked_per_s=value, lost=0)] for name, value in acked.items()}
    [row] = make_rows([SCENARIOS["durable"]], {"durable": runs})
    assert (row.verdicts[1].is_met, row.verdicts[1].beside) == (True, {"mosquitto-saving": 3.0})
    text = render_markdown(result_of(row, runs))
    assert "| >= 0.5x penstock; >= 5x | yes, 0.6x; yes, 6x (3x mosquitto-saving) |" in text


def test_peers_that_were_left_out_are_named_with_the_reason() -> None:
    runs = {"penstock": rates(600)}
    result = msgspec.structs.replace(result_of(only_row("mixed", **runs), runs), left_out={"nats": "no Go"})
    assert "- nats is left out: no Go" in render_markdown(result)
    assert msgspec.json.decode(msgspec.json.encode(result), type=Result) == result


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


def test_file_system_is_that_of_the_folder() -> None:
    assert describe_machine(Path("/proc/self")).file_system == "proc"
