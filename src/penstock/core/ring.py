"""The last messages of each topic, in memory, for those who come a little late.

Rings live in partitions. Each partition has its share of the memory and evicts its own coldest rings,
so a hot topic cannot push out the cold ones of other partitions. A ring is made with a topic's first
message. Trimming is done in steps: a ring may hold a quarter more than its limit for a moment, or all of
a merged run of which only the end is wanted; readers never see it.
"""

from collections import deque
from operator import attrgetter

from penstock.core.settings import RingSettings
from penstock.model import Run

RUN_BYTES = 256
"""What a run costs beside its slab."""
_STEP_BYTES = 4096
_slab_of = attrgetter("slab")


class Partition:
    """A share of the rings' memory. Rings reserve from it in steps; the coldest give back first."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.reserved_bytes = 0
        self.evictions = 0
        self._rings: deque[Ring] = deque()

    def __len__(self) -> int:
        return len(self._rings)

    def reserve(self, ring: "Ring", size: int) -> None:
        """Let a ring grow to `size` bytes, at the expense of rings not used for longest."""
        if not ring.reserved_bytes:
            self._rings.append(ring)
            ring.seen_offset = ring.last_offset  # to be new is not to be used again
        self.reserved_bytes += size - ring.reserved_bytes
        ring.reserved_bytes = size
        while self.reserved_bytes > self.limit_bytes and self._rings:
            # A second chance for each ring that was used since the hand last passed: close to LRU,
            # and an append costs nothing.
            coldest = self._rings.popleft()
            if self._rings and (coldest is ring or coldest.seen_offset != coldest.last_offset):
                coldest.seen_offset = coldest.last_offset
                self._rings.append(coldest)
            else:
                self._evict(coldest)

    def release(self, ring: "Ring") -> None:
        """Take back everything a ring has reserved."""
        if ring.reserved_bytes:
            self._rings.remove(ring)
            self.reserved_bytes -= ring.reserved_bytes
            ring.reserved_bytes = 0

    def _evict(self, ring: "Ring") -> None:
        self.reserved_bytes -= ring.reserved_bytes
        ring.reserved_bytes = 0
        ring.clear()
        self.evictions += 1


class Ring:
    """The last messages of one topic."""

    __slots__ = (
        "_count",
        "_forgotten_offset",
        "_high",
        "_limit",
        "_limit_bytes",
        "_partition",
        "_runs",
        "_size",
        "reserved_bytes",
        "seen_offset",
    )

    def __init__(self, limit: int, limit_bytes: int, partition: Partition) -> None:
        self._runs: list[Run] = []
        self._count = 0
        self._size = 0
        self._limit = limit
        self._high = limit + limit // 4
        self._limit_bytes = limit_bytes
        self._partition = partition
        self.reserved_bytes = 0
        self._forgotten_offset = 0
        self.seen_offset = 0  # the newest message when the partition's hand last passed

    @property
    def messages(self) -> int:
        """How many messages it has for a reader."""
        return min(self._count, self._limit)

    def append(self, run: Run) -> None:
        """Keep a run, and let go of what is beyond the limits."""
        self._runs.append(run)
        self._count += run.count
        self._size += len(run.slab) + RUN_BYTES
        if self._count > self._high or self._size > self.reserved_bytes:
            self._settle()

    def _settle(self) -> None:
        if self._count > self._high or self._size > self._limit_bytes:
            self._trim()
        if self._size > self.reserved_bytes:
            steps = self._size // _STEP_BYTES + 1
            self._partition.reserve(self, min(steps * _STEP_BYTES, self._limit_bytes))

    def _trim(self) -> None:
        if self._count == len(self._runs) and self._size <= self._limit_bytes:
            self._trim_singles()
        else:
            self._trim_runs()

    def _trim_singles(self) -> None:
        """Runs of one message each, and only too many of them: no need to look at each by itself."""
        over = self._count - self._limit
        gone = self._runs[:over]
        del self._runs[:over]
        self._count = self._limit
        self._size -= sum(map(len, map(_slab_of, gone))) + over * RUN_BYTES
        self._forgotten_offset = gone[-1].offset

    def _trim_runs(self) -> None:
        runs, gone = self._runs, 0
        while gone < len(runs):
            oldest = runs[gone]
            over = max(self._count - self._limit, 0)
            if over < oldest.count and self._size <= self._limit_bytes:
                break
            gone += 1
            self._forget(oldest)
            # Part of a merged run may still be within the limits.
            if over < oldest.count and self._keep_tail(oldest, over, gone):
                break
        del runs[:gone]

    def _keep_tail(self, run: Run, over: int, gone: int) -> bool:
        room = max(self._limit_bytes - self._size - RUN_BYTES, 0) // max(run.stride, 1)
        keep = min(run.count - over, room)
        if keep:
            tail = run.part(run.count - keep, keep)
            self._runs.insert(gone, tail)
            self._count += keep
            self._size += len(tail.slab) + RUN_BYTES
            self._forgotten_offset = tail.offset - 1
        return keep > 0

    def _forget(self, run: Run) -> None:
        self._count -= run.count
        self._size -= len(run.slab) + RUN_BYTES
        self._forgotten_offset = run.offset + run.count - 1

    def clear(self) -> None:
        """Let go of everything."""
        for run in self._runs:
            self._forget(run)
        self._runs.clear()

    def close(self) -> None:
        """Let go of everything and give the memory back."""
        self.clear()
        self._partition.release(self)

    @property
    def last_offset(self) -> int:
        """The offset of the newest message, 0 if there is none."""
        return self._runs[-1].offset + self._runs[-1].count - 1 if self._runs else 0

    @property
    def evicted_offset(self) -> int:
        """The offset of the newest message that no reader gets any more, 0 if there is none."""
        over, offset = self._count - self._limit, self._forgotten_offset
        for run in self._runs:
            if over <= 0:
                break
            offset = run.offset + min(over, run.count) - 1
            over -= run.count
        return offset

    def runs(self) -> list[Run]:
        """The last messages within the limit, oldest first."""
        over = self._count - self._limit
        if over <= 0:
            return list(self._runs)
        kept: list[Run] = []
        for run in self._runs:
            if over >= run.count:
                over -= run.count
            elif over > 0:
                kept.append(run.part(over, run.count - over))
                over = 0
            else:
                kept.append(run)
        return kept

    def since(self, sequence: int) -> list[Run]:
        """What it has after a sequence, oldest first."""
        return [_after(run, sequence) for run in self.runs() if run.sequence + run.count - 1 > sequence]


def _after(run: Run, sequence: int) -> Run:
    skip = max(sequence - run.sequence + 1, 0)
    return run.part(skip, run.count - skip)


class Rings:
    """Makes rings, each in the partition that its topic's name picks."""

    def __init__(self, settings: RingSettings) -> None:
        share = settings.total_bytes // settings.partitions
        self.partitions = tuple(Partition(share) for _ in range(settings.partitions))

    def make(self, topic: str, limit: int, limit_bytes: int) -> Ring:
        """A ring for a topic."""
        partition = self.partitions[hash(topic) % len(self.partitions)]
        return Ring(limit, min(limit_bytes, partition.limit_bytes), partition)
