"""Scans of an audit: data files against the manifest, and the log for comparison."""

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from penstock.client import HttpClient
from penstock.errors import InvalidRequest, PenstockError
from penstock.lake import DamagedFile, DataFile, read_file
from penstock.lake.layout import BUCKET, DATE, buckets_of
from penstock.spark.connection import BUSY_FOR_S, Backoff, Connection
from penstock.spark.jobs.audit.runs import (
    BEHIND,
    DAMAGED,
    GAP,
    LOG,
    NUMBERS,
    READ,
    Evidence,
    OffsetRange,
    ScannedRows,
)
from penstock.spark.source.positions import cursor_at, position_of

_TIME = "published_at"
_DAY_US = 86_400_000_000
_CHUNK_BYTES = 1 << 20


class FileScan(Struct, frozen=True, kw_only=True):
    """Scan of data files; the same settings for all files of an audit."""

    folder: str
    audited: OffsetRange
    buckets: int

    def scan(self, file: DataFile) -> Iterator[Evidence]:
        """Evidence about one file.

        A file with audited rows is read completely, so that every checksum is verified; of any other file
        only the columns that identify messages are read.
        """
        path = Path(self.folder, file.path)
        is_inside = self._is_inside(file)
        columns = None if is_inside else NUMBERS
        times = _Times()
        try:
            if is_inside:
                _check_bytes(path, file)
            rows = ScannedRows(times.watch(read_file(path, columns)), file.path, self.audited)
        except FileNotFoundError:
            yield Evidence(DAMAGED, file.path, text="it does not exist")
        except DamagedFile as error:
            yield Evidence(DAMAGED, file.path, text=str(error).removeprefix(f"{path}: "))
        except (KeyError, ValueError, pa.ArrowException) as error:
            yield Evidence(
                DAMAGED, file.path, text=f"its rows are not messages: {' '.join(str(error).split())}"
            )
        else:
            for text in (*self._disagreements(file, rows), *times.disagreements(file)):
                yield Evidence(DAMAGED, file.path, text=text)
            yield Evidence(READ, file.path, first=len(rows), last=file.bytes)
            yield from map(Evidence.of_run, rows.runs())
            yield from (Evidence.of_run(run, BEHIND) for run in rows.behind())

    def _is_inside(self, file: DataFile) -> bool:
        if file.first_offset is None or file.last_offset is None:
            return True
        return self.audited.meets(file.first_offset - 1, file.last_offset + 1)

    def _disagreements(self, file: DataFile, rows: ScannedRows) -> Iterator[str]:
        """Differences between a file and its manifest entry."""
        if len(rows) != file.rows:
            yield f"it has {len(rows)} rows, and the manifest says {file.rows}"
        elif rows.offsets is not None and rows.offsets != (file.first_offset, file.last_offset):
            yield (
                f"it has the offsets {_span(*rows.offsets)}, "
                f"and the manifest says {_span(file.first_offset, file.last_offset)}"
            )
        bucket = file.partition.get(BUCKET)
        if bucket is not None:
            wrong = buckets_of(rows.topics, self.buckets) != int(bucket)
            if wrong.any():
                yield f"{rows.topics[int(wrong.argmax())]} does not belong to bucket {bucket}"


def _check_bytes(path: Path, file: DataFile) -> None:
    """Compare size and checksum of a whole file: page checksums do not cover the footer.

    Raises:
        DamagedFile: it changed, or is unreadable.
    """
    size = crc = 0
    try:
        with path.open("rb") as opened:
            while chunk := opened.read(_CHUNK_BYTES):
                size += len(chunk)
                crc = crc32(chunk, crc)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedFile(f"{path}: {error.strerror}") from None
    if size != file.bytes:
        raise DamagedFile(f"{path}: it has {size} bytes, and the manifest says {file.bytes}")
    if file.crc is not None and crc != file.crc:
        raise DamagedFile(f"{path}: its content changed since it was written: the checksum is wrong")


class _Times:
    """Oldest and newest `published_at` of the rows that pass, if they have that column."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._last: int | None = None

    def watch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if _TIME in batch.schema.names:
                ends = pc.min_max(
                    batch.column(_TIME).cast(pa.timestamp("us", "UTC")).view(pa.int64())
                ).as_py()
                self._first = min(each for each in (self._first, ends["min"]) if each is not None)
                self._last = max(each for each in (self._last, ends["max"]) if each is not None)
            yield batch.select(NUMBERS)

    def disagreements(self, file: DataFile) -> Iterator[str]:
        """Differences between the times of a file and its manifest entry."""
        if self._first is None or self._last is None:
            return
        if file.first_time is not None and (self._first, self._last) != (file.first_time, file.last_time):
            yield "its times differ from those in the manifest"
        date = file.partition.get(DATE)
        if date is not None:
            day = int(pc.cast(pa.scalar(date), pa.date32()).value)
            if not day == self._first // _DAY_US == self._last // _DAY_US:
                yield f"it has rows of other days than {date}"


def _span(first: int | None, last: int | None) -> str:
    return f"{first} to {last}"


class LogSlice(Struct, frozen=True):
    """Slice of the log that one task reads."""

    after: str
    until: str


class LogScan(Struct, frozen=True, kw_only=True):
    """Scan of the log; the same settings for all slices."""

    connection: Connection
    filters: tuple[str, ...]
    audited: OffsetRange

    def scan(self, part: LogSlice) -> Iterator[Evidence]:
        """The runs of a slice, and its gaps."""
        patience = Backoff(self.connection.retry_for_s, BUSY_FOR_S)
        while True:
            try:
                found = self._read(self.connection.client(), part)
                break
            except PenstockError as error:
                patience.wait(error)
        yield from found

    def _read(self, client: HttpClient, part: LogSlice) -> list[Evidence]:
        """Read a slice completely; a lost connection starts over."""
        with client.read_log(
            after=part.after, until=part.until, filters=self.filters, columns=NUMBERS
        ) as reading:
            rows = ScannedRows(reading, LOG, self.audited)
        first, last = position_of(part.after).offset + 1, position_of(part.until).offset
        return [
            *map(Evidence.of_run, rows.runs()),
            Evidence(READ, LOG, first=len(rows), first_offset=first, last_offset=last),
            *(
                Evidence(GAP, LOG, first_offset=gap.first, last_offset=gap.last, text=gap.reason)
                for gap in reading.statement.gaps
            ),
        ]


def check_log(log_id: str, there: str) -> None:
    """Refuse to compare a lake with another log.

    Raises:
        InvalidRequest: the server has another log.
    """
    if there != log_id:
        raise InvalidRequest(f"this lake belongs to the log {log_id}, but the server has the log {there}")


def plan_parts(
    connection: Connection,
    log_id: str,
    cursor: str,
    filters: tuple[str, ...],
    audited: OffsetRange,
    parts: int,
) -> list[LogSlice]:
    """Slices of the log that cover a range as far as the log still has it.

    Args:
        cursor: of the lake; later messages are not archived yet.

    Raises:
        InvalidRequest: the server has another log.
    """
    earliest = connection.retry(lambda client: client.position("earliest", filters=filters))
    check_log(log_id, earliest.log_id)
    after = max(audited.after, earliest.offset)
    near = position_of(cursor)
    until = min(audited.until, near.offset)
    if after >= until:
        return []
    start, end = cursor_at(near, after), cursor_at(near, until)
    found = connection.retry(lambda client: client.ranges(parts, after=start, until=end, filters=filters))
    return [LogSlice(each.after, each.until) for each in found.ranges]
