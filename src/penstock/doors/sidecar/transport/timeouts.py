"""Timeouts of one connection: messages that are not whole, responses that are not read, and silence.

Nothing is scheduled here: the connection asks when it is checked, and acts.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.doors.sidecar.transport.call import Http2Call

UNFINISHED_S = 120.0
"""Longest time from the first bytes of a message to its last."""
UNREAD_RESPONSE_S = 60.0
"""Time that a client may leave a complete response unread; then it is dropped."""


class UnfinishedMessages:
    """Calls with a message that is not whole, and until when the rest has to come."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[int, float] = {}

    def add(self, stream_id: int, now: float) -> float:
        """A message has begun to come. Returns until when it has to be whole."""
        until = self._until[stream_id] = now + UNFINISHED_S
        return until

    def discard(self, stream_id: int) -> None:
        """A call is over. Idempotent."""
        self._until.pop(stream_id, None)

    def overdue(self, now: float, calls: Mapping[int, "Http2Call"]) -> list["Http2Call"]:
        """Return the calls whose message is not whole in time."""
        found = []
        for stream_id, until in list(self._until.items()):
            call = calls.get(stream_id)
            if call is None or not call.is_unfinished:
                del self._until[stream_id]
            elif now >= until and call.is_reading_paused:  # by its own method, not by an error of the client
                self._until[stream_id] = now + UNFINISHED_S
            elif now >= until:
                found.append(call)
        return found

    def times(self) -> Iterable[float]:
        """Return when to check again."""
        return self._until.values()


class UnreadResponses:
    """Complete responses that wait for their client: until when, and how many bytes."""

    __slots__ = ("_count", "_waiting")

    def __init__(self, count: Callable[[int], bool]) -> None:
        """Args:
        count: counts bytes of all connections, negative ones are free again; False if there are too many.
        """
        self._count = count
        self._waiting: dict[int, tuple[float, int]] = {}

    def add(self, stream_id: int, size: int, now: float) -> float | None:
        """A response is complete. Returns until when it has to be read; None if too much waits."""
        until = now + UNREAD_RESPONSE_S
        self._waiting[stream_id] = (until, size)
        return until if self._count(size) else None

    def discard(self, stream_id: int) -> None:
        """A response waits no more. Idempotent."""
        if stream_id in self._waiting:
            self._count(-self._waiting.pop(stream_id)[1])

    def clear(self) -> None:
        """No response waits any more."""
        for stream_id in list(self._waiting):
            self.discard(stream_id)

    def overdue(self, now: float) -> list[int]:
        """Return the streams of responses that were not read in time."""
        return [stream_id for stream_id, (until, _) in self._waiting.items() if now >= until]

    def times(self) -> Iterable[float]:
        """Return when to check again."""
        return [until for until, _ in self._waiting.values()]


class Liveness:
    """Signs of life: a silent client is pinged, and one that reads nothing is noticed."""

    __slots__ = ("_pinged_at", "_seen_before_ping", "_stuck_bytes")

    def __init__(self) -> None:
        self._pinged_at: float | None = None
        self._seen_before_ping = 0.0
        self._stuck_bytes = 0

    def on_room(self) -> None:
        """The client reads again."""
        self._stuck_bytes = 0

    def reads(self, left_bytes: int) -> bool:
        """Return whether a client with a full socket has read something since the last check."""
        before, self._stuck_bytes = self._stuck_bytes, left_bytes
        return left_bytes != before

    def check(
        self,
        now: float,
        last_seen: float,
        ping_s: float,
        *,
        ping: Callable[[], None],
        cut: Callable[[], None],
    ) -> float:
        """Ping a client that is silent for `ping_s`, cut it if it stays so. Returns when to check again."""
        if self._pinged_at is not None and last_seen == self._seen_before_ping:
            if now >= self._pinged_at + ping_s:
                cut()
            return self._pinged_at + ping_s
        self._pinged_at = None
        if now < last_seen + ping_s:
            return last_seen + ping_s
        self._pinged_at, self._seen_before_ping = now, last_seen
        ping()
        return now + ping_s
