"""Where a trial takes place."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct


class Site(Struct, frozen=True):
    """A folder of the trial's own, the cores it has, and how much of everything it makes."""

    folder: Path
    """On a real disk, and empty."""
    server_cpu: int
    client_cpu: int
    scale: float
    """What the full counts are multiplied by."""
    say: Callable[[str], None]

    def count(self, full: int) -> int:
        """How many there are here of what there should be `full` of."""
        return max(round(full * self.scale), 1)
