"""Topic catalog: names and last sequences of topics that are not in memory.

Only used topics are in the registry, so a start is quick for a million topics. The catalog reads the others
from the log in slices and off the loop, and keeps them up to a limit.
"""

from asyncio import Lock
from collections.abc import Mapping

from penstock.core.ports.log import LogCatalog
from penstock.core.topics.topic import Topic

NAMES_AT_ONCE = 500
"""Names that are read at once; other readers of the log get their turn in between."""
EAGER_NAMES = 100_000
"""Most names that are read at the start; a log with more is read when a listing asks for it."""
FORGOTTEN_NAMES = 10_000
"""Most topics that may leave the registry before the log is asked for every sequence."""


class TopicCatalog:
    """Topics that the log had when it was opened."""

    def __init__(self, log: LogCatalog, limit: int) -> None:
        """Args:
        limit: most names that are kept.
        """
        self._log = log
        self.limit = limit
        self._stored: dict[str, int] | None = None
        self._forgotten: set[str] = set()  # the log may know a later sequence of these
        self._is_trusted = False  # all names and sequences that the log had are here
        self._reading = Lock()

    async def load(self, limit: int | None = None) -> None:
        """Read the names, if that was not done yet.

        Args:
            limit: keep none of them if there are more.

        Raises:
            StorageUnavailable: that is not possible now.
        """
        async with self._reading:
            if self._stored is None:
                stored, is_complete = await self._read(self.limit if limit is None else limit)
                if limit is None or is_complete:
                    self._stored = stored
                    self._is_trusted = is_complete and not self._log.has_unreadable_names

    async def _read(self, limit: int) -> tuple[dict[str, int], bool]:
        """Return names up to a limit, and whether these are all."""
        stored: dict[str, int] = {}
        after = ""
        while len(stored) < limit:
            names = await self._log.topics_after(after, NAMES_AT_ONCE)
            if not names:
                return stored, True
            stored.update(names)
            after = names[-1][0]
        return stored, False

    @property
    def stored(self) -> Mapping[str, int]:
        """Names that were read, each with its last sequence at the start; some may be in use by now."""
        return self._stored or {}

    def note_forgotten(self, topic: Topic) -> None:
        """A topic leaves the registry: from now on the log is asked for its last sequence."""
        if len(self._forgotten) < FORGOTTEN_NAMES:
            self._forgotten.add(topic.name)
        else:
            self._is_trusted = False

    def last_sequence(self, name: str) -> int:
        """Last committed sequence of a topic that is not in the registry; 0 if it has none.

        The log looks it up, which may block, unless all names were read and the topic was not used since.
        """
        if self._is_trusted and name not in self._forgotten:
            return self.stored.get(name, 0)
        return self._log.last_sequence(name)
