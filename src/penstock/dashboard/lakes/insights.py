"""The newest window of each insights table of a lake, read from a bounded number of files and rows."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from penstock.pipeline.lake import DataFile, Table, lake_insights, read_file

GRAINS = ("10s", "1m", "1h")
"""How long windows are, as the insights name it."""
TABLES = ("topics", "prefixes", "hot", "clients", "drops", "balance")
"""The tables that are shown, in this order."""
COLUMNS = {
    "topics": ("topic", "messages", "messages_per_s", "bytes", "bytes_p95", "latency_p99_ms", "missing"),
    "prefixes": ("prefix", "topics", "messages", "messages_per_s", "bytes", "latency_p99_ms", "missing"),
    "hot": ("topic", "rank", "messages", "messages_per_s", "bytes", "share"),
    "clients": ("client_id", "rank", "messages", "messages_per_s", "bytes", "share"),
    "drops": ("reason", "messages", "messages_per_s"),
    "balance": ("buckets", "messages", "largest_bucket", "largest_messages", "messages_imbalance"),
}
"""What is shown of each."""
SHOWN_ROWS = 20
READ_FILES = 8
READ_ROWS = 100_000
"""How much of a table is read to find its newest window."""

_WINDOW = "window_start"

Row = dict[str, Any]


class Insight(Struct, frozen=True, kw_only=True):
    """The newest window of one table."""

    table: str
    window_start: datetime
    rows: list[Row]
    """Those with most messages."""
    rows_in_all: int


def tables_in(lake: Path) -> list[str]:
    """The tables that there are."""
    return [name for name in TABLES if _table(lake, name).exists()]


def grains_in(lake: Path) -> list[str]:
    """The lengths of windows that there are rows of."""
    manifests = [_table(lake, name).manifest() for name in tables_in(lake)]
    there = {file.partition.get("grain") for manifest in manifests for file in manifest.files.values()}
    return [grain for grain in GRAINS if grain in there]


def newest(lake: Path, name: str, grain: str) -> Insight | None:
    """The newest window of a table; None if it has no rows.

    Raises:
        InvalidLake: the manifest is damaged.
        DamagedFile: a file cannot be read.
    """
    table = _table(lake, name)
    return _newest(lake, name, grain, table.manifest().version)


@lru_cache(maxsize=64)
def _newest(lake: Path, name: str, grain: str, version: int) -> Insight | None:
    """The same, read once for each version of the table."""
    table = _table(lake, name)
    rows = _newest_rows(table, newest_files(table.manifest().files.values(), grain), COLUMNS[name])
    if not rows:
        return None
    window = rows[0][_WINDOW]
    shown = sorted(rows, key=lambda row: -row["messages"])[:SHOWN_ROWS]
    picked = [{column: row[column] for column in COLUMNS[name]} for row in shown]
    return Insight(table=name, window_start=window, rows=picked, rows_in_all=len(rows))


def newest_files(files: Iterable[DataFile], grain: str) -> list[DataFile]:
    """The files of the last day that were committed last; the newest first."""
    of_grain = [file for file in files if file.partition.get("grain") == grain]
    day = max((file.partition.get("date", "") for file in of_grain), default="")
    of_day = [file for file in of_grain if file.partition.get("date", "") == day]
    return of_day[: -READ_FILES - 1 : -1]  # a manifest has its files in the order of their commits


def _newest_rows(table: Table, files: Sequence[DataFile], columns: Sequence[str]) -> list[Row]:
    """The rows of the newest window in some files."""
    rows: list[Row] = []
    seen = 0
    for file in files:
        for batch in read_file(table.absolute(file), (_WINDOW, *columns)):
            rows += batch.to_pylist()
            window = max(row[_WINDOW] for row in rows)
            rows = [row for row in rows if row[_WINDOW] == window]
            seen += batch.num_rows
            if seen >= READ_ROWS:
                return rows
    return rows


@lru_cache(maxsize=32)
def _table(lake: Path, name: str) -> Table:
    """A table; what was read of its manifest is not read again."""
    return lake_insights(lake, name)
