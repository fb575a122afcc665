"""Reads the messages of a replay, from the lake and the log, with the source that everybody uses."""

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody calls them so

from penstock.core.ports import Position
from penstock.pipeline.jobs.replay.messages import COLUMNS
from penstock.pipeline.jobs.replay.options import LATEST, ReplayOptions, place_text
from penstock.pipeline.jobs.replay.slices import SLICE_BYTES, Slice, cut
from penstock.pipeline.lake import InvalidLake, lake_messages, lake_path
from penstock.pipeline.source.connection import Connection
from penstock.pipeline.source.offsets import cursor_at, position_of

STEP_S = 0.5
"""How finely time is followed where it matters."""
MOST_GROUPS = 100_000
"""How many groups are counted, about: they are brought to the driver."""
BLOCK = 1_000
"""How many offsets a group has at most, unless there are too many groups."""
_ROW_BYTES = 400
"""What a row has beside its payload, as it is staged: its properties above all."""


class Messages:
    """The messages that a replay is about."""

    def __init__(self, spark: SparkSession, options: ReplayOptions, connection: Connection) -> None:
        self._spark = spark
        self._options = options
        self._connection = connection
        self.left_out = 0
        """How many messages are under the prefix already; known when it is planned."""

    def end(self) -> Position:
        """A place in their log that is not before any of them.

        Raises:
            InvalidLake: only the lake is to be read, and there is nothing in it.
        """
        options = self._options
        if not options.lake_only:
            filters = options.filters
            found = self._connection.insist(lambda client: client.position(LATEST, filters=filters))
            return position_of(found.cursor)
        assert options.lake is not None
        cursor = lake_messages(options.lake).manifest().cursor
        if cursor is None:
            raise InvalidLake(f"{lake_path(options.lake)}: there is no lake here")
        return position_of(cursor)

    def plan(self) -> list[Slice]:
        """Count the messages and cut them into slices; it reads all of them."""
        options, end = self._options, self.end()
        until = cursor_at(end, end.offset) if options.until == LATEST else place_text(options.until)
        columns = ("offset", "topic", "published_at", "payload")
        frame = self._read(columns, place_text(options.start), until).where(self._is_timely())
        block = max(BLOCK, end.offset // MOST_GROUPS)
        groups, self.left_out = self._count(frame, block)
        large = [group for group in groups if group.bytes > SLICE_BYTES and group.rows > 1]
        if large:  # then each message of theirs is a group by itself
            blocks = {group.first // block for group in large}
            fine, _ = self._count(frame.where(_block(block).isin(blocks)), 1)
            groups = [group for group in groups if group.first // block not in blocks] + fine
        return cut(groups)

    def between(self, after: str, until: str) -> DataFrame:
        """The messages of some slices, with all that is needed to publish them again."""
        return self._read(COLUMNS, after, until).where(self._is_timely() & ~self._is_copy())

    def _read(self, columns: tuple[str, ...], after: str, until: str) -> DataFrame:
        options = self._options
        given = {
            **options.server,
            "columns": ",".join(columns),
            "startingOffsets": after,
            "endingOffsets": until,
        }
        if options.filters:
            given["filter"] = msgspec.json.encode(options.filters).decode()
        if options.lake is not None:
            given["lake"] = options.lake
        if options.lake_only:
            given["address"] = ""
        if options.keep_going:
            given |= {"failOnDataLoss": "false", "missing": f"{options.state_file.absolute()}.missing"}
        return self._spark.read.format("penstock").options(**given).load()

    def _is_timely(self) -> Column:
        """Of the times that are asked for."""
        options, time, is_timely = self._options, F.col("published_at"), F.lit(True)
        if not isinstance(options.start, str):
            is_timely &= time >= F.lit(options.start)
        if not isinstance(options.until, str):
            is_timely &= time < F.lit(options.until)
        return is_timely

    def _is_copy(self) -> Column:
        """Under the prefix already: what a replay has published before, as far as anybody can tell."""
        prefix = self._options.prefix
        return F.startswith(F.col("topic"), F.lit(prefix)) if prefix else F.lit(False)

    def _count(self, frame: DataFrame, block: int) -> tuple[list[Slice], int]:
        """The groups of what is replayed, and how many messages are left out as copies."""
        speed, time = self._options.speed, F.unix_micros("published_at")
        moment = F.lit(0) if speed is None else F.floor(time / F.lit(round(STEP_S * speed * 1e6) or 1))
        counted = (
            frame.groupBy(
                _block(block).alias("block"),
                moment.cast("bigint").alias("moment"),
                self._is_copy().alias("is_copy"),
            )
            .agg(
                F.min("offset").alias("first"),
                F.max("offset").alias("last"),
                F.count("*").alias("rows"),
                F.sum(F.octet_length("payload") + F.lit(_ROW_BYTES)).alias("bytes"),
                F.min(time).alias("time"),
            )
            .select("is_copy", *Slice.__struct_fields__)
            .toArrow()
        )
        rows = zip(*(column.to_pylist() for column in counted.columns), strict=True)
        groups = [(is_copy, Slice(*group)) for is_copy, *group in rows]
        copies = sum(group.rows for is_copy, group in groups if is_copy)
        return [group for is_copy, group in groups if not is_copy], copies


def _block(block: int) -> Column:
    return F.floor(F.col("offset") / F.lit(block))
