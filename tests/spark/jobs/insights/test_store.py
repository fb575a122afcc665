"""What stays in the lake: a batch is there once, wherever it was cut off, and the next goes on from it."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.lake import InvalidLake, Table, read_file
from penstock.lake.table import lake_table
from penstock.spark.jobs.insights import state as stores
from penstock.spark.jobs.insights.rows import TABLES, table_schema
from penstock.spark.jobs.insights.state import Batch, InsightsStore, Settings, State, process_batch
from penstock.spark.tables import schema_of as columns_of
from tests.spark.jobs.insights.checking import BUCKETS, HOT_TOPICS, check_tables
from tests.spark.jobs.insights.samples import BEGIN, Sample, busy_minutes, cells_of

SETTINGS = Settings(hot_topics=HOT_TOPICS, buckets=BUCKETS)
QUERY = "the query"


class Crash(Exception):
    """The job is killed."""


def do(lake: Path, number: int, samples: Sequence[Sample]) -> None:
    """Do a batch, as a process does that has just begun."""
    store = InsightsStore(str(lake))
    batch = Batch(QUERY, number)
    if not store.has(batch):
        store.commit(batch, process_batch(store.state(), cells_of(samples), SETTINGS))


def rows_of(lake: Path, name: str) -> list[dict[str, Any]]:
    """All rows of a table, with what the names of its folders say."""
    table, schema, found = InsightsStore(str(lake)).tables[name], table_schema(name), []
    for file in table.manifest().files.values():
        for batch in read_file(table.absolute(file)):
            rows = [{**row, **file.partition} for row in batch.to_pylist()]
            found += [{**row, "date": row["window_start"].date()} for row in rows if str(row["date"])]
            assert {row["date"] for row in rows} == {str(row["window_start"].date()) for row in rows}
    assert all(list(row) == schema.names for row in found)
    return found


def tables_of(lake: Path) -> dict[str, list[dict[str, Any]]]:
    return {name: rows_of(lake, name) for name in TABLES}


def test_batches_that_are_done_by_one_process_after_the_other_add_up(tmp_path: Path) -> None:
    samples = busy_minutes(240)
    for number, start in enumerate(range(0, len(samples), 500)):
        do(tmp_path, number, samples[start : start + 500])
    check_tables(tables_of(tmp_path), samples, BEGIN + timedelta(seconds=220))
    state = InsightsStore(str(tmp_path)).state()
    assert (state.messages, state.late) == (len(samples), 0)


def test_tables_without_rows_are_there_with_their_columns(tmp_path: Path) -> None:
    InsightsStore(str(tmp_path)).create()
    InsightsStore(str(tmp_path)).create()
    for name, table in InsightsStore(str(tmp_path)).tables.items():
        manifest = table.manifest()
        assert (manifest.version, manifest.rows) == (1, 0)
        assert columns_of(manifest, table).fieldNames() == table_schema(name).names
    with pytest.raises(InvalidLake, match=r"there are balance, clients, drops, hot, prefixes, topics$"):
        lake_table(tmp_path, "insights/drop")


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    before = process_batch(State(), cells_of(busy_minutes(150)), SETTINGS).state
    step = process_batch(before, cells_of([Sample(at_s=1.0)]), SETTINGS)
    InsightsStore(str(tmp_path)).commit(Batch(QUERY, 0), step)
    state, found = step.state, InsightsStore(str(tmp_path)).state()
    assert (found.settled_us, found.messages, found.cells) == (state.settled_us, state.messages, state.cells)
    assert found.late == 1
    assert sorted(map(repr, found.sequences.to_pylist())) == sorted(map(repr, state.sequences.to_pylist()))
    assert (
        found.topics[1] == state.topics[1] and found.clients == state.clients and found.drops == state.drops
    )


@pytest.mark.parametrize("commits", range(7))
def test_a_batch_that_is_cut_off_between_two_commits_is_made_whole_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    samples = busy_minutes(130)
    do(tmp_path, 0, samples[:600])
    with monkeypatch.context() as patch:
        patch.setattr(stores, "_commit", dying_after(commits, stores._commit))
        with pytest.raises(Crash):
            do(tmp_path, 1, samples[600:])
    do(tmp_path, 1, samples[600:])
    check_tables(tables_of(tmp_path), samples, BEGIN + timedelta(seconds=110))
    do(tmp_path, 1, samples[600:])  # nobody was told that it is done
    check_tables(tables_of(tmp_path), samples, BEGIN + timedelta(seconds=110))


def dying_after(commits: int, commit: Callable[..., None]) -> Callable[..., None]:
    """The same as before, a few times; then the job is killed in its place."""
    left = commits

    def commit_or_die(*args: object) -> None:
        nonlocal left
        if left == 0:
            raise Crash
        left -= 1
        commit(*args)

    return commit_or_die


def test_a_query_does_not_go_on_with_the_insights_of_another(tmp_path: Path) -> None:
    do(tmp_path, 0, [Sample(at_s=1.0)])
    with pytest.raises(InvalidLake, match="insights belongs to a checkpoint that no longer exists"):
        InsightsStore(str(tmp_path)).has(Batch("another", 0))


def test_many_small_files_become_one_with_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "MANY_FILES", 6)
    samples = [Sample(at_s=10.0 * number, sequence=number + 1) for number in range(10)]
    for number, sample in enumerate(samples):
        do(tmp_path, number, [sample])
    store = InsightsStore(str(tmp_path))
    before = tables_of(tmp_path)
    assert count_files(store.tables["topics"]) == 9
    store.compact_small_files()
    after = tables_of(tmp_path)
    assert {name: sorted(map(repr, rows)) for name, rows in after.items()} == {
        name: sorted(map(repr, rows)) for name, rows in before.items()
    }
    assert count_files(store.tables["topics"]) == 2  # of ten seconds, and of the first minute
    check_tables(after, samples, BEGIN + timedelta(seconds=80))
    do(tmp_path, len(samples), [Sample(at_s=10.0 * len(samples), sequence=len(samples) + 1)])
    assert len(rows_of(tmp_path, "topics")) > len(before["topics"])


def count_files(table: Table) -> int:
    return len(table.manifest().files)


def test_files_of_states_that_are_over_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "MANY_FILES", 4)
    for number in range(12):
        do(tmp_path, number, [Sample(at_s=10.0 * number, sequence=number + 1)])
        InsightsStore(str(tmp_path)).compact_small_files()
    there = list((tmp_path / "insights" / "_state").rglob("*.parquet"))
    assert len(there) <= 5
