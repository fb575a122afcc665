"""Offline queue of a persistent session.

In memory mode it holds references to runs, under its own limits. With a log on disk it holds offsets, four
bytes each while they lie close together, and messages are fetched after reconnection. An offline session can
neither block a publisher nor be disconnected: under `block` and `disconnect` the newest message is dropped,
as MQTT does by default.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence

from penstock.core.delivery.outbox import FOREVER, Entry, Outbox
from penstock.core.delivery.policy import Decision, Limits, decide, fitting
from penstock.core.ports.connection import Encoding
from penstock.model import Policy
from penstock.runs import Run

_NOTHING: deque[Entry] = deque()
"""Shared empty deque: an own one per queue would weigh as much as 150 offsets."""
_NARROW = 1 << 32
"""Offsets that are less than this apart need four bytes each."""


class OfflineQueue(Outbox):
    """Offline queue in memory: runs in order, each with its encoding."""

    __slots__ = ()

    def add(self, run: Run, encoding: Encoding, policy: Policy) -> tuple[Decision, list[Run]]:
        """Enqueue a run. Returns the decision and the dropped runs; dropped offsets are taken separately."""
        return super().add(run, encoding, _for_absent(policy))

    @property
    def takes_qos0(self) -> bool:
        """Messages that the log does not keep can wait here too."""
        return True

    @property
    def has_to_fetch(self) -> bool:
        """The next messages are in the log only."""
        return False

    @property
    def mean_bytes(self) -> int:
        """Weight of a message that is in the log only."""
        return 0

    @property
    def first_offset(self) -> int | None:
        """Oldest offset that the log has to keep for this queue; None if there is none."""
        return None

    def offer_all(self, offsets: Sequence[int], size: int) -> bool:
        """Take messages that do not expire as offsets, if all fit. Returns False if they go one by one."""
        return False

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Put fetched or queued messages back, before everything else."""
        self.add_all_first(entries)

    def peek(self, count: int) -> Sequence[int]:
        """The oldest offsets of messages that are in the log only."""
        return ()

    def discard(self, count: int) -> Sequence[int]:
        """Remove and return the oldest offsets."""
        return ()

    def discard_through(self, offset: int) -> Sequence[int]:
        """Remove and return the offsets up to this one."""
        return ()

    def take_evicted(self) -> Sequence[int]:
        """Offsets that the policy dropped or that expired since the last call."""
        return ()


class LogBackedQueue(OfflineQueue):
    """Offsets in order. Before them, as entries, what was fetched and what no offset can stand for.

    Only while some of it may expire it is also known of each when.
    """

    __slots__ = ("_base", "_evicted", "_expiries", "_places", "_start", "_stored_bytes")

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._entries = _NOTHING
        self._base = 0
        self._places = array("I")  # offsets, less the base
        self._expiries: array[float] | None = None  # of each of them
        self._start = 0  # places before this index are gone
        self._stored_bytes = 0
        self._evicted: Sequence[int] = ()  # dropped by the policy or expired, and not taken yet

    def add_first(self, run: Run, encoding: Encoding) -> None:
        self._begin_entries()
        super().add_first(run, encoding)

    def _append(self, run: Run, encoding: Encoding) -> None:
        self._begin_entries()
        super()._append(run, encoding)

    def _begin_entries(self) -> None:
        if self._entries is _NOTHING:
            self._entries = deque()

    def __len__(self) -> int:
        return self.messages + self.stored

    def __bool__(self) -> bool:
        return len(self) > 0

    @property
    def stored(self) -> int:
        return len(self._places) - self._start

    @property
    def takes_qos0(self) -> bool:
        return False  # an offset stands for a message that the log has

    @property
    def has_to_fetch(self) -> bool:
        return not self.messages and self.stored > 0

    @property
    def mean_bytes(self) -> int:
        return self._stored_bytes // self.stored if self.stored else 0

    @property
    def total_bytes(self) -> int:
        return self.bytes + self.stored * self.mean_bytes

    @property
    def first_offset(self) -> int | None:
        for run, encoding in self._entries:
            if not encoding.is_retained:
                return run.offset
        return self._base + self._places[self._start] if self.stored else None

    def place_of(self, offset: int) -> int | None:
        index = bisect_left(self._places, offset - self._base, lo=self._start)
        is_there = index < len(self._places) and self._base + self._places[index] == offset
        return self.messages + index - self._start if is_there else None

    def offer(self, run: Run, encoding: Encoding) -> bool:
        limits, places = self._limits, self._places
        messages = self.messages + len(places) - self._start + run.count
        size = self._stored_bytes + len(run.slab)
        has_room = messages <= limits.messages and size + self.bytes <= limits.bytes
        if not has_room or run.expires_at or self._expiries is not None:
            return False
        if run.count == 1:
            try:
                places.append(run.offset - self._base)
            except OverflowError:
                self._pack([*self.peek(self.stored), run.offset])
        else:
            self._extend(range(run.offset, run.offset + run.count))
        self._stored_bytes = size
        return True

    def offer_all(self, offsets: Sequence[int], size: int) -> bool:
        """At start there may be very many."""
        limits, size = self._limits, self._stored_bytes + size
        has_room = len(self) + len(offsets) <= limits.messages and size + self.bytes <= limits.bytes
        if not has_room or self._expiries is not None:
            return False
        self._extend(offsets)
        self._stored_bytes = size
        return True

    def _extend(self, offsets: Sequence[int]) -> None:
        """Add offsets, which rise and come after all others."""
        base, places = self._base, self._places
        if offsets and offsets[-1] - base >= _NARROW and places.typecode == "I":
            self._pack([*self.peek(self.stored), *offsets])
        else:
            places.extend([offset - base for offset in offsets] if base else offsets)

    def _pack(self, offsets: Sequence[int]) -> None:
        """Hold these offsets and no others, as narrow as they can be; they rise."""
        last = offsets[-1] if offsets else 0
        self._base = 0 if last < _NARROW else offsets[0]
        width = "I" if last - self._base < _NARROW else "Q"
        self._places = array(width, [offset - self._base for offset in offsets])
        if self._expiries is not None:
            del self._expiries[: self._start]
        self._start = 0

    def add(self, run: Run, encoding: Encoding, policy: Policy) -> tuple[Decision, list[Run]]:
        """The same; dropped offsets are taken with `take_evicted`."""
        size = len(run.slab) // run.count
        limits, waiting = self._limits, self.messages + self.stored
        fits = fitting(waiting, self.bytes + self._stored_bytes, limits, run.count, size)
        decision = decide(_for_absent(policy), run.count, fits)
        self._expect(run)
        self._extend(range(run.offset, run.offset + decision.accept))
        if self._expiries is not None:
            self._expiries.extend([run.expires_at or FOREVER] * decision.accept)
        self._stored_bytes += decision.accept * size
        if decision.evict:
            self._evict()
        rest = run.count - decision.accept
        return decision, [run.part(decision.accept, rest)] if rest else []

    def _expect(self, run: Run) -> None:
        """See to it that the expiry of a run can be kept, if it has one."""
        if run.expires_at:
            self.next_expiry = min(self.next_expiry, run.expires_at)
            if self._expiries is None:
                self._expiries = array("d", (FOREVER,)) * len(self._places)

    def _evict(self) -> None:
        """Drop the oldest until the limits hold; of what is in the log only the mean size is known."""
        evicted = list(self._evicted)
        while self.stored and (
            len(self) > self._limits.messages or self.bytes + self._stored_bytes > self._limits.bytes
        ):
            evicted += self.discard(1)
        self._evicted = evicted

    def take_evicted(self) -> Sequence[int]:
        evicted, self._evicted = self._evicted, ()
        return evicted

    def peek(self, count: int) -> Sequence[int]:
        return self._offsets(self._start, self._start + count)

    def _offsets(self, start: int, stop: int | None = None) -> Sequence[int]:
        base, places = self._base, self._places[start:stop]
        return [base + place for place in places] if base else places

    def discard(self, count: int) -> Sequence[int]:
        taken = self.peek(count)
        self._weigh_less(len(taken))
        self._start += len(taken)
        if self._start > 1_024 and self._start * 2 > len(self._places):
            del self._places[: self._start]
            if self._expiries is not None:
                del self._expiries[: self._start]
            self._start = 0
        return taken

    def _weigh_less(self, count: int) -> None:
        """Account for this many offsets that are about to be removed."""
        if self.stored:
            self._stored_bytes -= self._stored_bytes * count // self.stored

    def discard_through(self, offset: int) -> Sequence[int]:
        return self.discard(self._find_after(offset) - self._start)

    def discard_after(self, offset: int) -> Sequence[int]:
        first = self._find_after(offset)
        taken = self._offsets(first)
        self._weigh_less(len(taken))
        del self._places[first:]
        if self._expiries is not None:
            del self._expiries[first:]
        return taken

    def _find_after(self, offset: int) -> int:
        """The index of the first that is behind an offset."""
        return bisect_right(self._places, offset - self._base, lo=self._start)

    def remove_expired(self, now: float) -> list[Run]:
        """Take out whatever has expired. Offsets are taken with `take_evicted`."""
        if self._expiries is not None and now >= self.next_expiry:
            known = list(zip(self._offsets(self._start), self._expiries[self._start :], strict=True))
            living = [(offset, expiry) for offset, expiry in known if expiry > now]
            self._evicted = [*self._evicted, *[offset for offset, expiry in known if expiry <= now]]
            self._weigh_less(len(known) - len(living))
            self._pack([offset for offset, _ in living])
            self._expiries = array("d", [expiry for _, expiry in living])
        return super().remove_expired(now)

    def detach(self) -> deque[Entry]:
        """Take all entries out; offsets stay, and expire when they would have."""
        next_expiry = self.next_expiry
        entries = super().detach()
        if self._expiries is not None:
            self.next_expiry = next_expiry  # at the earliest
        return entries

    def remove_entries(self, is_unwanted: Callable[[Entry], bool]) -> list[Entry]:
        """Take out entries from anywhere in the queue; offsets stay."""
        removed = super().remove_entries(is_unwanted)
        if self._expiries is not None:
            next_expiry = min(self._expiries[self._start :], default=FOREVER)
            self.next_expiry = min(self.next_expiry, next_expiry)
            if next_expiry == FOREVER:
                self._expiries = None
        return removed

    def put_back(self, entries: Sequence[Entry]) -> None:
        kept = [entry for entry in entries if entry[1].is_retained]
        stored = [run for run, encoding in entries if not encoding.is_retained]
        for run, encoding in reversed(kept):  # its offset says where it was published, not what it is
            self.add_first(run, encoding)
        offsets = [offset for run in stored for offset in range(run.offset, run.offset + run.count)]
        for run in stored:
            self._expect(run)
        self._pack([*offsets, *self.peek(self.stored)])
        if self._expiries is not None:
            expiries = [run.expires_at or FOREVER for run in stored for _ in range(run.count)]
            self._expiries = array("d", expiries) + self._expiries
        self._stored_bytes += sum(len(run.slab) for run in stored)


def _for_absent(policy: Policy) -> Policy:
    return policy if policy is Policy.DROP_OLDEST else Policy.DROP_NEWEST
