"""The insights in a lake: their tables, and the state from which the next batch goes on.

A batch changes several tables, one commit each, and every commit remembers the batch. The state comes last:
until it is committed the batch is done again, with the same outcome, and what has been committed of it
already is left alone. The state is a table too, with one row for each of its parts; it is not for others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.pipeline.jobs.insights.state import LONGER, State, Step
from penstock.pipeline.jobs.insights.tables import PARTITIONS, TABLES, schema_of
from penstock.pipeline.lake import Change, DataFile, InvalidLake, Manifest, Table, lake_insights, read_file
from penstock.pipeline.lake.cleaning import clean
from penstock.pipeline.lake.manifest import Partition, by_partition
from penstock.pipeline.lake.splitting import Piece, Splitter, by_columns
from penstock.pipeline.lake.writing import write_batches

BY = "insights"
STATE = "_state"

_SETTLED, _MESSAGES, _LATE = "settled-us", "messages", "late"
_MARKS = {_SETTLED, _MESSAGES, _LATE}
_PARTS = pa.schema({"part": pa.string(), "data": pa.binary()})

SMALL_BYTES = 8 << 20
"""A file that is better put together with others."""
MANY_FILES = 60
"""How many of them there may be in one partition."""


class Batch(Struct, frozen=True):
    """One step of a streaming query."""

    query: str
    number: int


class Store:
    """The insights of one lake, for one batch after the other."""

    def __init__(self, lake: str) -> None:
        self.tables = {name: lake_insights(lake, name) for name in TABLES}
        self._kept = lake_insights(lake, STATE)

    # The state

    def has(self, batch: Batch) -> bool:
        """Whether a batch is done.

        Raises:
            InvalidLake: the insights were made by another query.
        """
        progress = self._kept.manifest().progress
        if set(progress) - _MARKS - {batch.query}:
            raise InvalidLake(
                f"{self._kept.path.parent} goes with a checkpoint that is not there any more: bring it back, "
                "or remove the insights of this lake and begin anew"
            )
        return progress.get(batch.query, -1) >= batch.number

    def state(self) -> State:
        """The state after the last batch that is done."""
        manifest = self._kept.manifest()
        parts = dict(_parts(State()))
        for file in manifest.files.values():
            for batch in read_file(self._kept.absolute(file)):
                parts |= {row["part"]: _unpacked(row["data"]) for row in batch.to_pylist()}
        marks = manifest.progress
        return replace(
            _assembled(parts),
            settled_us=marks.get(_SETTLED),
            messages=marks.get(_MESSAGES, 0),
            late=marks.get(_LATE, 0),
        )

    # A batch

    def make(self) -> None:
        """Let all tables be there, with their columns, before they have rows: some may never get any."""
        for name, table in self.tables.items():
            if table.manifest().schema is None:
                schema = from_arrow_schema(schema_of(name)).json()
                table.commit(partial(_first, schema))

    def commit(self, batch: Batch, step: Step) -> None:
        """Let the tables have the new rows, and remember the state."""
        for name, rows in step.tables.items():
            table = self.tables[name]
            is_there = table.manifest().progress.get(batch.query, -1) >= batch.number
            if rows.num_rows and not is_there:
                files = write_batches(table.path, by_columns(PARTITIONS), rows.to_batches())
                _commit(table, batch, files, schema_of(name))
        state = step.state
        marks = {_MESSAGES: state.messages, _LATE: state.late}
        if state.settled_us is not None:
            marks[_SETTLED] = state.settled_us
        packed = [{"part": name, "data": _packed(part)} for name, part in _parts(state) if part.num_rows]
        rows = pa.Table.from_pylist(packed, _PARTS).to_batches()
        files = write_batches(self._kept.path, by_columns(()), rows)
        _commit(self._kept, batch, files, _PARTS, tuple(self._kept.manifest().files), marks)

    # Order

    def tidy(self) -> None:
        """Put small files together, and delete what nobody needs any more."""
        for table in self.tables.values():
            for partition, files in by_partition(table.manifest().files.values()).items():
                small = [file for file in files if file.bytes < SMALL_BYTES]
                if len(small) >= MANY_FILES:
                    _join(table, partition, small)
                    clean(table, BY)
        if len(self._kept.manifest().retired) >= MANY_FILES:
            clean(self._kept, BY, grace_s=0)  # nobody else reads them


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
    """One file instead of several of the same partition."""
    rows = (batch for file in files for batch in read_file(table.absolute(file)))
    joined = write_batches(table.path, _all_in(partition), rows)
    table.commit(lambda manifest: Change(by=BY, added=joined, removed=[file.path for file in files]))


def _all_in(partition: Partition) -> Splitter:
    """All rows into one partition, which their columns do not tell."""

    def split(batch: pa.RecordBatch) -> Iterator[Piece]:
        if batch.num_rows:
            yield partition, batch

    return split


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _unpacked(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def _parts(state: State) -> Iterable[tuple[str, pa.Table]]:
    """The tables that a state is made of, each with a name."""
    yield "cells", state.cells
    yield "sequences", state.sequences
    for at, grain in enumerate(LONGER):
        for kind, part in zip(("totals", "sizes", "latencies"), state.topics[at].parts, strict=True):
            yield f"topics-{grain.name}-{kind}", part
        yield f"clients-{grain.name}", state.clients[at].table
        yield f"drops-{grain.name}", state.drops[at].table


def _assembled(parts: Mapping[str, pa.Table]) -> State:
    """The state that is made of these tables."""
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
