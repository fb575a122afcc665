"""One stream: the queue of its messages, and its waiting receivers and senders.

There may be a million streams, most of them with one message or none and nothing waiting. The first message
is therefore stored by itself, and queues are made when they are needed.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.core.topics.ring import RUN_BYTES
from penstock.core.topics.topic import Topic
from penstock.model import Door
from penstock.runs import Run

if TYPE_CHECKING:
    from penstock.core.streams.waiters import Receiver, Sender, Watcher

DOOR: Final = Door.STREAMS
"""A constant: Python 3.11 takes long to look up a member of an enum."""
GROUP: Final = "$stream"
"""Name of a stream's receivers in the ledger: one of them gets each message."""


def _ignore(stream: "Stream", run: Run) -> None:
    """Stand in for a callback."""


class Stream:
    """The messages of a topic for which receivers compete."""

    __slots__ = (
        "_messages",
        "bytes",
        "count",
        "is_open",
        "on_published",
        "receivers",
        "returned",
        "senders",
        "size",
        "topic",
        "used_at",
        "watchers",
    )

    def __init__(
        self, topic: Topic, now: float, on_published: Callable[["Stream", Run], None] = _ignore
    ) -> None:
        self.topic = topic
        self.on_published = on_published  # called for each run of the topic
        self.size: int | None = None  # messages that it keeps; the first send decides
        self.is_open = False  # it keeps messages; if not, a reader only waits for news
        self.used_at = now  # time of the last send, receive or wait
        self.count = 0
        self.bytes = 0
        self.returned = 0  # messages at the front whose receiver had disconnected
        self._messages: Run | deque[Run] | None = None  # oldest first
        self.receivers: OrderedDict[Receiver, None] | None = None
        self.senders: OrderedDict[Sender, None] | None = None
        self.watchers: dict[Watcher, None] | None = None

    @property
    def is_attached(self) -> bool:
        """It is the stream of its topic, and its topic is not deleted."""
        return self.topic.stream is self

    @property
    def is_attended(self) -> bool:
        """A receiver, sender or watcher waits."""
        return bool(self.receivers or self.senders or self.watchers)

    @property
    def first(self) -> Run:
        """The oldest message, if there is one."""
        messages = self._messages
        assert messages is not None
        return messages[0] if isinstance(messages, deque) else messages

    def put(self, run: Run) -> None:
        """Add a message behind all others."""
        messages = self._messages
        if messages is None:
            self._messages = run
        elif isinstance(messages, deque):
            messages.append(run)
        else:
            self._messages = deque((messages, run))
        self.count += 1
        self.bytes += weight_of(run)

    def put_first(self, run: Run) -> None:
        """Give a message back to the front."""
        messages = self._messages
        if messages is None:
            self._messages = run
        elif isinstance(messages, deque):
            messages.appendleft(run)
        else:
            self._messages = deque((run, messages))
        self.returned += 1
        self.count += 1
        self.bytes += weight_of(run)

    def take(self, index: int = 0) -> Run:
        """Remove and return a message: the oldest, or one this many places behind it."""
        messages = self._messages
        assert messages is not None
        if isinstance(messages, deque):
            run = messages[index]
            del messages[index]
            if not messages:
                self._messages = None
        else:
            run, self._messages = messages, None
        if index < self.returned:
            self.returned -= 1
        self.count -= 1
        self.bytes -= weight_of(run)
        return run

    def remove(self, is_unwanted: Callable[[Run], bool]) -> list[Run]:
        """Remove messages by a predicate."""
        messages = self.messages
        removed = [run for run in messages if is_unwanted(run)]
        if removed:
            kept = [run for run in messages if not is_unwanted(run)]
            self.returned -= sum(map(is_unwanted, messages[: self.returned]))
            self._messages = deque(kept) if kept else None
            self.count = len(kept)
            self.bytes = sum(map(weight_of, kept))
        return removed

    @property
    def messages(self) -> list[Run]:
        """All messages, oldest first."""
        messages = self._messages
        if messages is None:
            return []
        return list(messages) if isinstance(messages, deque) else [messages]


def stream_of(topic: Topic | None) -> Stream | None:
    """Return the stream of a topic, if it has one."""
    stream = None if topic is None else topic.stream
    assert stream is None or isinstance(stream, Stream)
    return stream


def weight_of(run: Run) -> int:
    """Weight of a message in a stream's memory."""
    return len(run.slab) + RUN_BYTES
