"""Transports: the protocol behind one, a stand-in for closed ones, and a check for hang-ups of the peer."""

import asyncio
import select
from typing import Protocol, cast

HUNG_UP = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class SocketProtocol(Protocol):
    """Protocol of a door for an event loop, which calls it by its methods.

    A compiled class cannot inherit from asyncio's protocols. It receives with `data_received`; on a loop that
    looks for `get_buffer` and `buffer_updated`, with those.
    """

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: Exception | None, /) -> None: ...


class ByteProtocol(SocketProtocol, Protocol):
    """Protocol of a door for a stream of bytes that need not come from a socket."""

    def data_received(self, data: bytes, /) -> None: ...


class ClosedTransport:
    """Null object: the transport of a closed connection, on which every call does nothing.

    Protocols take it in `connection_lost`. A transport of TLS or WebSocket refers to its protocol; if that
    referred back, only the garbage collector would free the two, hours later.
    """

    def ignore(self, *_: object) -> None:
        """Do nothing."""

    write = writelines = write_eof = close = abort = pause_reading = resume_reading = ignore

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return True

    def is_reading(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


CLOSED_TRANSPORT = cast("asyncio.Transport", ClosedTransport())


def has_hung_up(transport: asyncio.Transport) -> bool:
    """True if the peer has closed its direction, even if that was not read yet.

    One system call that never blocks. Unread bytes of the peer do not hide the hang-up.
    """
    socket = transport.get_extra_info("socket")
    handle = -1 if socket is None or transport.is_closing() else socket.fileno()
    if handle < 0:
        return True
    asked = select.poll()
    asked.register(handle, HUNG_UP)
    return bool(asked.poll(0))
