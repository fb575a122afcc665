"""What a row of the table of attempts is."""

from collections.abc import Awaitable, Callable
from enum import StrEnum

from msgspec import Struct

from tests.access.entrances import Ability
from tests.access.scene import Scene


class Outcome(StrEnum):
    """What may come of an attempt."""

    TURNED_AWAY = "is turned away"
    LET_IN = "is let in"
    REFUSED = "is refused"
    GRANTED = "is granted"
    UNHEARD = "hears nothing of it"


class Where(StrEnum):
    """The servers that attempts are made at."""

    STRICT = "where everyone needs a name"
    GUESTS = "where guests may come"
    CHANGING = "where rights change"


Act = Callable[[Scene], Awaitable[Outcome]]


class Attempt(Struct, frozen=True):
    """One row."""

    name: str
    act: Act
    outcome: Outcome
    needs: Ability = Ability.NOTHING
    where: Where = Where.STRICT

    def __str__(self) -> str:
        return f"{self.name} {self.outcome}".replace(" ", "-")


def shown(text: str | bytes | None) -> str:
    """Something readable, and not too long, for a name."""
    word = ascii(text)
    return word if len(word) < 40 else f"{word[:20]}...{len(text or '')}"
