"""Looks at one data file: can it be read, is it what the manifest says, and which messages does it hold."""

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from penstock.pipeline.jobs.audit.evidence import BEHIND, DAMAGED, READ, Evidence
from penstock.pipeline.jobs.audit.runs import NUMBERS, Rows, Stretch
from penstock.pipeline.lake import DamagedFile, DataFile, read_file
from penstock.pipeline.lake.layout import BUCKET, DATE, buckets_of

_TIME = "published_at"
_DAY_US = 86_400_000_000
_CHUNK_BYTES = 1 << 20


class Looking(Struct, frozen=True, kw_only=True):
    """How files are looked at; the same for all files of an audit."""

    folder: str
    stretch: Stretch
    buckets: int

    def look(self, file: DataFile) -> Iterator[Evidence]:
        """All that is to be said of a file.

        Every byte is read if it holds rows of what is audited, so that every checksum is looked at; of any
        other only what says which messages it holds.
        """
        path = Path(self.folder, file.path)
        is_inside = self._is_inside(file)
        columns = None if is_inside else NUMBERS
        times = _Times()
        try:
            if is_inside:
                _check_bytes(path, file)
            rows = Rows(times.watch(read_file(path, columns)), file.path, self.stretch)
        except FileNotFoundError:
            yield Evidence(DAMAGED, file.path, text="it is not there")
        except DamagedFile as error:
            yield Evidence(DAMAGED, file.path, text=str(error).removeprefix(f"{path}: "))
        except (KeyError, ValueError, pa.ArrowException) as error:
            yield Evidence(DAMAGED, file.path, text=f"these are no messages: {' '.join(str(error).split())}")
        else:
            for text in (*self._disagreements(file, rows), *times.disagreements(file)):
                yield Evidence(DAMAGED, file.path, text=text)
            yield Evidence(READ, file.path, first=len(rows), last=file.bytes)
            yield from map(Evidence.of_run, rows.runs())
            yield from (Evidence.of_run(run, BEHIND) for run in rows.behind())

    def _is_inside(self, file: DataFile) -> bool:
        if file.first_offset is None or file.last_offset is None:
            return True
        return self.stretch.meets(file.first_offset - 1, file.last_offset + 1)

    def _disagreements(self, file: DataFile, rows: Rows) -> Iterator[str]:
        """What the manifest says of a file, and is not so."""
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
    """Compare a file with what was written, which page checksums do not: they leave out the footer.

    Raises:
        DamagedFile: it is not the same any more, or cannot be read.
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
        raise DamagedFile(f"{path}: its bytes are not those that were written: the checksum is wrong")


class _Times:
    """The oldest and the newest row that passed by, if they come with their time."""

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
        """What the manifest says of the times of a file, and is not so."""
        if self._first is None or self._last is None:
            return
        if file.first_time is not None and (self._first, self._last) != (file.first_time, file.last_time):
            yield "its rows are of another time than the manifest says"
        date = file.partition.get(DATE)
        if date is not None:
            day = int(pc.cast(pa.scalar(date), pa.date32()).value)
            if not day == self._first // _DAY_US == self._last // _DAY_US:
                yield f"it has rows that are not of {date}"


def _span(first: int | None, last: int | None) -> str:
    return f"{first} to {last}"
