"""Flow control in both directions (RFC 9113 section 5.2).

Out: the peer grants every stream a window, and the connection one more. While both have room, sending is two
appends. Otherwise bytes wait with their stream, and streams that wait for the connection's window alone take
turns, a frame each, so that a large body does not delay small ones.

In: the window of the connection bounds the memory of all unfinished bodies of a peer. Consumed bytes are
announced at half a window, not with every call.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from penstock.wire.http2.errors import ConnectionFault, ErrorCode, StreamFault
from penstock.wire.http2.frames import HEADER, Flag, FrameType, encode_header, encode_window_update
from penstock.wire.http2.hpack import EMPTY_TABLE
from penstock.wire.http2.limits import (
    DEFAULT_FRAME_BYTES,
    DEFAULT_TABLE_BYTES,
    DEFAULT_WINDOW_BYTES,
    MAX_WINDOW_BYTES,
    Limits,
)
from penstock.wire.http2.streams import Stream

LARGEST_FRAME_BYTES = 65_536
"""Larger frames are not made, whatever the peer takes: nothing else can be written amid a frame."""

UPDATES_PER_FRAME = 4
"""WINDOW_UPDATEs allowed per frame of DATA: some peers send one for the stream and one for the
connection."""

_pack_header = HEADER.pack
_HEADERS: Final = int(FrameType.HEADERS)
_END_STREAM: Final = int(Flag.END_STREAM)
_LAST: Final = int(Flag.END_HEADERS | Flag.END_STREAM)
_NOT_LAST: Final = int(Flag.END_HEADERS)
_ID_AT: Final = 5
"""Place of the stream identifier in the header of a frame."""


class Envelope:
    """Header fields and trailers of a kind of responses, with all of their frames but the stream identifier.

    Args:
        head: encoded header fields, at most a frame of the smallest size.
        trailers: the same behind the body.
    """

    __slots__ = ("head", "head_start", "trailers", "trailers_start")

    def __init__(self, head: bytes, trailers: bytes) -> None:
        if max(len(head), len(trailers)) > DEFAULT_FRAME_BYTES:
            raise ValueError(f"header fields of more than {DEFAULT_FRAME_BYTES} bytes are more than a frame")
        self.head = head
        self.trailers = trailers
        self.head_start = encode_header(_HEADERS, _NOT_LAST, 0, len(head))[:_ID_AT]
        self.trailers_start = encode_header(_HEADERS, _LAST, 0, len(trailers))[:_ID_AT]


class Outflow:
    """Collects frames until they are drained."""

    __slots__ = (
        "_block_prefix",
        "_frame_bytes",
        "_left",
        "_out",
        "_ready",
        "_uses_table",
        "initial_window",
        "updates_due",
    )

    def __init__(self) -> None:
        self.initial_window = DEFAULT_WINDOW_BYTES  # of every new stream
        self.updates_due = 0  # WINDOW_UPDATEs that what was sent may bring
        self._out: list[bytes | memoryview] = []
        self._left = DEFAULT_WINDOW_BYTES
        self._frame_bytes = DEFAULT_FRAME_BYTES
        self._ready: OrderedDict[int, Stream] = OrderedDict()  # wait for the connection's window alone
        self._uses_table = True  # in the peer's eyes: its table is as large as at first
        self._block_prefix = b""

    def drain(self) -> bytes:
        """All that is to be written now."""
        if not self._out:
            return b""
        data = b"".join(self._out)
        self._out = []
        return data

    def write(self, frame: bytes) -> None:
        """Write a frame that needs no room."""
        self._out.append(frame)

    def headers(self, stream_id: int, block: bytes, *, is_last: bool) -> None:
        """Write a header block, in as many frames as it needs."""
        if self._block_prefix:
            block, self._block_prefix = self._block_prefix + block, b""
        size = len(block)
        if size <= self._frame_bytes:
            self._out.append(_pack_header(size << 8 | _HEADERS, _LAST if is_last else _NOT_LAST, stream_id))
            self._out.append(block)
            return
        kind, flags = FrameType.HEADERS, Flag.END_STREAM if is_last else 0
        for start in range(0, size, self._frame_bytes):
            part = block[start : start + self._frame_bytes]
            if start + len(part) == size:
                flags |= Flag.END_HEADERS
            self._out += (encode_header(kind, flags, stream_id, len(part)), part)
            kind, flags = FrameType.CONTINUATION, 0

    def end(self, stream: Stream) -> None:
        """Write what ends a body: trailers, or an empty frame."""
        if stream.trailers:
            self.headers(stream.id, stream.trailers, is_last=True)
        else:
            self._out.append(encode_header(FrameType.DATA, Flag.END_STREAM, stream.id, 0))

    def send(self, stream: Stream, data: bytes) -> int:
        """Send some of a body, or queue it; return how many bytes of the stream wait."""
        size = len(data)
        if (
            not stream.waiting_bytes
            and size <= self._left
            and size <= stream.send_left
            and 0 < size <= self._frame_bytes
        ):
            self._left -= size
            stream.send_left -= size
            self.updates_due += UPDATES_PER_FRAME
            self._out.append(_pack_header(size << 8, 0, stream.id))  # the type of DATA is 0
            self._out.append(data)
            return 0
        if size:
            if stream.waiting is None:
                stream.waiting = deque()
            stream.waiting.append(data)
            stream.waiting_bytes += size
            self._note_ready(stream)
            self.pump()
        return stream.waiting_bytes

    def send_whole(self, stream: Stream, envelope: Envelope, body: bytes) -> bool:
        """Send a whole response if the windows have room for all of it; return whether they have."""
        size = len(body)
        if (
            size > self._left
            or size > stream.send_left
            or not 0 < size <= self._frame_bytes
            or self._block_prefix
        ):
            return False
        self._left -= size
        self.updates_due += UPDATES_PER_FRAME
        start = _pack_header(size << 8, 0, stream.id)  # the type of DATA is 0
        stream_id = start[_ID_AT:]
        self._out += (
            envelope.head_start,
            stream_id,
            envelope.head,
            start,
            body,
            envelope.trailers_start,
            stream_id,
            envelope.trailers,
        )
        return True

    def send_last(self, stream: Stream, data: bytes) -> bool:
        """Send all of a body as one frame that ends it, if there is room; return whether there is."""
        size = len(data)
        if size > self._left or size > stream.send_left or not 0 < size <= self._frame_bytes:
            return False
        self._left -= size
        stream.send_left -= size
        self.updates_due += UPDATES_PER_FRAME
        self._out.append(_pack_header(size << 8, _END_STREAM, stream.id))  # the type of DATA is 0
        self._out.append(data)
        return True

    @property
    def is_ready(self) -> bool:
        """True if a stream has something to send and room for it, but for the connection's window."""
        return bool(self._ready)

    def pump(self) -> list[Stream]:
        """Send what the windows allow; return the streams with nothing waiting any more."""
        drained = []
        while self._ready and self._left > 0:
            _, stream = self._ready.popitem(last=False)
            self._write_turn(stream)
            if stream.waiting_bytes:
                self._note_ready(stream)
            else:
                drained.append(stream)
        return drained

    def forget(self, stream: Stream) -> None:
        """Drop what waits with a stream that is over."""
        if stream.waiting_bytes:
            self._ready.pop(stream.id, None)
            stream.waiting, stream.waiting_bytes = None, 0

    def open_connection(self, increment: int) -> None:
        """The peer has room for that much more on all streams together.

        Raises:
            ConnectionFault: that is more than a window can be.
        """
        self._left += increment
        if self._left > MAX_WINDOW_BYTES:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "window of the connection beyond 2^31-1")

    def open_stream(self, stream: Stream, increment: int) -> None:
        """The peer has room for that much more on one stream.

        Raises:
            StreamFault: that is more than a window can be.
        """
        stream.send_left += increment
        if stream.send_left > MAX_WINDOW_BYTES:
            raise StreamFault(stream.id, ErrorCode.FLOW_CONTROL_ERROR, "window of a stream beyond 2^31-1")
        self._note_ready(stream)

    def set_initial_window(self, size: int, streams: Iterable[Stream]) -> None:
        """The peer gives every stream another window; those that are open, the difference.

        Raises:
            ConnectionFault: one has more than a window can be then.
        """
        difference = size - self.initial_window
        self.initial_window = size
        for stream in streams:
            stream.send_left += difference
            if stream.send_left > MAX_WINDOW_BYTES:  # RFC 9113 section 6.9.2
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "window of a stream beyond 2^31-1")
            if stream.send_left > 0:
                self._note_ready(stream)
            else:
                self._ready.pop(stream.id, None)

    def set_frame_bytes(self, size: int) -> None:
        """The peer takes frames of that size."""
        self._frame_bytes = min(size, LARGEST_FRAME_BYTES)

    def set_table_bytes(self, size: int) -> None:
        """Apply the peer's header table size; a smaller one than at first has to be confirmed."""
        if size < DEFAULT_TABLE_BYTES and self._uses_table:
            self._uses_table = False
            self._block_prefix = EMPTY_TABLE

    def _note_ready(self, stream: Stream) -> None:
        if stream.waiting_bytes and stream.send_left > 0:
            self._ready[stream.id] = stream

    def _write_turn(self, stream: Stream) -> None:
        """Write one frame of what waits, as large as there is room for."""
        waiting = stream.waiting
        assert waiting is not None
        left = min(stream.waiting_bytes, stream.send_left, self._left, self._frame_bytes)
        self._left -= left
        stream.send_left -= left
        stream.waiting_bytes -= left
        self.updates_due += UPDATES_PER_FRAME
        self._out.append(encode_header(FrameType.DATA, 0, stream.id, left))
        while left:
            piece, begun = waiting[0], stream.begun_bytes
            taken = min(left, len(piece) - begun)
            self._out.append(piece if taken == len(piece) else memoryview(piece)[begun : begun + taken])
            left -= taken
            stream.begun_bytes = begun + taken
            if stream.begun_bytes == len(piece):
                waiting.popleft()
                stream.begun_bytes = 0


class Inflow:
    """Counts DATA in and what its owners have consumed of it."""

    __slots__ = ("_left", "_outflow", "_returned_bytes", "_stream_threshold_bytes", "_threshold_bytes")

    def __init__(self, limits: Limits, outflow: Outflow) -> None:
        self._outflow = outflow
        self._left = DEFAULT_WINDOW_BYTES
        self._returned_bytes = 0
        self._threshold_bytes = limits.connection_window_bytes // 2
        self._stream_threshold_bytes = limits.stream_window_bytes // 2
        if limits.connection_window_bytes > DEFAULT_WINDOW_BYTES:
            self._open(limits.connection_window_bytes - DEFAULT_WINDOW_BYTES)

    def take(self, size: int) -> None:
        """Count received DATA against the connection's window.

        Raises:
            ConnectionFault: there was no room for it.
        """
        self._left -= size
        if self._left < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection has room for")

    def hold(self, stream: Stream, size: int) -> None:
        """Count received DATA against a stream's window, until it is consumed.

        Raises:
            StreamFault: there was no room for it.
        """
        stream.receive_left -= size
        stream.held_bytes += size
        if stream.receive_left < 0:
            text = "more DATA than the stream has room for"
            raise StreamFault(stream.id, ErrorCode.FLOW_CONTROL_ERROR, text)

    def consume(self, stream: Stream, size: int) -> None:
        """The owner has done with some of what the stream holds."""
        size = min(size, stream.held_bytes)
        stream.held_bytes -= size
        self.give_back(size)
        if not stream.is_receiving:
            return
        stream.returned_bytes += size
        if stream.returned_bytes >= self._stream_threshold_bytes:
            self._outflow.write(encode_window_update(stream.id, stream.returned_bytes))
            stream.receive_left += stream.returned_bytes
            stream.returned_bytes = 0

    def give_back(self, size: int) -> None:
        """Return consumed bytes to the connection's window."""
        self._returned_bytes += size
        if self._returned_bytes >= self._threshold_bytes:
            self._open(self._returned_bytes)
            self._returned_bytes = 0

    def _open(self, size: int) -> None:
        self._outflow.write(encode_window_update(0, size))
        self._left += size
