"""Data of the lake page: manifest, holds, insights and audit report.

Manifests and Parquet files are read by `penstock.lake`; Spark is not needed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from penstock.client import Hold, HttpRefused, LogPosition
from penstock.lake import (
    Commit,
    DataFile,
    InvalidLake,
    Manifest,
    Table,
    lake_insights,
    lake_messages,
    read_file,
)

REPORT = "audit.json"
"""File name of the audit report in a lake."""
REPORT_LIMIT_BYTES = 32 << 20
AUDIT_FINDINGS = ("missing", "only_in_log", "double", "out_of_order", "unaccounted", "damaged_files")
SHOWN_COMMITS = 8
SHOWN_HOLDS = 50
NO_LOG = "no-log"
"""Error code of a server without a data directory."""
GRAINS = ("10s", "1m", "1h")
"""Window lengths of the insights."""
INSIGHT_TABLES = ("topics", "prefixes", "hot", "clients", "drops", "balance")
"""Shown tables, in this order."""
INSIGHT_COLUMNS = {
    "topics": ("topic", "messages", "messages_per_s", "bytes", "bytes_p95", "latency_p99_ms", "missing"),
    "prefixes": ("prefix", "topics", "messages", "messages_per_s", "bytes", "latency_p99_ms", "missing"),
    "hot": ("topic", "rank", "messages", "messages_per_s", "bytes", "share"),
    "clients": ("client_id", "rank", "messages", "messages_per_s", "bytes", "share"),
    "drops": ("reason", "messages", "messages_per_s"),
    "balance": ("buckets", "messages", "largest_bucket", "largest_messages", "messages_imbalance"),
}
"""Shown columns of each table."""
SHOWN_INSIGHT_ROWS = 20
FILES_LIMIT = 8
ROWS_LIMIT = 100_000
"""Rows read to find the newest window of a table."""
_WINDOW = "window_start"
InsightRow = dict[str, Any]


class _Report(Struct):
    job: str
    facts: dict[str, Any]
    is_clean: bool = True


class Audit(Struct, frozen=True, kw_only=True):
    """Result of an audit, and its time."""

    at: datetime
    is_clean: bool
    version: int
    """Version of the lake's manifest."""
    rows: int
    findings: dict[str, int]


def last_audit(lake: Path) -> Audit | None:
    """Read the audit report that is stored in a lake; None if there is none.

    Raises:
        InvalidLake: the file is not an audit report.
    """
    path = lake / REPORT
    try:
        stat = path.stat()
        if stat.st_size > REPORT_LIMIT_BYTES:
            raise InvalidLake(f"{path}: too large for an audit report")
        return _decode_audit(path.read_bytes(), datetime.fromtimestamp(stat.st_mtime, UTC))
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise InvalidLake(f"{path}: not an audit report: {error}") from None


def _decode_audit(data: bytes, at: datetime) -> Audit:
    report = msgspec.json.decode(data, type=_Report)
    if report.job != "audit":
        raise ValueError(f"the job is {report.job}")
    return Audit(
        at=at,
        is_clean=report.is_clean,
        version=int(report.facts.get("version", 0)),
        rows=int(report.facts.get("rows", 0)),
        findings={name: int(report.facts.get(name, 0)) for name in AUDIT_FINDINGS},
    )


class PartitionSize(Struct, frozen=True):
    """Size of one day or one bucket of a table."""

    name: str
    rows: int
    bytes: int
    files: int


class LakeCommit(Struct, frozen=True, kw_only=True):
    """One commit of a table."""

    version: int
    at: datetime
    by: str
    rows: int
    bytes: int
    files_added: int
    files_removed: int
    gaps: int


class LakeView(Struct, frozen=True, kw_only=True):
    """Snapshot of the message table of a lake, from its manifest; no data file is opened."""

    path: Path
    manifest: Manifest
    days: list[PartitionSize]
    """Newest first."""
    buckets: list[PartitionSize]
    commits: list[LakeCommit]
    """Newest first."""

    @property
    def changed_at(self) -> datetime:
        """Time of the last commit."""
        return time_of(self.manifest.at)

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """Publish times of the oldest and of the newest message."""
        times = [
            time
            for file in self.manifest.files.values()
            for time in (file.first_time, file.last_time)
            if time is not None
        ]
        return (time_of(min(times)), time_of(max(times))) if times else None


def read_lake(lake: Path) -> LakeView:
    """Read the current state of a lake.

    Raises:
        InvalidLake: the lake does not exist, is a Delta table, or has a damaged manifest.
        OSError: the lake cannot be read.
    """
    table = messages_table(lake)
    if table.is_delta:
        raise InvalidLake(f"{table.path} is a Delta table, which the dashboard cannot read")
    manifest = table.manifest()
    if not manifest.version:
        raise InvalidLake(f"{lake}: no messages yet")
    return LakeView(
        path=table.path,
        manifest=manifest,
        days=partition_sizes(manifest.files.values(), lambda file: file.partition.get("date", "?"))[::-1],
        buckets=partition_sizes(manifest.files.values(), lambda file: file.partition.get("bucket", "?")),
        commits=recent_commits(table),
    )


@lru_cache(maxsize=4)
def messages_table(lake: Path) -> Table:
    """Message table of a lake, cached: it does not read a manifest twice."""
    return lake_messages(lake)


def partition_sizes(files: Iterable[DataFile], name_of: Callable[[DataFile], str]) -> list[PartitionSize]:
    """Sizes of files grouped by name, sorted by it."""
    groups: defaultdict[str, list[DataFile]] = defaultdict(list)
    for file in files:
        groups[name_of(file)].append(file)
    return [
        PartitionSize(name, sum(each.rows for each in group), sum(each.bytes for each in group), len(group))
        for name, group in sorted(groups.items())
    ]


def recent_commits(table: Table, most: int = SHOWN_COMMITS) -> list[LakeCommit]:
    """Last commits of a table, newest first."""
    return [_commit_of(each) for each in table.recent(most)]


def _commit_of(commit: Commit) -> LakeCommit:
    change = commit.change
    return LakeCommit(
        version=commit.version,
        at=time_of(commit.at),
        by=change.by,
        rows=sum(file.rows for file in change.added),
        bytes=sum(file.bytes for file in change.added),
        files_added=len(change.added),
        files_removed=len(change.removed),
        gaps=len(change.gaps),
    )


def time_of(microseconds: int) -> datetime:
    """Time from a manifest."""
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)


class LogClient(Protocol):
    """HTTP client, as far as it is needed here."""

    def holds(self) -> list[Hold]: ...

    def position(
        self, at: datetime | str = "latest", *, after: str | None = None, filters: Sequence[str] = ()
    ) -> LogPosition: ...


class HoldRow(Struct, frozen=True, kw_only=True):
    """Current state of one hold."""

    name: str
    owner: str
    lag: int
    """Messages after it, at most."""
    lapses_in_s: float
    is_of_lake: bool
    """The archive job of the shown lake owns it."""


class LogState(Struct, frozen=True, kw_only=True):
    """State of the log, relative to a lake."""

    is_there: bool = True
    """The server has a data directory."""
    holds: list[HoldRow] = []
    """Most lagging first."""
    lag: int | None = None
    """Rows of the log that the lake does not have yet, at most; None if the lake belongs to another log."""


def read_log_state(client: LogClient, manifest: Manifest | None) -> LogState:
    """Read the end of the log and its holds.

    Raises:
        PenstockError: the server is unreachable or refuses the request.
    """
    try:
        end = client.position("latest")
    except HttpRefused as error:
        if error.code == NO_LOG:
            return LogState(is_there=False)
        raise
    rows = hold_rows(client.holds(), end.offset, manifest, datetime.now(UTC))
    return LogState(holds=rows[:SHOWN_HOLDS], lag=_lag(client, manifest, end.log_id))


def hold_rows(holds: list[Hold], last_offset: int, manifest: Manifest | None, now: datetime) -> list[HoldRow]:
    """Current state of holds, most lagging first."""
    name = None if manifest is None else manifest.hold_name
    rows = [
        HoldRow(
            name=hold.name,
            owner=hold.owner,
            lag=max(last_offset - hold.offset, 0),
            lapses_in_s=(hold.lapses_at - now).total_seconds(),
            is_of_lake=hold.name == name,
        )
        for hold in holds
    ]
    return sorted(rows, key=lambda row: (-row.lag, row.name))


def _lag(client: LogClient, manifest: Manifest | None, log_id: str) -> int | None:
    if manifest is None or manifest.cursor is None or manifest.log_id != log_id:
        return None
    return client.position("latest", after=manifest.cursor, filters=manifest.filters).lag_rows


class Insight(Struct, frozen=True, kw_only=True):
    """Newest window of one table."""

    table: str
    window_start: datetime
    rows: list[InsightRow]
    """Rows with the most messages."""
    rows_in_all: int


def insight_tables(lake: Path) -> list[str]:
    """Insights tables that exist in a lake."""
    return [name for name in INSIGHT_TABLES if _table(lake, name).exists()]


def insight_grains(lake: Path) -> list[str]:
    """Window lengths that have rows."""
    manifests = [_table(lake, name).manifest() for name in insight_tables(lake)]
    there = {file.partition.get("grain") for manifest in manifests for file in manifest.files.values()}
    return [grain for grain in GRAINS if grain in there]


def newest_window(lake: Path, name: str, grain: str) -> Insight | None:
    """Newest window of a table; None if it has no rows.

    Raises:
        InvalidLake: the manifest is damaged.
        DamagedFile: a file cannot be read.
    """
    table = _table(lake, name)
    return _read_newest_window(lake, name, grain, table.manifest().version)


@lru_cache(maxsize=64)
def _read_newest_window(lake: Path, name: str, grain: str, version: int) -> Insight | None:
    """Newest window, cached for each version of the table."""
    table = _table(lake, name)
    rows = _newest_rows(table, newest_files(table.manifest().files.values(), grain), INSIGHT_COLUMNS[name])
    if not rows:
        return None
    window = rows[0][_WINDOW]
    shown = sorted(rows, key=lambda row: -row["messages"])[:SHOWN_INSIGHT_ROWS]
    picked = [{column: row[column] for column in INSIGHT_COLUMNS[name]} for row in shown]
    return Insight(table=name, window_start=window, rows=picked, rows_in_all=len(rows))


def newest_files(files: Iterable[DataFile], grain: str) -> list[DataFile]:
    """Files of the last day, latest commit first, up to a limit."""
    of_grain = [file for file in files if file.partition.get("grain") == grain]
    day = max((file.partition.get("date", "") for file in of_grain), default="")
    of_day = [file for file in of_grain if file.partition.get("date", "") == day]
    return of_day[: -FILES_LIMIT - 1 : -1]  # a manifest lists files in commit order


def _newest_rows(table: Table, files: Sequence[DataFile], columns: Sequence[str]) -> list[InsightRow]:
    """Rows of the newest window in some files."""
    rows: list[InsightRow] = []
    seen = 0
    for file in files:
        for batch in read_file(table.absolute(file), (_WINDOW, *columns)):
            rows += batch.to_pylist()
            window = max(row[_WINDOW] for row in rows)
            rows = [row for row in rows if row[_WINDOW] == window]
            seen += batch.num_rows
            if seen >= ROWS_LIMIT:
                return rows
    return rows


@lru_cache(maxsize=32)
def _table(lake: Path, name: str) -> Table:
    """Insights table, cached: it does not read a manifest twice."""
    return lake_insights(lake, name)
