"""Waiters of a stream: receivers, senders, and watchers of its topic.

A watcher is a log reader at the end of the log. It is woken when new messages are readable: after their
commit if the log is durable, else at the end of the turn.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from penstock.core.access.identity import Identity
from penstock.core.ports.log import LogWriter, Settled, Ticket
from penstock.core.publishing.outcome import Receipt
from penstock.core.sessions.session import Session
from penstock.core.streams.stream import Stream
from penstock.errors import PenstockError
from penstock.runs import Run


class Handover:
    """Message for one receiver."""

    __slots__ = ("epoch", "run")

    def __init__(self, run: Run, epoch: int) -> None:
        self.run = run
        self.epoch = epoch

    @property
    def payload(self) -> bytes:
        return self.run.payload()

    @property
    def message_id(self) -> str | None:
        return None if self.run.properties is None else self.run.properties.message_id

    @property
    def content_type(self) -> str | None:
        return None if self.run.properties is None else self.run.properties.content_type


Take = Callable[[Handover], bool]
"""Returns whether the message was written; if not, its receiver is gone."""
IsHere = Callable[[], bool]
"""Returns whether a receiver could still be given a message."""
Missed = Callable[[PenstockError], None]
Done = Callable[[Receipt | PenstockError], None]


class Wait(Protocol):
    """Operation in progress."""

    def cancel(self) -> None:
        """Cancel it: the caller is gone and gets no callback."""
        ...


class Receiver:
    """Stands in line for a message."""

    __slots__ = ("_on_cancel", "identity", "is_here", "missed", "since", "stream", "take")

    def __init__(
        self,
        stream: Stream,
        identity: Identity,
        take: Take,
        missed: Missed,
        is_here: IsHere,
        since: float,
        on_cancel: "Callable[[Receiver], object]",
    ) -> None:
        self.stream = stream
        self.identity = identity
        self.take = take
        self.missed = missed
        self.is_here = is_here
        self.since = since
        self._on_cancel = on_cancel

    def cancel(self) -> None:
        """Leave the line."""
        self._on_cancel(self)


class Sender:
    """Stands in line with a message that is not published before there is room for it, or a receiver."""

    __slots__ = ("_on_cancel", "caller", "done", "run", "since", "stream")

    def __init__(
        self,
        stream: Stream,
        run: Run,
        caller: Session,
        done: Done,
        since: float,
        on_cancel: "Callable[[Sender], object]",
    ) -> None:
        self.stream = stream
        self.run = run
        self.caller = caller
        self.done = done
        self.since = since
        self._on_cancel = on_cancel

    def cancel(self) -> None:
        """Leave the line: the message was never published."""
        self._on_cancel(self)


Waiter = Receiver | Sender


class PendingSend:
    """Send in progress: its publisher is blocked, or its commit is pending."""

    __slots__ = ("_done", "inner")

    def __init__(self, done: Done) -> None:
        self._done: Done | None = done
        self.inner: Wait | None = None  # what it waits for now

    @property
    def is_cancelled(self) -> bool:
        """The caller is gone."""
        return self._done is None

    def finish(self, outcome: Receipt | PenstockError) -> None:
        """Report the result, unless the caller is gone."""
        if self._done is not None:
            self._done(outcome)

    def cancel(self) -> None:
        """Cancel the report; what is published stays published."""
        self._done = None
        if self.inner is not None:
            self.inner.cancel()


class Watcher:
    """One-shot watcher."""

    __slots__ = ("_on_cancel", "_woken", "stream")

    def __init__(
        self, stream: Stream, woken: Callable[[], None], on_cancel: "Callable[[Watcher], None]"
    ) -> None:
        self.stream = stream
        self._on_cancel = on_cancel
        self._woken: Callable[[], None] | None = woken

    def wake(self) -> None:
        """Notify, unless cancelled."""
        if self._woken is not None:
            self._woken()

    def cancel(self) -> None:
        """Cancel the notification."""
        self._woken = None
        self._on_cancel(self)


class Watching:
    """Wakes the watchers of streams."""

    def __init__(self, log: LogWriter, when_committed: Callable[[Ticket | None, Settled], None]) -> None:
        self._log = log
        self._when_committed = when_committed
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, stream: Stream, woken: Callable[[], None]) -> Watcher:
        """Add a watcher for the next message of a stream's topic."""
        watcher = Watcher(stream, woken, self._leave)
        if stream.watchers is None:
            stream.watchers = {}
        stream.watchers[watcher] = None
        self._count += 1
        return watcher

    def _leave(self, watcher: Watcher) -> None:
        watchers = watcher.stream.watchers
        if watchers is not None and watchers.pop(watcher, watcher) is None:
            self._count -= 1
            watcher.stream.watchers = watchers or None

    def on_published(self, stream: Stream, *, is_forced: bool) -> None:
        """Wake watchers as soon as a published message is readable."""
        watchers = self._take(stream)
        is_stored = self._log.is_durable and (stream.topic.rules.is_kept or is_forced)
        ticket = self._log.ticket if is_stored else None
        self._when_committed(ticket, lambda failure: _wake(watchers))

    def wake(self, stream: Stream) -> None:
        """Wake the watchers of a stream, with or without news."""
        _wake(self._take(stream))

    def _take(self, stream: Stream) -> Iterable[Watcher]:
        watchers, stream.watchers = stream.watchers or {}, None
        self._count -= len(watchers)
        return watchers


def _wake(watchers: Iterable[Watcher]) -> None:
    for watcher in list(watchers):
        watcher.wake()
