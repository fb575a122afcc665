"""Which offsets a range means that is given by times or cursors."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidCursor, InvalidRequest
from penstock.pipeline.jobs.audit.runs import Stretch
from penstock.pipeline.lake import DamagedFile, DataFile, Manifest, read_file
from penstock.pipeline.source.offsets import position_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


Place = str | int
"""A cursor, or a time in microseconds since 1970."""


def parse_place(text: str) -> Place:
    """A cursor, or a time in microseconds since 1970.

    Raises:
        InvalidRequest: it is neither.
    """
    if not text[:1].isdigit():  # no cursor begins like a time
        try:
            position_of(text)
        except InvalidCursor:
            raise InvalidRequest(f"{text!r} is neither a cursor nor a time") from None
        return text
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(f"{text!r} is no time; write 2026-01-31T12:00:00Z") from None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    since = when - _EPOCH
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds


def find_stretch(folder: Path, manifest: Manifest, start: Place | None, end: Place | None) -> Stretch:
    """The offsets from one place up to another, no more than the lake answers for.

    A time stands for the first message of that time or later, as it does for the log.

    Raises:
        InvalidRequest: the range is empty, or a cursor is of another log.
    """
    whole = Stretch(_offset_of(manifest, manifest.start), _end_of(manifest))
    after = whole.after if start is None else max(whole.after, _resolve(folder, manifest, start, whole))
    until = whole.until if end is None else min(whole.until, _resolve(folder, manifest, end, whole))
    if after > until or (after == until and (start is not None or end is not None)):
        raise InvalidRequest("nothing lies in this range: it ends before it begins, or the lake is elsewhere")
    return Stretch(after, until)


def _end_of(manifest: Manifest) -> int:
    """How far the lake goes: a log that lost its end goes on at lower offsets than the lake has already."""
    ends = (file.last_offset for file in manifest.files.values() if file.last_offset is not None)
    return max(_offset_of(manifest, manifest.cursor), *ends, 0)


def _resolve(folder: Path, manifest: Manifest, place: Place, whole: Stretch) -> int:
    if isinstance(place, str):
        return _offset_of(manifest, place)
    first = first_offset_since(folder, manifest.files.values(), place)
    return whole.until if first is None else first - 1


def first_offset_since(folder: Path, files: Iterable[DataFile], time_us: int) -> int | None:
    """The lowest offset of the rows of a time or later; only files that may have it are opened."""
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
    except (DamagedFile, FileNotFoundError):  # rather look at too much
        return file.first_offset
    return lowest


def _offset_of(manifest: Manifest, cursor: str | None) -> int:
    if cursor is None:
        return 0
    position = position_of(cursor)
    if manifest.log_id is not None and position.log_id != manifest.log_id:
        raise InvalidRequest(
            f"this lake is of the log {manifest.log_id}, and the cursor of {position.log_id}"
        )
    return position.offset
