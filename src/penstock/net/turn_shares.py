"""Turn shares: input beyond its share of a turn of the loop waits, and is worked off in later turns.

A connection works off what it has read in steps of bounded work. When the share of the turn is used up, it
stops reading and queues here. Queued connections take one step each, round-robin, for a few milliseconds in
each turn; those that have had no step since they queued come first, as new flows do in FQ-CoDel, and of these
the ones with a few bytes. So a client that sends little waits for a step or two, however much others send.
In each turn at least one of the others takes a step, however many newcomers there are.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import structlog

log = structlog.get_logger("penstock.turn_shares")

SHARE_S = 0.004
"""Time for input that was just read, and again for input that waits, in one turn of the loop."""
LONG_STEP_S = 0.001
"""A step that takes longer makes the next one smaller."""
SHORT_STEP_S = 0.000_25
"""A step that takes less makes the next one larger."""
MOST_WORK = 256
"""Work of one step at most; a unit is the cheapest packet."""
LEAST_WORK = 1
FIRST_WORK = 32
"""Work of the first step of a connection: nothing is known of what its input costs."""
SMALL_BYTES = 64
"""Input of a newcomer up to which it comes before all others: a ping waits for no large messages."""
CROWD = 256
"""Connections with waiting input beyond which reads are small, so that the input of all stays small."""


class Stepper(Protocol):
    """A connection that works off its input in steps."""

    @property
    def may_step(self) -> bool:
        """False while the next step waits for something else; after that the connection queues again."""
        ...

    def take_step(self, data: bytes, start: int) -> int | None:
        """Work off some of a chunk; return where the next step starts, or None if nothing is left."""
        ...

    def on_caught_up(self) -> None:
        """No input waits any more: read again."""
        ...

    def abort(self) -> None:
        """Close at once: an error of the server left the input in an unknown state."""
        ...


class Backlog:
    """Input of one connection that was read and not worked off."""

    __slots__ = ("_data", "_start", "owner")

    def __init__(self, owner: Stepper, data: bytes, start: int = 0) -> None:
        self.owner = owner
        self._data = data
        self._start = start

    def __len__(self) -> int:
        return len(self._data) - self._start

    def __bool__(self) -> bool:
        return len(self) > 0

    def add(self, data: bytes) -> None:
        """Append more input: not every transport stops at once."""
        self._data = self._data[self._start :] + data
        self._start = 0

    def work_off(self) -> bool:
        """Take one step; return True if another one can follow."""
        start = self.owner.take_step(self._data, self._start)
        if start is None:
            self.owner.on_caught_up()
            return False
        self._start = start
        return self.owner.may_step


class TurnShares:
    """Queue of the connections of one event loop that have input left.

    The loop does not say when a turn begins, and its time is not that of its last poll. So reads are charged
    with their time, and from a millisecond on a callback, which runs before the next poll, ends the count.

    Args:
        clock: monotonic time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = loop
        self.clock = clock
        self._small: deque[Backlog] = deque()  # a few bytes, and no step taken since they queued
        self._new: deque[Backlog] = deque()  # no step taken since they queued
        self._old: deque[Backlog] = deque()
        self._queued: set[Backlog] = set()
        self._is_scheduled = False
        self._spent_s = 0.0  # by reads of this turn, and by less than a millisecond of earlier ones
        self._charged_until = 0.0
        self._is_ending = False  # the callback at the end of the reads is scheduled

    def __len__(self) -> int:
        return len(self._queued)

    def __bool__(self) -> bool:
        """True, or `shares or TurnShares(loop)` would make a second queue whenever no input waits."""
        return True

    @property
    def is_crowded(self) -> bool:
        """So much input waits that more of it is read in small pieces."""
        return len(self._queued) > CROWD

    @property
    def is_used_up(self) -> bool:
        """True if the share of this turn is used up by earlier reads."""
        return self._spent_s >= SHARE_S

    def is_over(self, began: float) -> bool:
        """True if the share of this turn is used up by earlier reads and the one that began then."""
        return self._spent_s + self.clock() - began >= SHARE_S

    def charge(self, began: float) -> None:
        """Count a read that began then and ends now. One that ended within it is not counted twice."""
        now = self.clock()
        self._spent_s += now - max(began, self._charged_until)
        self._charged_until = now
        if self._spent_s > LONG_STEP_S and not self._is_ending:
            self._is_ending = True
            self._loop.call_soon(self._end_reads)

    def _end_reads(self) -> None:
        self._is_ending = False
        self._spent_s = 0.0

    def queue(self, backlog: Backlog, *, is_new: bool = False) -> None:
        """Let its connection take steps in later turns. Idempotent.

        Args:
            is_new: it has taken no step in this turn.
        """
        if backlog in self._queued:
            return
        self._queued.add(backlog)
        if not is_new:
            self._old.append(backlog)
        else:
            (self._small if 0 < len(backlog) <= SMALL_BYTES else self._new).append(backlog)
        self._schedule()

    def discard(self, backlog: Backlog) -> None:
        """Let a connection take no more steps. Idempotent."""
        self._queued.discard(backlog)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        self._is_scheduled = False
        self._spent_s = 0.0
        ends_at = self.clock() + SHARE_S
        is_old_due = bool(self._old)
        while waiting := self._small or self._new or self._old:
            is_old_due = is_old_due and waiting is not self._old
            if self._take(waiting) and self.clock() >= ends_at:
                break
        if is_old_due:
            self._take(self._old)
        if self._small or self._new or self._old:
            self._schedule()

    def _take(self, waiting: deque[Backlog]) -> bool:
        """Let the first of these take a step; return False if it was discarded."""
        backlog = waiting.popleft()
        if backlog not in self._queued:
            return False
        self._step(backlog)
        return True

    def _step(self, backlog: Backlog) -> None:
        self._queued.discard(backlog)
        try:
            has_more = backlog.work_off()
        except Exception:  # of one connection; the others continue
            log.exception("input not worked off")
            backlog.owner.abort()
            return
        if not has_more:
            self._queued.discard(backlog)  # its own step may have queued it
        elif backlog not in self._queued:
            self._queued.add(backlog)
            self._old.append(backlog)


def fitted(work: int, took_s: float) -> int:
    """Return the work of the next step, by the time that one with this much took."""
    if took_s > LONG_STEP_S:
        return max(work // 2, LEAST_WORK)
    return min(work * 2, MOST_WORK) if took_s < SHORT_STEP_S else work
