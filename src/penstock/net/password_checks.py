"""Password checks of all doors: one bounded queue, fair between client addresses, a few threads.

Passwords are slow to check on purpose, so wrong ones would make others wait. Addresses take turns (fair
queueing), and one address has half of the threads at most: however many checks it has waiting, those of
another address begin at once. When the queue is full, the address with the longest queue loses its newest
check. Equal credentials from one address share one check, and a check that no request waits for any more is
cancelled. An address that sent too many wrong passwords has to wait: see `address_limits.py`.
"""

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial

from msgspec import Struct

from penstock.core.access.access import SLOW_CHECKS_AT_ONCE, Access
from penstock.errors import QuotaExceeded
from penstock.net.address_limits import AddressLimits, network_of

MOST_CHECKS = 256
"""Password checks that may wait: about as many as can be done within their deadline."""
PER_ADDRESS_AT_ONCE = SLOW_CHECKS_AT_ONCE // 2
"""Checks of one address at the same time, so that a thread is free for another address."""
TURN_TIMEOUT_S = 10.0
"""Longest that a check waits for its turn; once it has begun, it takes as long as it takes."""
REPORT_INTERVAL_S = 10.0
"""Interval of log lines about refused checks."""
REFUSED_REMEMBERED = 1_024
"""Addresses whose refused checks are counted one by one between two reports; the totals are exact."""

Key = tuple[int, str, str | None, bytes | None]
"""Identity of a check: generation of the files, address, user and password."""


class TooManyWaiting(Exception):
    """Too many password checks are waiting; the client may retry."""


class Refusal(StrEnum):
    """Reason why a password was not checked."""

    BUSY = "busy"
    """The queue is full."""
    LATE = "late"
    """Its turn did not come in time."""
    FAILURES = "failures"
    """Its address has sent too many wrong passwords."""


class RefusedChecks(Struct, frozen=True):
    """Refused checks since the last report by reason, and the address with most of them."""

    busy: int
    late: int
    failures: int
    worst: str
    worst_count: int


class _Check(Struct, eq=False):
    """A waiting or running check, and the number of requests that wait for it."""

    key: Key
    verdict: "asyncio.Future[bool]"
    deadline: asyncio.TimerHandle
    requests: int = 0


class PasswordChecks:
    """The checks of all doors.

    Args:
        at_once: checks at the same time.
        limit: checks that may wait for their turn.
        timeout_s: longest that a check waits for its turn.
    """

    def __init__(
        self,
        access: Access,
        loop: asyncio.AbstractEventLoop,
        address_limits: AddressLimits,
        *,
        at_once: int = SLOW_CHECKS_AT_ONCE,
        limit: int = MOST_CHECKS,
        timeout_s: float = TURN_TIMEOUT_S,
    ) -> None:
        self._access = access
        self._loop = loop
        self._address_limits = address_limits
        self._at_once = at_once
        self._limit = limit
        self._timeout_s = timeout_s
        self._threads: ThreadPoolExecutor | None = None
        self._is_closed = False
        self._checks: dict[Key, _Check] = {}  # waiting and running
        self._queues: dict[str, dict[Key, _Check]] = {}  # waiting ones by address; the next turn is first
        self.waiting = 0
        """Number of checks that wait for their turn."""
        self._running_at: Counter[str] = Counter()  # checks that are being done, by address
        self.refused: dict[str, int] = dict.fromkeys(Refusal, 0)
        """Totals of refused checks by reason."""
        self._refused_before = dict(self.refused)  # at the last report
        self._refused_by_address: dict[str, int] = {}
        self._reported_at = loop.time() - REPORT_INTERVAL_S

    def close(self) -> None:
        """Stop checking; requests that wait are refused. Idempotent."""
        self._is_closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        for check in list(self._checks.values()):
            self._leave_queue(check)
            self._settle(check, TooManyWaiting())

    @property
    def running(self) -> int:
        """Number of checks that are being done."""
        return self._running_at.total()

    async def verify(self, user: str | None, password: bytes | None, host: str) -> bool:
        """Return True if credentials from an address are valid. Cancelling the caller cancels the check.

        Raises:
            QuotaExceeded: too many wrong passwords from this address.
            TooManyWaiting: the limit of waiting checks is reached, or its turn did not come in time.
        """
        network = network_of(host)
        generation, is_verified = -1, False
        while generation != self._access.generation:  # the files may be reloaded meanwhile
            generation = self._access.generation
            is_verified = await self._ask((generation, network, user, password))
        return is_verified

    def take_refused(self) -> RefusedChecks | None:
        """Return what was refused since the last report; None if nothing, or the last one is recent."""
        now, before = self._loop.time(), self._refused_before
        if not self._refused_by_address or now < self._reported_at + REPORT_INTERVAL_S:
            return None
        busy, late, failures = (self.refused[reason] - before[reason] for reason in Refusal)
        worst = max(self._refused_by_address, key=self._refused_by_address.__getitem__)
        refused = RefusedChecks(busy, late, failures, worst, self._refused_by_address[worst])
        self._refused_before, self._refused_by_address = dict(self.refused), {}
        self._reported_at = now
        return refused

    # Requests

    async def _ask(self, key: Key) -> bool:
        check = self._checks.get(key) or self._enqueue(key)
        check.requests += 1
        try:
            return await asyncio.shield(check.verdict)
        finally:
            check.requests -= 1
            # One that runs has the result for the next request.
            if not check.requests and self._leave_queue(check):
                del self._checks[key]
                check.verdict.cancel()

    def _enqueue(self, key: Key) -> _Check:
        network = key[1]
        if not self._address_limits.has_tries(network) and network not in self._running_at:
            self._note(Refusal.FAILURES, network)
            raise _too_many_failures()
        if self._is_closed or (self.waiting >= self._limit and not self._make_room(network)):
            self._note(Refusal.BUSY, network)
            raise TooManyWaiting
        deadline = self._loop.call_later(self._timeout_s, self._expire, key)
        check = self._checks[key] = _Check(key, self._loop.create_future(), deadline)
        self._queues.setdefault(network, {})[key] = check
        self.waiting += 1
        self._run_next()
        return check

    def _make_room(self, network: str) -> bool:
        """Drop from the longest queue: True if another address had more checks waiting than this one."""
        longest = max(self._queues, key=lambda each: len(self._queues[each]))
        queue = self._queues[longest]
        if len(queue) <= len(self._queues.get(network, ())) + 1:
            return False
        self._give_up(queue[next(reversed(queue))], Refusal.BUSY)
        return True

    def _expire(self, key: Key) -> None:
        """The turn of a check has not come in time."""
        self._give_up(self._checks[key], Refusal.LATE)

    def _give_up(self, check: _Check, reason: Refusal) -> None:
        self._note(reason, check.key[1])
        self._leave_queue(check)
        self._settle(check, TooManyWaiting())

    def _leave_queue(self, check: _Check) -> bool:
        """Remove a check from its queue. Returns False if it does not wait."""
        network = check.key[1]
        queue = self._queues.get(network, {})
        if queue.get(check.key) is not check:  # perhaps another with the same key, after this one was refused
            return False
        del queue[check.key]
        if not queue:
            del self._queues[network]
        check.deadline.cancel()
        self.waiting -= 1
        return True

    # Turns

    def _run_next(self) -> None:
        """Begin checks while a thread is free, one of each address after another."""
        while self.running < self._at_once and (check := self._take_next()) is not None:
            _, network, user, password = check.key
            verdict = self._access.verify_now(user, password)  # another check may have verified it meanwhile
            if verdict is not None:
                self._settle(check, verdict)
            elif self._address_limits.may_try(network):
                self._run(check)
            else:
                self._note(Refusal.FAILURES, network)
                self._settle(check, _too_many_failures())

    def _take_next(self) -> _Check | None:
        """Remove and return the check whose turn it is; None if none can begin now."""
        for network, queue in self._queues.items():
            if self._has_its_share(network):
                continue
            check = next(iter(queue.values()))
            self._leave_queue(check)
            if queue:
                self._queues[network] = self._queues.pop(network)  # its next turn comes after all others
            return check
        return None

    def _has_its_share(self, network: str) -> bool:
        """True while an address has its share of the threads, or its checks use all its tries.

        Tries come back if those passwords are right.
        """
        running = self._running_at[network]
        return running >= PER_ADDRESS_AT_ONCE or (running > 0 and not self._address_limits.has_tries(network))

    def _run(self, check: _Check) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._at_once, "password")
        _, network, user, password = check.key
        self._running_at[network] += 1
        done = self._loop.run_in_executor(self._threads, self._access.verify, user, password)
        done.add_done_callback(partial(self._on_done, check))

    def _on_done(self, check: _Check, done: "asyncio.Future[bool]") -> None:
        network = check.key[1]
        self._running_at -= Counter((network,))  # without what becomes zero
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None or done.result():
            self._address_limits.forgive(network)  # right, or not checked after all
        if not self._is_closed:
            self._settle(check, error or done.result())
            self._run_next()

    def _settle(self, check: _Check, outcome: bool | BaseException) -> None:
        del self._checks[check.key]
        if isinstance(outcome, bool):
            check.verdict.set_result(outcome)
        else:
            check.verdict.set_exception(outcome)
            check.verdict.exception()  # retrieved: its requests may have ended in this turn

    def _note(self, reason: Refusal, network: str) -> None:
        self.refused[reason] += 1
        by_address = self._refused_by_address
        if network in by_address or len(by_address) < REFUSED_REMEMBERED:
            by_address[network] = by_address.get(network, 0) + 1


def _too_many_failures() -> QuotaExceeded:
    return QuotaExceeded("too many wrong passwords from this address")
