"""Those who wait at a stream: for a message, for room, or for news of a topic."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from penstock.core.identity import Identity
from penstock.core.receipts import Receipt
from penstock.core.sessions import Session
from penstock.core.streams.stream import Stream
from penstock.core.timeouts import Timed
from penstock.errors import PenstockError
from penstock.model import Run


class Handover(Struct, frozen=True, gc=False):
    """One message for the one who receives it."""

    run: Run
    epoch: int

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
"""Answers whether the message was written; if not, its receiver has gone."""
IsHere = Callable[[], bool]
"""Answers whether a receiver could still be given a message."""
Missed = Callable[[PenstockError], None]
Done = Callable[[Receipt | PenstockError], None]


class Wait(Protocol):
    """Something that is under way for somebody."""

    def cancel(self) -> None:
        """Whoever asked for it has gone and is not called back any more."""
        ...


class Receiver(Timed):
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
        super().__init__()
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


class Sender(Timed):
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
        super().__init__()
        self.stream = stream
        self.run = run
        self.caller = caller
        self.done = done
        self.since = since
        self._on_cancel = on_cancel

    def cancel(self) -> None:
        """Leave the line: the message was never published."""
        self._on_cancel(self)


class Pending:
    """A send that is not over: its publisher is held back, or its commit is under way."""

    __slots__ = ("_done", "inner")

    def __init__(self, done: Done) -> None:
        self._done: Done | None = done
        self.inner: Wait | None = None  # what it waits for now

    @property
    def is_cancelled(self) -> bool:
        """Nobody wants to know what becomes of it."""
        return self._done is None

    def finish(self, outcome: Receipt | PenstockError) -> None:
        """Tell what became of it, if somebody wants to know."""
        if self._done is not None:
            self._done(outcome)

    def cancel(self) -> None:
        """Whoever sent it has gone; what is published already stays so."""
        self._done = None
        if self.inner is not None:
            self.inner.cancel()
