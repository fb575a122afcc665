"""What one task reads of a lake: some of its files, as far as they lie between two offsets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapreplace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from penstock.core.topics import ALL_LEVELS, matches
from penstock.pipeline.lake import DataFile, InvalidLake, Table, read_file
from penstock.pipeline.source.epochs import Bounds, Spot
from penstock.pipeline.source.schema import EPOCH, OFFSET, TOPIC


@dataclass(frozen=True)
class LakePart(InputPartition):
    """Rows of some files whose offsets are behind `after` and not behind `until`."""

    files: tuple[str, ...]
    after: int
    until: int
    bounds: Bounds | None = None
    """Only rows within them; None where offsets alone say which rows these are."""


def lake_parts(
    table: Table,
    files: Sequence[DataFile],
    after: int,
    until: int,
    parallelism: int,
    bounds: Bounds | None = None,
) -> list[LakePart]:
    """Files in groups of about the same size, to be read side by side."""
    groups: list[list[str]] = [[] for _ in range(min(parallelism, len(files)))]
    sizes = [(0, number) for number in range(len(groups))]
    for file in sorted(files, key=lambda file: file.bytes, reverse=True):
        size, smallest = sizes[0]
        groups[smallest].append(str(table.absolute(file)))
        heapreplace(sizes, (size + file.bytes, smallest))
    return [LakePart(tuple(paths), after, until, bounds) for paths in groups]


def read_lake_part(part: LakePart, filters: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a part, of the topics that are asked for.

    Args:
        schema: the columns; those that older files have not are null.

    Raises:
        DamagedFile: a file cannot be read; the text names it.
        InvalidLake: a file was replaced, and that so long ago that it is gone.
    """
    needed = [pa.field(TOPIC, pa.string())]
    if part.bounds is not None:
        needed += [pa.field(EPOCH, pa.int64()), pa.field(OFFSET, pa.int64())]
    extra = [field for field in needed if field.name not in schema.names]
    asked = pa.schema([*schema, *extra])
    wanted = Wanted(filters)
    for path in part.files:
        try:
            for batch in read_file(path, first_offset=part.after + 1, last_offset=part.until, schema=asked):
                rows = wanted.keep(batch if part.bounds is None else _within(batch, part.bounds))
                if rows.num_rows:
                    yield rows.select(schema.names) if extra else rows
        except FileNotFoundError:
            raise InvalidLake(f"{path} was replaced since this query was planned: run it again") from None


def _within(batch: pa.RecordBatch, bounds: Bounds) -> pa.RecordBatch:
    return batch.filter(pc.and_not(_is_seen(batch, bounds.until), _is_seen(batch, bounds.after)))


def _is_seen(batch: pa.RecordBatch, spot: Spot) -> pa.Array:
    """Which rows are not behind a spot."""
    epochs, offsets = batch.column(EPOCH), batch.column(OFFSET)
    is_same = pc.and_(pc.equal(epochs, spot[0]), pc.less_equal(offsets, spot[1]))
    return pc.or_(pc.less(epochs, spot[0]), is_same)


class Wanted:
    """Which topics are asked for, by the same rules as the server has for its log."""

    def __init__(self, filters: Sequence[str]) -> None:
        self._filters = filters
        self._known: dict[str, bool] = {}

    def keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose topics are asked for."""
        coded = batch.column(TOPIC).dictionary_encode()
        chosen = [self._is_known(topic) for topic in coded.dictionary.to_pylist()]
        if all(chosen):
            return batch
        return batch.filter(pc.take(pa.array(chosen, pa.bool_()), coded.indices))

    def _is_known(self, topic: str) -> bool:
        found = self._known.get(topic)
        if found is None:
            found = self._known[topic] = self._is_wanted(topic)
        return found

    def _is_wanted(self, topic: str) -> bool:
        """Topics that begin with `$` are only where a filter names them."""
        filters = self._filters or (ALL_LEVELS,)
        return any(matches(each, topic) for each in filters)
