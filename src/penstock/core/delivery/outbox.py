"""Outbox: bounded FIFO queue of one connected subscriber, limited by messages and bytes.

It is empty while the subscriber keeps up. Entries are references to runs with their encoding, so queueing
copies nothing. `policy.py` decides about overflow; the caller records drops in the ledger. Offline queues
have the same interface, and may keep messages in the log only.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from sys import maxsize

from penstock.core.delivery.policy import Bounds, Decision, decide, fitting
from penstock.core.ports.connection import Encoding
from penstock.model import Policy
from penstock.runs import NEVER, Run

Entry = tuple[Run, Encoding]
FOREVER = float("inf")


class Outbox:
    """A bounded queue of runs for one subscriber."""

    __slots__ = (
        "_entries",
        "_limits",
        "bytes",
        "high_watermark",
        "is_short_of_bytes",
        "messages",
        "next_expiry",
    )

    def __init__(self, limits: Bounds) -> None:
        self._entries: deque[Entry] = deque()
        self._limits = limits
        self.messages = 0
        self.bytes = 0
        self.high_watermark = 0
        self.is_short_of_bytes = False  # what did not fit last was too large, not too many
        self.next_expiry = FOREVER

    def __len__(self) -> int:
        return self.messages

    def __bool__(self) -> bool:
        return self.messages > 0

    @property
    def is_over(self) -> bool:
        """Holds more than its limits, as it may under `block`."""
        return self.messages > self._limits.messages or self.bytes > self._limits.bytes

    @property
    def saturation(self) -> float:
        """Fill level by messages or bytes, the larger of both, from 0 to 1."""
        messages, size = self._limits.reach
        return min(max(self.messages / max(messages, 1), self.bytes / max(size, 1)), 1.0)

    @property
    def limits(self) -> Bounds:
        """Limits at this moment."""
        return self._limits

    @property
    def may_expire(self) -> bool:
        """Some entry expires, or did a moment ago."""
        return self.next_expiry != FOREVER

    @property
    def stored(self) -> int:
        """Number of messages that are in the log only: none, unless the queue is backed by the log."""
        return 0

    @property
    def total_bytes(self) -> int:
        """Weight of all messages, those in the log included."""
        return self.bytes

    def place_of(self, offset: int) -> int | None:
        """Number of messages before one that is in the log only; None if it is not queued so."""
        return None

    def discard_after(self, offset: int) -> Sequence[int]:
        """Remove and return the offsets behind this one, of messages that are in the log only."""
        return ()

    def has_room(self, run: Run) -> bool:
        """All of a run fits."""
        return self._fitting(run) == run.count

    def make_room(self, run: Run) -> bool:
        """Borrow room for a run that does not fit. Returns whether all of it fits now."""
        if self._fitting(run) == run.count:
            return True
        messages, size = self.messages + run.count, self.bytes + len(run.slab)
        return self._limits.grow(messages, size, len(self._entries) + 1) and self.has_room(run)

    def _fitting(self, run: Run) -> int:
        return fitting(self.messages, self.bytes, self._limits, run.count, len(run.slab) // run.count)

    def offer(self, run: Run, encoding: Encoding) -> bool:
        """Take a run if all of it fits; the quick way where no policy has to decide."""
        limits = self._limits
        messages, size = self.messages + run.count, self.bytes + len(run.slab)
        if messages > limits.messages or size > limits.bytes or run.expires_at:
            return False
        self._entries.append((run, encoding))
        self.messages, self.bytes = messages, size
        self.high_watermark = max(self.high_watermark, messages)
        return True

    def add(self, run: Run, encoding: Encoding, policy: Policy) -> tuple[Decision, list[Run]]:
        """Enqueue as much of a run as the policy takes. Returns the decision and the dropped runs."""
        self.make_room(run)
        decision = decide(policy, run.count, self._fitting(run))
        dropped: list[Run] = []
        if decision.close:
            self.is_short_of_bytes = self.messages + run.count <= self._limits.messages
        if decision.accept:
            self._append(run.part(0, decision.accept), encoding)
        if decision.accept < run.count:
            dropped.append(run.part(decision.accept, run.count - decision.accept))
        if decision.evict:
            dropped += self.shrink()
        self.high_watermark = max(self.high_watermark, self.messages)
        return decision, dropped

    def add_first(self, run: Run, encoding: Encoding) -> None:
        """Put back what was taken, before everything else, whatever the limits say."""
        self._entries.appendleft((run, encoding))
        self._count(run)

    def add_all_first(self, entries: Sequence[Entry]) -> None:
        """Put back many entries that were taken, before everything else, whatever the limits say."""
        self._entries.extendleft(reversed(entries))
        self.messages += sum([run.count for run, _ in entries])
        self.bytes += sum([len(run.slab) for run, _ in entries])
        expiries = [run.expires_at for run, _ in entries if run.expires_at != NEVER]
        self.next_expiry = min(self.next_expiry, min(expiries, default=FOREVER))

    def add_last(self, run: Run, encoding: Encoding) -> None:
        """Put what was fetched behind everything else, whatever the limits say."""
        self._append(run, encoding)

    def shrink(self) -> list[Run]:
        """Drop the oldest until the limits hold."""
        dropped: list[Run] = []
        while self.is_over:
            run, encoding = self._take_first()
            keep = self._fitting(run)
            if keep:
                self.add_first(run.part(run.count - keep, keep), encoding)
            dropped.append(run.part(0, run.count - keep))
        return dropped

    def entries(self) -> Iterator[Entry]:
        """Iterate over the entries in order, without removing them."""
        return iter(self._entries)

    def runs(self) -> Iterator[Run]:
        """The runs that wait, in order, to be looked at."""
        for run, _ in self._entries:
            yield run

    def take(self, limit_bytes: int, most: int = maxsize) -> list[Entry]:
        """The next entries, at least one, up to about `limit_bytes` and not more than `most`."""
        taken: list[Entry] = []
        size = 0
        while self._entries and (size < limit_bytes or not taken) and len(taken) < most:
            entry = self._take_first()
            size += len(entry[0].slab)
            taken.append(entry)
        return taken

    def settle(self) -> None:
        """Return borrowed room that is not needed any more: after some was taken, and the rest put back."""
        self._limits.settle(self.messages, self.bytes, len(self._entries))

    def detach(self) -> deque[Entry]:
        """Take all entries out, in constant time; the caller owns them."""
        entries = self._empty()
        self.settle()
        return entries

    def _empty(self) -> deque[Entry]:
        entries, self._entries = self._entries, deque()
        self.messages = self.bytes = 0
        self.next_expiry = FOREVER
        return entries

    def reencode(self, reencode: Callable[[Encoding], Encoding]) -> None:
        """Replace the encodings of all entries."""
        self._entries = deque([(run, reencode(encoding)) for run, encoding in self._entries])

    def remove_expired(self, now: float) -> list[Run]:
        """Take out whatever has expired, anywhere in the queue."""
        if now < self.next_expiry:
            return []
        return [run for run, _ in self.remove_entries(lambda entry: NEVER < entry[0].expires_at <= now)]

    def remove(self, is_unwanted: Callable[[Run], bool]) -> list[Entry]:
        """Take out runs from anywhere in the queue."""
        return self.remove_entries(lambda entry: is_unwanted(entry[0]))

    def remove_entries(self, is_unwanted: Callable[[Entry], bool]) -> list[Entry]:
        """Take out entries from anywhere in the queue."""
        removed: list[Entry] = []
        kept: list[Entry] = []
        for entry in self._empty():
            (removed if is_unwanted(entry) else kept).append(entry)
        self.add_all_first(kept)
        self.settle()  # not before: what stays keeps its room
        return removed

    def _append(self, run: Run, encoding: Encoding) -> None:
        self._entries.append((run, encoding))
        self._count(run)

    def _count(self, run: Run) -> None:
        self.messages += run.count
        self.bytes += len(run.slab)
        if NEVER < run.expires_at < self.next_expiry:
            self.next_expiry = run.expires_at

    def _take_first(self) -> Entry:
        entry = self._entries.popleft()
        self.messages -= entry[0].count
        self.bytes -= len(entry[0].slab)
        return entry
