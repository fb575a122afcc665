"""Password checks in threads: few at once, each only once, and none for clients that have disconnected.

Passwords are slow to check on purpose, so wrong ones would make others wait. A door therefore has a few
threads of its own and a limit for waiting checks. Equal credentials share one check, and a check that no
request waits for any more is cancelled.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from sys import maxsize

from msgspec import Struct

from penstock.core.access.access import SLOW_CHECKS_AT_ONCE, Access


class TooManyWaiting(Exception):
    """Too many password checks are waiting; the client may retry."""


class _Check(Struct):
    """A running or waiting check, and the number of requests that wait for it."""

    verdict: "asyncio.Future[bool]"
    waiting: int = 0


class PasswordChecks:
    """The checks of one door.

    Args:
        at_once: checks at the same time; all doors together make `SLOW_CHECKS_AT_ONCE`.
        limit: checks that may run or wait.
    """

    def __init__(
        self,
        access: Access,
        loop: asyncio.AbstractEventLoop,
        *,
        at_once: int = SLOW_CHECKS_AT_ONCE,
        limit: int = maxsize,
    ) -> None:
        self._access = access
        self._loop = loop
        self._at_once = at_once
        self._limit = limit
        self._threads: ThreadPoolExecutor | None = None
        self._checks: dict[tuple[int, str | None, bytes | None], _Check] = {}

    def close(self) -> None:
        """Stop checking."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def is_under_way(self, user: str | None, password: bytes | None) -> bool:
        """True if these credentials are being checked already, so that one more request costs nothing."""
        return (self._access.generation, user, password) in self._checks

    async def verify(self, user: str | None, password: bytes | None) -> bool:
        """Return True if these credentials are valid. Cancelling the caller cancels the check.

        Raises:
            TooManyWaiting: the limit of waiting checks is reached.
        """
        generation, is_verified = -1, False
        while generation != self._access.generation:  # the files may be reloaded meanwhile
            generation = self._access.generation
            is_verified = await self._ask((generation, user, password))
        return is_verified

    async def _ask(self, key: tuple[int, str | None, bytes | None]) -> bool:
        check = self._checks.get(key)
        if check is None:
            if len(self._checks) >= self._limit:
                raise TooManyWaiting
            check = self._checks[key] = _Check(self._begin(*key[1:]))
        check.waiting += 1
        try:
            return await asyncio.shield(check.verdict)
        finally:
            check.waiting -= 1
            if not check.waiting:
                del self._checks[key]
                check.verdict.cancel()  # nothing happens if it is there

    def _begin(self, user: str | None, password: bytes | None) -> "asyncio.Future[bool]":
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._at_once, "password")
        return self._loop.run_in_executor(self._threads, self._access.verify, user, password)
