"""Rings: the last messages of each topic in memory.

Rings live in partitions. Each partition has a share of the memory and evicts its own coldest rings, so a hot
topic cannot evict the cold ones of other partitions. A ring is made with the first message of a topic.
Trimming is done in steps: a ring may exceed its limit by a quarter for a moment, or hold a merged run of
which only the end is wanted; readers never see the excess.
"""

from bisect import bisect_left
from collections import deque
from typing import cast

from penstock.core.settings import RingSettings
from penstock.runs import Run, Shape

RUN_BYTES = 256
"""Overhead of a run beside its slab."""
PLAIN_BYTES = 96
"""Overhead of a plain message in a ring beside its bytes: two objects and three places."""
_STEP_BYTES = 4096
SHED_BYTES = 64 * _STEP_BYTES
"""Most bytes that are evicted at once after a limit was lowered."""
MOST_RELEASED = 100
"""Rings without memory that may stay in the line of a partition, or half of the line if that is more."""


class Partition:
    """A share of the rings' memory. Rings reserve from it in steps; the coldest give back first."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._allowed_bytes = limit_bytes  # more than the limit while a lower one is on its way
        self.reserved_bytes = 0
        self.evictions = 0
        self._rings: deque[Ring] = deque()  # in the order in which the hand passes them
        self._released = 0  # of these: rings that have nothing reserved any more

    def __len__(self) -> int:
        return len(self._rings) - self._released

    def __bool__(self) -> bool:
        return len(self) > 0

    def reserve(self, ring: "Ring", size: int) -> None:
        """Let a ring grow to `size` bytes, at the expense of rings not used for longest."""
        if not ring.reserved_bytes:
            if ring.is_in_line:
                self._released -= 1
            else:
                self._rings.append(ring)
                ring.is_in_line = True
            ring.seen_offset = ring.last_offset  # to be new is not to be used again
        self.reserved_bytes += size - ring.reserved_bytes
        ring.reserved_bytes = size
        self._make_room(ring)

    def resize(self, limit_bytes: int) -> None:
        """Have another share of the memory; `shed` lets go of what is beyond it."""
        self.limit_bytes = limit_bytes
        self._allowed_bytes = max(limit_bytes, min(self._allowed_bytes, self.reserved_bytes))

    def shed(self) -> bool:
        """Evict one step towards a lowered limit. Returns whether there is more to do."""
        self._allowed_bytes = max(self.limit_bytes, self._allowed_bytes - SHED_BYTES)
        self._make_room()
        return self._allowed_bytes > self.limit_bytes

    def _make_room(self, ring: "Ring | None" = None) -> None:
        """Evict the coldest until the limit holds; the ring that grows only if it is alone."""
        while self.reserved_bytes > self._allowed_bytes and self._rings:
            # A second chance for each ring that was used since the hand last passed: close to LRU,
            # and an append costs nothing.
            coldest = self._rings.popleft()
            if not coldest.reserved_bytes:
                coldest.is_in_line = False
                self._released -= 1
            elif self._rings and (coldest is ring or coldest.seen_offset != coldest.last_offset):
                coldest.seen_offset = coldest.last_offset
                self._rings.append(coldest)
            else:
                self._evict(coldest)

    def release(self, ring: "Ring") -> None:
        """Release everything that a ring has reserved. It leaves the line later, together with others."""
        if ring.reserved_bytes:
            self.reserved_bytes -= ring.reserved_bytes
            ring.reserved_bytes = 0
            self._released += 1
            if self._released > MOST_RELEASED and 2 * self._released > len(self._rings):
                self._clear_line()

    def _clear_line(self) -> None:
        """Take rings out of the line that have nothing reserved."""
        for ring in self._rings:
            ring.is_in_line = bool(ring.reserved_bytes)
        self._rings = deque([ring for ring in self._rings if ring.reserved_bytes])
        self._released = 0

    def _evict(self, ring: "Ring") -> None:
        ring.is_in_line = False
        self.reserved_bytes -= ring.reserved_bytes
        ring.reserved_bytes = 0
        ring.clear()
        self.evictions += 1


class Ring:
    """Last messages of one topic.

    Most messages of a topic differ only in payload and stamps. Such a plain message is kept as a slab and two
    numbers; a mould holds what they have in common, and restores the run for a reader. A message that does
    not fit the mould is kept as a run.
    """

    __slots__ = (
        "_count",
        "_entries",
        "_first",
        "_high",
        "_limit",
        "_limit_bytes",
        "_mould",
        "_mould_client_id",
        "_mould_head",
        "_mould_shape",
        "_offsets",
        "_partition",
        "_size",
        "_times",
        "_whole",
        "forgotten_offset",
        "is_in_line",
        "reserved_bytes",
        "seen_offset",
    )

    def __init__(self, limit: int, limit_bytes: int, partition: Partition) -> None:
        self._entries: list[bytes | Run] = []  # slabs of plain messages, or runs
        self._offsets: list[int] = []  # of each entry, its first message
        self._times: list[int] = []  # of each entry; one object for all of a turn
        self._first = 0  # the sequence of the oldest message; the others follow by one
        self._whole = 0  # how many entries are runs
        self._count = 0
        self._size = 0
        self._limit = limit
        self._high = limit + limit // 4
        self._limit_bytes = limit_bytes
        self._partition = partition
        self._mould: Run | None = None
        self._mould_shape: Shape | None = None
        self._mould_client_id = ""
        self._mould_head = 0
        self.forgotten_offset = 0
        self.reserved_bytes = 0
        self.is_in_line = False  # of the partition
        self.seen_offset = 0  # the newest message when the partition's hand last passed

    def resize(self, limit: int, limit_bytes: int) -> None:
        """Keep more or less from now on."""
        # Messages of the same shape may expire from now on, which a mould does not know.
        self._mould_shape = None
        self._limit = limit
        self._high = limit + limit // 4
        self._limit_bytes = limit_bytes
        self._settle()
        if not limit_bytes:
            self.close()
        elif self.reserved_bytes:  # an append looks at nothing else as long as it fits in there
            self._reserve()

    @property
    def messages(self) -> int:
        """Number of messages for a reader."""
        return min(self._count, self._limit)

    def append(self, run: Run) -> None:
        """Add a run, and evict messages beyond the limits."""
        if (
            run.shape is self._mould_shape
            and run.client_id is self._mould_client_id
            and run.head == self._mould_head
            and run.count == 1
        ):
            slab = run.slab
            self._entries.append(slab)
            self._count += 1
            self._size += len(slab) + PLAIN_BYTES
        else:
            self._append_other(run)
        self._offsets.append(run.offset)
        self._times.append(run.published_at)
        if self._count > self._high or self._size > self.reserved_bytes:
            self._settle()

    def append_plain(
        self, slab: bytes, head: int, shape: Shape, client_id: str, offset: int, published_at: object
    ) -> bool:
        """Add a message that fits the mould, without a run; return False if it does not fit.

        Args:
            published_at: an integer. As an object, many messages of a turn share one.
        """
        if (
            shape is not self._mould_shape
            or client_id is not self._mould_client_id
            or head != self._mould_head
        ):
            return False
        self._entries.append(slab)
        self._count += 1
        self._size += len(slab) + PLAIN_BYTES
        self._offsets.append(offset)
        self._times.append(cast("int", published_at))
        if self._count > self._high or self._size > self.reserved_bytes:
            self._settle()
        return True

    def _append_other(self, run: Run) -> None:
        """The first of a kind makes the mould, once nothing is left of the last kind."""
        is_plain = run.count == 1 and run.shape.is_plain and not run.expires_at
        if not self._entries:
            self._first = run.sequence
        if is_plain and self._whole == len(self._entries):
            self._set_mould(run)
            self._entries.append(run.slab)
            self._size += len(run.slab) + PLAIN_BYTES
        else:
            self._entries.append(run)
            self._size += len(run.slab) + RUN_BYTES
            self._whole += 1
        self._count += run.count

    def _set_mould(self, run: Run | None) -> None:
        # Without the slab: a mould may outlive its message, and then nothing else counts those bytes.
        self._mould = (
            None if run is None else Run(run.topic, b"", run.head, 0, 1, run.shape, client_id=run.client_id)
        )
        self._mould_shape = None if run is None else run.shape
        self._mould_client_id = "" if run is None else run.client_id
        self._mould_head = 0 if run is None else run.head

    def _settle(self) -> None:
        if self._count > self._high or self._size > self._limit_bytes:
            if self._whole:
                self._trim()
            else:
                self._trim_plain()
        if self._size > self.reserved_bytes:
            self._reserve()

    def _reserve(self) -> None:
        steps = self._size // _STEP_BYTES + 1
        self._partition.reserve(self, min(steps * _STEP_BYTES, self._limit_bytes))

    def _trim_plain(self) -> None:
        """Plain messages only, which are most rings at most times."""
        entries = cast("list[bytes]", self._entries)
        over, size, gone = self._count - self._limit, self._size, 0
        while gone < over or size > self._limit_bytes:
            size -= len(entries[gone]) + PLAIN_BYTES
            gone += 1
        self._size = size
        self._count -= gone
        self._first += gone
        self._drop_entries(gone)

    def _trim(self) -> None:
        entries, gone = self._entries, 0
        while gone < len(entries):
            entry = entries[gone]
            count = entry.count if isinstance(entry, Run) else 1
            over = max(self._count - self._limit, 0)
            if over < count and self._size <= self._limit_bytes:
                break
            self._discount(entry)
            # Part of a merged run may still be within the limits.
            if isinstance(entry, Run) and over < count and self._keep_tail(entry, over, gone):
                break
            gone += 1
        self._drop_entries(gone)

    def _keep_tail(self, run: Run, over: int, index: int) -> bool:
        room = max(self._limit_bytes - self._size - RUN_BYTES, 0) // max(run.stride, 1)
        keep = min(run.count - over, room)
        if keep:
            tail = run.part(run.count - keep, keep)
            self._entries[index] = tail
            self._offsets[index] = tail.offset
            self._first -= keep
            self._whole += 1
            self._count += keep
            self._size += len(tail.slab) + RUN_BYTES
            self.forgotten_offset = tail.offset - 1
        return keep > 0

    def _discount(self, entry: "bytes | Run") -> None:
        """Take an entry that is about to go out of the sums."""
        if isinstance(entry, Run):
            self._count -= entry.count
            self._size -= len(entry.slab) + RUN_BYTES
            self._whole -= 1
            self._first += entry.count
        else:
            self._count -= 1
            self._size -= len(entry) + PLAIN_BYTES
            self._first += 1

    def _drop_entries(self, gone: int) -> None:
        """Remove the oldest entries, which are in no sum any more."""
        if gone:
            last = self._entries[gone - 1]
            end = last.count if isinstance(last, Run) else 1
            self.forgotten_offset = max(self.forgotten_offset, self._offsets[gone - 1] + end - 1)
            del self._entries[:gone]
            del self._offsets[:gone]
            del self._times[:gone]

    def clear(self) -> None:
        """Drop all messages."""
        self.forgotten_offset = max(self.forgotten_offset, self.last_offset)
        self._entries.clear()
        self._offsets.clear()
        self._times.clear()
        self._count = self._size = self._whole = 0
        self._set_mould(None)

    def close(self) -> None:
        """Drop all messages and release the memory."""
        self.clear()
        self._partition.release(self)

    @property
    def last_offset(self) -> int:
        """The offset of the newest message, 0 if there is none."""
        if not self._entries:
            return 0
        last = self._entries[-1]
        return self._offsets[-1] + (last.count - 1 if isinstance(last, Run) else 0)

    @property
    def evicted_offset(self) -> int:
        """The offset of the newest message that no reader gets any more, 0 if there is none."""
        over = self._count - self._limit
        if over <= 0:
            return self.forgotten_offset
        for index, entry in enumerate(self._entries):
            count = entry.count if isinstance(entry, Run) else 1
            if over <= count:
                return self._offsets[index] + over - 1
            over -= count
        return self.last_offset

    def newest(self) -> Run | None:
        """Return the run of the newest message; None if there is none."""
        if not self._entries:
            return None
        last = self._entries[-1]
        if isinstance(last, Run):
            return last
        assert self._mould is not None
        return self._cast(self._mould, last, self._first + self._count - 1, len(self._entries) - 1)

    def count_since(self, wall_us: int) -> tuple[int, int]:
        """Return the number of messages since a time, and the time of the first of them, or zeros."""
        first = bisect_left(self._times, wall_us)
        if first == len(self._times):
            return 0, 0
        count = len(self._entries) - first
        if self._whole:
            count = sum([each.count if isinstance(each, Run) else 1 for each in self._entries[first:]])
        return count, self._times[first]

    def runs(self) -> list[Run]:
        """The last messages within the limit, oldest first."""
        over = self._count - self._limit
        if over <= 0:
            return self._make_runs()
        kept: list[Run] = []
        for run in self._make_runs():
            if over >= run.count:
                over -= run.count
            elif over > 0:
                kept.append(run.part(over, run.count - over))
                over = 0
            else:
                kept.append(run)
        return kept

    def _make_runs(self) -> list[Run]:
        """Every entry as a run."""
        runs: list[Run] = []
        sequence, mould = self._first, self._mould
        for index, entry in enumerate(self._entries):
            if isinstance(entry, Run):
                runs.append(entry)
                sequence += entry.count
            else:
                assert mould is not None
                runs.append(self._cast(mould, entry, sequence, index))
                sequence += 1
        return runs

    def _cast(self, mould: Run, slab: bytes, sequence: int, index: int) -> Run:
        return Run(
            mould.topic,
            slab,
            mould.head,
            len(slab),
            1,
            mould.shape,
            client_id=mould.client_id,
            sequence=sequence,
            offset=self._offsets[index],
            published_at=self._times[index],
        )


class Rings:
    """Makes rings, each in the partition that its topic's name picks."""

    def __init__(self, settings: RingSettings) -> None:
        share = settings.total_bytes // settings.partitions
        self.partitions = tuple(Partition(share) for _ in range(settings.partitions))

    def resize(self, total_bytes: int) -> None:
        """Have more or less memory from now on, in as many partitions as before; see `shed`."""
        for partition in self.partitions:
            partition.resize(total_bytes // len(self.partitions))

    def shed(self) -> bool:
        """Evict some rings that have no room any more. Returns whether there are others."""
        return any(partition.shed() for partition in self.partitions)

    def resize_ring(self, topic: str, ring: Ring, limit: int, limit_bytes: int) -> None:
        """Let the ring of a topic keep more or less, as if it were made now."""
        ring.resize(limit, min(limit_bytes, self._partition_of(topic).limit_bytes))

    def _partition_of(self, topic: str) -> Partition:
        return self.partitions[hash(topic) % len(self.partitions)]

    def make(self, topic: str, limit: int, limit_bytes: int) -> Ring:
        """A ring for a topic."""
        partition = self._partition_of(topic)
        return Ring(limit, min(limit_bytes, partition.limit_bytes), partition)
