"""Options of an audit, and the range of offsets that times and cursors select."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from penstock.common.topics import TopicLimits, check_filter
from penstock.errors import InvalidCursor, InvalidFilter, InvalidRequest
from penstock.lake import DamagedFile, DataFile, Manifest, read_file
from penstock.spark.connection import Connection
from penstock.spark.jobs.audit.runs import OffsetRange
from penstock.spark.options import read_options
from penstock.spark.source.positions import position_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RangeEnd = str | int
"""A cursor, or a time in microseconds since 1970."""
CAPTURED = ("#", "$penstock/#")
"""Default capture filters of a server with a data directory."""
_ANY_LENGTH = TopicLimits(max_bytes=65535, max_levels=65535)


class AuditOptions(Struct, frozen=True, kw_only=True):
    """Options of an audit."""

    lake: str
    connection: Connection | None = None
    """Server whose log is compared with the lake, as far as it still has the messages."""
    start: RangeEnd | None = None
    end: RangeEnd | None = None
    captured: tuple[str, ...] = CAPTURED
    """Filters of the topics that the log captures completely."""
    is_strict: bool = False
    """Report losses that were declared when they happened as findings too."""


def audit_options(
    lake: str,
    *,
    server: Mapping[str, str] | None = None,
    start: str | None = None,
    end: str | None = None,
    captured: Sequence[str] | None = None,
    is_strict: bool = False,
) -> AuditOptions:
    """Parse the options of an audit.

    Args:
        server: connection options of `format("penstock")`.
        start: a cursor or a time, as is `end`.

    Raises:
        InvalidRequest: a cursor, time or filter is not valid.
        InvalidOption: a connection option is not valid.
    """
    for each in captured or ():
        try:
            check_filter(each, _ANY_LENGTH)
        except InvalidFilter as error:
            raise InvalidRequest(f"{each!r} is not a valid topic filter: {error}") from None
    return AuditOptions(
        lake=lake,
        connection=None if server is None else read_options(server, is_stream=False).connection,
        start=None if start is None else parse_range_end(start),
        end=None if end is None else parse_range_end(end),
        captured=tuple(captured) if captured else CAPTURED,
        is_strict=is_strict,
    )


def parse_range_end(text: str) -> RangeEnd:
    """Parse a cursor, or a time into microseconds since 1970.

    Raises:
        InvalidRequest: it is neither.
    """
    if not text[:1].isdigit():  # no cursor begins with a digit
        try:
            position_of(text)
        except InvalidCursor:
            raise InvalidRequest(f"{text!r} is neither a cursor nor a time") from None
        return text
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(f"{text!r} is not a valid time; write 2026-01-31T12:00:00Z") from None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    since = when - _EPOCH
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds


def find_range(folder: Path, manifest: Manifest, start: RangeEnd | None, end: RangeEnd | None) -> OffsetRange:
    """The offsets between two ends, limited to the range that the lake covers.

    A time selects the first message of that time or later, as in the log.

    Raises:
        InvalidRequest: the range is empty, or a cursor belongs to another log.
    """
    whole = OffsetRange(_offset_of(manifest, manifest.start), _end_of(manifest))
    after = whole.after if start is None else max(whole.after, _resolve(folder, manifest, start, whole))
    until = whole.until if end is None else min(whole.until, _resolve(folder, manifest, end, whole))
    if after > until or (after == until and (start is not None or end is not None)):
        raise InvalidRequest("this range is empty: it ends before it begins, or the lake does not cover it")
    return OffsetRange(after, until)


def _end_of(manifest: Manifest) -> int:
    """The last offset of the lake: a log that lost its end continues at lower offsets than the lake has."""
    ends = (file.last_offset for file in manifest.files.values() if file.last_offset is not None)
    return max(_offset_of(manifest, manifest.cursor), *ends, 0)


def _resolve(folder: Path, manifest: Manifest, position: RangeEnd, whole: OffsetRange) -> int:
    if isinstance(position, str):
        return _offset_of(manifest, position)
    first = first_offset_since(folder, manifest.files.values(), position)
    return whole.until if first is None else first - 1


def first_offset_since(folder: Path, files: Iterable[DataFile], time_us: int) -> int | None:
    """The lowest offset of rows of a time or later; opens only files that may contain it."""
    found: int | None = None
    for file in sorted(files, key=lambda file: file.first_offset or 0):
        if file.first_offset is None or (file.last_time is not None and file.last_time < time_us):
            continue
        if found is not None and file.first_offset >= found:
            break
        if file.first_time is not None and file.first_time >= time_us:
            candidate: int | None = file.first_offset
        else:
            candidate = _first_in(folder / file.path, file, time_us)
        if candidate is not None and (found is None or candidate < found):
            found = candidate
    return found


def _first_in(path: Path, file: DataFile, time_us: int) -> int | None:
    lowest: int | None = None
    limit = pa.scalar(time_us, pa.timestamp("us", "UTC"))
    try:
        for batch in read_file(path, ("offset", "published_at")):
            is_late = pc.greater_equal(batch.column("published_at").cast(limit.type), limit)
            offset = pc.min(batch.column("offset").filter(is_late)).as_py()
            if offset is not None and (lowest is None or offset < lowest):
                lowest = offset
    except (DamagedFile, FileNotFoundError):  # rather audit too much
        return file.first_offset
    return lowest


def _offset_of(manifest: Manifest, cursor: str | None) -> int:
    if cursor is None:
        return 0
    position = position_of(cursor)
    if manifest.log_id is not None and position.log_id != manifest.log_id:
        raise InvalidRequest(
            f"this lake belongs to the log {manifest.log_id}, and the cursor to {position.log_id}"
        )
    return position.offset
