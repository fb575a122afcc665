"""Server side of one HTTP/2 connection (RFC 9113), as far as gRPC needs it: no push, no priorities.

`feed` takes bytes and the time and returns events; the owner responds by stream; `drain` returns the bytes to
write. The owner has the socket and the clock. It closes the connection when `error` is set and `drain` is
written, when a client does not confirm our settings in time (`is_settled`), and when a client that got GOAWAY
has no streams left. Writes to a closed stream are dropped: its client may have reset it a moment ago. The
owner decides how much of a response may wait for the client's window.

A broken rule becomes RST_STREAM or GOAWAY. Section numbers in comments are of RFC 9113.
"""

from typing import Final

from penstock.wire.http2.errors import ConnectionFault, ErrorCode, MalformedRequest, StreamFault
from penstock.wire.http2.events import (
    BodyReceived,
    Drained,
    Event,
    GoneAway,
    Ponged,
    RequestStarted,
    StreamReset,
)
from penstock.wire.http2.flow_control import Envelope, Inflow, Outflow
from penstock.wire.http2.frames import (
    MAX_STREAM_ID,
    PING_BYTES,
    SETTINGS_ACK,
    Flag,
    FrameReader,
    FrameType,
    Setting,
    check_body,
    check_length,
    check_setting,
    decode_go_away,
    decode_number,
    decode_settings,
    encode_go_away,
    encode_limits,
    encode_ping,
    encode_reset,
    protocol_error,
    strip_padding,
    strip_priority,
)
from penstock.wire.http2.headers import BlockReader, check_trailers
from penstock.wire.http2.hpack import encode_headers
from penstock.wire.http2.hpack_tables import Field
from penstock.wire.http2.limits import MAX_WINDOW_BYTES, Allowance, Limits
from penstock.wire.http2.streams import BEGUN, FINISHED, PENDING, Stream, StreamTable

# Plain numbers: these are used with every frame.
_DATA: Final = int(FrameType.DATA)
_HEADERS: Final = int(FrameType.HEADERS)
_WINDOW_UPDATE: Final = int(FrameType.WINDOW_UPDATE)
_END_STREAM: Final = int(Flag.END_STREAM)
_END_HEADERS: Final = int(Flag.END_HEADERS)
_PADDED: Final = int(Flag.PADDED)
_PRIORITY: Final = int(Flag.PRIORITY)
_WINDOW_UPDATE_BYTES: Final = 4
LEAVING = b"penstock"
"""Payload of the ping behind our first GOAWAY: its acknowledgement shows that the client has seen both."""
TOO_LARGE = encode_headers([(b":status", b"431")])
"""Response to a request whose header list is larger than its limit, unless the owner has another one."""
_TOO_LARGE_CHARGE = 20
"""Control frames that such a list counts as: it was decoded for nothing."""
_UPDATES_DUE_LIMIT = 100_000
"""Limit of WINDOW_UPDATEs that a client may catch up with at once."""
_STREAMS_PER_CHARGE = 10
"""A new window for all streams costs as many control frames more as there are tens of them."""


class ServerConnection:
    """One client: its frames in, events out, and the responses to it."""

    __slots__ = (
        "_blocks",
        "_control",
        "_events",
        "_has_said_goodbye",
        "_inflow",
        "_is_greeted",
        "_is_leaving",
        "_light",
        "_limits",
        "_now",
        "_outflow",
        "_reader",
        "_streams",
        "_table",
        "_too_large",
        "error",
        "is_settled",
    )

    def __init__(self, limits: Limits | None = None, too_large: bytes = TOO_LARGE) -> None:
        """Args:
        too_large: encoded header fields of the response to a request whose own are too large.
        """
        self._too_large = too_large
        self._limits = limits = limits or Limits()
        self.error: ConnectionFault | None = None  # why it ended, if it did
        self.is_settled = False  # the client has confirmed our settings
        self._is_greeted = False  # the client's settings were received
        self._is_leaving = False  # new streams are refused
        self._has_said_goodbye = False
        self._now = 0.0
        self._events: list[Event] = []
        self._table = StreamTable()
        self._streams = self._table.open
        self._reader = FrameReader(limits.frame_bytes)
        self._blocks = BlockReader(limits)
        self._control = Allowance(limits.control_frames_per_s)
        self._light = Allowance(limits.light_frames_per_s)
        self._outflow = Outflow()
        self._outflow.write(encode_limits(limits))
        self._inflow = Inflow(limits, self._outflow)

    def feed(self, chunk: bytes, now: float) -> list[Event]:
        """Process bytes of the client and return events; `now` is of a monotonic clock, in seconds.

        After bad bytes `error` is set and nothing more is read; earlier events are still returned. Events
        may be of a stream that the owner has just ended because of earlier ones.
        """
        if self.error is not None:
            return []
        self._now = now
        events: list[Event] = []
        self._events = events
        blocks = self._blocks
        try:
            for kind, flags, stream_id, payload in self._reader.feed(chunk):
                try:
                    if blocks.open_id is not None or not self._is_greeted:
                        self._take(kind, flags, stream_id, payload)
                    elif kind == _WINDOW_UPDATE:
                        self._on_window_update(flags, stream_id, payload)
                    elif kind == _DATA:
                        self._on_data(flags, stream_id, payload)
                    elif kind == _HEADERS:
                        self._on_headers(flags, stream_id, payload)
                    else:
                        self._take(kind, flags, stream_id, payload)
                except StreamFault as fault:
                    self._fail_stream(fault)
            if self._reader.error is not None:
                raise self._reader.error
        except ConnectionFault as fault:
            self._fail(fault)
        self._events = []
        return events

    @property
    def open_streams(self) -> int:
        """Number of open calls."""
        return len(self._streams)

    def drain(self) -> bytes:
        """All that is to be written now, joined."""
        return self._outflow.drain()

    def respond(self, stream_id: int, block: bytes, *, is_last: bool = False) -> None:
        """Begin a response with encoded header fields; if `is_last`, that is all of it."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if stream.response != PENDING:
            raise ValueError(f"the response of stream {stream_id} has begun already")
        self._outflow.headers(stream_id, block, is_last=is_last)
        stream.response = BEGUN
        if is_last:
            self._on_sent(stream)

    def send(self, stream_id: int, data: bytes) -> int:
        """Send some of a response's body, of any length; return how many bytes wait for the client's
        window."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return 0
        if stream.response != BEGUN:
            raise ValueError(f"the response of stream {stream_id} has not begun, or is finished")
        return self._outflow.send(stream, data)

    def finish(self, stream_id: int, trailers: bytes = b"") -> None:
        """End a response, with encoded trailers if given, as soon as nothing of it waits.

        A client that is still sending gets RST_STREAM.
        """
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if stream.response != BEGUN:
            raise ValueError(f"the response of stream {stream_id} has not begun, or is finished")
        stream.response = FINISHED
        stream.trailers = trailers
        if not stream.waiting_bytes:
            self._outflow.end(stream)
            self._on_sent(stream)

    def respond_whole(self, stream_id: int, envelope: Envelope, body: bytes) -> None:
        """Send a whole response: its header fields, a body and trailers."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        is_simple = stream.response == PENDING and not stream.is_receiving
        if is_simple and self._outflow.send_whole(stream, envelope, body):
            del self._streams[stream_id]
            if stream.held_bytes:
                self._inflow.give_back(stream.held_bytes)
        else:
            self.respond(stream_id, envelope.head)
            self.send(stream_id, body)
            self.finish(stream_id, envelope.trailers)

    def reset(self, stream_id: int, code: ErrorCode = ErrorCode.CANCEL) -> None:
        """End a stream at once, and drop what waits with it."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._reset(stream_id, code)
            self._close(stream)

    def consumed(self, stream_id: int, size: int) -> None:
        """The owner has processed this many bytes of a body, so that the client may send as many more.

        When a stream is over, all of its bytes count as consumed.
        """
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._inflow.consume(stream, size)

    def waiting_bytes(self, stream_id: int) -> int:
        """Bytes of a response that wait for the client's window."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None else stream.waiting_bytes

    def ping(self, payload: bytes) -> None:
        """Send a ping with eight bytes, which `Ponged` returns."""
        self._outflow.write(encode_ping(payload))

    def go_away(self) -> None:
        """Begin a graceful shutdown: the client opens no more streams, open ones continue.

        GOAWAY is sent twice: streams opened before the first one arrived are still served (RFC 9113
        section 6.8).
        """
        if self.error is None and not self._has_said_goodbye:
            self._has_said_goodbye = True
            self._outflow.write(encode_go_away(MAX_STREAM_ID, ErrorCode.NO_ERROR))
            self._outflow.write(encode_ping(LEAVING))

    def abort(self, code: ErrorCode, text: str) -> None:
        """End the connection and all its streams with GOAWAY."""
        if self.error is None:
            self._fail(ConnectionFault(code, text))

    # Streams and failures

    def _fail(self, fault: ConnectionFault) -> None:
        """Read no more. What led to the error is left behind: it would hold this connection."""
        self.error = ConnectionFault(fault.reason, str(fault))
        for stream in self._streams.values():
            self._outflow.forget(stream)
        self._streams.clear()
        self._outflow.write(encode_go_away(self._table.last_id, fault.reason, str(fault)))

    def _fail_stream(self, fault: StreamFault) -> None:
        self._control.use(self._now)  # making us reset streams costs as much as resetting them
        self._reset(fault.stream_id, fault.reason)
        stream = self._streams.get(fault.stream_id)
        if stream is not None:
            self._close(stream)
            self._events.append(StreamReset(fault.stream_id, fault.reason))

    def _reset(self, stream_id: int, code: ErrorCode) -> None:
        self._outflow.write(encode_reset(stream_id, code))
        self._table.note_reset(stream_id)

    def _close(self, stream: Stream) -> None:
        del self._streams[stream.id]
        self._outflow.forget(stream)
        if stream.held_bytes:
            self._inflow.give_back(stream.held_bytes)

    def _on_sent(self, stream: Stream) -> None:
        """All of a response is written."""
        if stream.is_receiving:
            self._reset(stream.id, ErrorCode.NO_ERROR)  # RFC 9113 section 8.1
        self._close(stream)

    def _pump(self) -> None:
        for stream in self._outflow.pump():
            if stream.response == FINISHED:
                self._outflow.end(stream)
                self._on_sent(stream)
            self._events.append(Drained(stream.id))

    # Frames of the client

    def _take(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._blocks.open_id is not None and (
            kind != FrameType.CONTINUATION or stream_id != self._blocks.open_id
        ):
            raise protocol_error("header block interrupted")  # section 6.10
        if not self._is_greeted and (kind != FrameType.SETTINGS or flags & Flag.ACK):
            raise protocol_error("the first frame is not SETTINGS")  # section 3.4
        if kind < len(_HANDLERS):
            _HANDLERS[kind](self, flags, stream_id, payload)
        else:
            self._light.use(self._now)  # section 5.5

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        stream = self._streams.get(stream_id)
        size = len(payload)
        self._inflow.take(size)
        if stream is None:
            self._on_late_data(stream_id, size)
            return
        if not stream.is_receiving:
            self._inflow.give_back(size)
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, "DATA behind the end")  # section 5.1
        self._inflow.hold(stream, size)
        if flags & _PADDED:
            payload = strip_padding(payload)
            self._inflow.consume(stream, size - len(payload))
        is_last = flags & _END_STREAM != 0
        if not payload and not is_last:
            self._control.use(self._now)
            return
        if stream.body_left is not None:
            stream.body_left -= len(payload)
            check_body(stream, is_last=is_last)
        if is_last:
            stream.is_receiving = False
        self._events.append(BodyReceived(stream_id, payload, is_last))

    def _on_late_data(self, stream_id: int, size: int) -> None:
        self._table.check_known(stream_id)
        self._table.check_late(stream_id)
        self._light.use(self._now)
        self._inflow.give_back(size)

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise protocol_error(f"HEADERS on stream {stream_id}")  # sections 5.1.1, 6.2
        if flags & _PADDED:
            payload = strip_padding(payload)
        if flags & _PRIORITY:
            payload = strip_priority(payload)
        is_last = flags & _END_STREAM != 0
        if flags & _END_HEADERS:
            self._on_block(stream_id, payload, is_last)
        else:
            self._blocks.begin(stream_id, payload, is_last=is_last)

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._blocks.open_id is None:
            raise protocol_error("CONTINUATION of nothing")  # section 6.10
        self._control.use(self._now)
        self._blocks.add(payload)
        if flags & Flag.END_HEADERS:
            self._on_block(stream_id, *self._blocks.finish())

    def _on_block(self, stream_id: int, block: bytes, is_last: bool) -> None:
        try:
            if stream_id > self._table.last_id:
                self._on_request(stream_id, block, is_last)
            elif stream_id in self._streams:
                self._on_trailers(self._streams[stream_id], block, is_last)
            else:
                self._table.check_late(stream_id)
                self._light.use(self._now)
                self._decode(block)
        except MalformedRequest as error:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, str(error)) from None  # section 8.1.1

    def _on_request(self, stream_id: int, block: bytes, is_last: bool) -> None:
        self._table.note_new(stream_id)
        head = self._blocks.head(block)
        if self._is_leaving or len(self._streams) >= self._limits.streams:
            self._light.use(self._now)
            self._reset(stream_id, ErrorCode.REFUSED_STREAM)  # section 5.1.2
            return
        if head is None:
            self._control.use(self._now, _TOO_LARGE_CHARGE)
            self._outflow.headers(stream_id, self._too_large, is_last=True)
            if not is_last:
                self._reset(stream_id, ErrorCode.NO_ERROR)
            return
        length = head.content_length
        if is_last and length:
            raise MalformedRequest("no body where one was announced")
        self._streams[stream_id] = Stream(
            stream_id, self._outflow.initial_window, self._limits.stream_window_bytes, not is_last, length
        )
        self._events.append(RequestStarted(stream_id, head, is_last))

    def _on_trailers(self, stream: Stream, block: bytes, is_last: bool) -> None:
        fields = self._decode(block)
        if not stream.is_receiving:
            raise StreamFault(stream.id, ErrorCode.STREAM_CLOSED, "HEADERS behind the end")  # section 5.1
        if fields is None:
            raise MalformedRequest("trailers are too large")
        check_trailers(fields)
        if not is_last:
            raise MalformedRequest("trailers that do not end the stream")  # section 8.1
        check_body(stream, is_last=True)
        stream.is_receiving = False
        self._events.append(BodyReceived(stream.id, b"", True))

    def _decode(self, block: bytes) -> list[Field] | None:
        """Decode fields that begin no request; None if they are too large, which counts as many frames."""
        fields = self._blocks.decode(block)
        if fields is None:
            self._control.use(self._now, _TOO_LARGE_CHARGE)
        return fields

    def _on_priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._light.use(self._now)
        if not stream_id:
            raise protocol_error("PRIORITY on stream 0")  # section 6.3
        if len(payload) != 5:
            if stream_id not in self._streams:  # an idle stream cannot be reset
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "PRIORITY of a wrong length")
            raise StreamFault(stream_id, ErrorCode.FRAME_SIZE_ERROR, "PRIORITY of a wrong length")

    def _on_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._control.use(self._now)
        check_length(payload, 4, "RST_STREAM")
        self._table.check_known(stream_id)
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._close(stream)
            self._events.append(StreamReset(stream_id, decode_number(payload)))

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._control.use(self._now)
        if stream_id:
            raise protocol_error("SETTINGS on a stream")  # section 6.5
        if flags & Flag.ACK:
            check_length(payload, 0, "SETTINGS with ACK")
            self.is_settled = True
            return
        settings = decode_settings(payload)
        self._is_greeted = True
        for name, value in settings:
            check_setting(name, value)
        self._apply(dict(settings))
        self._outflow.write(SETTINGS_ACK)
        self._pump()

    def _apply(self, settings: dict[int, int]) -> None:
        """Do as the client says; of a name that is there twice the last counts."""
        if (size := settings.get(Setting.HEADER_TABLE_SIZE)) is not None:
            self._outflow.set_table_bytes(size)
        if (size := settings.get(Setting.MAX_FRAME_SIZE)) is not None:
            self._outflow.set_frame_bytes(size)
        if (size := settings.get(Setting.INITIAL_WINDOW_SIZE)) is not None:
            self._control.use(self._now, len(self._streams) / _STREAMS_PER_CHARGE)
            self._outflow.set_initial_window(size, self._streams.values())

    def _on_push_promise(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise protocol_error("PUSH_PROMISE from a client")  # section 8.4

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._control.use(self._now)
        if stream_id:
            raise protocol_error("PING on a stream")  # section 6.7
        check_length(payload, PING_BYTES, "PING")
        if not flags & Flag.ACK:
            self._outflow.write(encode_ping(payload, is_ack=True))
        elif payload == LEAVING and self._has_said_goodbye:
            self._is_leaving = True
            self._outflow.write(encode_go_away(self._table.last_id, ErrorCode.NO_ERROR))
        else:
            self._events.append(Ponged(payload))

    def _on_go_away(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._control.use(self._now)
        if stream_id:
            raise protocol_error("GOAWAY on a stream")  # section 6.8
        _, code, text = decode_go_away(payload)
        self._events.append(GoneAway(code, text))

    def _on_window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        outflow = self._outflow
        due = outflow.updates_due
        if due:  # it acknowledges DATA
            outflow.updates_due = min(due, _UPDATES_DUE_LIMIT) - 1
        else:
            self._light.use(self._now)
        if len(payload) != _WINDOW_UPDATE_BYTES:
            check_length(payload, _WINDOW_UPDATE_BYTES, "WINDOW_UPDATE")
        increment = decode_number(payload) & MAX_WINDOW_BYTES
        if not stream_id:
            if not increment:
                raise protocol_error("WINDOW_UPDATE of 0")  # section 6.9
            outflow.open_connection(increment)
        else:
            stream = self._streams.get(stream_id)
            if stream is None:
                self._table.check_known(stream_id)
            if (
                not increment
            ):  # section 6.9; also after the end of a stream, so that its time makes no difference
                raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
            if stream is None:
                return  # section 5.1: it may not know yet
            outflow.open_stream(stream, increment)
        if outflow.is_ready:
            self._pump()


_HANDLERS = (
    ServerConnection._on_data,
    ServerConnection._on_headers,
    ServerConnection._on_priority,
    ServerConnection._on_reset,
    ServerConnection._on_settings,
    ServerConnection._on_push_promise,
    ServerConnection._on_ping,
    ServerConnection._on_go_away,
    ServerConnection._on_window_update,
    ServerConnection._on_continuation,
)
"""By frame type."""
