"""Expiry: `penstock pipeline expire` removes old days of a table that is in use.

A day is removed with all its files, in one commit. The manifest records what was removed on purpose, so that
an audit can explain it.
"""

import re
import threading
import time
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

from msgspec import Struct
from pyspark.sql import SparkSession

from penstock.lake import Change, DataFile, Expired, InvalidLake, Manifest
from penstock.lake.layout import DATE, MESSAGES
from penstock.lake.maintenance import GRACE_S, clean, file_sizes
from penstock.lake.manifest import by_partition
from penstock.lake.table import lake_table
from penstock.spark.jobs.run import Progress, Report

BY = "expire"

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_AGE = re.compile(r"(\d+)\s*([smhdw])")


class ExpireOptions(Struct, frozen=True, kw_only=True):
    """Options of an expiry."""

    lake: str
    table: str = MESSAGES
    older_than: str | None = None
    """An age such as `30d`."""
    keep_bytes: int | None = None
    grace_s: float = GRACE_S

    def check(self) -> None:
        """Validate the options.

        Raises:
            ValueError: no limit is given, or one is out of range.
            InvalidLake: there is no such table.
        """
        if self.older_than is None and self.keep_bytes is None:
            raise ValueError("nothing to remove: give --older-than, --keep-bytes or both")
        if self.older_than is not None:
            age_of(self.older_than)
        if self.keep_bytes is not None and self.keep_bytes < 0:
            raise ValueError("the bytes to keep must not be negative")
        if self.grace_s < 0:
            raise ValueError("the grace time of readers must not be negative")
        lake_table(self.lake, self.table)


def expire(
    options: ExpireOptions, *, spark: SparkSession | None, progress: Progress, stopping: threading.Event
) -> Report:
    """Remove days by age or size, then delete unneeded files.

    Raises:
        InvalidLake: the table is not partitioned by date.
    """
    options.check()
    table = lake_table(options.lake, options.table)
    now = datetime.now(UTC)
    before = table.manifest()
    removed: list[DataFile] = []

    def change(manifest: Manifest) -> Change | None:
        days = days_to_remove(manifest.files.values(), options, now)
        removed[:] = [file for file in manifest.files.values() if file.partition[DATE] in days]
        return _change_of(removed) if removed else None

    table.commit(change)
    progress.show(f"{len(removed)} files removed from the table")
    cleaned = clean(table, BY, options.grace_s)
    after = table.manifest()
    facts = {
        "table": str(table.path),
        "removed_files": len(removed),
        "removed_rows": sum(file.rows for file in removed),
        "removed_bytes": sum(file.bytes for file in removed),
        "before": file_sizes(before.files.values()),
        "after": file_sizes(after.files.values()),
        "waiting_to_be_deleted": len(after.retired),
        "deleted_files": cleaned.files,
        "deleted_bytes": cleaned.bytes,
    }
    return Report(job=BY, facts=facts, tables={"removed": _by_day(removed)} if removed else {})


def age_of(text: str) -> timedelta:
    """Parse an age such as `30d`.

    Raises:
        ValueError: it is not valid.
    """
    found = _AGE.fullmatch(text.strip().lower())
    if found is None or int(found[1]) > 10**6:
        raise ValueError(f"{text!r} is not a valid age: write 30d, 12h or 8w")
    return timedelta(seconds=int(found[1]) * _UNITS_S[found[2]])


def days_to_remove(files: Iterable[DataFile], options: ExpireOptions, now: datetime) -> set[str]:
    """Days, as a manifest writes them, that are too old or exceed the size to keep.

    Raises:
        InvalidLake: a file has no date.
    """
    sizes: dict[str, int] = {}
    for file in files:
        if DATE not in file.partition:
            raise InvalidLake(
                f"the table is not partitioned by {DATE}: nothing can be removed by age or size"
            )
        sizes[file.partition[DATE]] = sizes.get(file.partition[DATE], 0) + file.bytes
    return _too_old(sizes, options, now) | _too_many(sizes, options)


def _too_old(sizes: dict[str, int], options: ExpireOptions, now: datetime) -> set[str]:
    if options.older_than is None:
        return set()
    limit = (now - age_of(options.older_than)).date()
    return {day for day in sizes if _is_day(day) and date.fromisoformat(day) < limit}


def _too_many(sizes: dict[str, int], options: ExpireOptions) -> set[str]:
    """The oldest days, until the rest fits; never the last day, which is still being written."""
    if options.keep_bytes is None:
        return set()
    left, going = sum(sizes.values()), set()
    for day in sorted(sizes)[:-1]:
        if left <= options.keep_bytes:
            break
        going.add(day)
        left -= sizes[day]
    return going


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:  # rows without a date
        return False
    return True


def _change_of(files: list[DataFile]) -> Change:
    at = time.time_ns() // 1000
    expired = [
        Expired(
            partition=dict(partition),
            rows=sum(file.rows for file in together),
            bytes=sum(file.bytes for file in together),
            first_offset=min(file.first_offset or 0 for file in together),
            last_offset=max(file.last_offset or 0 for file in together),
            at=at,
        )
        for partition, together in by_partition(files).items()
        if all(file.last_offset is not None for file in together)
    ]
    return Change(by=BY, removed=[file.path for file in files], expired=expired)


def _by_day(files: list[DataFile]) -> list[dict[str, object]]:
    days: dict[str, list[DataFile]] = {}
    for file in files:
        days.setdefault(file.partition[DATE], []).append(file)
    return [
        {
            "date": day,
            "files": len(days[day]),
            "rows": sum(file.rows for file in days[day]),
            "bytes": sum(file.bytes for file in days[day]),
        }
        for day in sorted(days)
    ]
