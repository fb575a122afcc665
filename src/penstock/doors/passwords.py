"""Passwords, checked off the loop: few at once, each only once, and only for those who are still there.

They are slow to check on purpose, so whoever sends wrong ones makes others wait. A door therefore has a few
threads of its own for them, and a limit of how many may wait. Who comes with the same password as another
gets the same answer, and what nobody waits for any more is not checked.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from sys import maxsize

from msgspec import Struct

from penstock.core.access import SLOW_CHECKS_AT_ONCE, Access


class TooManyWaiting(Exception):
    """So many passwords wait to be checked that another one has to come again."""


class _Check(Struct):
    """A password that is being checked or waits for that, and how many want to know."""

    verdict: "asyncio.Future[bool]"
    waiting: int = 0


class PasswordChecks:
    """The checks of one door.

    Args:
        at_once: how many may be made at the same time; all doors together make `SLOW_CHECKS_AT_ONCE`.
        limit: how many may be made or wait.
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
        """Check no more."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def is_under_way(self, user: str | None, password: bytes | None) -> bool:
        """Whether these are being checked already, so that one more who asks costs nothing."""
        return (self._access.generation, user, password) in self._checks

    async def verify(self, user: str | None, password: bytes | None) -> bool:
        """Tell whether these credentials are good. For who is cancelled meanwhile nothing is checked.

        Raises:
            TooManyWaiting: there is no room for another check.
        """
        generation, is_verified = -1, False
        while generation != self._access.generation:  # the files may be read again meanwhile
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
