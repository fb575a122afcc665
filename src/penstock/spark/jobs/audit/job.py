"""Audit job: scans all files of a lake and the log, and compares what they contain.

A message is captured once it is committed to the log. The lake covers captured messages of its topics after
its start, up to its cursor. `walk.py` proves completeness by sequences, and `explain.py` knows the acceptable
reasons for a missing message. Nothing is sampled, and nothing is written.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from penstock.common.topics import TopicLimits, check_filter
from penstock.errors import Conflict, InvalidCursor, InvalidFilter, InvalidRequest, PenstockError
from penstock.lake import DamagedFile, DataFile, InvalidLake, Manifest, Table, lake_messages, read_file
from penstock.lake.table import lake_table
from penstock.spark.connection import Connection
from penstock.spark.jobs.audit.explain import Reasons, collect_reasons, find_excess
from penstock.spark.jobs.audit.report import AuditResult
from penstock.spark.jobs.audit.runs import (
    DAMAGED,
    EVIDENCE,
    EVIDENCE_COLUMNS,
    FINDING_COLUMNS,
    FINDINGS,
    LOG,
    READ,
    RUN,
    Evidence,
    Finding,
    OffsetRange,
    Run,
    read_runs,
    to_batches,
)
from penstock.spark.jobs.audit.scan import FileScan, LogScan, LogSlice, check_log, plan_parts
from penstock.spark.jobs.audit.walk import WalkCounter, WalkTotals, sum_findings, walk
from penstock.spark.jobs.run import Progress, Report, check_server, wait_for_server
from penstock.spark.options import read_options
from penstock.spark.source.positions import position_of
from penstock.spark.tasks import Interrupted, interruptible

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RangeEnd = str | int
"""A cursor, or a time in microseconds since 1970."""
CAPTURED = ("#", "$penstock/#")
"""Default capture filters of a server with a data directory."""
_ANY_LENGTH = TopicLimits(max_bytes=65535, max_levels=65535)
MAX_FINDINGS = 100_000
"""Limit of findings per task; the report says if there are more."""
_FILE, _PART = "file", "part"
_Batches = Iterator[pa.RecordBatch]
_REPLACED = "files of the lake were replaced and deleted during the audit: audit it again"
_STOPPED = "the audit was stopped before its end, so it has no result"


class AuditOptions(Struct, frozen=True, kw_only=True):
    """Options of an audit."""

    lake: str
    connection: Connection | None = None
    """Server whose log is compared with the lake, as far as it still has the messages."""
    start: RangeEnd | None = None
    end: RangeEnd | None = None
    captured: tuple[str, ...] = CAPTURED
    """Filters of the topics that the log captures completely."""
    is_strict: bool = False
    """Report losses that were declared when they happened as findings too."""


def audit_options(
    lake: str,
    *,
    server: Mapping[str, str] | None = None,
    start: str | None = None,
    end: str | None = None,
    captured: Sequence[str] | None = None,
    is_strict: bool = False,
) -> AuditOptions:
    """Parse the options of an audit.

    Args:
        server: connection options of `format("penstock")`.
        start: a cursor or a time, as is `end`.

    Raises:
        InvalidRequest: a cursor, time or filter is not valid.
        InvalidOption: a connection option is not valid.
    """
    for each in captured or ():
        try:
            check_filter(each, _ANY_LENGTH)
        except InvalidFilter as error:
            raise InvalidRequest(f"{each!r} is not a valid topic filter: {error}") from None
    return AuditOptions(
        lake=lake,
        connection=None if server is None else read_options(server, is_stream=False).connection,
        start=None if start is None else parse_range_end(start),
        end=None if end is None else parse_range_end(end),
        captured=tuple(captured) if captured else CAPTURED,
        is_strict=is_strict,
    )


def parse_range_end(text: str) -> RangeEnd:
    """Parse a cursor, or a time into microseconds since 1970.

    Raises:
        InvalidRequest: it is neither.
    """
    if not text[:1].isdigit():  # no cursor begins with a digit
        try:
            position_of(text)
        except InvalidCursor:
            raise InvalidRequest(f"{text!r} is neither a cursor nor a time") from None
        return text
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(f"{text!r} is not a valid time; write 2026-01-31T12:00:00Z") from None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    since = when - _EPOCH
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds


def find_range(folder: Path, manifest: Manifest, start: RangeEnd | None, end: RangeEnd | None) -> OffsetRange:
    """The offsets between two ends, limited to the range that the lake covers.

    A time selects the first message of that time or later, as in the log.

    Raises:
        InvalidRequest: the range is empty, or a cursor belongs to another log.
    """
    whole = OffsetRange(_offset_of(manifest, manifest.start), _end_of(manifest))
    after = whole.after if start is None else max(whole.after, _resolve(folder, manifest, start, whole))
    until = whole.until if end is None else min(whole.until, _resolve(folder, manifest, end, whole))
    if after > until or (after == until and (start is not None or end is not None)):
        raise InvalidRequest("this range is empty: it ends before it begins, or the lake does not cover it")
    return OffsetRange(after, until)


def _end_of(manifest: Manifest) -> int:
    """The last offset of the lake: a log that lost its end continues at lower offsets than the lake has."""
    ends = (file.last_offset for file in manifest.files.values() if file.last_offset is not None)
    return max(_offset_of(manifest, manifest.cursor), *ends, 0)


def _resolve(folder: Path, manifest: Manifest, position: RangeEnd, whole: OffsetRange) -> int:
    if isinstance(position, str):
        return _offset_of(manifest, position)
    first = first_offset_since(folder, manifest.files.values(), position)
    return whole.until if first is None else first - 1


def first_offset_since(folder: Path, files: Iterable[DataFile], time_us: int) -> int | None:
    """The lowest offset of rows of a time or later; opens only files that may contain it."""
    found: int | None = None
    for file in sorted(files, key=lambda file: file.first_offset or 0):
        if file.first_offset is None or (file.last_time is not None and file.last_time < time_us):
            continue
        if found is not None and file.first_offset >= found:
            break
        if file.first_time is not None and file.first_time >= time_us:
            candidate: int | None = file.first_offset
        else:
            candidate = _first_in(folder / file.path, file, time_us)
        if candidate is not None and (found is None or candidate < found):
            found = candidate
    return found


def _first_in(path: Path, file: DataFile, time_us: int) -> int | None:
    lowest: int | None = None
    limit = pa.scalar(time_us, pa.timestamp("us", "UTC"))
    try:
        for batch in read_file(path, ("offset", "published_at")):
            is_late = pc.greater_equal(batch.column("published_at").cast(limit.type), limit)
            offset = pc.min(batch.column("offset").filter(is_late)).as_py()
            if offset is not None and (lowest is None or offset < lowest):
                lowest = offset
    except (DamagedFile, FileNotFoundError):  # rather audit too much
        return file.first_offset
    return lowest


def _offset_of(manifest: Manifest, cursor: str | None) -> int:
    if cursor is None:
        return 0
    position = position_of(cursor)
    if manifest.log_id is not None and position.log_id != manifest.log_id:
        raise InvalidRequest(
            f"this lake belongs to the log {manifest.log_id}, and the cursor to {position.log_id}"
        )
    return position.offset


class Stopped(PenstockError):
    """The audit was stopped before it had a result."""

    code = "stopped"


def audit(
    options: AuditOptions, *, spark: SparkSession, progress: Progress, stopping: threading.Event
) -> Report:
    """Audit a lake.

    Raises:
        InvalidLake: there is no lake.
        InvalidRequest: the range is empty, or the server has another log.
        Conflict: files vanished during the audit.
        Stopped: it was stopped.
    """
    table = _table_of(options)
    manifest = table.manifest()
    audited = find_range(table.path, manifest, options.start, options.end)
    if options.connection is not None and wait_for_server(
        options.connection, manifest.filters, progress, stopping
    ):
        raise Stopped(_STOPPED)
    log, parts = _plan_log(options.connection, manifest, audited, cores_of(spark))
    file_scan = FileScan(folder=str(table.path), audited=audited, buckets=max(manifest.buckets, 1))
    progress.show(f"reading {len(manifest.files):,} files" + (", and the log" if parts else ""))
    evidence = collect_evidence(spark, list(manifest.files.values()), file_scan, parts, log)
    evidence = evidence.persist(StorageLevel.DISK_ONLY)
    try:
        with interruptible(spark, stopping):
            _check_not_stopped(stopping)
            seen = [Evidence(**row.asDict()) for row in evidence.where(evidence.kind != RUN).collect()]
            _check_live(table, seen)
            check_all_seen(manifest, parts, seen)
            progress.show("comparing what they hold")
            reasons = collect_reasons(manifest, seen, options.captured)
            found = walk_runs(
                evidence,
                reasons,
                audited,
                is_from_start=manifest.start is not None and position_of(manifest.start).offset == 0,
            )
            _check_not_stopped(stopping)
            findings, totals = sum_findings([Finding(**row.asDict()) for row in found.collect()])
            check_all_walked(seen, totals)
    except Interrupted:
        raise Stopped(_STOPPED) from None
    finally:
        evidence.unpersist()
    return AuditResult(
        manifest=manifest,
        audited=audited,
        seen=seen,
        findings=findings,
        totals=totals,
        excess=list(find_excess(totals.claims, reasons.absences)),
    ).report(is_strict=options.is_strict)


def preflight(options: AuditOptions) -> None:
    """Preflight check of lake and server, without Spark.

    Raises:
        InvalidLake: there is no lake.
        PenstockError: the server is unavailable, or has another log.
    """
    manifest = _table_of(options).manifest()
    if options.connection is None:
        return
    found = check_server(options.connection, manifest.filters)
    if found is not None and manifest.log_id is not None:
        check_log(manifest.log_id, found.log_id)


def _table_of(options: AuditOptions) -> Table:
    table = lake_messages(options.lake)
    if table.is_delta:
        raise InvalidLake(f"{table.path} is a Delta table: only lakes of Parquet files can be audited")
    return lake_table(options.lake)


def _plan_log(
    connection: Connection | None, manifest: Manifest, audited: OffsetRange, parts: int
) -> tuple[LogScan | None, list[LogSlice]]:
    """The slices of the log to compare, and their scan."""
    if connection is None or manifest.cursor is None or manifest.log_id is None:
        return None, []
    log = LogScan(connection=connection, filters=manifest.filters, audited=audited)
    return log, plan_parts(connection, manifest.log_id, manifest.cursor, manifest.filters, audited, parts)


def _check_live(table: Table, seen: list[Evidence]) -> None:
    """Refuse if an unreadable file is no longer part of the lake."""
    wrong = {each.path for each in seen if each.kind == DAMAGED}
    if wrong and not wrong <= table.manifest().files.keys():
        raise Conflict(_REPLACED)


def check_all_seen(manifest: Manifest, parts: Sequence[LogSlice], seen: Sequence[Evidence]) -> None:
    """Check that each file and each slice of the log was scanned.

    Raises:
        Conflict: some were not.
    """
    covered = {each.path for each in seen if each.kind in (READ, DAMAGED) and each.path != LOG}
    parts_read = sum(each.kind == READ and each.path == LOG for each in seen)
    if covered != manifest.files.keys() or parts_read != len(parts):
        raise Conflict("some files or parts of the log were not scanned: audit the lake again")


def check_all_walked(seen: Sequence[Evidence], totals: WalkTotals) -> None:
    """Check that every row that was read was compared.

    Spark rereads what a lost machine had read, and files may be deleted by then.

    Raises:
        Conflict: some rows were not.
    """
    if totals.rows != sum(each.first or 0 for each in seen if each.kind == READ):
        raise Conflict(_REPLACED)


def _check_not_stopped(stopping: threading.Event) -> None:
    if stopping.is_set():
        raise Stopped(_STOPPED)


def collect_evidence(
    spark: SparkSession,
    files: Sequence[DataFile],
    file_scan: FileScan,
    parts: Sequence[LogSlice] = (),
    log: LogScan | None = None,
) -> DataFrame:
    """Scan all files and slices of the log in Spark tasks; returns rows of `Evidence`."""
    largest_first = sorted(files, key=lambda file: -file.bytes)
    tasks = [(_FILE, msgspec.json.encode(file).decode()) for file in largest_first]
    tasks += [(_PART, msgspec.json.encode(part).decode()) for part in parts]
    cores = cores_of(spark)
    dealt = [
        task for hand in range(cores) for task in tasks[hand::cores]
    ]  # Spark splits a list into consecutive parts
    frame = spark.createDataFrame(dealt, "kind string, body string")
    return frame.mapInArrow(_scanner(file_scan, log), EVIDENCE_COLUMNS)


def walk_runs(
    evidence: DataFrame, reasons: Reasons, audited: OffsetRange, *, is_from_start: bool
) -> DataFrame:
    """Walk over the runs of all topics in Spark tasks; returns findings and totals."""

    def scan(batches: _Batches) -> _Batches:
        counter = WalkCounter()
        runs = counter.watch(read_runs(batches))
        found = walk(runs, reasons, audited, is_from_start=is_from_start)
        return to_batches(counter.end(found, MAX_FINDINGS), FINDINGS)

    runs = evidence.where(evidence.kind == RUN).select(*Run._fields)
    ordered = runs.repartition("topic").sortWithinPartitions("topic", "epoch", "first", "path")
    return ordered.mapInArrow(scan, FINDING_COLUMNS)


def cores_of(spark: SparkSession) -> int:
    """Number of parallel tasks, taken from the shuffle partitions."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def _scanner(file_scan: FileScan, log: LogScan | None) -> Callable[[_Batches], _Batches]:
    def scan(batches: _Batches) -> _Batches:
        return to_batches(_scan_all(batches, file_scan, log), EVIDENCE)

    return scan


def _scan_all(batches: _Batches, file_scan: FileScan, log: LogScan | None) -> Iterator[Evidence]:
    for batch in batches:
        for kind, body in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if kind == _FILE:
                yield from file_scan.scan(msgspec.json.decode(body, type=DataFile))
            elif log is not None:
                yield from log.scan(msgspec.json.decode(body, type=LogSlice))
