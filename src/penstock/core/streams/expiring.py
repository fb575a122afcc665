"""Which streams have messages that will expire, by the second in which the first of them does.

To enter one and to find those whose time has come costs the same however many there are.
"""

from heapq import heapify, heappop, heappush
from math import ceil

from penstock.core.streams.stream import Stream


class Expiring:
    """Streams, each in the bucket of one second."""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Stream, None]] = {}
        self._order: list[int] = []  # a heap of their seconds, and of some whose bucket is there no more

    def add(self, stream: Stream, expires_at: float) -> None:
        """A stream has a message that expires at this time of the monotonic clock."""
        second = ceil(expires_at)
        if stream.due is not None and stream.due <= second:
            return
        self.discard(stream)
        stream.due = second
        if second not in self._buckets:
            self._buckets[second] = {}
            heappush(self._order, second)
            self._tidy()
        self._buckets[second][stream] = None

    def discard(self, stream: Stream) -> None:
        """A stream has no such message any more."""
        if stream.due is not None:
            bucket = self._buckets[stream.due]
            del bucket[stream]
            if not bucket:
                del self._buckets[stream.due]
            stream.due = None

    def take(self, now: float) -> Stream | None:
        """Take out a stream in which something may have expired, if there is one."""
        while self._order and self._order[0] <= now:
            bucket = self._buckets.get(self._order[0])
            if bucket:
                stream = next(reversed(bucket))
                self.discard(stream)
                return stream
            heappop(self._order)
        return None

    def _tidy(self) -> None:
        """Forget seconds without a bucket when most are."""
        if len(self._order) > 2 * len(self._buckets):
            self._order = list(self._buckets)
            heapify(self._order)
