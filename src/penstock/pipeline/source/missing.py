"""Rows that are not there any more: an error that names them, or rows of a side table.

The side table is a directory of small Parquet files, one for each range that was found missing. The name of a
file is made of its range, and a range that is there already is not written again: whoever notices the same
loss twice, or a little more of it, adds only what is new.
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
from penstock.pipeline.source.errors import DataLoss
from penstock.pipeline.source.offsets import position_of

EXPIRED = "expired"
LOST = "lost-uncommitted"

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

_WORDS = {
    "retention": "left the log before this query read them",
    "damaged": "cannot be read any more, because they are damaged on the disk of the server",
    "never-stored": "were never stored",
    LOST: "were lost in a crash of the server before they were stored",
    EXPIRED: "were removed from the lake before this query read them",
}
_NAME = re.compile(r"(?P<log>[0-9a-f]+)-(?P<first>\d+)-(?P<last>\d+)-[a-z-]+(?P<epoch>\d*)\.parquet")
_EMPTY = "none.parquet"


class Losses(Struct, frozen=True):
    """What to do about rows that are missing."""

    is_fatal: bool = True
    folder: str | None = None

    def prepare(self) -> None:
        """Make the side table, so that it can be read even if nothing is ever missing."""
        if self.folder is not None and not (empty := Path(self.folder, _EMPTY)).exists():
            _write(empty, [])

    def declare(self, gaps: Sequence[Gap], after: str, until: str) -> None:
        """Tell of gaps that were found between two cursors.

        Raises:
            DataLoss: they are not to be accepted.
        """
        if not gaps:
            return
        if self.is_fatal or self.folder is None:
            raise DataLoss(_sentence(gaps))
        folder, log_id = Path(self.folder), position_of(until).log_id
        epoch = position_of(after).epoch
        for gap in _untold(folder, log_id, gaps, epoch):
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
            _write(folder / (f"{name}-{epoch}.parquet" if gap.reason == LOST else f"{name}.parquet"), [row])


def without(gaps: Iterable[Gap], told: Iterable[tuple[int, int]]) -> list[Gap]:
    """What is left of gaps without some ranges of offsets."""
    left = list(gaps)
    for first, last in told:
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


def _untold(folder: Path, log_id: str, gaps: Sequence[Gap], epoch: int) -> list[Gap]:
    """What the side table does not have yet.

    What an epoch lost at its end was given again: who loses these offsets later loses other rows.
    """
    told = list(_told(folder, log_id))
    return [
        left
        for gap in gaps
        for left in without(
            [gap],
            [(first, last) for first, last, of in told if of == (str(epoch) if gap.reason == LOST else "")],
        )
    ]


def _told(folder: Path, log_id: str) -> Iterator[tuple[int, int, str]]:
    """The ranges that the side table has of a log, and the epoch that lost them; their names say it."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - there is nothing to know but names
    except FileNotFoundError:
        return
    for name in names:
        found = _NAME.fullmatch(name)
        if found is not None and found["log"] == log_id:
            yield int(found["first"]), int(found["last"]), found["epoch"]


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    """Make a file appear whole."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - seldom needed, and takes a while

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
        f"{offsets} {words} ({first.reason}){more}. To go on without them, set failOnDataLoss to false and "
        "missing to a directory where it is written down; or begin elsewhere, with a new checkpoint"
    )
