"""Server side of one HTTP/2 connection (RFC 9113), as far as gRPC needs it: no push, no priorities.

`Endpoint` has what both sides do. The owner responds by stream. It closes the connection, besides the reasons
there, when a client that got GOAWAY has no streams left.
"""

from penstock.wire.http2.endpoint import Endpoint
from penstock.wire.http2.errors import ErrorCode, MalformedHead
from penstock.wire.http2.events import BodyReceived, RequestStarted
from penstock.wire.http2.flow_control import Envelope
from penstock.wire.http2.frames import (
    MAX_STREAM_ID,
    FrameReader,
    encode_go_away,
    encode_limits,
    encode_ping,
)
from penstock.wire.http2.hpack import encode_headers
from penstock.wire.http2.limits import TOO_LARGE_COST, Limits
from penstock.wire.http2.streams import BEGUN, PENDING, Stream

LEAVING = b"penstock"
"""Payload of the ping behind our first GOAWAY: its acknowledgement shows that the client has seen both."""
TOO_LARGE = encode_headers([(b":status", b"431")])
"""Response to a request whose header list is larger than its limit, unless the owner has another one."""


class ServerConnection(Endpoint):
    """One client: its frames in, events out, and the responses to it."""

    __slots__ = ("_has_said_goodbye", "_is_leaving", "_too_large")

    def __init__(self, limits: Limits | None = None, too_large: bytes = TOO_LARGE) -> None:
        """Args:
        too_large: encoded header fields of the response to a request whose own are too large.
        """
        limits = limits or Limits()
        super().__init__(limits, FrameReader(limits.frame_bytes), encode_limits(limits))
        self._too_large = too_large
        self._is_leaving = False  # new streams are refused
        self._has_said_goodbye = False

    def respond(self, stream_id: int, block: bytes, *, is_last: bool = False) -> None:
        """Begin a response with encoded header fields; if `is_last`, that is all of it."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if stream.progress != PENDING:
            raise ValueError(f"the response of stream {stream_id} has begun already")
        self._outflow.headers(stream_id, block, is_last=is_last)
        stream.progress = BEGUN
        if is_last:
            self._on_sent(stream)

    def respond_whole(self, stream_id: int, envelope: Envelope, body: bytes) -> None:
        """Send a whole response: its header fields, a body and trailers."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        is_simple = stream.progress == PENDING and not stream.is_receiving
        if is_simple and self._outflow.send_whole(stream, envelope, body):
            del self._streams[stream_id]
            if stream.held_bytes:
                self._inflow.give_back(stream.held_bytes)
        else:
            self.respond(stream_id, envelope.head)
            self.send(stream_id, body)
            self.finish(stream_id, envelope.trailers)

    def go_away(self) -> None:
        """Begin a graceful shutdown: the client opens no more streams, open ones continue.

        GOAWAY is sent twice: streams opened before the first one arrived are still served (RFC 9113
        section 6.8).
        """
        if self.error is None and not self._has_said_goodbye:
            self._has_said_goodbye = True
            self._outflow.write(encode_go_away(MAX_STREAM_ID, ErrorCode.NO_ERROR))
            self._outflow.write(encode_ping(LEAVING))

    def _last_processed_id(self) -> int:
        return self._table.last_id

    def _on_sent(self, stream: Stream) -> None:
        """All of a response is written: the call is over. A client that is still sending gets RST_STREAM."""
        if stream.is_receiving:
            self._reset(stream.id, ErrorCode.NO_ERROR)  # section 8.1
        self._close(stream)

    def _on_first_block(self, stream_id: int, block: bytes, is_last: bool) -> None:
        """A request begins."""
        self._table.note_new(stream_id)
        head = self._blocks.head(block)
        if self._is_leaving or len(self._streams) >= self._limits.streams:
            self._light.use(self._now)
            self._reset(stream_id, ErrorCode.REFUSED_STREAM)  # section 5.1.2
            return
        if head is None:
            self._control.use(self._now, TOO_LARGE_COST)
            self._outflow.headers(stream_id, self._too_large, is_last=True)
            if not is_last:
                self._reset(stream_id, ErrorCode.NO_ERROR)
            return
        length = head.content_length
        if is_last and length:
            raise MalformedHead("no body where one was announced")
        self._streams[stream_id] = Stream(
            stream_id, self._outflow.initial_window, self._limits.stream_window_bytes, not is_last, length
        )
        self._events.append(RequestStarted(stream_id, head, is_last))

    def _on_next_block(self, stream: Stream, block: bytes, is_last: bool) -> None:
        """Trailers end a body; no method has a use for them."""
        self._take_trailers(stream, block, is_last)
        self._events.append(BodyReceived(stream.id, b"", True))

    def _on_pong(self, payload: bytes) -> None:
        if payload == LEAVING and self._has_said_goodbye:
            self._is_leaving = True
            self._outflow.write(encode_go_away(self._table.last_id, ErrorCode.NO_ERROR))
        else:
            super()._on_pong(payload)
