"""`audit`: proves that a lake holds every captured message exactly once.

A message is captured when it is committed to the log. The lake answers for those of its topics whose offsets
lie behind its start and up to its cursor. `walking.py` has the rule by which sequences prove it, and
`explaining.py` what counts as a reason for one that is not there. Nothing is sampled, and nothing is written.
"""

import threading
from collections.abc import Sequence

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from penstock.errors import Conflict, PenstockError
from penstock.pipeline.jobs.asking import ask_first, await_server
from penstock.pipeline.jobs.audit.accounting import excess_of
from penstock.pipeline.jobs.audit.bounds import find_stretch
from penstock.pipeline.jobs.audit.evidence import DAMAGED, READ, RUN, Evidence
from penstock.pipeline.jobs.audit.files import Looking
from penstock.pipeline.jobs.audit.findings import Finding
from penstock.pipeline.jobs.audit.gathering import cores_of, gather, prove
from penstock.pipeline.jobs.audit.known import explaining_with
from penstock.pipeline.jobs.audit.log_side import LOG, LogPart, LogSide, check_log, plan_parts
from penstock.pipeline.jobs.audit.options import AuditOptions
from penstock.pipeline.jobs.audit.runs import Stretch
from penstock.pipeline.jobs.audit.tally import Tallies, add_up
from penstock.pipeline.jobs.audit.telling import Outcome
from penstock.pipeline.jobs.report import Report
from penstock.pipeline.jobs.running import Progress
from penstock.pipeline.lake import InvalidLake, Manifest, Table, lake_messages
from penstock.pipeline.lake.table import lake_table
from penstock.pipeline.lake.tasks import Interrupted, interrupting
from penstock.pipeline.source.connection import Connection
from penstock.pipeline.source.offsets import position_of

_REPLACED = "files of the lake were replaced and deleted while it was audited: audit it again"
_STOPPED = "the audit was stopped before its end, and half an audit says nothing"


class Stopped(PenstockError):
    """The audit was told to stop before it had an answer."""

    code = "stopped"


def audit(
    options: AuditOptions, *, spark: SparkSession, progress: Progress, stopping: threading.Event
) -> Report:
    """Audit a lake.

    Raises:
        InvalidLake: there is none.
        InvalidRequest: the range is empty, or the server has another log.
        Conflict: files vanished on the way.
        Stopped: it was told to stop.
    """
    table = _table_of(options)
    manifest = table.manifest()
    stretch = find_stretch(table.path, manifest, options.start, options.end)
    if options.connection is not None and await_server(
        options.connection, manifest.filters, progress, stopping
    ):
        raise Stopped(_STOPPED)
    log, parts = _plan_log(options.connection, manifest, stretch, cores_of(spark))
    looking = Looking(folder=str(table.path), stretch=stretch, buckets=max(manifest.buckets, 1))
    progress.show(f"reading {len(manifest.files):,} files" + (", and the log" if parts else ""))
    evidence = gather(spark, list(manifest.files.values()), looking, parts, log)
    evidence = evidence.persist(StorageLevel.DISK_ONLY)
    try:
        with interrupting(spark, stopping):
            _go_on(stopping)
            seen = [Evidence(**row.asDict()) for row in evidence.where(evidence.kind != RUN).collect()]
            _check_live(table, seen)
            check_all_seen(manifest, parts, seen)
            progress.show("comparing what they hold")
            explaining = explaining_with(manifest, seen, options.captured)
            found = prove(
                evidence,
                explaining,
                stretch,
                is_from_start=manifest.start is not None and position_of(manifest.start).offset == 0,
            )
            _go_on(stopping)
            findings, counted = add_up([Finding(**row.asDict()) for row in found.collect()])
            check_all_walked(seen, counted)
    except Interrupted:
        raise Stopped(_STOPPED) from None
    finally:
        evidence.unpersist()
    return Outcome(
        manifest=manifest,
        stretch=stretch,
        seen=seen,
        findings=findings,
        counted=counted,
        excess=list(excess_of(counted.claims, explaining.absences)),
    ).report(is_strict=options.is_strict)


def look_first(options: AuditOptions) -> None:
    """Find out what is wrong with the lake or the server, as far as that needs no Spark.

    Raises:
        InvalidLake: there is none.
        PenstockError: the server is not there, or has another log.
    """
    manifest = _table_of(options).manifest()
    if options.connection is None:
        return
    found = ask_first(options.connection, manifest.filters)
    if found is not None and manifest.log_id is not None:
        check_log(manifest.log_id, found.log_id)


def _table_of(options: AuditOptions) -> Table:
    table = lake_messages(options.lake)
    if table.is_delta:
        raise InvalidLake(f"{table.path} is a Delta table: audit proves lakes of Parquet files")
    return lake_table(options.lake)


def _plan_log(
    connection: Connection | None, manifest: Manifest, stretch: Stretch, parts: int
) -> tuple[LogSide | None, list[LogPart]]:
    """What of the log is to be read, and how."""
    if connection is None or manifest.cursor is None or manifest.log_id is None:
        return None, []
    log = LogSide(connection=connection, filters=manifest.filters, stretch=stretch)
    return log, plan_parts(connection, manifest.log_id, manifest.cursor, manifest.filters, stretch, parts)


def _check_live(table: Table, seen: list[Evidence]) -> None:
    """Make sure that files that could not be read are still part of the lake."""
    wrong = {each.path for each in seen if each.kind == DAMAGED}
    if wrong and not wrong <= table.manifest().files.keys():
        raise Conflict(_REPLACED)


def check_all_seen(manifest: Manifest, parts: Sequence[LogPart], seen: Sequence[Evidence]) -> None:
    """Make sure that there is an answer for each file and each part of the log.

    Raises:
        Conflict: some were not looked at.
    """
    told = {each.path for each in seen if each.kind in (READ, DAMAGED) and each.path != LOG}
    parts_read = sum(each.kind == READ and each.path == LOG for each in seen)
    if told != manifest.files.keys() or parts_read != len(parts):
        raise Conflict("not everything was looked at: audit it again")


def check_all_walked(seen: Sequence[Evidence], counted: Tallies) -> None:
    """Make sure that every row that was read was compared.

    A machine that is lost takes along what it had read. It is read again then, and files may be gone by now.

    Raises:
        Conflict: some rows got lost on the way.
    """
    if counted.rows != sum(each.first or 0 for each in seen if each.kind == READ):
        raise Conflict(_REPLACED)


def _go_on(stopping: threading.Event) -> None:
    if stopping.is_set():
        raise Stopped(_STOPPED)
