"""Events of a server: messages as they are published, over HTTP (Server-Sent Events).

A stream has a connection of its own, and ends when it is closed or when the server ends it.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from socket import SHUT_RDWR

from msgspec import Struct

from penstock.client.errors import ConnectionLost
from penstock.client.http.transport import Transport

EVENTS = "/api/v1/events"
MEDIA_TYPE = "text/event-stream"
END = "end"
"""Name of the last event of a stream that the server ends."""


class Event(Struct, frozen=True):
    """One event: a message, or with a name something about the stream."""

    name: str
    """Empty for a message; otherwise `statement`, `gap`, `deleted` or `end`."""
    data: bytes
    """JSON."""


class EventStream:
    """Events in the order in which they come; iterate over it once."""

    def __init__(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self._is_closed = False
        self._has_ended = False  # by the server, which says so

    def __enter__(self) -> "EventStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a thread that iterates comes to the end."""
        self._is_closed = True
        if self._connection.sock is not None:
            with suppress(OSError):
                self._connection.sock.shutdown(SHUT_RDWR)  # otherwise `close` waits for that thread's read
        self._connection.close()

    def __iter__(self) -> Iterator[Event]:
        """Events until the server ends the stream.

        Raises:
            ConnectionLost: the connection broke, or was silent for too long.
        """
        name, data = "", list[bytes]()
        for line in self._lines():
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if not line:
                if data:
                    self._has_ended = name == END
                    yield Event(name, b"\n".join(data))
                name, data = "", []
            elif field == b"event":
                name = value.decode(errors="replace")
            elif field == b"data":
                data.append(value)

    def _lines(self) -> Iterator[bytes]:
        try:
            while line := self._response.readline():
                yield line.rstrip(b"\r\n")
        except (OSError, HTTPException, ValueError, AttributeError) as error:
            if not self._is_closed:  # http.client raises any of these when it is closed under a read
                raise ConnectionLost(f"the stream of events broke: {error}") from None
        if not (self._is_closed or self._has_ended):
            raise ConnectionLost("the stream of events broke")


class EventRequests:
    """Methods of `HttpClient` for events."""

    _transport: Transport

    def events(
        self, filters: Sequence[str], *, after: str | None = None, last: int | None = None
    ) -> EventStream:
        """Follow topics, first from the past: after a cursor, or the newest messages.

        Args:
            filters: a message that several of them match comes once.
            last: the number of the newest messages, of all filters together.
        """
        query = {"filter": tuple(filters), "after": after, "last": last}
        return EventStream(*self._transport.stream(EVENTS, query, accept=MEDIA_TYPE))
