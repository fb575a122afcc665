"""The log over HTTP: bulk reads as Arrow batches, positions, ranges, and retention holds.

A read ends with a statement about what was served; one without it was truncated, and raises an error. Record
batches need pyarrow, which is imported on first use; bytes do not.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse
from io import RawIOBase
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from penstock.client.errors import ConnectionLost
from penstock.client.http.transport import Transport, decode_body
from penstock.client.messages import Hold, LogPosition, LogRanges, Statement
from penstock.extras import how_to_get
from penstock.wire.arrow import END, MEDIA_TYPE

if TYPE_CHECKING:
    import pyarrow as pa

LOG = "/api/v1/log"
HOLDS = f"{LOG}/holds"
STATEMENT_KEY = b"penstock.statement"

_CHUNK_BYTES = 1 << 18


class LogRead:
    """One read of the log, as batches or as bytes, once.

    It has its own connection, closed at the end of the read, of the `with` block, or by `close`.
    """

    def __init__(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        self._connection = connection
        self._source = _ResponseFile(response)
        self._statement: Statement | None = None
        self._reader: "pa.ipc.RecordBatchStreamReader | None" = None  # noqa: UP037

    def __enter__(self) -> "LogRead":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Abort the read."""
        self._source.close()
        self._connection.close()

    @property
    def statement(self) -> Statement:
        """Statement of the read: served, missing and next cursor; known after the last batch."""
        if self._statement is None:
            raise ValueError("the statement is only known after the last batch")
        return self._statement

    @property
    def schema(self) -> "pa.Schema":
        """Columns of the batches."""
        return self._opened().schema

    def __iter__(self) -> "Iterator[pa.RecordBatch]":
        """Batches in the order of the log.

        Raises:
            ConnectionLost: the read was truncated; the batches so far are valid.
        """
        try:
            yield from self._batches()
        finally:
            self.close()

    def table(self) -> "pa.Table":
        """All batches as one table."""
        pyarrow = import_pyarrow()
        schema = self.schema
        return pyarrow.Table.from_batches(list(self), schema)

    def chunks(self) -> Iterator[bytes]:
        """The Arrow stream as bytes; the statement is then only part of the stream.

        Raises:
            ConnectionLost: the read was truncated.
        """
        tail = b""
        try:
            while chunk := self._source.read(_CHUNK_BYTES):
                tail = (tail + chunk[-len(END) :])[-len(END) :]
                yield chunk
            if tail != END:
                raise _truncated()
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
                raise _truncated() from None
            if metadata is not None and STATEMENT_KEY in metadata:
                self._statement = decode_body(metadata[STATEMENT_KEY], Statement)
            if batch.num_rows:
                yield batch
        if self._statement is None:
            raise _truncated()

    def _opened(self) -> "pa.ipc.RecordBatchStreamReader":
        if self._reader is None:
            pyarrow = import_pyarrow()
            try:
                self._reader = pyarrow.ipc.open_stream(
                    self._source,
                    options=pyarrow.ipc.IpcReadOptions(use_threads=False),  # threads are slower here
                )
            except pyarrow.ArrowInvalid:
                self.close()
                raise _truncated() from None
            except BaseException:
                self.close()
                raise
        return self._reader


class _Holds(msgspec.Struct):
    holds: list[Hold]


class LogRequests:
    """Methods of `HttpClient` for the log; a server without a data directory refuses them with `no-log`."""

    _transport: Transport

    def read_log(
        self,
        *,
        after: str | None = None,
        start: datetime | str | None = None,
        until: str | None = None,
        filters: Sequence[str] = (),
        columns: Sequence[str] | None = None,
        limit_rows: int | None = None,
    ) -> LogRead:
        """Read the log, by default from its beginning to its current end.

        Args:
            after: a cursor, such as `next` of an earlier statement.
            start: instead of a cursor: `"earliest"`, `"latest"`, or a time.
            until: a cursor to stop at.
            filters: only topics that match one of them.
            columns: only these columns.
        """
        connection, response = self._transport.stream(
            LOG,
            {
                "after": after,
                "from": start,
                "until": until,
                "filter": tuple(filters),
                "columns": None if columns is None else ",".join(columns),
                "limit_rows": limit_rows,
            },
            accept=MEDIA_TYPE,
        )
        return LogRead(connection, response)

    def position(
        self, at: datetime | str = "latest", *, after: str | None = None, filters: Sequence[str] = ()
    ) -> LogPosition:
        """Position of `"earliest"`, `"latest"` or a time, and the number of rows after a cursor up to it."""
        query = {"at": at, "after": after, "filter": tuple(filters)}
        return decode_body(self._transport.send("GET", f"{LOG}/position", query).body, LogPosition)

    def ranges(
        self,
        parts: int,
        *,
        after: str | None = None,
        start: datetime | str | None = None,
        until: str | None = None,
        filters: Sequence[str] = (),
        limit_rows: int | None = None,
        limit_bytes: int | None = None,
    ) -> LogRanges:
        """Split what `read_log` would read into at most `parts` ranges of similar size.

        Args:
            limit_rows: upper limit of the rows of all ranges.
            limit_bytes: upper limit of their stored size, but at least one batch.
        """
        query = {
            "after": after,
            "from": start,
            "until": until,
            "filter": tuple(filters),
            "parts": parts,
            "limit_rows": limit_rows,
            "limit_bytes": limit_bytes,
        }
        return decode_body(self._transport.send("GET", f"{LOG}/ranges", query).body, LogRanges)

    def hold(self, name: str, cursor: str, lapse_s: float, *, filters: Sequence[str] = ()) -> Hold:
        """Create a retention hold: keep everything after a cursor until it is released or lapses.

        Args:
            lapse_s: lifetime without a renewal.
            filters: filters to be read, required without the right to read everything.
        """
        body = msgspec.json.encode(
            {"name": name, "cursor": cursor, "lapse_s": lapse_s, "filters": list(filters)}
        )
        return decode_body(self._transport.send("POST", HOLDS, body=body, may_repeat=True).body, Hold)

    def renew(self, name: str) -> Hold:
        """Renew a hold."""
        return decode_body(self._transport.send("POST", f"{_path(name)}/renew", may_repeat=True).body, Hold)

    def commit(self, name: str, cursor: str) -> Hold:
        """Move a hold: everything before the cursor has been read, and may be deleted."""
        body = msgspec.json.encode({"cursor": cursor})
        return decode_body(self._transport.send("PUT", _path(name), body=body).body, Hold)

    def release(self, name: str) -> None:
        """Release a hold."""
        self._transport.send("DELETE", _path(name))

    def holds(self) -> list[Hold]:
        """Holds visible to this user."""
        return decode_body(self._transport.send("GET", HOLDS).body, _Holds).holds


class _ResponseFile(RawIOBase):
    """Body of a response as a file that raises errors of the catalogue."""

    def __init__(self, response: HTTPResponse) -> None:
        self._response = response

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._response.read(None if size < 0 else size)
        except TimeoutError:
            raise ConnectionLost("no more data of the log in time") from None
        except (HTTPException, OSError):
            raise _truncated() from None
        if not data and size and self._response.length:  # the standard library ignores a short body
            raise _truncated()
        return data

    def close(self) -> None:
        self._response.close()
        super().close()


def encode_batches(batches: "Iterable[pa.RecordBatch]") -> bytes:
    """Encode record batches as one Arrow stream."""
    pyarrow = import_pyarrow()
    sink, writer = pyarrow.BufferOutputStream(), None
    for batch in batches:
        writer = writer or pyarrow.ipc.new_stream(sink, batch.schema)
        writer.write(batch)
    if writer is None:
        raise ValueError("give at least one batch, for its schema")
    writer.close()
    return bytes(sink.getvalue())


def import_pyarrow() -> Any:
    """Import pyarrow, or raise with the command that installs it."""
    try:
        import pyarrow.ipc  # noqa: PLC0415 - heavy, and only needed for batches
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"record batches need pyarrow: {how_to_get('log')}", name="pyarrow"
        ) from None
    return pyarrow


def _truncated() -> ConnectionLost:
    return ConnectionLost("the read of the log was truncated: its statement is missing")


def _path(name: str) -> str:
    return f"{HOLDS}/{quote(name, safe='')}"
