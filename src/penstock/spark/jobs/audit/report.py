"""Report of an audit."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from penstock.lake import Manifest
from penstock.model import Reason
from penstock.spark.jobs.audit.explain import NOT_CAPTURED, SKIPPED, Excess
from penstock.spark.jobs.audit.runs import BEHIND, DAMAGED, LOG, READ, Evidence, Finding, Kind, OffsetRange
from penstock.spark.jobs.audit.walk import WalkTotals
from penstock.spark.jobs.run import Report, Row

IN_ORDER = (Reason.EXPIRED, NOT_CAPTURED, SKIPPED)
"""Reasons without a loss. All others are losses that were declared when they happened."""


class AuditResult(Struct, frozen=True, kw_only=True):
    """Evidence and findings of an audit."""

    manifest: Manifest
    audited: OffsetRange
    seen: Sequence[Evidence]
    findings: Sequence[Finding]
    totals: WalkTotals
    excess: Sequence[Excess] = ()
    """Missing messages beyond what the known reasons explain."""

    def report(self, *, is_strict: bool) -> Report:
        """The report; with `is_strict` declared losses count as findings too."""
        tables: dict[str, list[Row]] = {
            "missing": [_missing(each) for each in self._of(Kind.MISSING)],
            "only_in_log": [_missing(each) for each in self._of(Kind.ONLY_IN_LOG)],
            "double": [_double(each) for each in self._of(Kind.DOUBLE)],
            "out_of_order": sorted(self._out_of_order(), key=lambda row: (row["topic"], row["first"])),
            "damaged": list(self._damaged()),
            "unaccounted": [_excess(each) for each in self.excess],
        }
        known = [_missing(each) for each in self._of(Kind.KNOWN)]
        is_declared = any(not set(reason.split(", ")) <= set(IN_ORDER) for reason in self.totals.known)
        is_clean = not any(tables.values()) and self.totals.is_all and not (is_strict and is_declared)
        counts: Row = {
            name: sum(row["messages"] for row in rows) for name, rows in tables.items() if name != "damaged"
        }
        counts |= {
            "damaged_files": len({row["file"] for row in tables["damaged"]}),
            "known": self.totals.known,
        }
        facts = self._facts() | counts
        if not self.totals.is_all:
            facts["more_findings"] = True
        return Report(job="audit", facts=facts, tables=tables | {"known": known}, is_clean=is_clean)

    def _facts(self) -> Row:
        read = [each for each in self.seen if each.kind == READ]
        files = [each for each in read if each.path != LOG]
        log = [each for each in read if each.path == LOG]
        facts: Row = {
            "version": self.manifest.version,
            "first_offset": self.audited.after + 1,
            "last_offset": self.audited.until,
            "files": len(self.manifest.files),
            "rows": sum(each.first or 0 for each in files),
            "bytes": sum(each.last or 0 for each in files),
            "topics": self.totals.topics,
            "epochs": self.totals.epochs,
        }
        if log:
            facts["compared"] = {
                "first_offset": min(each.first_offset or 0 for each in log),
                "last_offset": max(each.last_offset or 0 for each in log),
                "rows": sum(each.first or 0 for each in log),
            }
        return facts

    def _of(self, kind: Kind) -> Iterator[Finding]:
        chosen = (each for each in self.findings if each.kind == kind)
        return iter(sorted(chosen, key=lambda each: (each.topic, each.epoch, each.first)))

    def _out_of_order(self) -> Iterator[Row]:
        for each in self._of(Kind.OUT_OF_ORDER):
            yield _place(each) | {"reason": each.reason, "file": each.path}
        for seen in self.seen:
            if seen.kind == BEHIND and seen.is_inside:
                yield {
                    "topic": seen.topic,
                    "epoch": seen.epoch,
                    "first": seen.first,
                    "last": seen.last,
                    "messages": (seen.last or 0) - (seen.first or 0) + 1,
                    "reason": "they follow later messages",
                    "file": seen.path,
                }

    def _damaged(self) -> Iterator[Row]:
        for each in sorted(self.seen, key=lambda each: each.path):
            if each.kind == DAMAGED:
                file = self.manifest.files[each.path]
                yield {
                    "file": each.path,
                    "rows": file.rows,
                    "first_offset": file.first_offset,
                    "last_offset": file.last_offset,
                    "what": each.text,
                }


def _place(each: Finding) -> Row:
    return {
        "topic": each.topic,
        "epoch": each.epoch,
        "first": each.first,
        "last": each.last,
        "messages": each.messages,
    }


def _missing(each: Finding) -> Row:
    return _place(each) | {"reason": each.reason, "after_offset": each.after, "before_offset": each.before}


def _double(each: Finding) -> Row:
    return _place(each) | {"file": each.path, "other_file": each.other}


def _excess(each: Excess) -> Row:
    return {
        "first_offset": each.first,
        "last_offset": each.last,
        "messages": each.messages,
        "reason": each.reason,
    }
