"""State between two batches, and the step from one to the next: a new state, and rows of the tables.

The step is pure: no disk, no Spark, and the same input gives the same output.

The store has the tables, and the state that the next batch resumes from. A batch changes several tables, one
commit each, and each commit records the batch. The state is committed last: until then the batch is repeated
with the same outcome, and tables that have it already are skipped. The state is a private table with one row
per part.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.lake import Change, DataFile, InvalidLake, Manifest, Table, lake_insights, read_file
from penstock.lake.maintenance import clean
from penstock.lake.manifest import Partition, by_partition
from penstock.lake.writer import by_columns, into_partition, write_batches
from penstock.spark.jobs.insights import rows
from penstock.spark.jobs.insights.rows import PARTITIONS, TABLES, finish_table, table_schema
from penstock.spark.jobs.insights.sums import TOTALS, Addable, Amounts, Sums, sums_of_cells
from penstock.spark.jobs.insights.windows import (
    CELLS,
    GRAINS,
    TEN_SECONDS,
    Grain,
    closed_windows,
    open_windows,
    settled_until,
    widen,
)

LONGER = GRAINS[1:]

_TOPIC = {"window": pa.int64(), "topic": pa.string()}
_ENTRIES = pa.schema({**_TOPIC, "bucket": pa.int32(), "count": pa.int64()}).empty_table()
_TOTALS = pa.schema({**_TOPIC, **dict.fromkeys(TOTALS, pa.int64())}).empty_table()
NO_TOPICS = Sums(("window", "topic"), _TOTALS, _ENTRIES, _ENTRIES)
NO_SEQUENCES = pa.schema({"topic": pa.string(), "last_sequence": pa.int64()}).empty_table()

T = TypeVar("T", bound=Addable)
BY = "insights"
STATE = "_state"

_SETTLED, _MESSAGES, _LATE = "settled-us", "messages", "late"
_MARKS = {_SETTLED, _MESSAGES, _LATE}
_PARTS = pa.schema({"part": pa.string(), "data": pa.binary()})

SMALL_BYTES = 8 << 20
"""Files below this size are joined."""
MANY_FILES = 60
"""Number of small files in one partition that triggers joining."""


class Settings(Struct, frozen=True, kw_only=True):
    """Settings of the aggregation."""

    lateness_s: float = 10.0
    prefix_levels: int = 1
    hot_topics: int = 20
    buckets: int = 8


class State(Struct, frozen=True, kw_only=True):
    """State after a batch."""

    settled_us: int | None = None
    """Watermark: windows that end at or before it are closed."""
    messages: int = 0
    late: int = 0
    """Number of messages that arrived after their window was closed, and were left out."""
    cells: pa.Table = CELLS.empty_table()
    """Of open windows of ten seconds."""
    topics: tuple[Sums, ...] = (NO_TOPICS, NO_TOPICS)
    """Of longer open windows, by grain; as are the next two."""
    clients: tuple[Amounts, ...] = (rows.NO_CLIENTS, rows.NO_CLIENTS)
    drops: tuple[Amounts, ...] = (rows.NO_DROPS, rows.NO_DROPS)
    sequences: pa.Table = NO_SEQUENCES
    """Last sequence of each topic in closed windows."""


class BatchResult(Struct, frozen=True):
    """Outcome of one batch."""

    state: State
    tables: Mapping[str, pa.Table]
    """New rows by table."""
    messages: int
    late: int


def process_batch(state: State, cells: pa.Table, settings: Settings) -> BatchResult:
    """Add the cells of a batch to a state; closed windows become rows."""
    if not cells.num_rows:
        return BatchResult(state, {}, 0, 0)
    starts = pc.min_max(cells.column("window")).as_py()
    settled_us = starts["min"] if state.settled_us is None else state.settled_us
    late = pc.sum(closed_windows(cells, TEN_SECONDS, settled_us).column("messages")).as_py() or 0
    messages = pc.sum(cells.column("messages")).as_py()
    until_us = settled_until(starts["max"], round(settings.lateness_s * 1_000_000), settled_us)
    there = pa.concat_tables([state.cells, open_windows(cells, TEN_SECONDS, settled_us)])
    counted = replace(
        state,
        settled_us=until_us,
        messages=state.messages + messages,
        late=state.late + late,
        cells=open_windows(there, TEN_SECONDS, until_us),
    )
    if until_us == settled_us:
        return BatchResult(counted, {}, messages, late)
    settled, tables = _settle(counted, closed_windows(there, TEN_SECONDS, until_us), until_us, settings)
    return BatchResult(settled, tables, messages, late)


def _settle(
    state: State, cells: pa.Table, until_us: int, settings: Settings
) -> tuple[State, dict[str, pa.Table]]:
    """Make rows of closed windows of all grains."""
    is_news = pc.is_valid(cells.column("news"))
    messages, news = cells.filter(pc.invert(is_news)), cells.filter(is_news)
    new = rows.with_sequences_before(sums_of_cells(messages, ("window", "topic")), state.sequences)
    topics, open_topics = _by_grain(new, state.topics, until_us)
    clients, open_clients = _by_grain(rows.client_sums(messages), state.clients, until_us)
    drops, open_drops = _by_grain(rows.drop_sums(news), state.drops, until_us)
    settled = replace(
        state,
        topics=open_topics,
        clients=open_clients,
        drops=open_drops,
        sequences=rows.sequences_after(new, state.sequences),
    )
    found = [
        _tables(grain, by_topic, by_client, by_reason, settings)
        for grain, by_topic, by_client, by_reason in zip(GRAINS, topics, clients, drops, strict=True)
    ]
    return settled, {name: pa.concat_tables([tables[name] for tables in found]) for name in TABLES}


def _by_grain(new: T, waiting: Sequence[T], until_us: int) -> tuple[list[T], tuple[T, ...]]:
    """Closed windows of each grain, and open windows of the longer ones."""
    done, left = [new], []
    for grain, before_it in zip(LONGER, waiting, strict=True):
        there = before_it.plus(done[-1].each(partial(widen, grain=grain)))
        done.append(there.each(partial(closed_windows, grain=grain, until_us=until_us)))
        left.append(there.each(partial(open_windows, grain=grain, until_us=until_us)))
    return done, tuple(left)


def _tables(
    grain: Grain, topics: Sums, clients: Amounts, drops: Amounts, settings: Settings
) -> dict[str, pa.Table]:
    """The rows of one grain."""
    by_topic = rows.topic_rows(topics)
    found = {
        "topics": by_topic,
        "prefixes": rows.prefix_rows(topics, by_topic, settings.prefix_levels),
        "hot": rows.hot_rows(by_topic, settings.hot_topics),
        "clients": rows.rank_rows(clients.table, "client_id"),
        "drops": drops.table,
        "balance": rows.balance_rows(by_topic, settings.buckets),
    }
    return {name: finish_table(name, grain, table) for name, table in found.items()}


class Batch(Struct, frozen=True):
    """One batch of a streaming query."""

    query: str
    number: int


class InsightsStore:
    """Insights of one lake, for one batch after another."""

    def __init__(self, lake: str) -> None:
        self.tables = {name: lake_insights(lake, name) for name in TABLES}
        self._state_table = lake_insights(lake, STATE)

    # The state

    def has(self, batch: Batch) -> bool:
        """A batch is done.

        Raises:
            InvalidLake: another query wrote the insights.
        """
        progress = self._state_table.manifest().progress
        if set(progress) - _MARKS - {batch.query}:
            raise InvalidLake(
                f"{self._state_table.path.parent} belongs to a checkpoint that no longer exists: restore it, "
                "or delete the insights of this lake and start over"
            )
        return progress.get(batch.query, -1) >= batch.number

    def state(self) -> State:
        """The state after the last batch that is done."""
        manifest = self._state_table.manifest()
        parts = dict(_state_tables(State()))
        for file in manifest.files.values():
            for batch in read_file(self._state_table.absolute(file)):
                parts |= {row["part"]: _unpack(row["data"]) for row in batch.to_pylist()}
        marks = manifest.progress
        return replace(
            _assemble(parts),
            settled_us=marks.get(_SETTLED),
            messages=marks.get(_MESSAGES, 0),
            late=marks.get(_LATE, 0),
        )

    # A batch

    def create(self) -> None:
        """Create all tables with their columns: some may never get rows."""
        for name, table in self.tables.items():
            if table.manifest().schema is None:
                schema = from_arrow_schema(table_schema(name)).json()
                table.commit(partial(_first, schema))

    def commit(self, batch: Batch, step: BatchResult) -> None:
        """Commit the new rows of all tables, then the state."""
        for name, new in step.tables.items():
            table = self.tables[name]
            is_there = table.manifest().progress.get(batch.query, -1) >= batch.number
            if new.num_rows and not is_there:
                files = write_batches(table.path, by_columns(PARTITIONS), new.to_batches())
                _commit(table, batch, files, table_schema(name))
        state = step.state
        marks = {_MESSAGES: state.messages, _LATE: state.late}
        if state.settled_us is not None:
            marks[_SETTLED] = state.settled_us
        packed = [{"part": name, "data": _pack(part)} for name, part in _state_tables(state) if part.num_rows]
        parts = pa.Table.from_pylist(packed, _PARTS).to_batches()
        files = write_batches(self._state_table.path, by_columns(()), parts)
        _commit(self._state_table, batch, files, _PARTS, tuple(self._state_table.manifest().files), marks)

    # Maintenance

    def compact_small_files(self) -> None:
        """Join small files, and delete unneeded ones."""
        for table in self.tables.values():
            for partition, files in by_partition(table.manifest().files.values()).items():
                small = [file for file in files if file.bytes < SMALL_BYTES]
                if len(small) >= MANY_FILES:
                    _join(table, partition, small)
                    clean(table, BY)
        if len(self._state_table.manifest().retired) >= MANY_FILES:
            clean(self._state_table, BY, grace_s=0)  # the state has no other readers


def _first(schema: str, manifest: Manifest) -> Change | None:
    return Change(by=BY, schema=schema) if manifest.schema is None else None


def _commit(
    table: Table,
    batch: Batch,
    added: Sequence[DataFile],
    schema: pa.Schema,
    removed: Sequence[str] = (),
    marks: Mapping[str, int] | None = None,
) -> None:
    columns = from_arrow_schema(schema).json()

    def change(manifest: Manifest) -> Change:
        return Change(
            by=BY,
            added=added,
            removed=removed,
            schema=None if manifest.schema == columns else columns,
            progress={batch.query: batch.number, **(marks or {})},
        )

    table.commit(change)


def _join(table: Table, partition: Partition, files: Sequence[DataFile]) -> None:
    """Join several files of a partition into one."""
    rows = (batch for file in files for batch in read_file(table.absolute(file)))
    joined = write_batches(table.path, into_partition(dict(partition)), rows)
    table.commit(lambda manifest: Change(by=BY, added=joined, removed=[file.path for file in files]))


def _pack(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _unpack(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def _state_tables(state: State) -> Iterable[tuple[str, pa.Table]]:
    """The tables that make up a state, by name."""
    yield "cells", state.cells
    yield "sequences", state.sequences
    for at, grain in enumerate(LONGER):
        for kind, part in zip(("totals", "sizes", "latencies"), state.topics[at].parts, strict=True):
            yield f"topics-{grain.name}-{kind}", part
        yield f"clients-{grain.name}", state.clients[at].table
        yield f"drops-{grain.name}", state.drops[at].table


def _assemble(parts: Mapping[str, pa.Table]) -> State:
    """The state made of these tables."""
    empty = State()
    names = [grain.name for grain in LONGER]
    return State(
        cells=parts["cells"],
        sequences=parts["sequences"],
        topics=tuple(
            sums.with_parts(*(parts[f"topics-{name}-{kind}"] for kind in ("totals", "sizes", "latencies")))
            for sums, name in zip(empty.topics, names, strict=True)
        ),
        clients=tuple(
            replace(each, table=parts[f"clients-{name}"])
            for each, name in zip(empty.clients, names, strict=True)
        ),
        drops=tuple(
            replace(each, table=parts[f"drops-{name}"]) for each, name in zip(empty.drops, names, strict=True)
        ),
    )
