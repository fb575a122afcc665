"""What a read served and what it could not, with the reason: every read ends with one."""

from msgspec import Struct

from penstock.core.cursor import Cursor
from penstock.core.ports import Gap
from penstock.model import Reason, Run


class Missing(Struct, frozen=True):
    """Messages of a topic that were asked for and are not there.

    `first` is None when it is not known how far back the loss reaches.
    """

    topic: str
    first: int | None
    last: int
    reason: Reason


class Served(Struct, frozen=True, gc=False):
    """How many messages of a topic were served, and the sequence of the last."""

    topic: str
    count: int
    last: int


class Statement(Struct, frozen=True):
    """The end of a read, or of a chunk of it: what was served, what is missing, where to go on.

    Gaps are offsets that the log should have and has not. What was lost there belongs to topics that are not
    always known: `missing` names those of which a later message shows that earlier ones are not there.
    """

    after: Cursor | None
    next: Cursor
    served: int
    missing: tuple[Missing, ...] = ()
    is_at_head: bool = True
    gaps: tuple[Gap, ...] = ()
    topics: tuple[Served, ...] = ()
    """What was served of each topic, for who goes on after sequences."""

    @property
    def is_complete(self) -> bool:
        """Everything that was asked for and exists was served."""
        return not self.missing and not self.gaps


class Chunk(Struct, frozen=True):
    """Runs in the order of their offsets, and what can be said of them."""

    runs: tuple[Run, ...]
    statement: Statement
