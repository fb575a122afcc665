"""Who wants to know when there is something new on a topic, without receiving it.

A reader of the log that has come to its end waits here. It is told when what is new can be read: after its
commit where the log is durable, else at the end of the turn.
"""

from collections.abc import Callable, Iterable

from penstock.core.ports import Log
from penstock.core.publishing import Publishing
from penstock.core.streams.stream import Stream


class Watcher:
    """Is told once."""

    __slots__ = ("_on_cancel", "_woken", "stream")

    def __init__(
        self, stream: Stream, woken: Callable[[], None], on_cancel: "Callable[[Watcher], None]"
    ) -> None:
        self.stream = stream
        self._on_cancel = on_cancel
        self._woken: Callable[[], None] | None = woken

    def wake(self) -> None:
        """Tell, unless nobody wants to know any more."""
        if self._woken is not None:
            self._woken()

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self._woken = None
        self._on_cancel(self)


class Watching:
    """Wakes the watchers of streams."""

    def __init__(self, log: Log, publishing: Publishing) -> None:
        self._log = log
        self._publishing = publishing
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, stream: Stream, woken: Callable[[], None]) -> Watcher:
        """Somebody waits for the next message of a stream's topic."""
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
        """Something was published: whoever waits is told as soon as it can be read."""
        watchers = self._take(stream)
        is_stored = self._log.is_durable and (stream.topic.traits.is_kept or is_forced)
        ticket = self._log.ticket if is_stored else None
        self._publishing.when_settled(ticket, lambda failure: _wake(watchers))

    def wake(self, stream: Stream) -> None:
        """Tell those who wait at a stream, whether there is something new or not."""
        _wake(self._take(stream))

    def _take(self, stream: Stream) -> Iterable[Watcher]:
        watchers, stream.watchers = stream.watchers or {}, None
        self._count -= len(watchers)
        return watchers


def _wake(watchers: Iterable[Watcher]) -> None:
    for watcher in list(watchers):
        watcher.wake()
