"""Reads the log over HTTP: record batches as they come, then the statement that says what was served.

A read that ends without its statement was cut off, and says so; it never looks like the end of the log.
Batches need pyarrow, which is imported when the first one is asked for; bytes do not.
"""

from collections.abc import Iterable, Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse
from io import RawIOBase
from typing import TYPE_CHECKING, Any

from penstock.client.answers import Statement, read
from penstock.client.errors import ConnectionLost
from penstock.extras import how_to_get
from penstock.wire.arrow import END

if TYPE_CHECKING:
    import pyarrow as pa

STATEMENT_KEY = b"penstock.statement"

_CHUNK_BYTES = 1 << 18


class LogRead:
    """One read of the log; batches or bytes, once.

    It has a connection of its own, which ends with the read, with `close` or with the `with` block.
    """

    def __init__(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        self._connection = connection
        self._source = _Source(response)
        self._statement: Statement | None = None
        self._reader: "pa.ipc.RecordBatchStreamReader | None" = None  # noqa: UP037

    def __enter__(self) -> "LogRead":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading, wherever it is."""
        self._source.close()
        self._connection.close()

    @property
    def statement(self) -> Statement:
        """What was served, what is missing and why, and where to go on; known after the last batch."""
        if self._statement is None:
            raise ValueError("the statement is known when everything was read")
        return self._statement

    @property
    def schema(self) -> "pa.Schema":
        """The columns of the batches."""
        return self._opened().schema

    def __iter__(self) -> "Iterator[pa.RecordBatch]":
        """The batches, in the order of the log.

        Raises:
            ConnectionLost: the read was cut off. What came before is right, and there is more.
        """
        try:
            yield from self._batches()
        finally:
            self.close()

    def table(self) -> "pa.Table":
        """Everything at once."""
        pyarrow = import_pyarrow()
        schema = self.schema
        return pyarrow.Table.from_batches(list(self), schema)

    def chunks(self) -> Iterator[bytes]:
        """The Arrow stream as bytes, to keep it or to hand it on; then there is no statement here, but in it.

        Raises:
            ConnectionLost: the read was cut off.
        """
        tail = b""
        try:
            while chunk := self._source.read(_CHUNK_BYTES):
                tail = (tail + chunk[-len(END) :])[-len(END) :]
                yield chunk
            if tail != END:
                raise _cut_off()
        finally:
            self.close()

    def _batches(self) -> "Iterator[pa.RecordBatch]":
        reader = self._opened()
        while True:
            try:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                break
            except import_pyarrow().ArrowInvalid:
                raise _cut_off() from None
            if metadata is not None and STATEMENT_KEY in metadata:
                self._statement = read(metadata[STATEMENT_KEY], Statement)
            if batch.num_rows:
                yield batch
        if self._statement is None:
            raise _cut_off()

    def _opened(self) -> "pa.ipc.RecordBatchStreamReader":
        if self._reader is None:
            pyarrow = import_pyarrow()
            try:
                self._reader = pyarrow.ipc.open_stream(
                    self._source,
                    options=pyarrow.ipc.IpcReadOptions(use_threads=False),  # costs more than it gives
                )
            except pyarrow.ArrowInvalid:
                self.close()
                raise _cut_off() from None
            except BaseException:
                self.close()
                raise
        return self._reader


class _Source(RawIOBase):
    """The body of an answer as a file, whose failures are ours."""

    def __init__(self, response: HTTPResponse) -> None:
        self._response = response

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._response.read(None if size < 0 else size)
        except TimeoutError:
            raise ConnectionLost("the server stopped sending in the middle of the log") from None
        except (HTTPException, OSError):
            raise _cut_off() from None
        if not data and size and self._response.length:  # the standard library does not mind
            raise _cut_off()
        return data

    def close(self) -> None:
        self._response.close()
        super().close()


def encode_batches(batches: "Iterable[pa.RecordBatch]") -> bytes:
    """Record batches as one Arrow stream."""
    pyarrow = import_pyarrow()
    sink, writer = pyarrow.BufferOutputStream(), None
    for batch in batches:
        writer = writer or pyarrow.ipc.new_stream(sink, batch.schema)
        writer.write(batch)
    if writer is None:
        raise ValueError("there has to be a batch, if only to say what the columns are")
    writer.close()
    return bytes(sink.getvalue())


def import_pyarrow() -> Any:
    """Load pyarrow, or say how to get it."""
    try:
        import pyarrow.ipc  # noqa: PLC0415 - heavy, and only needed for batches
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"record batches need pyarrow: {how_to_get('log')}", name="pyarrow"
        ) from None
    return pyarrow


def _cut_off() -> ConnectionLost:
    return ConnectionLost("the log was cut off before its end: there is no statement of what was served")
