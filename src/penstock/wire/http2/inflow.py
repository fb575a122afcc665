"""How much a client may send: windows that open again as the owner consumes what came.

The window of the connection bounds what all unfinished bodies of a client hold in memory. What is consumed is
announced when it is half a window, not with every call.
"""

from penstock.wire.http2.errors import ConnectionFault, ErrorCode, StreamFault
from penstock.wire.http2.frames import encode_window_update
from penstock.wire.http2.limits import DEFAULT_WINDOW_BYTES, Limits
from penstock.wire.http2.outflow import Outflow
from penstock.wire.http2.streams import Stream


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
        """Count DATA that has come, whatever becomes of it.

        Raises:
            ConnectionFault: there was no room for it.
        """
        self._left -= size
        if self._left < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection has room for")

    def hold(self, stream: Stream, size: int) -> None:
        """Count DATA that has come for a stream, until it is consumed.

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
        """Nobody holds these bytes any more."""
        self._returned_bytes += size
        if self._returned_bytes >= self._threshold_bytes:
            self._open(self._returned_bytes)
            self._returned_bytes = 0

    def _open(self, size: int) -> None:
        self._outflow.write(encode_window_update(0, size))
        self._left += size
