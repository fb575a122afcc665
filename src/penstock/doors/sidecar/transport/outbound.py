"""Outbound side of one connection: writes, keepalive, and closing.

Everything that calls send in a turn of the loop leaves in one write. An unwanted client gets GOAWAY first,
and time to read the last responses.
"""

import asyncio
from typing import TYPE_CHECKING

from penstock.doors.sidecar.transport.method import HIGH_WATER_BYTES
from penstock.net.door import Peer
from penstock.net.read_pause import NO_PAUSE
from penstock.net.transport import CLOSED_TRANSPORT
from penstock.wire.http2 import ErrorCode, ServerConnection

if TYPE_CHECKING:
    from penstock.doors.sidecar.door import SidecarDoor

Unread = tuple[float, int]
"""Until when a response may wait to be read, and how many bytes it had when its call was over."""
CLOSING_TIMEOUT_S = 5.0
"""Time for the last bytes of a connection that is being closed."""
UNREAD_ANSWER_S = 60.0
"""Time that a client may leave a complete response unread; then it is dropped."""
FAREWELL = b"farewell"
"""Payload of the ping behind GOAWAY: its acknowledgement shows that the client has seen that."""
ALIVE = b"alive?  "
UNKNOWN = Peer("", 0)
"""Placeholder until the address is known."""


class Outbound(asyncio.BufferedProtocol):
    """Writes of one socket, and its deadlines; the base class of a connection."""

    __slots__ = (
        "__weakref__",
        "_deadline",
        "_first",
        "_idle_since",
        "_is_heard",
        "_is_leaving",
        "_last_seen",
        "_pinged_at",
        "_read_pause",
        "_seen_before_ping",
        "_stuck_bytes",
        "_transport",
        "_unread",
        "_unwritten_bytes",
        "door",
        "has_arrived",
        "http2",
        "is_closing",
        "is_counted",
        "is_dirty",
        "is_full",
        "peer",
    )

    def __init__(self, door: "SidecarDoor", peer: Peer | None) -> None:
        self.door = door
        self.http2 = ServerConnection(door.limits)
        self.peer = peer or UNKNOWN
        self.has_arrived = peer is not None  # the address limits have counted its arrival
        self.is_counted = False
        self.is_dirty = False  # something is to be written
        self.is_full = False  # the socket takes no more
        self.is_closing = False
        self._transport = CLOSED_TRANSPORT
        self._read_pause = NO_PAUSE
        self._first: bytes | None = None  # bytes received; None before the first
        self._unread: dict[int, Unread] = {}  # complete responses that wait to be read
        self._unwritten_bytes = 0
        self._is_leaving = False  # GOAWAY was sent
        self._is_heard = False  # and has seen that
        self._last_seen = self._seen_before_ping = self._idle_since = self._deadline = 0.0
        self._pinged_at: float | None = None
        self._stuck_bytes = 0

    # Writing

    def on_sent(self, size: int) -> None:
        """A call has sent something: it leaves soon, or now if it is much."""
        self._unwritten_bytes += size
        if self._unwritten_bytes > HIGH_WATER_BYTES:
            self.write_out()
        elif not self.is_dirty:
            self.is_dirty = True
            self.door.write_soon(self)

    def write_out(self) -> None:
        """Send everything queued so far; dropped once the connection is closing."""
        self.is_dirty = False
        self._unwritten_bytes = 0
        data = self.http2.drain()
        if data and not self.is_closing:
            self.door.counters.bytes_sent += len(data)
            self._transport.write(data)

    def consume(self, stream_id: int, size: int) -> None:
        """A call has consumed some of its body."""
        self.http2.consumed(stream_id, size)

    # The end

    @property
    def is_idle(self) -> bool:
        """No call is open, and no response waits to be read."""
        return not self.http2.open_streams

    def say_goodbye(self) -> None:
        """Send GOAWAY: the client closes when its calls are over."""
        if self.is_closing or self._is_leaving:
            return
        self._is_leaving = True
        if self._first is None:  # nothing was ever said here
            self.abort()
            return
        self.http2.go_away()
        self.http2.ping(FAREWELL)
        self.write_out()

    def _close_if_done(self) -> None:
        if self._is_heard and self.is_idle:
            self.leave()

    def leave(self) -> None:
        """Close when everything written has left; abort if that takes too long."""
        if self.is_closing:
            return
        self.write_out()
        self.is_closing = True
        self._read_pause.resume_all()
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()  # closing while the client sends would lose the last responses
        else:
            self._transport.close()
        self._deadline = self.door.loop.time() + CLOSING_TIMEOUT_S
        self.door.watch(self, self._deadline)

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._transport.abort()

    # Deadlines

    def check_deadline(self, now: float) -> float | None:
        """The time for the first words, signs of life, idle clients, and the time for the last bytes."""
        if self not in self.door.connections:
            return None
        if self.is_closing or not self.http2.is_settled:
            return self._check_limit(now)
        self._give_up_unread(now)
        times = [until for until, _ in self._unread.values()]
        if self.door.settings.ping_s:
            times.append(self._check_life(now))
        if self.door.settings.idle_s and not self._is_leaving:
            times.append(self._check_idleness(now))
        return min(times, default=None)

    def _check_limit(self, now: float) -> float | None:
        if now < self._deadline:
            return self._deadline
        if not self.is_closing:
            self.door.note("connection closed", self, "it has not spoken HTTP/2 in time")
        self.abort()
        return None

    def await_reading(self, stream_id: int, size: int) -> None:
        """A response is complete; it is given up if it is not read in time, or if too much waits."""
        until = self.door.loop.time() + UNREAD_ANSWER_S
        self._unread[stream_id] = (until, size)
        if self.door.hold(size):
            self.door.watch(self, until)
        else:
            self._give_up_answer(stream_id, ErrorCode.ENHANCE_YOUR_CALM)

    def on_read(self, stream_id: int) -> None:
        """A response waits no more."""
        if stream_id in self._unread:
            self.door.hold(-self._unread.pop(stream_id)[1])

    def _give_up_answer(self, stream_id: int, code: ErrorCode) -> None:
        self.on_read(stream_id)
        self.http2.reset(stream_id, code)
        self.on_sent(0)

    def _give_up_unread(self, now: float) -> None:
        for stream_id, (until, _) in list(self._unread.items()):
            if now >= until:
                self._give_up_answer(stream_id, ErrorCode.CANCEL)

    def _check_life(self, now: float) -> float:
        """Ping a silent client; abort if it does not respond, or reads nothing."""
        ping_s = self.door.settings.ping_s
        if self.is_full:
            left_bytes = self._transport.get_write_buffer_size()
            if left_bytes == self._stuck_bytes:
                self._cut("it reads nothing")
            self._stuck_bytes = left_bytes
            return now + ping_s
        if self._pinged_at is not None and self._last_seen == self._seen_before_ping:
            if now >= self._pinged_at + ping_s:
                self._cut("it gives no sign of life")
            return self._pinged_at + ping_s
        self._pinged_at = None
        if now < self._last_seen + ping_s:
            return self._last_seen + ping_s
        self._pinged_at, self._seen_before_ping = now, self._last_seen
        self.http2.ping(ALIVE)
        self.write_out()
        return now + ping_s

    def _cut(self, reason: str) -> None:
        self.door.note("connection cut", self, reason)
        self.abort()

    def _check_idleness(self, now: float) -> float:
        idle_s = self.door.settings.idle_s
        if not self.is_idle:
            return now + idle_s
        if now < self._idle_since + idle_s:
            return self._idle_since + idle_s
        self.say_goodbye()
        return now + idle_s
