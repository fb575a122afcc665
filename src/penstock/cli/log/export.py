"""`penstock log export`: messages as a Parquet file or as JSON lines, for other programs."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, TYPE_CHECKING, Annotated, Protocol

import typer

from penstock.cli.flags import spread
from penstock.cli.log.directory import Directory, open_snapshot
from penstock.cli.log.read import RequestFlags, finish, messages_as_json, statement_as_json
from penstock.cli.output import Output, OutputOption, progress_bar
from penstock.common.statement import Statement
from penstock.errors import InvalidConfig
from penstock.wire.arrow import STATEMENT_KEY

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS = 100_000
GROUP_BYTES = 64 << 20
"""Size of a row group: large ones read faster, small ones need less memory to write."""


@spread
def export(
    directory: Directory,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="FILE.parquet or FILE.jsonl; an existing one is replaced.")
    ],
    *,
    asked: RequestFlags,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write messages to a Parquet file, or as JSON lines.

    The file appears when it is complete. Ends with 3 when part of the requested data is missing.
    """
    asked.check()
    with open_snapshot(directory) as snapshot:
        from penstock.storage.disk.scan import Scan  # noqa: PLC0415 - Arrow takes a while

        if file.suffix not in WRITERS:
            raise typer.BadParameter(f"the name of the file has to end with one of {', '.join(WRITERS)}")
        if not file.parent.is_dir():
            raise InvalidConfig(f"{file.parent}: no such directory")
        scan = Scan(snapshot, asked.request())
        with (
            replacing(file) as out,
            closing(WRITERS[file.suffix](out)) as writer,
            progress_bar(file.name, scan.until - scan.after) as advance,
        ):
            for batch in scan.batches(advance):
                writer.write(batch)
            statement = scan.statement()
            writer.finish(statement)
        finish(statement, output)


class Writer(Protocol):
    """Writes batches to a file, and at the end the statement about them."""

    def write(self, batch: "pa.RecordBatch") -> None: ...

    def finish(self, statement: Statement) -> None: ...

    def close(self) -> None:
        """Release the file, finished or not."""
        ...


class JsonLines:
    """JSON lines: one object for each message."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, batch: "pa.RecordBatch") -> None:
        self._file.writelines(messages_as_json(batch))

    def finish(self, statement: Statement) -> None:
        """JSON lines have no place for a statement; the command prints it."""

    def close(self) -> None:
        """Nothing is buffered."""


class Parquet:
    """Parquet file with large row groups, and the statement in its key-value metadata."""

    def __init__(self, file: IO[bytes]) -> None:
        from pyarrow.parquet import ParquetWriter  # noqa: PLC0415 - Arrow takes a while

        self._schema = export_schema()
        self._writer = ParquetWriter(file, self._schema, compression="zstd")
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: "pa.RecordBatch") -> None:
        rows = batch.cast(self._schema)
        self._batches.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._write_group()

    def finish(self, statement: Statement) -> None:
        self._write_group()
        self._writer.add_key_value_metadata({STATEMENT_KEY: statement_as_json(statement)})
        self._writer.close()

    def close(self) -> None:
        with suppress(OSError):  # a full disk was reported already
            self._writer.close()

    def _write_group(self) -> None:
        if self._batches:
            import pyarrow as pa  # noqa: PLC0415 - Arrow takes a while

            self._writer.write_table(pa.Table.from_batches(self._batches, self._schema))
            self._batches.clear()
            self._rows = self._bytes = 0


WRITERS: dict[str, Callable[[IO[bytes]], Writer]] = {".parquet": Parquet, ".jsonl": JsonLines}
"""Writers by file name suffix."""


def export_schema() -> "pa.Schema":
    """The columns of the log, with plain values in place of dictionaries."""
    import pyarrow as pa  # noqa: PLC0415 - Arrow takes a while

    from penstock.storage.disk.pieces.arrow_columns import SCHEMA  # noqa: PLC0415

    return pa.schema(
        [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in SCHEMA
        ]
    )


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Atomic replacement: a new file that takes the place of the old one if the block succeeds."""
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
