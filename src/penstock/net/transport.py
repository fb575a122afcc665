"""Transports: a stand-in for closed ones, and a check for hang-ups of the peer."""

import asyncio
import select
from typing import cast

HUNG_UP = select.POLLRDHUP | select.POLLHUP | select.POLLERR


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
