"""Data loss: rows that no longer exist raise an error, or are recorded in a side table.

The side table is a directory of small Parquet files, one per missing range. The file name contains the range,
and ranges already recorded are skipped: a loss that is noticed again adds only what is new.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

import pyarrow as pa
from msgspec import Struct

from penstock.client import Gap
from penstock.model import Reason
from penstock.spark.errors import DataLoss
from penstock.spark.source.positions import position_of

SCHEMA = pa.schema(
    {
        "log_id": pa.string(),
        "first_offset": pa.int64(),
        "last_offset": pa.int64(),
        "reason": pa.string(),
        "after": pa.string(),
        "until": pa.string(),
        "noticed_at": pa.timestamp("us", tz="UTC"),
    }
)

_WORDS: dict[str, str] = {
    Reason.RETENTION: "left the log before this query read them",
    Reason.DAMAGED: "are damaged on the disk of the server",
    Reason.NEVER_STORED: "were never stored",
    Reason.LOST_UNCOMMITTED: "were lost in a crash of the server before they were stored",
    Reason.EXPIRED: "were removed from the lake before this query read them",
}
_NAME = re.compile(r"(?P<log>[0-9a-f]+)-(?P<first>\d+)-(?P<last>\d+)-[a-z-]+(?P<epoch>\d*)\.parquet")
_EMPTY = "none.parquet"


class LossPolicy(Struct, frozen=True):
    """Policy for missing rows: fail, or record them."""

    is_fatal: bool = True
    folder: str | None = None

    def prepare(self) -> None:
        """Create the side table, so that it can be read even if nothing is ever missing."""
        if self.folder is not None and not (empty := Path(self.folder, _EMPTY)).exists():
            _write(empty, [])

    def declare(self, gaps: Sequence[Gap], after: str, until: str) -> None:
        """Handle gaps between two cursors.

        Raises:
            DataLoss: the policy is to fail.
        """
        if not gaps:
            return
        if self.is_fatal or self.folder is None:
            raise DataLoss(_sentence(gaps))
        folder, log_id = Path(self.folder), position_of(until).log_id
        epoch = position_of(after).epoch
        for gap in _unrecorded(folder, log_id, gaps, epoch):
            row = {
                "log_id": log_id,
                "first_offset": gap.first,
                "last_offset": gap.last,
                "reason": gap.reason,
                "after": after,
                "until": until,
                "noticed_at": datetime.now(UTC),
            }
            name = f"{log_id}-{gap.first:020d}-{gap.last:020d}-{gap.reason}"
            _write(
                folder
                / (f"{name}-{epoch}.parquet" if gap.reason == Reason.LOST_UNCOMMITTED else f"{name}.parquet"),
                [row],
            )


def subtract_ranges(gaps: Iterable[Gap], recorded: Iterable[tuple[int, int]]) -> list[Gap]:
    """Remove ranges of offsets from gaps."""
    left = list(gaps)
    for first, last in recorded:
        left = [piece for gap in left for piece in _cut(gap, first, last)]
    return left


def _cut(gap: Gap, first: int, last: int) -> Iterator[Gap]:
    if last < gap.first or first > gap.last:
        yield gap
        return
    if gap.first < first:
        yield Gap(gap.first, first - 1, gap.reason)
    if last < gap.last:
        yield Gap(last + 1, gap.last, gap.reason)


def _unrecorded(folder: Path, log_id: str, gaps: Sequence[Gap], epoch: int) -> list[Gap]:
    """Gaps that the side table does not contain yet.

    Offsets lost at the end of an epoch are assigned again: a later loss of the same offsets concerns other
    rows.
    """
    recorded = list(_recorded(folder, log_id))
    return [
        left
        for gap in gaps
        for left in subtract_ranges(
            [gap],
            [
                (first, last)
                for first, last, of in recorded
                if of == (str(epoch) if gap.reason == Reason.LOST_UNCOMMITTED else "")
            ],
        )
    ]


def _recorded(folder: Path, log_id: str) -> Iterator[tuple[int, int, str]]:
    """Ranges of a log in the side table, and the epoch that lost them, parsed from file names."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - only names are needed
    except FileNotFoundError:
        return
    for name in names:
        found = _NAME.fullmatch(name)
        if found is not None and found["log"] == log_id:
            yield int(found["first"]), int(found["last"]), found["epoch"]


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    """Write a file atomically."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - rarely needed and slow to import

    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _sentence(gaps: Sequence[Gap]) -> str:
    first, others = gaps[0], len(gaps) - 1
    offsets = (
        f"offset {first.first}" if first.first == first.last else f"offsets {first.first} to {first.last}"
    )
    words = _WORDS.get(first.reason, "are missing")
    more = f", and {others} more ranges are missing" if others else ""
    return (
        f"{offsets} {words} ({first.reason}){more}. To continue without them, set failOnDataLoss to false "
        "and missing to a directory that records them; or start elsewhere, with a new checkpoint"
    )
