"""Buffers of all streams: total size, eviction, and expiry by second.

A stream evicts its oldest message for a new one. Evicted and expired messages are in the ledger; the ring and
the log of the topic may still have them. Expiry costs the same however many streams there are.
"""

from collections.abc import Callable
from typing import Final

from penstock.core.diagnostics.ledger import Ledger
from penstock.core.runtime.deadlines import Deadlines
from penstock.core.settings import StreamSettings
from penstock.core.streams.stream import GROUP, Stream, weight_of
from penstock.model import Policy, Reason
from penstock.runs import NEVER, Run

_FULL: Final = Reason.OUTBOX_FULL
_OLDEST: Final = Policy.DROP_OLDEST
LOOKED_AT = 20_000
"""Approximate number of messages that one pass examines."""


class StreamBuffers:
    """Puts messages into streams and takes them out, within the limits."""

    def __init__(self, settings: StreamSettings, ledger: Ledger) -> None:
        self._settings = settings
        self._ledger = ledger
        self._expiring: Deadlines[Stream] = Deadlines(per_second=1)
        self.messages = 0
        self.bytes = 0
        self.dropped = 0
        self.is_starved = False  # a sender had to wait for what other streams take

    def configure(self, settings: StreamSettings) -> None:
        """Go by other limits; what is beyond them goes with the next message of its stream."""
        self._settings = settings

    def put(self, stream: Stream, run: Run) -> None:
        """Add a message, whether there is room or not; `trim` follows."""
        stream.put(run)
        self.messages += 1
        self.bytes += weight_of(run)
        if run.expires_at != NEVER:
            self._expiring.add(stream, run.expires_at)

    def put_back(self, stream: Stream, run: Run) -> None:
        """Put a message back to the front: its receiver is gone."""
        stream.put_first(run)
        self.messages += 1
        self.bytes += weight_of(run)

    def take(self, stream: Stream, now: float) -> Run | None:
        """The oldest message that has not expired."""
        while stream.count:
            run = self._take(stream)
            if not run.is_expired(now):
                return run
            self._ledger.add(run, GROUP, Reason.EXPIRED)
        return None

    def _take(self, stream: Stream, index: int = 0) -> Run:
        run = stream.take(index)
        self.messages -= 1
        self.bytes -= weight_of(run)
        return run

    def has_room(self, stream: Stream, weight: int) -> bool:
        """A message fits in without another one leaving."""
        settings = self._settings
        if stream.count >= self._size_of(stream) or stream.bytes + weight > settings.stream_bytes:
            return False
        if self.bytes + weight > settings.total_bytes:
            self.is_starved = True
            return False
        return True

    def could_have_room(self, stream: Stream | None, weight: int) -> bool:
        """A message would fit in if all others of its stream left."""
        kept = 0 if stream is None else stream.bytes
        return self.bytes - kept + weight <= self._settings.total_bytes

    def _size_of(self, stream: Stream) -> int:
        """Return how many messages a stream keeps."""
        return self._settings.default_size if stream.size is None else stream.size

    def trim(self, stream: Stream) -> None:
        """Evict the oldest messages above the limit, behind those that are reserved.

        A stream without a buffer keeps returned messages: they have no other place.
        """
        settings, size = self._settings, self._size_of(stream)
        awaited = 0 if stream.receivers is None else len(stream.receivers)
        spare = awaited if size else max(awaited, stream.returned)
        while stream.count > spare:
            if stream.count > size + spare or stream.bytes > settings.stream_bytes:
                self._drop(stream, spare, "streams")
            elif self.bytes > settings.total_bytes:
                self._drop(stream, spare, "streams.total_bytes")
            else:
                break

    def _drop(self, stream: Stream, index: int, setting: str) -> None:
        self.dropped += 1
        self._ledger.add(self._take(stream, index), GROUP, _FULL, _OLDEST, setting)

    def remove(self, stream: Stream, is_unwanted: Callable[[Run], bool], reason: Reason) -> int:
        """Remove messages by a predicate and record the reason; return their number."""
        before = stream.bytes
        removed = stream.remove(is_unwanted)
        self.messages -= len(removed)
        self.bytes -= before - stream.bytes
        for run in removed:
            self._ledger.add(run, GROUP, reason)
        return len(removed)

    def clear(self, stream: Stream, reason: Reason) -> int:
        """Remove everything; return the number of messages."""
        self._expiring.discard(stream)
        return self.remove(stream, lambda run: True, reason)

    def expire(self, now: float) -> list[Stream]:
        """Remove expired messages; return the streams that have room again.

        A long pass continues next time: expired messages are never received.
        """
        relieved: list[Stream] = []
        looked_at = 0
        while looked_at <= LOOKED_AT and (stream := self._expiring.take(now)) is not None:
            looked_at += 1 + stream.count
            if self.remove(stream, lambda run: run.is_expired(now), Reason.EXPIRED):
                relieved.append(stream)
            times = [run.expires_at for run in stream.messages if run.expires_at != NEVER]
            if times:
                self._expiring.add(stream, min(times))
        return relieved
