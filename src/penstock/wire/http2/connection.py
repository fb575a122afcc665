"""The server's side of one HTTP/2 connection (RFC 9113), as far as calls need it: no push, no priorities.

Bytes and the time go in with `feed`, events come out, the owner answers by stream, and `drain` gives what is
to be written. The owner holds the socket and the clock: it closes the connection when `error` is set and
`drain` is written, when a client does not confirm our settings in time (`is_settled`), and when a client that
was told to go away has no streams left.

What is said to a stream that is over goes nowhere: its client may have reset it a moment ago. How much of an
answer may wait for a client that gives no room is the owner's decision.
"""

from penstock.wire.http2.errors import ConnectionFault, ErrorCode
from penstock.wire.http2.frames import MAX_STREAM_ID, encode_go_away, encode_ping
from penstock.wire.http2.reception import LEAVING, Reception
from penstock.wire.http2.streams import Answer

_OWED, _BEGUN, _FINISHED = Answer  # plain names: these are looked at with every call


class ServerConnection(Reception):
    """One client and the answers to it."""

    __slots__ = ()

    @property
    def open_streams(self) -> int:
        """How many calls are not over."""
        return len(self._streams)

    def drain(self) -> bytes:
        """All that is to be written now, joined."""
        return self._outflow.drain()

    def respond(self, stream_id: int, block: bytes, *, is_last: bool = False) -> None:
        """Begin an answer with encoded header fields; if `is_last`, that is all of it."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if stream.answer is not _OWED:
            raise ValueError(f"the answer of stream {stream_id} has begun already")
        self._outflow.headers(stream_id, block, is_last=is_last)
        stream.answer = _BEGUN
        if is_last:
            self._on_sent(stream)

    def send(self, stream_id: int, data: bytes) -> int:
        """Send some of an answer's body, of any length; tell how many bytes wait for room now."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return 0
        if stream.answer is not _BEGUN:
            raise ValueError(f"the answer of stream {stream_id} has not begun, or is finished")
        return self._outflow.send(stream, data)

    def finish(self, stream_id: int, trailers: bytes = b"") -> None:
        """End an answer, with encoded trailers if there are any, as soon as nothing of it waits.

        A client that is still sending is told to stop.
        """
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if stream.answer is not _BEGUN:
            raise ValueError(f"the answer of stream {stream_id} has not begun, or is finished")
        stream.answer = _FINISHED
        stream.trailers = trailers
        if not stream.waiting_bytes:
            self._outflow.end(stream)
            self._on_sent(stream)

    def reset(self, stream_id: int, code: ErrorCode = ErrorCode.CANCEL) -> None:
        """End a stream at once, and drop what waits with it."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._reset(stream_id, code)
            self._close(stream)

    def consumed(self, stream_id: int, size: int) -> None:
        """The owner has done with that many bytes of a body, so that the client may send as many more.

        When a stream is over, all that came for it counts as consumed.
        """
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._inflow.consume(stream, size)

    def waiting_bytes(self, stream_id: int) -> int:
        """How much of an answer waits for room."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None else stream.waiting_bytes

    def ping(self, payload: bytes) -> None:
        """Ask the client for a sign of life, with eight bytes that come back in `Ponged`."""
        self._outflow.write(encode_ping(payload))

    def go_away(self) -> None:
        """Ask the client to open no more streams; those that are open go on.

        It is told so twice: what it has sent before it knew is still served (RFC 9113 section 6.8).
        """
        if self.error is None and not self._has_said_goodbye:
            self._has_said_goodbye = True
            self._outflow.write(encode_go_away(MAX_STREAM_ID, ErrorCode.NO_ERROR))
            self._outflow.write(encode_ping(LEAVING))

    def abort(self, code: ErrorCode, text: str) -> None:
        """End the connection and all its streams; the client is told why."""
        if self.error is None:
            self._fail(ConnectionFault(code, text))
