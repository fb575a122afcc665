"""Turns of the loop without a loop: tests put messages and records into the present turn, and end it."""

from typing import Protocol

from penstock.core.ports.turn import Sequencer, Turn


class Committing(Protocol):
    """A log, as far as turns go."""

    @property
    def sequencer(self) -> Sequencer: ...

    def commit(self, turn: Turn) -> None: ...


def end_turn(log: Committing, head: int | None = None, *, is_urgent: bool = True) -> None:
    """Commit the present turn, with the newest offset that was given."""
    if head is not None:
        log.sequencer.head = max(head, log.sequencer.head)
    log.commit(log.sequencer.end_turn(is_urgent=is_urgent))
