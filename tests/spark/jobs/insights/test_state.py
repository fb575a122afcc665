"""Batches one after the other, without Spark and disk: the rows say what plain counting says."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.jobs.insights.rows import TABLES, table_schema
from penstock.spark.jobs.insights.state import BatchResult, Settings, State, process_batch
from penstock.spark.jobs.insights.windows import DROPS_TOPIC
from tests.spark.jobs.insights.checking import BUCKETS, HOT_TOPICS, check_tables
from tests.spark.jobs.insights.samples import BEGIN, Sample, busy_minutes, cells_of, drops

SETTINGS = Settings(lateness_s=10.0, hot_topics=HOT_TOPICS, buckets=BUCKETS)


def run(
    batches: Iterable[Sequence[Sample]], settings: Settings = SETTINGS
) -> tuple[State, dict[str, list[Any]]]:
    """The state after some batches, and all rows that they made."""
    state, tables = State(), {name: list[Any]() for name in TABLES}
    for batch in batches:
        step = process_batch(state, cells_of(batch), settings)
        state = step.state
        for name, rows in step.tables.items():
            tables[name] += rows.to_pylist()
    return state, tables


def portions(samples: list[Sample], *cuts: int) -> list[list[Sample]]:
    """The samples in batches that end at these places."""
    ends = [0, *cuts, len(samples)]
    return [samples[first:last] for first, last in pairwise(ends)]


@pytest.mark.parametrize("cuts", [(), (50, 950, 1000, 1700), tuple(range(60, 2400, 60))])
def test_rows_of_all_grains_agree_with_plain_counting_however_batches_are_cut(cuts: tuple[int, ...]) -> None:
    samples = busy_minutes(240)
    state, tables = run(portions(samples, *cuts))
    check_tables(
        tables, samples, BEGIN + timedelta(seconds=220)
    )  # the newest window begins ten seconds later
    assert (state.messages, state.late) == (len(samples), 0)


def test_longer_windows_tell_the_same_whether_their_parts_came_together_or_not() -> None:
    samples = busy_minutes(240)
    together, apart = run([samples])[1], run(portions(samples, *range(37, 2400, 37)))[1]
    for name, rows in together.items():
        assert sorted(map(repr, rows)) == sorted(map(repr, apart[name]))


def test_tables_have_the_columns_that_they_should_have() -> None:
    step = process_batch(State(), cells_of(busy_minutes(60)), SETTINGS)
    assert {name: rows.schema for name, rows in step.tables.items()} == {
        name: table_schema(name) for name in TABLES
    }


def seconds_of(rows: Sequence[dict[str, Any]], grain: str = "10s") -> dict[float, int]:
    """The messages of windows, by where they begin."""
    return {
        (row["window_start"] - BEGIN).total_seconds(): row["messages"]
        for row in rows
        if row["grain"] == grain
    }


def test_messages_of_windows_that_are_over_are_counted_as_late_and_left_out() -> None:
    lost = Sample(at_s=3.0, sequence=2)
    first = [Sample(at_s=1.0), Sample(at_s=31.0, sequence=3)]
    second = [lost, lost, Sample(at_s=21.0, sequence=4), Sample(at_s=51.0, sequence=5)]
    state, tables = run([first, second])
    assert (state.messages, state.late) == (6, 2)
    assert seconds_of(tables["topics"]) == {0: 1, 20: 1, 30: 1}


def test_a_batch_says_how_many_of_its_messages_were_late() -> None:
    state = process_batch(
        State(), cells_of([Sample(at_s=1.0), Sample(at_s=41.0, sequence=2)]), SETTINGS
    ).state
    step = process_batch(
        state, cells_of([Sample(at_s=2.0, sequence=3), Sample(at_s=42.0, sequence=4)]), SETTINGS
    )
    assert (step.messages, step.late, step.tables) == (2, 1, {})


@pytest.mark.parametrize(("lateness_s", "windows"), [(0.0, [0, 10]), (10.0, [0]), (15.0, [])])
def test_a_window_waits_for_late_messages_as_long_as_it_is_told(
    lateness_s: float, windows: list[int]
) -> None:
    samples = [Sample(at_s=5.0), Sample(at_s=15.0, sequence=2), Sample(at_s=21.0, sequence=3)]
    tables = run([samples], Settings(lateness_s=lateness_s))[1]
    assert list(seconds_of(tables["topics"])) == windows


def test_a_clock_that_was_set_back_does_not_open_windows_again() -> None:
    ahead = [Sample(at_s=1.0), Sample(at_s=1001.0, sequence=2)]
    back = [Sample(at_s=11.0, sequence=3), Sample(at_s=12.0, sequence=4)]
    later = [Sample(at_s=1031.0, sequence=5)]
    state, tables = run([ahead, back, later])
    assert state.late == 2
    assert seconds_of(tables["topics"]) == {0: 1, 1000: 1}


def gaps(tables: dict[str, list[Any]], grain: str) -> list[tuple[str, int, int]]:
    rows = sorted(tables["topics"], key=lambda row: (row["window_start"], row["topic"]))
    return [(row["topic"], row["missing"], row["missing_before"]) for row in rows if row["grain"] == grain]


def test_gaps_are_found_inside_of_windows_between_them_and_between_batches() -> None:
    first = [
        Sample(at_s=1.0, sequence=7),
        Sample(at_s=2.0, sequence=9),
        Sample(at_s=12.0, sequence=12),
        Sample(at_s=32.0, sequence=13),
    ]
    second = [Sample(at_s=45.0, sequence=20), Sample(at_s=95.0, sequence=25)]
    third = [Sample(at_s=105.0, sequence=26), Sample(at_s=200.0, sequence=27)]
    tables = run([first, second, third])[1]
    assert gaps(tables, "10s") == [
        ("a", 1, 0),
        ("a", 0, 2),
        ("a", 0, 0),
        ("a", 0, 6),
        ("a", 0, 4),
        ("a", 0, 0),
    ]
    assert gaps(tables, "1m") == [("a", 3, 0), ("a", 6, 0), ("a", 0, 4)]  # the first one has 30 seconds


def test_a_topic_whose_sequences_begin_anew_has_no_gap_there() -> None:
    samples = [Sample(at_s=1.0, sequence=50), Sample(at_s=12.0, sequence=1), Sample(at_s=22.0, sequence=3)]
    tables = run([samples, [Sample(at_s=45.0, sequence=6)], [Sample(at_s=90.0, sequence=7)]])[1]
    assert gaps(tables, "10s") == [("a", 0, 0), ("a", 0, 0), ("a", 0, 1), ("a", 0, 2)]


def test_where_all_messages_are_alike_percentiles_are_exact() -> None:
    samples = [Sample(at_s=number / 10, sequence=number, size=777, latency_us=1234) for number in range(90)]
    tables = run([samples, [Sample(at_s=30.0, sequence=90)]])[1]
    (row,) = tables["topics"]
    assert [row[f"bytes_{name}"] for name in ("p50", "p95", "p99")] == [777] * 3
    assert [row[f"latency_{name}_ms"] for name in ("p50", "p95", "p99")] == [1.234] * 3


def test_news_that_cannot_be_understood_take_nothing_else_away() -> None:
    odd = [
        Sample(at_s=1.0, topic=DROPS_TOPIC, payload=payload)
        for payload in (b"", b"\xff\x00", b"[]", b'{"a": 1}', b"[1]")
    ]
    empty = Sample(at_s=3.0, size=0, latency_us=-5)
    tables = run([[*odd, drops(2.0, expired=5), empty], [Sample(at_s=30.0, sequence=2)]])[1]
    (told,) = tables["drops"]
    assert (told["reason"], told["messages"], told["messages_per_s"]) == ("expired", 5, 0.5)
    (row,) = tables["topics"]
    assert (row["bytes_p99"], row["latency_p99_ms"], row["messages"]) == (0, 0.0, 1)
    assert (tables["balance"][0]["messages_imbalance"], tables["balance"][0]["bytes_imbalance"]) == (
        BUCKETS,
        None,
    )


def test_the_same_news_twice_count_twice() -> None:
    tables = run([[drops(1.0, expired=5), drops(1.0, expired=5)], [Sample(at_s=30.0)]])[1]
    assert [row["messages"] for row in tables["drops"]] == [10]


def test_a_prefix_has_as_many_levels_as_it_is_told() -> None:
    samples = [
        Sample(at_s=1.0, topic="plant/a/x"),
        Sample(at_s=2.0, topic="plant/a/y"),
        Sample(at_s=3.0, topic="plant"),
        Sample(at_s=4.0, topic="/a"),
        Sample(at_s=30.0, sequence=2, topic="plant"),
    ]
    tables = run([samples], Settings(prefix_levels=2))[1]
    found = {row["prefix"]: (row["topics"], row["messages"]) for row in tables["prefixes"]}
    assert found == {"plant/a": (2, 2), "plant": (1, 1), "/a": (1, 1)}


def test_nothing_makes_nothing_of_a_state() -> None:
    state = process_batch(State(), cells_of([Sample(at_s=1.0)]), SETTINGS).state
    assert process_batch(state, cells_of([]), SETTINGS) == BatchResult(state, {}, 0, 0)


def test_of_equal_topics_and_clients_the_name_decides_the_rank() -> None:
    samples = [Sample(at_s=1.0, topic=topic, client_id=topic) for topic in ("b", "c", "a")]
    tables = run([samples, [Sample(at_s=30.0)]])[1]
    assert [(row["rank"], row["topic"]) for row in tables["hot"]] == [(1, "a"), (2, "b")]
    assert [(row["rank"], row["client_id"]) for row in tables["clients"]] == [(1, "a"), (2, "b"), (3, "c")]


def test_who_has_no_client_id_has_an_empty_one() -> None:
    cells = cells_of([Sample(at_s=1.0), Sample(at_s=30.0)])
    at = cells.schema.get_field_index("client_id")
    nameless = cells.set_column(at, "client_id", pa.nulls(cells.num_rows, pa.string()))
    clients = process_batch(State(), nameless, SETTINGS).tables["clients"]
    assert clients.column("client_id").to_pylist() == [""]
