"""An open WebSocket, whatever its frames are for: how it reads, answers pings, and ends.

It stands between two asyncio worlds: a protocol to the socket's transport, and a transport to the inner
protocol of a door.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Protocol

import structlog

from penstock.doors.base import GONE, Peer, address
from penstock.doors.notes import Notes
from penstock.doors.websocket.encoding import CLOSE, PONG, close_payload, control_frame
from penstock.doors.websocket.frames import FrameError, HeaderReader

log = structlog.get_logger("penstock.websocket")

CLOSING_TIMEOUT_S = 5.0
"""How long the last bytes may take to leave, and the peer to close its side."""
JOINED_BELOW_BYTES = 16 * 1024
"""Smaller writes are joined with their header, into one segment or TLS record. Larger ones are not copied:
they may be shared by very many connections."""


class Writer(Protocol):
    """What every inner protocol has: it is told when nothing more fits, and when something does."""

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class FrameSocket(asyncio.BufferedProtocol, asyncio.Transport, ABC):
    """One connection after its handshake; `start` begins it.

    Args:
        buffer: filled and emptied in one step of the loop, so one is enough for all connections.
        peer: who it is, if the way here could tell.
    """

    __slots__ = (
        "_buffer",
        "_has_said_close",
        "_inner",
        "_is_deaf",
        "_is_full",
        "_loop",
        "_notes",
        "_peer",
        "_reader",
        "_socket",
        "_timer",
    )

    _inner: Writer
    _reader: HeaderReader

    def __init__(
        self, socket: asyncio.Transport, buffer: memoryview, peer: Peer | None, notes: Notes | None
    ) -> None:
        super().__init__()
        self._socket = socket
        self._peer = peer
        self._buffer = buffer
        self._loop = asyncio.get_running_loop()
        self._notes = notes or Notes(log, self._loop.time)
        self._timer: asyncio.TimerHandle | None = None
        self._has_said_close = False  # nothing more may be written
        self._is_deaf = False  # nothing more is read
        self._is_full = False

    def start(self, data: bytes = b"") -> None:
        """Take over the socket, and what was read from it behind the handshake."""
        self._socket.set_protocol(self)
        self._begin_inner()
        if data:
            self._take(data)

    @abstractmethod
    def _begin_inner(self) -> None:
        """Tell the inner protocol that it can begin."""

    @abstractmethod
    def _end_inner(self, error: Exception | None) -> None:
        """Tell the inner protocol, once, that nothing it writes goes anywhere any more."""

    @abstractmethod
    def _take(self, data: bytes) -> None:
        """Read frames, unless nothing more is read, and hand on what they hold."""

    # The socket's protocol

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        self._take(bytes(self._buffer[:size]))

    def eof_received(self) -> None:
        self._limit_closing()  # the loop closes the socket when everything written has left

    def connection_lost(self, error: Exception | None) -> None:
        self._has_said_close = self._is_deaf = True
        if self._timer is not None:
            self._timer.cancel()
        self._end_inner(error)
        self._socket = GONE

    def pause_writing(self) -> None:
        self._is_full = True
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._is_full = False
        self._answer_pings()
        self._inner.resume_writing()

    def _on_controls(self) -> None:
        """Act on what control frames and broken ones asked for."""
        reader = self._reader
        if reader.pings:
            if self._is_full:
                del reader.pings[:-1]  # RFC 6455, 5.5.3: a peer that reads no pongs makes nothing grow
            else:
                self._answer_pings()
        if reader.close is not None:
            self._on_close(reader.close)
        elif reader.error is not None:
            self._on_error(reader.error)

    def _answer_pings(self) -> None:
        pings = self._reader.pings
        if pings and not self._has_said_close:
            self._socket.write(b"".join([control_frame(PONG, ping) for ping in pings]))
        pings.clear()

    def _on_close(self, payload: bytes) -> None:
        self._say_close(payload)
        self._is_deaf = True
        self._close_socket()

    def _on_error(self, error: FrameError) -> None:
        who = name_of(self._peer, self._socket)
        self._notes.write("bad frame", peer=who, code=int(error.code), detail=str(error))
        self._say_close(close_payload(error.code, str(error)))
        self._is_deaf = True
        hang_up(self._socket)
        self._limit_closing()
        self._end_inner(None)

    # The inner protocol's transport

    def abort(self) -> None:
        self._socket.abort()

    def is_closing(self) -> bool:
        return self._is_deaf or self._socket.is_closing()

    def is_reading(self) -> bool:
        return not self._is_deaf and self._socket.is_reading()

    def pause_reading(self) -> None:
        if not self.is_closing():
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if not self.is_closing():
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

    def _say_close(self, payload: bytes) -> None:
        if not self._has_said_close:
            self._has_said_close = True
            self._socket.write(control_frame(CLOSE, payload))

    def _close_socket(self) -> None:
        if not self._socket.is_closing():
            self._socket.close()
        self._limit_closing()

    def _limit_closing(self, timeout_s: float | None = None) -> None:
        """Give up when this takes too long; an earlier end of patience stays."""
        when = self._loop.time() + (CLOSING_TIMEOUT_S if timeout_s is None else timeout_s)
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self.abort)


def hang_up(socket: asyncio.Transport) -> None:
    """End a connection whose peer may still be sending.

    Closing would then reset it, and take with it what the peer has not read yet. So only our direction is
    closed where that is possible; TLS has no such thing.
    """
    if socket.can_write_eof():
        socket.write_eof()
    else:
        socket.close()


def name_of(peer: Peer | None, socket: asyncio.BaseTransport) -> str:
    """Who is at the other end, for the log."""
    if peer is not None:
        return str(peer)
    name = socket.get_extra_info("peername")
    return address(*name[:2]) if name else ""
