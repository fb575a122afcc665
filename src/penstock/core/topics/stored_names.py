"""Stored names: topics that the log knows and that were not used since start.

Only used topics are in memory, so a start is quick for a million topics. The names are read from the log when
a listing first asks for them, in slices and off the loop, and then kept.
"""

from asyncio import Lock
from collections.abc import Mapping

from penstock.core.ports.log import LogCatalog
from penstock.core.topics.registry import Registry

NAMES_AT_ONCE = 500
"""Names that are read at once; other readers of the log get their turn in between."""


class StoredNames:
    """Knows the names, once it was asked."""

    def __init__(self, log: LogCatalog, topics: Registry, limit: int) -> None:
        """Args:
        limit: how many names are remembered; the rest is left out.
        """
        self._log = log
        self._topics = topics
        self.limit = limit
        self._known: dict[str, int] | None = None
        self._reading = Lock()

    async def load(self) -> None:
        """Read the names, if that was not done yet.

        Raises:
            StorageUnavailable: that is not possible now.
        """
        async with self._reading:
            if self._known is None:
                self._known = await self._read()

    async def _read(self) -> dict[str, int]:
        known: dict[str, int] = {}
        after = ""
        while len(known) < self.limit and (names := await self._log.topics_after(after, NAMES_AT_ONCE)):
            known.update(names)
            after = names[-1][0]
        return known

    @property
    def names(self) -> Mapping[str, int]:
        """Those that were read, each with a sequence that it has reached; some may be in use by now."""
        return self._known or {}

    def is_dormant(self, name: str) -> bool:
        """Return whether only the log knows a topic: neither used nor deleted since start."""
        return name in self.names and name not in self._topics and name not in self._topics.gone
