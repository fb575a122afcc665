"""Topic catalog: names and last sequences of topics that are not in memory.

Only used topics are in the registry, so a start is quick for a million topics. The catalog reads the others
from the log in slices and off the loop, once, and keeps them up to a limit.
"""

from asyncio import Lock
from collections.abc import Mapping

from penstock.core.ports.log import LogCatalog
from penstock.core.topics.topic import Topic

NAMES_AT_ONCE = 500
"""Names that are read at once; other readers of the log get their turn in between."""


class TopicCatalog:
    """Topics that the log knows, and captured topics that the registry has forgotten."""

    def __init__(self, log: LogCatalog, limit: int) -> None:
        """Args:
        limit: most names of each kind; the log looks up the rest.
        """
        self._log = log
        self.limit = limit
        self._stored: dict[str, int] | None = None
        self._forgotten: dict[str, int] = {}
        self._is_complete = False  # every name that the log knows is here
        self._reading = Lock()

    async def load(self) -> None:
        """Read the names, if that was not done yet.

        Raises:
            StorageUnavailable: that is not possible now.
        """
        async with self._reading:
            if self._stored is None:
                self._stored = await self._read()

    async def _read(self) -> dict[str, int]:
        stored: dict[str, int] = {}
        after = ""
        while len(stored) < self.limit:
            names = await self._log.topics_after(after, NAMES_AT_ONCE)
            if not names:
                self._is_complete = True
                break
            stored.update(names)
            after = names[-1][0]
        return stored

    @property
    def stored(self) -> Mapping[str, int]:
        """Names that were read, each with its last sequence at the start; some may be in use by now."""
        return self._stored or {}

    def note_forgotten(self, topic: Topic) -> None:
        """Keep the last sequence of a topic that leaves the registry, if the log captures it."""
        if not topic.rules.is_kept:
            return
        if len(self._forgotten) < self.limit:
            self._forgotten[topic.name] = topic.sequence
        else:
            self._is_complete = False

    def last_sequence(self, name: str) -> int:
        """Last sequence of a topic that is not in the registry; 0 if it has none.

        The log looks up what is not here: until all names are read, or if there are more than the limit.
        """
        known = max(self.stored.get(name, 0), self._forgotten.get(name, 0))
        return known if known or self._is_complete else self._log.last_sequence(name)
