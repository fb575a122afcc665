"""Backpressure: publishers wait for a slow subscriber under the policy `block`, and for a slow disk.

A publisher is blocked once, however many subscribers it waits for. It is unblocked when the slowest has room
again or the block timeout is over; then the oldest queued messages are dropped and recorded.

A publisher of stored messages also waits while the log is behind. That has no timeout, because nothing could
be dropped: commits go on, or fail. Acknowledgements still come with their commits.
"""

from collections.abc import Callable

from penstock.common.histogram import Histogram, bucket_of
from penstock.core.access.identity import Identity
from penstock.core.runtime.clock import Clock, Handle, Scheduler
from penstock.core.sessions.session import Session
from penstock.model import Door


class Backpressure:
    """Blocked publishers by slow subscriber."""

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        timeout: float,
        on_timeout: Callable[[Session], None],
        when_caught_up: Callable[[Callable[[], None]], None],
    ) -> None:
        """Args:
        on_timeout: drops messages of a subscriber that publishers have waited for too long.
        when_caught_up: the log's.
        """
        self._clock = clock
        self._scheduler = scheduler
        self.timeout = timeout
        self._on_timeout = on_timeout
        self._when_caught_up = when_caught_up
        self._log = Session(Identity(None, ""), Door.SERVER)  # stands for the log among the slow ones
        self._waiting: dict[Session, set[Session]] = {}  # slow subscriber -> publishers
        self._timers: dict[Session, Handle] = {}
        self._since: dict[Session, float] = {}  # publishers
        self.blocked_total = 0
        self.waits = Histogram()
        """Time that each blocked publisher waited."""

    @property
    def blocked(self) -> int:
        """Number of publishers that are blocked now."""
        return len(self._since)

    def block(self, publisher: Session, slow: Session, qos: int) -> None:
        """Make the publisher of a message wait until a slow subscriber has room."""
        publishers = self._waiting.get(slow)
        if publishers is None:
            publishers = self._waiting[slow] = set()
            self._timers[slow] = self._scheduler.call_later(self.timeout, lambda: self._expire(slow))
        publishers.add(publisher)
        self._begin_wait(publisher).add(slow)
        if publisher.connection is not None:
            publisher.connection.block(is_unacknowledged=not qos)

    def block_for_log(self, publisher: Session) -> None:
        """Read no more from a publisher until the log has caught up. Idempotent."""
        if publisher.connection is None:
            return  # a will: there is nothing to hold back
        publishers = self._waiting.get(self._log)
        if publishers is None:
            publishers = self._waiting[self._log] = set()
            self._when_caught_up(lambda: self.unblock(self._log))
        if publisher not in publishers:
            publishers.add(publisher)
            self._begin_wait(publisher).add(self._log)
            publisher.connection.block(is_unacknowledged=True, withholds_acks=False)

    def _begin_wait(self, publisher: Session) -> set[Session]:
        if publisher.blocked_by is None:
            publisher.blocked_by = set()
            self._since[publisher] = self._clock.monotonic()
            self.blocked_total += 1
        return publisher.blocked_by

    def unblock(self, slow: Session) -> None:
        """Unblock the publishers that wait for this subscriber alone: it has room, or is gone."""
        timer = self._timers.pop(slow, None)
        if timer is not None:
            timer.cancel()
        for publisher in self._waiting.pop(slow, ()):
            if publisher.blocked_by is None:
                continue
            publisher.blocked_by.discard(slow)
            if not publisher.blocked_by:
                self._end_wait(publisher)
                if publisher.connection is not None:
                    publisher.connection.unblock()

    def forget(self, publisher: Session) -> None:
        """Remove a publisher that is gone."""
        for slow in publisher.blocked_by or ():
            self._waiting.get(slow, set()).discard(publisher)
        self._end_wait(publisher)

    def unblock_where(self, is_wanted: Callable[[Session], bool]) -> None:
        """Unblock the publishers that a predicate selects, whatever their subscribers do."""
        for publisher in [each for each in self._since if is_wanted(each)]:
            self.forget(publisher)
            if publisher.connection is not None:
                publisher.connection.unblock()

    def _end_wait(self, publisher: Session) -> None:
        publisher.blocked_by = None
        since = self._since.pop(publisher, None)
        if since is not None:
            seconds = self._clock.monotonic() - since
            self.waits.add(bucket_of(seconds), seconds)

    def is_awaited(self, slow: Session) -> bool:
        """Return whether a publisher waits for this subscriber."""
        return slow in self._waiting

    def _expire(self, slow: Session) -> None:
        self._on_timeout(slow)
        self.unblock(slow)
