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

from penstock.core.runtime.clock import Clock, Handle, Scheduler
from penstock.core.subscriptions.audience import Audience
from penstock.core.topics.topic import Topic
from penstock.runs import Run, Shape, Train

NOT_READ = 0.0
"""Stands for the time of a read while nothing was read."""
LONG_FLUSH_S = 0.004
"""Time that an early flush should take at most."""
MOST_PENDING = 1_024
"""Runs and packets after which a long input is flushed at the latest."""
LEAST_PENDING = 1
FIRST_DELIVERIES = 4_096
"""Deliveries after which a long input is flushed, until it is known how long they take."""
MOST_DELIVERIES = 16_384
LEAST_DELIVERIES = 64
STRETCHES_COUNTED = 16


class TrainPart:
    """Published messages of a train that have one audience."""

    __slots__ = ("client_id", "first", "offset", "published_at", "sequences", "topics", "train")

    def __init__(self, train: Train, first: int, client_id: str, offset: int, published_at: int) -> None:
        self.train = train
        self.first = first
        """Index of the first message in the train."""
        self.client_id = client_id
        self.offset = offset
        """Offset of the first message; the others follow by one."""
        self.published_at = published_at
        self.topics: list[Topic] = []
        self.sequences: list[int] = []

    @property
    def slab(self) -> bytes:
        """Frames of all messages."""
        first, ends, slab = self.first, self.train.ends, self.train.slab
        if not first and len(self.topics) == len(ends):
            return slab
        return slab[ends[first - 1] if first else 0 : ends[first + len(self.topics) - 1]]

    @property
    def longest(self) -> int:
        """Length of the longest frame."""
        ends = self.train.ends
        start, longest = ends[self.first - 1] if self.first else 0, 0
        for index in range(self.first, self.first + len(self.topics)):
            longest = max(longest, ends[index] - start)
            start = ends[index]
        return longest

    def make_runs(self) -> list[Run]:
        """The messages as runs, with their stamps."""
        first, offset, sequences = self.first, self.offset, self.sequences
        return [
            self.train.run(first + index, self.client_id, self.published_at, offset + index, sequences[index])
            for index in range(len(self.topics))
        ]


class Stretch:
    """Consecutive messages of one audience and one shape: runs, or a part of a train."""

    __slots__ = ("audience", "part", "reach", "read_at", "runs", "shape", "topic")

    def __init__(
        self,
        topic: Topic,
        audience: Audience[Any],
        shape: Shape,
        runs: list[Run],
        read_at: float,
        part: TrainPart | None = None,
    ) -> None:
        self.topic = topic
        """That of the first run; others may follow."""
        self.audience = audience
        self.shape = shape
        self.runs = runs
        self.read_at = read_at
        """When its first byte was read, on the monotonic clock."""
        self.reach: int | None = None
        """Sessions that got all of it, once delivered; None if none got anything."""
        self.part = part
        """Its messages, if no run was made of them yet."""

    def as_runs(self) -> list[Run]:
        """The messages as runs; those of a train are made at the first call."""
        if self.part is not None and not self.runs:
            self.runs = self.part.make_runs()
        return self.runs

    @property
    def first_offset(self) -> int:
        """Offset of the first message."""
        return self.runs[0].offset if self.part is None else self.part.offset

    def __len__(self) -> int:
        """Number of runs, or of messages of a train."""
        return len(self.runs) if self.part is None else len(self.part.topics)

    def __bool__(self) -> bool:
        return True


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
        self.batches: dict[Topic, Batch] = {}  # of topics with their own size or time
        self._last_chunk_at = 0.0
        self.is_open = False
        self.is_durable = False  # then nothing is gathered that a crash must not lose
        self.is_ending = False  # what is done now still belongs to the turn
        self.wall_us = 0  # the time of everything published in this turn
        self.read_at = NOT_READ  # when the first of it was read
        self.on_end: Callable[[], None] = lambda: None  # what was left by the turn can be committed
        self._pending = 0  # runs and packets of a long input since the last early flush
        self._pending_limit = MOST_PENDING // 4
        self._deliveries_limit = FIRST_DELIVERIES
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
            if topic in self.batches:
                self._release(topic)
            self._append(topic, run, self.read_at)
        return self.last

    def add_part(self, part: TrainPart) -> None:
        """Begin a stretch with messages of a train. No run may join it."""
        topic = part.topics[0]
        self._stretches.append(Stretch(topic, topic.audience, part.train.shape, [], self.read_at, part))
        self.last = None

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
        batch = self.batches.get(topic)
        if batch is None:
            timer = self._scheduler.call_later(topic.rules.batch_timeout, lambda: self._release(topic))
            batch = self.batches[topic] = Batch(timer, self.read_at)
        batch.runs.append(run)
        batch.count += run.count
        if batch.count >= topic.rules.batch_size:
            self._release(topic)

    def _release(self, topic: Topic) -> None:
        batch = self.batches.pop(topic)
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
        return min([stretch.first_offset for stretch in self._stretches], default=None)

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
        if not self._stretches or self.is_ending:
            return
        deliveries = self._estimate()
        is_wide = deliveries >= self._deliveries_limit
        if self._pending < self._pending_limit and not is_wide:
            return
        self._pending = 0
        began = self._clock.monotonic()
        self.flush()
        took_s = self._clock.monotonic() - began
        if is_wide:
            self._fit_deliveries(deliveries, took_s)
        elif took_s > LONG_FLUSH_S:
            fitting = int(self._pending_limit * LONG_FLUSH_S / took_s)
            self._pending_limit = max(fitting, LEAST_PENDING)
        elif took_s < LONG_FLUSH_S / 2:
            self._pending_limit = min(self._pending_limit * 2, MOST_PENDING)

    def _estimate(self) -> int:
        """Return about how many deliveries a flush would make now: of many stretches, some are counted."""
        stride = len(self._stretches) // STRETCHES_COUNTED + 1
        deliveries = 0
        for stretch in self._stretches[::stride]:
            deliveries += len(stretch) * stretch.audience.width
        return deliveries * stride

    def _fit_deliveries(self, deliveries: int, took_s: float) -> None:
        """Adapt the limit to a flush of many deliveries.

        It has nothing to do with the other limit, which messages of few subscribers may have raised.
        """
        if took_s > LONG_FLUSH_S:
            self._deliveries_limit = max(int(deliveries * LONG_FLUSH_S / took_s), LEAST_DELIVERIES)
        elif took_s < LONG_FLUSH_S / 2:
            self._deliveries_limit = min(self._deliveries_limit * 2, MOST_DELIVERIES)

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
        for topic in list(self.batches):
            self._release(topic)
        if self._stretches:
            self.flush()

    def close(self) -> None:
        """Release every batch and flush: nothing is left behind."""
        for topic in list(self.batches):
            self._release(topic)
        self.flush()
