"""Spreads the looking over the cluster: each file and each part of the log is looked at by one task."""

from collections.abc import Callable, Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.jobs.audit.evidence import (
    EVIDENCE,
    EVIDENCE_COLUMNS,
    FINDING_COLUMNS,
    FINDINGS,
    RUN,
    Evidence,
    batches_of,
    runs_in,
)
from penstock.pipeline.jobs.audit.explaining import Explaining
from penstock.pipeline.jobs.audit.files import Looking
from penstock.pipeline.jobs.audit.log_side import LogPart, LogSide
from penstock.pipeline.jobs.audit.runs import Run, Stretch
from penstock.pipeline.jobs.audit.tally import Tally
from penstock.pipeline.jobs.audit.walking import walk
from penstock.pipeline.lake import DataFile

MOST_FINDINGS = 100_000
"""How many findings one task brings home; of a lake that has more it is said that there are more."""

_FILE, _PART = "file", "part"
_Batches = Iterator[pa.RecordBatch]


def gather(
    spark: SparkSession,
    files: Sequence[DataFile],
    looking: Looking,
    parts: Sequence[LogPart] = (),
    log: LogSide | None = None,
) -> DataFrame:
    """Look at all files, and all parts of the log, and bring home what was seen as rows of `Evidence`."""
    largest_first = sorted(files, key=lambda file: -file.bytes)
    tasks = [(_FILE, msgspec.json.encode(file).decode()) for file in largest_first]
    tasks += [(_PART, msgspec.json.encode(part).decode()) for part in parts]
    cores = cores_of(spark)
    dealt = [task for hand in range(cores) for task in tasks[hand::cores]]  # Spark cuts a list into stretches
    frame = spark.createDataFrame(dealt, "kind string, body string")
    return frame.mapInArrow(_looker(looking, log), EVIDENCE_COLUMNS)


def prove(evidence: DataFrame, explaining: Explaining, stretch: Stretch, *, is_from_start: bool) -> DataFrame:
    """Walk over the runs of all topics; the rows of the answer are findings, and tallies of what was met."""

    def look(batches: _Batches) -> _Batches:
        tally = Tally()
        runs = tally.watch(runs_in(batches))
        found = walk(runs, explaining, stretch, is_from_start=is_from_start)
        return batches_of(tally.end(found, MOST_FINDINGS), FINDINGS)

    runs = evidence.where(evidence.kind == RUN).select(*Run._fields)
    ordered = runs.repartition("topic").sortWithinPartitions("topic", "epoch", "first", "path")
    return ordered.mapInArrow(look, FINDING_COLUMNS)


def cores_of(spark: SparkSession) -> int:
    """How many tasks run at a time, about: what a shuffle is cut into."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def _looker(looking: Looking, log: LogSide | None) -> Callable[[_Batches], _Batches]:
    def look(batches: _Batches) -> _Batches:
        return batches_of(_look_at_all(batches, looking, log), EVIDENCE)

    return look


def _look_at_all(batches: _Batches, looking: Looking, log: LogSide | None) -> Iterator[Evidence]:
    for batch in batches:
        for kind, body in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if kind == _FILE:
                yield from looking.look(msgspec.json.decode(body, type=DataFile))
            elif log is not None:
                yield from log.look(msgspec.json.decode(body, type=LogPart))
