"""Paused subscriptions: records of subscriptions that a client may resume later.

A paused subscription is not a subscriber and costs publishers nothing; what it missed is read back on resume.
With a durable log it is stored from the start of its stream, so a client finds it after any kind of stop. Its
time continues across restarts. Number and bytes are limited; the oldest are dropped first.
"""

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.durability.records import PAUSED, PausedRecord
from penstock.core.node import Node
from penstock.core.ports.log import Settled
from penstock.core.runtime.bounded_map import BoundedMap

MOST_PAUSED = 100_000
MOST_BYTES = 64 * 1024 * 1024
TEXT_BYTES = 64
"""Approximate overhead of a text, and of a record for each of its fields."""
REAPED_AT_ONCE = 200
"""Records that one step drops: after a restart many may expire in the same second."""


class PausedSubscriptions:
    """The paused subscriptions, by their ids."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._resting: BoundedMap[str, PausedRecord] = BoundedMap(MOST_PAUSED)
        self.limit_bytes = MOST_BYTES
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._resting)

    def __contains__(self, id: object) -> bool:
        return id in self._resting

    @property
    def limit(self) -> int:
        """Most paused subscriptions."""
        return self._resting.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._resting.limit = limit

    # Of one subscription

    def begin(self, id: str, record: PausedRecord) -> None:
        """A stream begins, anew or resumed: if the server were killed now, it could be resumed from here."""
        self._wake(id)
        self._put(id, replace(record, paused_at=None))

    def pause(self, id: str, record: PausedRecord) -> None:
        """Pause the subscription of a stream that ended; it may be resumed until the record expires."""
        clock = self._node.clock
        record = replace(record, paused_at=clock.wall_us())
        self._put(id, record)
        self._rest(id, record, clock.monotonic() + record.ttl)

    def find(self, id: str, user: str | None) -> PausedRecord | None:
        """A subscription that is paused; None if there is none, or it is another user's."""
        record = self._resting.find(id, self._node.clock.monotonic())
        return None if record is None or record.user != user else record

    def take(self, id: str, user: str | None) -> PausedRecord | None:
        """Return and remove a paused subscription that is being resumed. The store has it until `forget`."""
        record = self.find(id, user)
        if record is not None:
            self._wake(id)
        return record

    def forget(self, id: str) -> bool:
        """Drop a subscription, paused or live. Returns whether it was paused."""
        self._node.recorder.delete(PAUSED, id)
        return self._wake(id)

    def when_stored(self, callback: Settled) -> None:
        """Call back when what was said here in this turn outlives the server, if anything does."""
        self._node.recorder.when_stored(callback)

    # Of all

    def reap(self, now: float) -> bool:
        """Forget some of those whose time is over. Returns whether there may be more."""
        stale = self._resting.take_stale(now, REAPED_AT_ONCE)
        for id, record in stale:
            self.bytes -= _size_of(record)
            self._node.recorder.delete(PAUSED, id)
        return len(stale) == REAPED_AT_ONCE

    def restore(self) -> None:
        """At start: those that were paused still are, and those that were live are paused from now on."""
        node, stored = self._node, list(self._node.state.scan(PAUSED))
        now, wall_us = node.clock.monotonic(), node.clock.wall_us()
        for id, record in sorted(stored, key=_age_of):
            assert isinstance(record, PausedRecord)
            paused_at = wall_us if record.paused_at is None else record.paused_at
            if record.paused_at is None:
                self._put(id, replace(record, paused_at=paused_at))
            away_s = max(wall_us - paused_at, 0) / 1_000_000
            self._rest(id, record, now + record.ttl - away_s)
        self.reap(now)

    def _rest(self, id: str, record: PausedRecord, expires_at: float) -> None:
        self._wake(id)
        self._resting.put(id, record, expires_at)
        self.bytes += _size_of(record)
        while len(self._resting) > self.limit or self.bytes > self.limit_bytes:
            self.forget(next(iter(self._resting)))

    def _wake(self, id: str) -> bool:
        """Remove a paused subscription from memory. Returns whether there was one."""
        record = self._resting.pop(id)
        self.bytes -= 0 if record is None else _size_of(record)
        return record is not None

    def _put(self, id: str, record: PausedRecord) -> None:
        self._node.recorder.put(PAUSED, id, record, is_urgent=True)


def _size_of(record: PausedRecord) -> int:
    """About what it takes in memory: its client decides how many texts it has, and how long they are."""
    texts = (record.client_id, *record.filters, *(record.stale or ()), *record.sequences)
    return (len(texts) + len(record.__struct_fields__)) * TEXT_BYTES + sum(map(len, texts))


def _age_of(stored: tuple[str, Struct]) -> tuple[bool, int]:
    """Sorts records by when they were paused, and those that were live last."""
    record = stored[1]
    assert isinstance(record, PausedRecord)
    return record.paused_at is None, record.paused_at or 0
