"""Whether somebody is still at the other end of a connection."""

import asyncio
import select

HUNG_UP = select.POLLRDHUP | select.POLLHUP | select.POLLERR


def has_hung_up(transport: asyncio.Transport) -> bool:
    """Whether the peer has closed its direction, even if nobody has read that yet.

    One system call that never waits. What the peer sent before it went does not hide that it went.
    """
    socket = transport.get_extra_info("socket")
    handle = -1 if socket is None or transport.is_closing() else socket.fileno()
    if handle < 0:
        return True
    asked = select.poll()
    asked.register(handle, HUNG_UP)
    return bool(asked.poll(0))
