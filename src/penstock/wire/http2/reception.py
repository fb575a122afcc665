"""What the frames of a client mean: the state machine of a connection, as far as it reads.

Streams open, get their bodies and end here; windows open, settings change, and whatever breaks a rule of
RFC 9113 becomes RST_STREAM or GOAWAY. Section numbers in comments are of that standard.
"""

from penstock.wire.http2.blocks import BlockReader
from penstock.wire.http2.checks import (
    check_body,
    check_length,
    check_setting,
    encode_limits,
    protocol_error,
    strip_padding,
)
from penstock.wire.http2.errors import ConnectionFault, ErrorCode, StreamFault
from penstock.wire.http2.events import (
    BodyReceived,
    Drained,
    Event,
    GoneAway,
    Ponged,
    RequestStarted,
    StreamReset,
)
from penstock.wire.http2.floods import Allowance
from penstock.wire.http2.frames import (
    PING_BYTES,
    SETTINGS_ACK,
    Flag,
    Frame,
    FrameReader,
    FrameType,
    Setting,
    decode_go_away,
    decode_number,
    decode_settings,
    encode_go_away,
    encode_ping,
    encode_reset,
)
from penstock.wire.http2.headers import MalformedRequest
from penstock.wire.http2.hpack import encode_headers
from penstock.wire.http2.inflow import Inflow
from penstock.wire.http2.limits import MAX_WINDOW_BYTES, Limits
from penstock.wire.http2.outflow import Outflow
from penstock.wire.http2.streams import Answer, Stream, StreamTable

LEAVING = b"penstock"
"""The ping behind our first GOAWAY: its answer shows that the client has seen both."""
_TOO_LARGE = encode_headers([(b":status", b"431")])
_UPDATES_DUE_LIMIT = 100_000
"""Who has got much, and answered little, may not make up for it all at once."""
_STREAMS_PER_CHARGE = 10
"""A new window for all streams costs as many control frames more as there are tens of them."""


class Reception:
    """Reads one client, from its first byte on."""

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
        "_open_block",
        "_outflow",
        "_reader",
        "_streams",
        "_table",
        "error",
        "is_settled",
    )

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits = limits or Limits()
        self.error: ConnectionFault | None = None  # why it ended, if it did
        self.is_settled = False  # the client has confirmed our settings
        self._is_greeted = False  # its own have come
        self._is_leaving = False  # new streams are refused
        self._has_said_goodbye = False
        self._now = 0.0
        self._events: list[Event] = []
        self._open_block: tuple[int, bool] | None = None  # the stream whose header block is not whole
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
        """What some more bytes of the client mean; `now` is of a monotonic clock, in seconds.

        After bad bytes `error` is set and nothing more is read; what came before them is still returned.
        Events may be of a stream that the owner has just ended because of earlier ones.
        """
        if self.error is not None:
            return []
        self._now = now
        events = self._events = []
        try:
            for frame in self._reader.feed(chunk):
                try:
                    self._take(frame)
                except StreamFault as fault:
                    self._fail_stream(fault)
            if self._reader.error is not None:
                raise self._reader.error
        except ConnectionFault as fault:
            self._fail(fault)
        self._events = []
        return events

    def _fail(self, fault: ConnectionFault) -> None:
        """Read no more. What led to the error is left behind: it would hold this connection."""
        self.error = ConnectionFault(fault.reason, str(fault))
        for stream in self._streams.values():
            self._outflow.forget(stream)
        self._streams.clear()
        self._outflow.write(encode_go_away(self._table.last_id, fault.reason, str(fault)))

    def _fail_stream(self, fault: StreamFault) -> None:
        self._control.use(self._now)  # who makes us reset streams is as costly as who resets them
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
        """All of an answer is written."""
        if stream.is_receiving:
            self._reset(stream.id, ErrorCode.NO_ERROR)  # RFC 9113 section 8.1
        self._close(stream)

    def _pump(self) -> None:
        for stream in self._outflow.pump():
            if stream.answer is Answer.FINISHED:
                self._outflow.end(stream)
                self._on_sent(stream)
            self._events.append(Drained(stream.id))

    def _take(self, frame: Frame) -> None:
        kind, flags, stream_id, payload = frame
        if self._open_block is not None and (
            kind != FrameType.CONTINUATION or stream_id != self._open_block[0]
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
        if flags & Flag.PADDED:
            payload = strip_padding(payload)
            self._inflow.consume(stream, size - len(payload))
        is_last = bool(flags & Flag.END_STREAM)
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
        if flags & Flag.PADDED:
            payload = strip_padding(payload)
        if flags & Flag.PRIORITY:
            if len(payload) < 5:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS too short for its priority")
            payload = payload[5:]
        is_last = bool(flags & Flag.END_STREAM)
        if flags & Flag.END_HEADERS:
            self._on_block(stream_id, payload, is_last)
        else:
            self._open_block = (stream_id, is_last)
            self._blocks.add(payload)

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._open_block is None:
            raise protocol_error("CONTINUATION of nothing")  # section 6.10
        self._control.use(self._now)
        self._blocks.add(payload)
        if flags & Flag.END_HEADERS:
            is_last = self._open_block[1]
            self._open_block = None
            self._on_block(stream_id, self._blocks.join(), is_last)

    def _on_block(self, stream_id: int, block: bytes, is_last: bool) -> None:
        try:
            if stream_id > self._table.last_id:
                self._on_request(stream_id, block, is_last)
            elif stream_id in self._streams:
                self._on_trailers(self._streams[stream_id], block, is_last)
            else:
                self._table.check_late(stream_id)
                self._light.use(self._now)
                self._blocks.decode(block)
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
            self._control.use(self._now)
            self._outflow.headers(stream_id, _TOO_LARGE, is_last=True)
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
        if not stream.is_receiving:
            self._blocks.decode(block)
            raise StreamFault(stream.id, ErrorCode.STREAM_CLOSED, "HEADERS behind the end")  # section 5.1
        self._blocks.trailers(block)
        if not is_last:
            raise MalformedRequest("trailers that do not end the stream")  # section 8.1
        check_body(stream, is_last=True)
        stream.is_receiving = False
        self._events.append(BodyReceived(stream.id, b"", True))

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
        if len(payload) % 6:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of a wrong length")
        self._is_greeted = True
        settings = decode_settings(payload)
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
        if len(payload) < 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY of a wrong length")
        _, code, text = decode_go_away(payload)
        self._events.append(GoneAway(code, text))

    def _on_window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        due = self._outflow.updates_due
        if due:  # it answers what was sent
            self._outflow.updates_due = min(due, _UPDATES_DUE_LIMIT) - 1
        else:
            self._light.use(self._now)
        check_length(payload, 4, "WINDOW_UPDATE")
        increment = decode_number(payload) & MAX_WINDOW_BYTES
        if not stream_id:
            if not increment:
                raise protocol_error("WINDOW_UPDATE of 0")  # section 6.9
            self._outflow.open_connection(increment)
        else:
            self._table.check_known(stream_id)
            stream = self._streams.get(stream_id)
            if stream is None:
                return  # section 5.1: it may not know yet
            if not increment:
                raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")  # section 6.9
            self._outflow.open_stream(stream, increment)
        self._pump()


_HANDLERS = (
    Reception._on_data,
    Reception._on_headers,
    Reception._on_priority,
    Reception._on_reset,
    Reception._on_settings,
    Reception._on_push_promise,
    Reception._on_ping,
    Reception._on_go_away,
    Reception._on_window_update,
    Reception._on_continuation,
)
"""By frame type."""
