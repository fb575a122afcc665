"""The report of the last audit, if somebody has kept it: an audit writes nothing by itself."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from penstock.pipeline.lake import InvalidLake

REPORT = "audit.json"
"""Where the report of an audit is looked for in a lake."""
LIMIT_BYTES = 32 << 20

FINDINGS = ("missing", "only_in_log", "double", "out_of_order", "unaccounted", "damaged_files")


class _Report(Struct):
    job: str
    facts: dict[str, Any]
    is_clean: bool = True


class Audit(Struct, frozen=True, kw_only=True):
    """What an audit said, and when."""

    at: datetime
    is_clean: bool
    version: int
    """Of the lake's manifest."""
    rows: int
    findings: dict[str, int]


def last_audit(lake: Path) -> Audit | None:
    """The audit whose report lies in a lake; None if there is none.

    Raises:
        InvalidLake: the file is no report of an audit.
    """
    path = lake / REPORT
    try:
        stat = path.stat()
        if stat.st_size > LIMIT_BYTES:
            raise InvalidLake(f"{path}: this is too large for the report of an audit")
        return _read(path.read_bytes(), datetime.fromtimestamp(stat.st_mtime, UTC))
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise InvalidLake(f"{path}: this is no report of an audit: {error}") from None


def _read(data: bytes, at: datetime) -> Audit:
    report = msgspec.json.decode(data, type=_Report)
    if report.job != "audit":
        raise ValueError(f"the job is {report.job}")
    return Audit(
        at=at,
        is_clean=report.is_clean,
        version=int(report.facts.get("version", 0)),
        rows=int(report.facts.get("rows", 0)),
        findings={name: int(report.facts.get(name, 0)) for name in FINDINGS},
    )
