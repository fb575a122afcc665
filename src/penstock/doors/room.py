"""How many connections all doors may have together, so that files are left for everything else."""

import resource
from collections.abc import Callable

FILES_KEPT_FREE = 500
MANY_FILES = 1_000_000


class Room:
    """The files of this process, as far as connections may use them; every door adds how many it has."""

    def __init__(self, limit: int | None = None) -> None:
        files = _file_limit()
        self.limit = limit or max(files - FILES_KEPT_FREE, files // 2)
        self._counts: list[Callable[[], int]] = []

    def add(self, count: Callable[[], int]) -> None:
        """Count the connections of one more door."""
        self._counts.append(count)

    def is_full(self, coming: int = 0) -> bool:
        """Whether there is no place for one more, those counted that are on their way."""
        return coming + sum(count() for count in self._counts) >= self.limit


def _file_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(hard, MANY_FILES) if soft == resource.RLIM_INFINITY else soft
