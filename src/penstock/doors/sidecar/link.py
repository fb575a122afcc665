"""The socket of one connection: how bytes leave, how long it may be silent, and how it ends.

Everything that calls send in a turn of the loop leaves in one write. A client that we do not want any longer
is asked to go first, as HTTP/2 has it, and gets the time to read our last words.
"""

import asyncio
from typing import TYPE_CHECKING

from penstock.doors.base import GONE, Peer
from penstock.doors.gate import NO_GATE
from penstock.doors.sidecar.calls import HIGH_WATER_BYTES
from penstock.wire.http2 import ErrorCode, ServerConnection

if TYPE_CHECKING:
    from penstock.doors.sidecar.door import SidecarDoor

Unread = tuple[float, int]
"""Until when an answer may wait to be read, and how many bytes it had when its call was over."""
CLOSING_TIMEOUT_S = 5.0
"""How long the last bytes may take to leave a connection that is being closed."""
UNREAD_ANSWER_S = 60.0
"""How long a client may leave an answer unread that is complete; then it loses it."""
FAREWELL = b"farewell"
"""The ping behind our goodbye: once it comes back, the client has seen that."""
ALIVE = b"alive?  "
UNKNOWN = Peer("", 0)
"""Who has not been asked for its address yet."""


class Link(asyncio.BufferedProtocol):
    """What leaves by one socket, and its deadlines."""

    __slots__ = (
        "__weakref__",
        "_deadline",
        "_first",
        "_gate",
        "_idle_since",
        "_is_heard",
        "_is_leaving",
        "_last_seen",
        "_pinged_at",
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
        self.has_arrived = peer is not None  # the guard of its address has counted that it came
        self.is_counted = False
        self.is_dirty = False  # something is to be written
        self.is_full = False  # the socket takes no more
        self.is_closing = False
        self._transport = GONE
        self._gate = NO_GATE
        self._first: bytes | None = None  # bytes that came; None before them
        self._unread: dict[int, Unread] = {}  # complete answers that wait to be read
        self._unwritten_bytes = 0
        self._is_leaving = False  # it was asked to go
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
        """Write all that was sent so far; once the connection is closing that goes nowhere."""
        self.is_dirty = False
        self._unwritten_bytes = 0
        data = self.http2.drain()
        if data and not self.is_closing:
            self.door.counters.bytes_sent += len(data)
            self._transport.write(data)

    def consume(self, stream_id: int, size: int) -> None:
        """A call has taken what came for it."""
        self.http2.consumed(stream_id, size)

    # The end

    @property
    def is_idle(self) -> bool:
        """There is no call, and no answer that waits to be read."""
        return not self.http2.open_streams

    def say_goodbye(self) -> None:
        """Ask the client to go, when its calls are over."""
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
        self._gate.open_wide()
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()  # closing while the client sends would take our last words with it
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
        """An answer is complete; it is given up if it is not read in time, or if too much waits."""
        until = self.door.loop.time() + UNREAD_ANSWER_S
        self._unread[stream_id] = (until, size)
        if self.door.hold(size):
            self.door.watch(self, until)
        else:
            self._give_up_answer(stream_id, ErrorCode.ENHANCE_YOUR_CALM)

    def on_read(self, stream_id: int) -> None:
        """An answer waits no more."""
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
        """Ask a silent client whether it is there; cut it if it does not answer, or reads nothing at all."""
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
