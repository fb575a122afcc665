"""Tick: one flush per turn of the loop delivers everything published in that turn.

An idle server flushes at once, a busy one batches by itself. Consecutive runs with the same audience and
shape form a stretch, which is encoded once per class of subscribers. A topic with its own batch size or time
is gathered here until that is reached, with two exceptions: QoS 1 and 2 with a durable log, because stored
messages must be in delivery in the same turn, and topics with a subscriber that tracks cursors, which would
skip the gathered messages.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from msgspec import Struct

from penstock.core.runtime.clock import Clock, Handle, Scheduler
from penstock.core.subscriptions.audience import Audience
from penstock.core.topics.topic import Topic
from penstock.model import Run, Shape

NOT_READ = 0.0
"""Stands for the time of a read while nothing was read."""
LONG_FLUSH_S = 0.004
"""Time that an early flush should take at most."""
MOST_PENDING = 1_024
"""Runs and packets after which a long input is flushed at the latest."""
LEAST_PENDING = 1


class Stretch(Struct):
    """Consecutive runs of one audience and one shape."""

    topic: Topic
    """That of the first run; others may follow."""
    audience: Audience[Any]
    shape: Shape
    runs: list[Run]
    read_at: float
    """When its first byte was read, on the monotonic clock."""
    reach: int | None = None
    """Sessions that got all of it, once delivered; None if none got anything."""


class Batch:
    """Batch that is gathered for a topic with its own batch size or time."""

    __slots__ = ("count", "read_at", "runs", "timer")

    def __init__(self, timer: Handle, read_at: float) -> None:
        self.runs: list[Run] = []
        self.count = 0
        self.timer = timer
        self.read_at = read_at  # of the first


class _Ending(AbstractContextManager[None]):
    """Context without state that makes one call at its end; the same object serves every chunk."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        self._call()


class Tick:
    """The present turn of the loop."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self.on_flush: Callable[[list[Stretch]], None] = lambda stretches: None  # takes them to everyone
        self._stretches: list[Stretch] = []
        self.last: Stretch | None = None  # the stretch that a run may still join
        self._after: list[Callable[[], None]] = []
        self._batches: dict[Topic, Batch] = {}
        self._last_chunk_at = 0.0
        self.is_open = False
        self.is_durable = False  # then nothing is gathered that a crash must not lose
        self.is_ending = False  # what is done now still belongs to the turn
        self.wall_us = 0  # the time of everything published in this turn
        self.read_at = NOT_READ  # when the first of it was read
        self.on_end: Callable[[], None] = lambda: None  # what was left by the turn can be committed
        self._pending = 0  # runs and packets of a long input since the last early flush
        self._pending_limit = MOST_PENDING // 4
        self._lone_chunk = _Ending(self.flush)
        self._nested_chunk = _Ending(self.forget_read)

    def open(self) -> None:
        """Begin a turn: take the time and ask for the flush."""
        self.is_open = True
        self.wall_us = self._clock.wall_us()
        if self.read_at == NOT_READ:
            self.read_at = self._clock.monotonic()
        self._scheduler.call_soon(self.flush)

    def chunk(self, now: float) -> AbstractContextManager[None]:
        """Begin a turn for one chunk of input, or join the open turn.

        The context ends the turn of a lone chunk with a flush, whatever happened: a turn that was opened
        has to end, or every waiter waits forever.
        """
        return self._lone_chunk if self.open_alone(now) else self._nested_chunk

    def open_alone(self, now: float) -> bool:
        """Begin a turn for one chunk by itself, if no other chunk came within the same loop time.

        `now` is the loop's time, which advances in milliseconds. On an idle server this saves a turn of the
        loop; on a busy one chunks come closer than that and share a flush. If the chunk published nothing,
        `forget_read` follows.
        """
        if self.is_open:
            self._last_chunk_at = now
            return False
        is_alone = now > self._last_chunk_at
        self._last_chunk_at = now
        self.read_at = self._clock.monotonic()
        if is_alone:
            self.is_open = True
            self.wall_us = self._clock.wall_us()
        return is_alone

    def forget_read(self) -> None:
        """Nothing was published of what was read: the next turn has nothing to do with it."""
        if not self.is_open:
            self.read_at = NOT_READ

    def add(self, topic: Topic, run: Run) -> Stretch | None:
        """Begin a stretch with a run that cannot join the last.

        Returns the stretch that the next run may join.
        """
        if topic.rules.batch_size and self._may_wait(topic, run):
            self._gather(topic, run)
        else:
            if topic in self._batches:
                self._release(topic)
            self._append(topic, run, self.read_at)
        return self.last

    def _may_wait(self, topic: Topic, run: Run) -> bool:
        """Return whether a run may be gathered: later runs may overtake it, and a crash may lose it."""
        return not (run.shape.qos and self.is_durable) and not topic.audience.has_cursors

    def _append(self, topic: Topic, run: Run, read_at: float) -> None:
        last = self.last
        if last is not None and last.audience is topic.audience and last.shape is run.shape:
            last.runs.append(run)
        else:
            self.last = Stretch(topic, topic.audience, run.shape, [run], read_at)
            self._stretches.append(self.last)

    def _gather(self, topic: Topic, run: Run) -> None:
        """Queue a run of a topic that waits for a batch of its own size or time."""
        batch = self._batches.get(topic)
        if batch is None:
            timer = self._scheduler.call_later(topic.rules.batch_timeout, lambda: self._release(topic))
            batch = self._batches[topic] = Batch(timer, self.read_at)
        batch.runs.append(run)
        batch.count += run.count
        if batch.count >= topic.rules.batch_size:
            self._release(topic)

    def _release(self, topic: Topic) -> None:
        batch = self._batches.pop(topic)
        batch.timer.cancel()
        if not self.is_open:
            self.open()
        self.last = None  # offsets rise within a stretch, and these are older than what came meanwhile
        for run in batch.runs:
            self._append(topic, run, batch.read_at)
        self.last = None

    @property
    def first_offset(self) -> int | None:
        """Oldest offset that was published and not delivered; None if there is none.

        Gathered batches are left out: no subscriber there tracks offsets.
        """
        return min((stretch.runs[0].offset for stretch in self._stretches), default=None)

    def after(self, callback: Callable[[], None]) -> None:
        """Call back when this turn's deliveries have left: the time for acknowledgements."""
        if not self.is_open:
            self.open()
        self._after.append(callback)

    def flush(self) -> None:
        """Deliver everything, call the callbacks of this turn, and end the turn."""
        self.is_open = False
        self.read_at = NOT_READ
        self.is_ending = True
        self.last = None
        stretches, self._stretches = self._stretches, []
        try:
            if stretches:
                self.on_flush(stretches)
        finally:
            try:
                self._call_back()
            finally:
                self.is_ending = False
                self.on_end()

    def flush_part(self, count: int) -> None:
        """Flush within a long input once enough of it was published, so that its steps include that time.

        Enough is less where a flush takes long: messages with many subscribers, or with slow ones.

        Args:
            count: runs and packets worked off since the last call.
        """
        self._pending += count
        if self._pending < self._pending_limit or not self._stretches or self.is_ending:
            return
        self._pending = 0
        began = self._clock.monotonic()
        self.flush()
        took_s = self._clock.monotonic() - began
        if took_s > LONG_FLUSH_S:
            fitting = int(self._pending_limit * LONG_FLUSH_S / took_s)
            self._pending_limit = max(fitting, LEAST_PENDING)
        elif took_s < LONG_FLUSH_S / 2:
            self._pending_limit = min(self._pending_limit * 2, MOST_PENDING)

    def _call_back(self) -> None:
        callbacks, self._after = self._after, []
        failure: Exception | None = None
        for callback in callbacks:
            try:
                callback()
            except Exception as error:  # of one of them; the others are acknowledged
                failure = error
        if failure is not None:
            raise failure

    def take_back(self) -> None:
        """Drop undelivered messages of this turn that had to be stored; the others are delivered.

        Callbacks of the flush run now, before those of the failed commit.
        """
        self._call_back()
        self.last = None
        stretches, self._stretches = self._stretches, []
        for stretch in stretches:
            if not (stretch.shape.qos and stretch.audience.wants_storing):
                self._stretches.append(stretch)

    def settle(self) -> None:
        """Deliver what was published before a subscriber comes or goes, to the present subscribers."""
        for topic in list(self._batches):
            self._release(topic)
        if self._stretches:
            self.flush()

    def close(self) -> None:
        """Release every batch and flush: nothing is left behind."""
        for topic in list(self._batches):
            self._release(topic)
        self.flush()
