"""Base of open WebSockets: reads frames, responds to pings, and closes.

It is a protocol to the socket's transport, and a transport to the inner protocol of a door. Frames are read
in steps; what is more than a share of the turn waits for later turns (`net/turn_shares.py`).
"""

import asyncio
from abc import ABC, abstractmethod
from typing import Any, cast

import structlog

from penstock.net.door import Peer, address
from penstock.net.log_throttle import ThrottledLog
from penstock.net.transport import CLOSED_TRANSPORT
from penstock.net.turn_shares import MOST_WORK, Backlog, TurnShares, fitted
from penstock.wire.websocket.encoding import CLOSE, PONG, FrameError, close_payload, control_frame
from penstock.wire.websocket.frames import HeaderReader

log = structlog.get_logger("penstock.websocket")

CLOSING_TIMEOUT_S = 5.0
"""Time for the last bytes to be sent, and for the peer to close its side."""
UNIT_BYTES = 32
"""Bytes of input for each unit of work."""
JOINED_BELOW_BYTES = 16 * 1024
"""Smaller writes are joined with their header, into one segment or TLS record. Larger ones are not copied:
they may be shared by very many connections."""


class FrameSocket(ABC):
    """One connection after its handshake; `start` begins it.

    An event loop takes it for a protocol by its methods, and an inner protocol for a transport.

    Args:
        reader: finds frames; here its control frames and errors are looked at.
        buffer: read buffer; filled and emptied in one step of the loop, so all connections can share it.
        peer: its address, if already known.
        shares: turn shares, shared by all doors of the loop.
    """

    __slots__ = (
        "_backlog",
        "_buffer",
        "_close_sent",
        "_controls",
        "_input_closed",
        "_is_full",
        "_is_lost",
        "_is_paused",
        "_loop",
        "_peer",
        "_shares",
        "_socket",
        "_step_bytes",
        "_throttled_log",
        "_timer",
        "_work_limit",
    )

    def __init__(
        self,
        socket: asyncio.Transport,
        reader: HeaderReader,
        buffer: memoryview,
        peer: Peer | None,
        throttled_log: ThrottledLog | None,
        shares: TurnShares | None = None,
    ) -> None:
        self._socket = socket
        self._controls = reader  # of which the subclass takes the payload
        self._peer = peer
        self._buffer = buffer
        self._loop = asyncio.get_running_loop()
        self._throttled_log = throttled_log or ThrottledLog(log, self._loop.time)
        self._shares = shares or TurnShares(self._loop)
        self._backlog: Backlog | None = None
        self._work_limit = MOST_WORK // 2
        self._step_bytes = MOST_WORK * UNIT_BYTES  # input of one step at most
        self._is_paused = False  # the inner protocol wants no input
        self._timer: asyncio.TimerHandle | None = None
        self._close_sent = False  # nothing more may be written
        self._input_closed = False  # nothing more is read
        self._is_full = False
        self._is_lost = False  # the socket is closed; what was read before that comes first

    def start(self, data: bytes = b"") -> None:
        """Take over the socket, with input behind the handshake."""
        self._socket.set_protocol(cast("asyncio.BaseProtocol", self))
        self._begin_inner()
        if data and not self.is_closing():
            self._wait(data, 0, is_new=True)  # the handshake was work enough

    @abstractmethod
    def _begin_inner(self) -> None:
        """Start the inner protocol."""

    @abstractmethod
    def _end_inner(self, error: Exception | None) -> None:
        """Notify the inner protocol, once, that the connection is closed."""

    @abstractmethod
    def _take(self, data: bytes) -> None:
        """Read frames, unless closing, and pass on their contents."""

    # The socket's protocol

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        self.data_received(bytes(self._buffer[:size]))

    def data_received(self, data: bytes) -> None:
        if self._backlog is not None:
            self._backlog.add(data)
            return
        shares = self._shares
        is_late, began = shares.is_used_up, shares.clock()
        start: int | None = 0
        while start is not None and self.may_step and not shares.is_over(began):
            start = self.take_step(data, start)
        shares.charge(began)
        if start is not None and not self._input_closed:
            self._wait(data, start, is_new=is_late)

    def _wait(self, data: bytes, start: int, *, is_new: bool) -> None:
        """Work off the rest of a chunk in later turns, and read no more until then."""
        self._backlog = Backlog(self, data, start)
        if not self._socket.is_closing():
            self._socket.pause_reading()
        if self.may_step:
            self._shares.queue(self._backlog, is_new=is_new)

    @property
    def may_step(self) -> bool:
        """No more is passed on while the inner protocol has paused reading."""
        return not self._is_paused

    def take_step(self, data: bytes, start: int) -> int | None:
        """Read some frames of a chunk, and pass on their contents."""
        began = self._shares.clock()
        if self._has_more:
            self._take(b"")
        else:
            stop = start + min(self._work_limit * UNIT_BYTES, self._step_bytes)
            self._take(data[start:stop])
            start = min(stop, len(data))
        self._work_limit = fitted(self._work_limit, self._shares.clock() - began)
        if self._input_closed:
            return None
        return start if start < len(data) or self._has_more else None

    @property
    def _has_more(self) -> bool:
        """The reader has frames left that are more than one step."""
        return False

    def on_caught_up(self) -> None:
        """The backlog is worked off."""
        self._backlog = None
        if self._is_lost:
            self._finish(None)
        elif not self._is_paused and not self.is_closing():
            self._socket.resume_reading()

    def _drop_input(self) -> None:
        if self._backlog is not None:
            self._shares.discard(self._backlog)
            self._backlog = None

    def eof_received(self) -> None:
        self._limit_closing()  # the loop closes the socket when everything is sent

    def connection_lost(self, error: Exception | None) -> None:
        if self._backlog is None or self._input_closed:
            self._finish(error)
            return
        self._is_lost, self._is_paused = True, False  # an inner protocol that paused has its own backlog
        self._socket = CLOSED_TRANSPORT
        self._shares.queue(self._backlog)

    def _finish(self, error: Exception | None) -> None:
        """Let go of a closed socket. Idempotent."""
        self._close_sent = self._input_closed = True
        self._drop_input()
        if self._timer is not None:
            self._timer.cancel()
        self._end_inner(error)
        self._socket = CLOSED_TRANSPORT

    def pause_writing(self) -> None:
        """The socket is full. A subclass notifies its inner protocol."""
        self._is_full = True

    def resume_writing(self) -> None:
        """The socket has room again. A subclass notifies its inner protocol."""
        self._is_full = False
        self._respond_to_pings()

    def _on_controls(self) -> None:
        """Act on control frames and errors."""
        reader = self._controls
        if reader.pings:
            if self._is_full:
                del reader.pings[:-1]  # RFC 6455, 5.5.3: a peer that reads no pongs makes nothing grow
            else:
                self._respond_to_pings()
        if reader.close is not None:
            self._on_close(reader.close)
        elif reader.error is not None:
            self._on_error(reader.error)

    def _respond_to_pings(self) -> None:
        pings = self._controls.pings
        if pings and not self._close_sent:
            self._socket.write(b"".join([control_frame(PONG, ping) for ping in pings]))
        pings.clear()

    def _on_close(self, payload: bytes) -> None:
        self._send_close(payload)
        self._input_closed = True
        self._close_socket()

    def _on_error(self, error: FrameError) -> None:
        who = name_of(self._peer, self._socket)
        self._throttled_log.write("bad frame", peer=who, code=int(error.code), detail=str(error))
        self._send_close(close_payload(error.code, str(error)))
        self._input_closed = True
        hang_up(self._socket)
        self._limit_closing()
        self._end_inner(None)

    # The inner protocol's transport

    def abort(self) -> None:
        self._input_closed = True
        self._socket.abort()
        if self._is_lost:
            self._finish(None)

    def is_closing(self) -> bool:
        return self._input_closed or self._socket.is_closing()

    def is_reading(self) -> bool:
        return not self._input_closed and self._socket.is_reading()

    def pause_reading(self) -> None:
        self._is_paused = not self._is_lost
        if not self.is_closing():
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._backlog is not None:
            self._shares.queue(self._backlog)
        elif not self.is_closing():
            self._socket.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._socket.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)

    # Closing

    def _send_close(self, payload: bytes) -> None:
        if not self._close_sent:
            self._close_sent = True
            self._socket.write(control_frame(CLOSE, payload))

    def _close_socket(self) -> None:
        if not self._socket.is_closing():
            self._socket.close()
        self._limit_closing()

    def _limit_closing(self, timeout_s: float | None = None) -> None:
        """Abort if closing takes too long; an earlier deadline stays."""
        when = self._loop.time() + (CLOSING_TIMEOUT_S if timeout_s is None else timeout_s)
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self.abort)


def hang_up(socket: asyncio.Transport) -> None:
    """Close a connection whose peer may still be sending.

    Closing would reset it and lose what the peer has not read. So only the sending side is closed where that
    is possible; TLS has no half-close.
    """
    if socket.can_write_eof():
        socket.write_eof()
        socket.resume_reading()  # or the end of its input would not be noticed
    else:
        socket.close()


def name_of(peer: Peer | None, socket: asyncio.BaseTransport) -> str:
    """Return the peer's address, for the log."""
    if peer is not None:
        return str(peer)
    name = socket.get_extra_info("peername")
    return address(*name[:2]) if name else ""
