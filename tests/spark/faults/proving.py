"""The audit without Spark: the same looking and the same walk, in this process, for small lakes."""

from pathlib import Path

from penstock.lake import lake_messages
from penstock.spark.connection import Connection
from penstock.spark.jobs.audit.explain import Reasons, collect_reasons, find_excess
from penstock.spark.jobs.audit.runs import RUN, Finding, OffsetRange, Run
from penstock.spark.jobs.audit.scan import FileScan, LogScan, plan_parts
from penstock.spark.jobs.audit.walk import walk
from penstock.spark.source.positions import position_of
from tests.spark.servers import LogServer


def wrong_with(lake: Path, server: LogServer) -> list[object]:
    """Everything that an audit finds in a lake beside the log of its server; nothing if all is well."""
    table = lake_messages(lake)
    manifest = table.manifest()
    if manifest.cursor is None or manifest.start is None or manifest.log_id is None:
        return []
    audited = OffsetRange(position_of(manifest.start).offset, position_of(manifest.cursor).offset)
    file_scan = FileScan(folder=str(table.path), audited=audited, buckets=manifest.buckets)
    side = LogScan(connection=Connection(address=server.address), filters=manifest.filters, audited=audited)
    parts = plan_parts(side.connection, manifest.log_id, manifest.cursor, manifest.filters, audited, 1)
    seen = [each for file in manifest.files.values() for each in file_scan.scan(file)]
    seen += [each for part in parts for each in side.scan(part)]
    runs = [Run(*(getattr(each, name) for name in Run._fields)) for each in seen if each.kind == RUN]
    reasons: Reasons = collect_reasons(manifest, seen, ("#",))
    found: list[Finding] = list(
        walk(sorted(runs, key=lambda run: run.order), reasons, audited, is_from_start=audited.after == 0)
    )
    return [
        *(each for each in seen if each.kind in ("damaged", "behind")),
        *(each for each in found if each.kind not in ("known", "claim")),
        *find_excess((each for each in found if each.kind == "claim"), reasons.absences),
    ]
