"""The audit without Spark: the same looking and the same walk, in this process, for small lakes."""

from pathlib import Path

from penstock.pipeline.jobs.audit.accounting import excess_of
from penstock.pipeline.jobs.audit.evidence import RUN
from penstock.pipeline.jobs.audit.explaining import Explaining
from penstock.pipeline.jobs.audit.files import Looking
from penstock.pipeline.jobs.audit.findings import Finding
from penstock.pipeline.jobs.audit.known import explaining_with
from penstock.pipeline.jobs.audit.log_side import LogSide, plan_parts
from penstock.pipeline.jobs.audit.runs import Run, Stretch
from penstock.pipeline.jobs.audit.walking import walk
from penstock.pipeline.lake import lake_messages
from penstock.pipeline.source.connection import Connection
from penstock.pipeline.source.offsets import position_of
from tests.pipeline.servers import LogServer


def wrong_with(lake: Path, server: LogServer) -> list[object]:
    """Everything that an audit finds in a lake beside the log of its server; nothing if all is well."""
    table = lake_messages(lake)
    manifest = table.manifest()
    if manifest.cursor is None or manifest.start is None or manifest.log_id is None:
        return []
    stretch = Stretch(position_of(manifest.start).offset, position_of(manifest.cursor).offset)
    looking = Looking(folder=str(table.path), stretch=stretch, buckets=manifest.buckets)
    side = LogSide(connection=Connection(address=server.address), filters=manifest.filters, stretch=stretch)
    parts = plan_parts(side.connection, manifest.log_id, manifest.cursor, manifest.filters, stretch, 1)
    seen = [each for file in manifest.files.values() for each in looking.look(file)]
    seen += [each for part in parts for each in side.look(part)]
    runs = [Run(*(getattr(each, name) for name in Run._fields)) for each in seen if each.kind == RUN]
    explaining: Explaining = explaining_with(manifest, seen, ("#",))
    found: list[Finding] = list(
        walk(sorted(runs, key=lambda run: run.order), explaining, stretch, is_from_start=stretch.after == 0)
    )
    return [
        *(each for each in seen if each.kind in ("damaged", "behind")),
        *(each for each in found if each.kind not in ("known", "claim")),
        *excess_of((each for each in found if each.kind == "claim"), explaining.absences),
    ]
