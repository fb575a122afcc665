"""Files to export to. They appear when they are complete, and not before."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.cli.log.endings import as_json as statement_as_json
from penstock.cli.log.lines import as_json
from penstock.core.statement import Statement
from penstock.storage.disk.columns import SCHEMA

STATEMENT_KEY = "penstock.statement"
"""Where a Parquet file says what it has and what is missing."""
GROUP_ROWS = 100_000
GROUP_BYTES = 64 << 20
"""What is gathered for one row group: readers like them large, memory does not."""

PLAIN_SCHEMA = pa.schema(
    [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in SCHEMA
    ]
)
"""The columns of the log, with values where they have dictionaries."""


class Exporter(Protocol):
    """Writes batches to a file, and at the end how complete they are."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def finish(self, statement: Statement) -> None: ...

    def close(self) -> None:
        """Let go of the file, finished or not."""
        ...


class JsonLines:
    """One JSON object in each line."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.writelines(as_json(batch))

    def finish(self, statement: Statement) -> None:
        """Lines have no place for a statement: whoever exports is told it."""

    def close(self) -> None:
        """Nothing is kept back."""


class Parquet:
    """Row groups of a useful size, and the statement among the file's key-value metadata."""

    def __init__(self, file: IO[bytes]) -> None:
        self._writer = pq.ParquetWriter(file, PLAIN_SCHEMA, compression="zstd")
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        plain = batch.cast(PLAIN_SCHEMA)
        self._batches.append(plain)
        self._rows += plain.num_rows
        self._bytes += plain.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._write_group()

    def finish(self, statement: Statement) -> None:
        self._write_group()
        self._writer.add_key_value_metadata({STATEMENT_KEY: statement_as_json(statement)})
        self._writer.close()

    def close(self) -> None:
        with suppress(OSError):  # if the disk is full, that has been told
            self._writer.close()

    def _write_group(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, PLAIN_SCHEMA))
            self._batches.clear()
            self._rows = self._bytes = 0


KINDS: dict[str, Callable[[IO[bytes]], Exporter]] = {".parquet": Parquet, ".jsonl": JsonLines}
"""How to write a file, by the end of its name."""


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file beside the old one, which takes its place if all goes well."""
    path = path.resolve()  # a link stays a link
    draft = path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
