"""The way out of one connection: answers and events, in the order in which they are to be read.

What is said while requests are carried out leaves together when that is done, or before the next event. Who
does not read what it has asked for is not read from until it does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.doors.base import GONE
from penstock.doors.gate import Gate, Why
from penstock.doors.web.socket.replies import Reply, frame_of
from penstock.doors.websocket.encoding import CloseCode

if TYPE_CHECKING:
    from penstock.doors.web.socket.door import SocketDoor
    from penstock.doors.websocket.message_socket import MessageSocket

WRITE_BUFFER_BYTES = 64 * 1024
ANSWERS_LIMIT_BYTES = 256 * 1024
"""How many bytes a client may leave unread before we read no more from it."""


class Link:
    """What leaves by one socket."""

    __slots__ = ("__weakref__", "_is_gathering", "_is_over", "_replies", "_socket", "door", "gate")

    _socket: "MessageSocket"

    def __init__(self, door: "SocketDoor") -> None:
        self.door = door
        self.gate = Gate(GONE)
        self._replies: list[bytes] = []  # leave with the next write
        self._is_gathering = False
        self._is_over = False  # nothing more leaves

    def attach(self, socket: "MessageSocket") -> None:
        """Begin to write to a socket."""
        self._socket = socket
        self.gate = Gate(socket)
        socket.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def detach(self) -> None:
        """The socket is gone; whatever is written goes nowhere."""
        self._is_over = True
        self.gate = Gate(GONE)

    def write(self, data: bytes) -> None:
        """Send events, behind the answers that came before them; after the end they go nowhere."""
        if self._is_over:
            return
        if self._replies:
            data = b"".join((*self._replies, data))
            self._replies.clear()
        self.door.counters.bytes_sent += len(data)
        self._socket.write(data)

    def reply(self, reply: Reply) -> None:
        """Send an answer, at once or with those that are being gathered; after the end it goes nowhere."""
        self.say(frame_of(reply))

    def say(self, *frames: bytes) -> None:
        """The same with frames."""
        if self._is_over:
            return
        self._replies += frames
        if not self._is_gathering:
            self._send_replies()

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Let what is said meanwhile leave together."""
        self._is_gathering = True
        try:
            yield
        finally:
            self._is_gathering = False
            self._send_replies()

    def _send_replies(self) -> None:
        if not self._replies:
            return
        self.door.counters.control_packets_sent += len(self._replies)
        self.write(b"")
        if self._socket.get_write_buffer_size() > ANSWERS_LIMIT_BYTES:
            self.gate.shut(Why.ANSWERS)

    def end(self, code: CloseCode, text: str, timeout_s: float | None = None) -> None:
        """Send what is left to be said, and close; `timeout_s` limits how long that may take."""
        self._send_replies()
        self._is_over = True
        self._socket.close(code, text, timeout_s)

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._socket.abort()
