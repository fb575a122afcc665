"""Topics that the log has had messages of, and that nobody has used since the server started.

Only what is used is in memory: a start takes no longer for a million topics that were. Whoever lists topics
wants those too, so their names are read from the log when somebody asks for the first time, in slices and off
the loop, and remembered from then on.
"""

from asyncio import Lock
from collections.abc import Mapping

from penstock.core.ports import Log
from penstock.core.registry import Registry

NAMES_AT_ONCE = 500
"""Names that are read in one go; others who read the log have their turn in between."""


class Dormant:
    """Knows the names, once it was asked."""

    def __init__(self, log: Log, topics: Registry, limit: int) -> None:
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
        """Whether a topic is known here and nowhere else: it has neither been used since, nor deleted."""
        return name in self.names and name not in self._topics and name not in self._topics.gone
