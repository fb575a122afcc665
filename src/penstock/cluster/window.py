"""Window of a shard at a peer: runs that are not settled, limited in bytes and messages.

Publishes of one route, and forwards of one route, each leave in the order in which they came. Publishes
belong to a connection and fail with it; exactly-once forwards stay until they are confirmed, and are sent
again on the next connection.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from penstock.model import Properties
from penstock.runs import Run
from penstock.wire.peer import Batch

BATCH_BYTES = 1_048_576
BATCH_RUNS = 1_000
"""Of one frame, so that other messages of the connection need not wait long."""
RUN_BYTES = 64
"""Weight of a run beside its bytes and texts."""


class Window:
    """Bytes and messages of one shard at one peer that are not settled.

    A run that is larger than the window passes if nothing else is in it.
    """

    __slots__ = ("bytes", "is_blocked", "limit_bytes", "limit_messages", "messages")

    def __init__(self, limit_bytes: int, limit_messages: int) -> None:
        self.limit_bytes = limit_bytes
        self.limit_messages = limit_messages
        self.bytes = 0
        self.messages = 0
        self.is_blocked = False
        """A run was refused, and room has not been reported since."""

    def add(self, weight: int, messages: int) -> bool:
        """Make room for a run; returns False if there is too little."""
        does_fit = self.bytes + weight <= self.limit_bytes and self.messages + messages <= self.limit_messages
        if not does_fit and self.messages:
            self.is_blocked = True
            return False
        self.bytes += weight
        self.messages += messages
        return True

    def release(self, weight: int, messages: int) -> None:
        """A run is settled or failed."""
        self.bytes -= weight
        self.messages -= messages

    def take_unblocked(self) -> bool:
        """Return, once, that half of the window is free after a run was refused."""
        if (
            not self.is_blocked
            or self.bytes * 2 > self.limit_bytes
            or self.messages * 2 > self.limit_messages
        ):
            return False
        self.is_blocked = False
        return True


class Unsettled(Struct):
    """Runs that were handed in together and wait for their settlement."""

    runs: list[Run]
    weight: int
    messages: int
    number: int
    """Of the first forward; publishes are counted by their connection."""
    token: object
    """Of the publisher, which gets the acknowledgement."""
    queued_at: float
    left: int
    """Runs that are not settled."""
    code: str = ""
    """First error with which one of them was refused."""


class RouteQueue:
    """Unsettled runs from one shard to another, in order."""

    __slots__ = (
        "_forwards",
        "_forwards_sent",
        "_last_forward",
        "_last_sent",
        "_publishes",
        "_publishes_sent",
        "_settled",
        "confirmed",
        "window",
    )

    def __init__(self, window: Window) -> None:
        self.window = window
        self.confirmed = 0
        """Last number of a forward that the receiver has confirmed."""
        self._publishes: deque[Unsettled] = deque()
        self._publishes_sent = 0
        self._settled = 0
        """Number of the last settled publish of this connection."""
        self._last_sent = 0
        self._forwards: deque[Unsettled] = deque()
        self._forwards_sent = 0
        self._last_forward = 0
        """Highest number that was handed in."""

    def add_publishes(self, runs: list[Run], token: object, now: float) -> bool:
        """Enqueue publishes of one token; returns False if the window is full."""
        return self._add(self._publishes, runs, 0, token, now)

    def add_forwards(self, number: int, runs: list[Run], now: float) -> bool:
        """Enqueue forwards with consecutive numbers; returns False if the window is full.

        Those that are confirmed need nothing.
        """
        if number + len(runs) - 1 <= self.confirmed:
            return True
        last = self._forwards[-1] if self._forwards else None
        if last is not None and number != last.number + len(last.runs):
            raise ValueError(f"forward {number} does not follow {last.number + len(last.runs) - 1}")
        if not self._add(self._forwards, runs, number, None, now):
            return False
        self._last_forward = number + len(runs) - 1
        return True

    def _add(self, queue: deque[Unsettled], runs: list[Run], number: int, token: object, now: float) -> bool:
        if not 0 < len(runs) <= BATCH_RUNS:
            raise ValueError(f"{len(runs)} runs; 1 to {BATCH_RUNS} can be handed in at once")
        weight, messages = weight_of(runs), sum([run.count for run in runs])
        if not self.window.add(weight, messages):
            return False
        queue.append(Unsettled(runs, weight, messages, number, token, now, len(runs)))
        return True

    def batches(self, origin: int, shard: int) -> Iterator[Batch]:
        """Batches of what has not been sent on this connection, which counts as sent then."""
        while self._forwards_sent < len(self._forwards):
            part = _part(self._forwards, self._forwards_sent)
            self._forwards_sent += len(part)
            yield Batch(shard, origin, part[0].number, True, [run for entry in part for run in entry.runs])
        while self._publishes_sent < len(self._publishes):
            part = _part(self._publishes, self._publishes_sent)
            self._publishes_sent += len(part)
            runs, number = [run for entry in part for run in entry.runs], self._last_sent + 1
            self._last_sent += len(runs)
            yield Batch(shard, origin, number, False, runs)

    def settle_publishes(self, first: int, last: int, code: str = "") -> list[Unsettled] | None:
        """Settle runs with these numbers, and return what is complete.

        None if they are not the next ones that were sent.
        """
        if first != self._settled + 1 or not first <= last <= self._last_sent:
            return None
        self._settled = last
        complete: list[Unsettled] = []
        count = last - first + 1
        while count:
            entry = self._publishes[0]
            settled = min(count, entry.left)
            entry.left -= settled
            entry.code = entry.code or code
            count -= settled
            if not entry.left:
                complete.append(self._release(self._publishes))
                self._publishes_sent -= 1
        return complete

    def confirm_forwards(self, last: int) -> bool:
        """Forget forwards up to a number; returns whether it is news.

        Forwards that were not handed in yet are not confirmed: they are sent, and skipped by their receiver.
        """
        last = min(last, self._last_forward)
        if last <= self.confirmed:
            return False
        self.confirmed = last
        while self._forwards and self._forwards[0].number + len(self._forwards[0].runs) - 1 <= last:
            self._release(self._forwards)
            self._forwards_sent = max(0, self._forwards_sent - 1)
        return True

    def fail_publishes(self, queued_until: float) -> list[Unsettled]:
        """Take out publishes that were queued until a time, sent or not. There is no connection then."""
        failed = []
        while self._publishes and self._publishes[0].queued_at <= queued_until:
            failed.append(self._release(self._publishes))
        self._publishes_sent = max(0, self._publishes_sent - len(failed))
        return failed

    def on_connected(self) -> None:
        """Begin a connection: numbers of publishes start again, and forwards are sent again."""
        self._settled = self._last_sent = self._publishes_sent = self._forwards_sent = 0

    def _release(self, queue: deque[Unsettled]) -> Unsettled:
        entry = queue.popleft()
        self.window.release(entry.weight, entry.messages)
        return entry


def _part(queue: deque[Unsettled], start: int) -> list[Unsettled]:
    """Entries for one frame, from an index on; at least one."""
    part: list[Unsettled] = []
    weight = runs = 0
    for entry in islice(queue, start, start + BATCH_RUNS):
        weight += entry.weight
        runs += len(entry.runs)
        if part and (weight > BATCH_BYTES or runs > BATCH_RUNS):
            break
        part.append(entry)
    return part


def weight_of(runs: list[Run]) -> int:
    """Approximate bytes of runs on the wire."""
    weight = RUN_BYTES * len(runs)
    for run in runs:
        weight += len(run.slab) + len(run.topic) + len(run.client_id)
        if run.properties is not None:
            weight += _properties_weight(run.properties)
    return weight


def _properties_weight(properties: Properties) -> int:
    texts = (
        properties.content_type,
        properties.correlation_id,
        properties.response_topic,
        properties.message_id,
    )
    pairs = sum(len(name) + len(value) for name, value in properties.user)
    return pairs + sum(len(text) for text in texts if text)
