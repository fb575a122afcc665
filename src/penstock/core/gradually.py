"""What would take too long for one turn of the loop: done in steps, some in each, so that nobody waits."""

from collections.abc import Callable

import structlog

from penstock.core.turns import Turns
from penstock.errors import PenstockError

log = structlog.get_logger("penstock.gradually")

Step = Callable[[], bool]
"""Does a part of some work, of a few milliseconds at most; tells whether there is more of it."""


class Gradually:
    """Does one work after the other, in turns with others who have something to do."""

    def __init__(self, turns: Turns, *works: Step) -> None:
        self._turns = turns
        self._works = list(works)

    def begin(self) -> None:
        """Do what the present turn has time for; the rest follows."""
        self._turns.ask(self)

    def work(self) -> None:
        """Take one step."""
        if not self._works[0]():
            del self._works[0]
        if self._works:
            self._turns.ask(self)

    def fail(self, error: PenstockError) -> None:
        """A step went wrong: its work ends there, and the next one begins."""
        log.error("work not finished", reason=str(error))
        del self._works[0]
        if self._works:
            self._turns.ask(self)
