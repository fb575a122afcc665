"""Publishers that wait for a slow subscriber under the policy `block`.

A publisher is held once, however many subscribers it waits for, and released when the slowest has room
again or has used up the block timeout; then the oldest of what waits is dropped, and said so.
"""

from collections.abc import Callable

from penstock.core.callers import CallerSink
from penstock.core.clock import Clock, Handle, Scheduler
from penstock.core.latency import Histogram, bucket_of
from penstock.core.sessions import Session


class Holding:
    """Who waits for whom."""

    def __init__(
        self, clock: Clock, scheduler: Scheduler, timeout: float, on_timeout: Callable[[Session], None]
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self.timeout = timeout
        self._on_timeout = on_timeout
        self._waiting: dict[Session, set[Session]] = {}  # slow subscriber -> publishers
        self._timers: dict[Session, Handle] = {}
        self._since: dict[Session, float] = {}  # publishers
        self.held_total = 0
        self.waits = Histogram()
        """How long each of them had to wait."""

    @property
    def held(self) -> int:
        """How many publishers wait now."""
        return len(self._since)

    def hold(self, publisher: Session, slow: Session, qos: int) -> None:
        """Make the publisher of a message wait until a slow subscriber has room."""
        publishers = self._waiting.get(slow)
        if publishers is None:
            publishers = self._waiting[slow] = set()
            self._timers[slow] = self._scheduler.call_later(self.timeout, lambda: self._expire(slow))
        publishers.add(publisher)
        if publisher.held_by is None:
            publisher.held_by = set()
            self._since[publisher] = self._clock.monotonic()
            self.held_total += 1
        if publisher.sink is not None:
            publisher.sink.hold(is_unacknowledged=not qos)
        publisher.held_by.add(slow)

    def release(self, slow: Session) -> None:
        """A slow subscriber has room, or is gone: let go of everyone who waits for it alone."""
        timer = self._timers.pop(slow, None)
        if timer is not None:
            timer.cancel()
        for publisher in self._waiting.pop(slow, ()):
            if publisher.held_by is None:
                continue
            publisher.held_by.discard(slow)
            if not publisher.held_by:
                self._let_go(publisher)
                if publisher.sink is not None:
                    publisher.sink.release()

    def forget(self, publisher: Session) -> None:
        """A publisher is gone and waits for nobody."""
        for slow in publisher.held_by or ():
            self._waiting.get(slow, set()).discard(publisher)
        self._let_go(publisher)

    def free_callers(self) -> None:
        """Let everyone go who came with a request: the server stops, and nobody need wait for that."""
        for publisher in list(self._since):
            if isinstance(publisher.sink, CallerSink):
                self.forget(publisher)
                publisher.sink.release()

    def _let_go(self, publisher: Session) -> None:
        publisher.held_by = None
        since = self._since.pop(publisher, None)
        if since is not None:
            seconds = self._clock.monotonic() - since
            self.waits.add(bucket_of(seconds), seconds)

    def is_awaited(self, slow: Session) -> bool:
        """Someone waits for this subscriber."""
        return slow in self._waiting

    def _expire(self, slow: Session) -> None:
        self._on_timeout(slow)
        self.release(slow)
