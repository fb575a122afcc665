"""Access whose password checks end when a test wants."""

import asyncio
import threading

from penstock.core.access.access import OpenAccess


class SlowAccess(OpenAccess):
    """Passwords that take as long to check as a test wants."""

    def __init__(self) -> None:
        self.generation = 0
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()
        self.checks = 0
        self.users: list[str | None] = []
        """Users whose passwords were checked, in this order."""
        self.known: set[str | None] = set()
        """Users that need no check."""
        self.most = self._present = 0  # at the same time
        self._counting = threading.Lock()
        self.is_good = True

    def verify_now(self, user: str | None, password: bytes | None) -> bool | None:
        return True if user in self.known else None

    def verify(self, user: str | None, password: bytes | None) -> bool:
        self.checks += 1
        with self._counting:
            self.users.append(user)
            self._present += 1
            self.most = max(self.most, self._present)
        self.begun.release()
        self.may_end.wait(20)
        with self._counting:
            self._present -= 1
        return self.is_good


async def has_begun(access: SlowAccess) -> None:
    await asyncio.to_thread(access.begun.acquire)
