"""Common part of both sides of an HTTP/2 connection (RFC 9113): frames in, state of streams, bytes out.

`feed` takes bytes and the time and returns events; `drain` returns the bytes to write. The owner has the
socket and the clock. It closes the connection when `error` is set and `drain` is written, and when the peer
does not confirm our settings in time (`is_settled`). Writes to a closed stream are dropped: the peer may have
reset it a moment ago. The owner decides how much may wait for the peer's window.

A broken rule becomes RST_STREAM or GOAWAY, never an exception. Section numbers in comments are of RFC 9113.
"""

from typing import Final

from penstock.wire.http2.errors import ConnectionFault, ErrorCode, MalformedHead, StreamFault
from penstock.wire.http2.events import BodyReceived, Drained, Event, GoneAway, Ponged, StreamReset
from penstock.wire.http2.flow_control import Inflow, Outflow
from penstock.wire.http2.frames import (
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
    encode_ping,
    encode_reset,
    protocol_error,
    strip_padding,
    strip_priority,
)
from penstock.wire.http2.headers import BlockReader, check_trailers
from penstock.wire.http2.hpack_tables import Field
from penstock.wire.http2.limits import MAX_WINDOW_BYTES, STREAMS_PER_CHARGE, TOO_LARGE_COST, Allowance, Limits
from penstock.wire.http2.streams import BEGUN, FINISHED, Stream, StreamTable

# Plain numbers: these are used with every frame.
_DATA: Final = int(FrameType.DATA)
_HEADERS: Final = int(FrameType.HEADERS)
_WINDOW_UPDATE: Final = int(FrameType.WINDOW_UPDATE)
_END_STREAM: Final = int(Flag.END_STREAM)
_END_HEADERS: Final = int(Flag.END_HEADERS)
_PADDED: Final = int(Flag.PADDED)
_PRIORITY: Final = int(Flag.PRIORITY)
_WINDOW_UPDATE_BYTES: Final = 4
_UPDATES_DUE_LIMIT = 100_000
"""Limit of WINDOW_UPDATEs that a peer may catch up with at once."""


class Endpoint:
    """One side of a connection. `ServerConnection` and `ClientConnection` add what only they do.

    Args:
        reader: of the peer's frames.
        greeting: the first bytes to write, with our settings.
    """

    __slots__ = (
        "_blocks",
        "_control",
        "_events",
        "_inflow",
        "_is_greeted",
        "_light",
        "_limits",
        "_now",
        "_outflow",
        "_reader",
        "_streams",
        "_table",
        "error",
        "is_settled",
    )

    def __init__(self, limits: Limits, reader: FrameReader, greeting: bytes) -> None:
        self._limits = limits
        self.error: ConnectionFault | None = None  # why it ended, if it did
        self.is_settled = False  # the peer has confirmed our settings
        self._is_greeted = False  # the peer's settings were received
        self._now = 0.0
        self._events: list[Event] = []
        self._table = StreamTable()
        self._streams = self._table.open
        self._reader = reader
        self._blocks = BlockReader(limits)
        self._control = Allowance(limits.control_frames_per_s)
        self._light = Allowance(limits.light_frames_per_s)
        self._outflow = Outflow()
        self._outflow.write(greeting)
        self._inflow = Inflow(limits, self._outflow)

    def feed(self, chunk: bytes, now: float) -> list[Event]:
        """Process bytes of the peer and return events; `now` is of a monotonic clock, in seconds.

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
                        self._on_window_update(stream_id, payload)
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

    def send(self, stream_id: int, data: bytes) -> int:
        """Send some of a body, of any length; return how many bytes wait for the peer's window."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return 0
        if stream.progress != BEGUN:
            raise ValueError(f"the body of stream {stream_id} has not begun, or is finished")
        return self._outflow.send(stream, data)

    def finish(self, stream_id: int, trailers: bytes = b"") -> None:
        """End a body, with encoded trailers if given, as soon as nothing of it waits."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if stream.progress != BEGUN:
            raise ValueError(f"the body of stream {stream_id} has not begun, or is finished")
        stream.progress = FINISHED
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
        """The owner has processed this many bytes of a body, so that the peer may send as many more.

        When a stream is over, all of its bytes count as consumed.
        """
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._inflow.consume(stream, size)

    def waiting_bytes(self, stream_id: int) -> int:
        """Bytes of a body that wait for the peer's window."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None else stream.waiting_bytes

    def ping(self, payload: bytes) -> None:
        """Send a ping with eight bytes, which `Ponged` returns."""
        self._outflow.write(encode_ping(payload))

    def abort(self, code: ErrorCode, text: str) -> None:
        """End the connection and all its streams with GOAWAY."""
        if self.error is None:
            self._fail(ConnectionFault(code, text))

    # Differences of the two sides

    def _last_processed_id(self) -> int:
        """The highest stream of the peer that was processed, for GOAWAY."""
        raise NotImplementedError

    def _on_sent(self, stream: Stream) -> None:
        """All that the owner sends on a stream is written."""
        raise NotImplementedError

    def _on_first_block(self, stream_id: int, block: bytes, is_last: bool) -> None:
        """Header fields of a stream that was never open."""
        raise NotImplementedError

    def _on_next_block(self, stream: Stream, block: bytes, is_last: bool) -> None:
        """Header fields of an open stream."""
        raise NotImplementedError

    def _on_goodbye(self, last_id: int) -> None:
        """The peer processes no stream of ours above this one."""

    # Streams and failures

    def _fail(self, fault: ConnectionFault) -> None:
        """Read no more. What led to the error is left behind: it would hold this connection."""
        self.error = ConnectionFault(fault.reason, str(fault))
        for stream in self._streams.values():
            self._outflow.forget(stream)
        self._streams.clear()
        self._outflow.write(encode_go_away(self._last_processed_id(), fault.reason, str(fault)))

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

    def _pump(self) -> None:
        for stream in self._outflow.pump():
            if stream.progress == FINISHED:
                self._outflow.end(stream)
                self._on_sent(stream)
            self._events.append(Drained(stream.id))

    # Frames of the peer

    def _take(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Process a frame of another kind than the three that `feed` knows, or one out of order."""
        if self._blocks.open_id is not None and (
            kind != FrameType.CONTINUATION or stream_id != self._blocks.open_id
        ):
            raise protocol_error("header block interrupted")  # section 6.10
        if not self._is_greeted and (kind != FrameType.SETTINGS or flags & Flag.ACK):
            raise protocol_error("the first frame is not SETTINGS")  # section 3.4
        match kind:
            case FrameType.PING:
                self._on_ping(flags, stream_id, payload)
            case FrameType.RST_STREAM:
                self._on_reset(stream_id, payload)
            case FrameType.SETTINGS:
                self._on_settings(flags, stream_id, payload)
            case FrameType.CONTINUATION:
                self._on_continuation(flags, stream_id, payload)
            case FrameType.GOAWAY:
                self._on_go_away(stream_id, payload)
            case FrameType.PRIORITY:
                self._on_priority(stream_id, payload)
            case FrameType.PUSH_PROMISE:
                raise protocol_error("PUSH_PROMISE, which is never allowed here")  # sections 6.6, 8.4
            case _:
                self._light.use(self._now)  # section 5.5

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        stream = self._streams.get(stream_id)
        size = len(payload)
        self._inflow.take(size)
        if stream is None:
            self._table.check_known(stream_id)
            self._table.check_late(stream_id)
            self._light.use(self._now)
            self._inflow.give_back(size)
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
                self._on_first_block(stream_id, block, is_last)
            elif stream_id in self._streams:
                self._on_next_block(self._streams[stream_id], block, is_last)
            else:
                self._table.check_late(stream_id)
                self._light.use(self._now)
                self._decode(block)
        except MalformedHead as error:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, str(error)) from None  # section 8.1.1

    def _take_trailers(self, stream: Stream, block: bytes, is_last: bool) -> list[Field]:
        """Decode and check the header fields behind a body; nothing follows them."""
        fields = self._decode(block)
        if not stream.is_receiving:
            raise StreamFault(stream.id, ErrorCode.STREAM_CLOSED, "HEADERS behind the end")  # section 5.1
        if fields is None:
            raise MalformedHead("trailers are too large")
        check_trailers(fields)
        if not is_last:
            raise MalformedHead("trailers that do not end the stream")  # section 8.1
        check_body(stream, is_last=True)
        stream.is_receiving = False
        return fields

    def _decode(self, block: bytes) -> list[Field] | None:
        """Decode fields that begin no message; None if they are too large, which counts as many frames."""
        fields = self._blocks.decode(block)
        if fields is None:
            self._control.use(self._now, TOO_LARGE_COST)
        return fields

    def _on_priority(self, stream_id: int, payload: bytes) -> None:
        self._light.use(self._now)
        if not stream_id:
            raise protocol_error("PRIORITY on stream 0")  # section 6.3
        if len(payload) != 5:
            if stream_id not in self._streams:  # an idle stream cannot be reset
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "PRIORITY of a wrong length")
            raise StreamFault(stream_id, ErrorCode.FRAME_SIZE_ERROR, "PRIORITY of a wrong length")

    def _on_reset(self, stream_id: int, payload: bytes) -> None:
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
        """Do as the peer says; of a name that is there twice the last counts."""
        if (size := settings.get(Setting.HEADER_TABLE_SIZE)) is not None:
            self._outflow.set_table_bytes(size)
        if (size := settings.get(Setting.MAX_FRAME_SIZE)) is not None:
            self._outflow.set_frame_bytes(size)
        if (size := settings.get(Setting.INITIAL_WINDOW_SIZE)) is not None:
            self._control.use(self._now, len(self._streams) / STREAMS_PER_CHARGE)
            self._outflow.set_initial_window(size, self._streams.values())

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._control.use(self._now)
        if stream_id:
            raise protocol_error("PING on a stream")  # section 6.7
        check_length(payload, PING_BYTES, "PING")
        if flags & Flag.ACK:
            self._on_pong(payload)
        else:
            self._outflow.write(encode_ping(payload, is_ack=True))

    def _on_pong(self, payload: bytes) -> None:
        self._events.append(Ponged(payload))

    def _on_go_away(self, stream_id: int, payload: bytes) -> None:
        self._control.use(self._now)
        if stream_id:
            raise protocol_error("GOAWAY on a stream")  # section 6.8
        last_id, code, text = decode_go_away(payload)
        self._events.append(GoneAway(code, text))
        self._on_goodbye(last_id)

    def _on_window_update(self, stream_id: int, payload: bytes) -> None:
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
            # Section 6.9; also after the end of a stream, so that its time makes no difference.
            if not increment:
                raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
            if stream is None:
                return  # section 5.1: it may not know yet
            outflow.open_stream(stream, increment)
        if outflow.is_ready:
            self._pump()
