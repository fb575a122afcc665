"""Statement: the end of every read, with what was served and what is missing."""

from msgspec import Struct

from penstock.common.cursor import Cursor
from penstock.model import Reason


class Gap(Struct, frozen=True):
    """Offsets that a log should have and does not have, and why."""

    first: int
    last: int
    reason: Reason


class Missing(Struct, frozen=True):
    """Messages of a topic that were asked for and are not there.

    `first` is None when it is not known how far back the loss reaches.
    """

    topic: str
    first: int | None
    last: int
    reason: Reason


class Served(Struct, frozen=True, gc=False):
    """Number of served messages of a topic, and the sequence of the last."""

    topic: str
    count: int
    last: int


class Statement(Struct, frozen=True):
    """End of a read, or of a chunk of it: what was served, what is missing, where to continue.

    Gaps are offsets that the log should have and does not have. Their topics are not always known: `missing`
    names those topics where a later message shows that earlier ones are gone.
    """

    after: Cursor | None
    next: Cursor
    served: int
    missing: tuple[Missing, ...] = ()
    is_at_head: bool = True
    gaps: tuple[Gap, ...] = ()
    topics: tuple[Served, ...] = ()
    """Served messages by topic, for readers that resume after sequences."""

    @property
    def is_complete(self) -> bool:
        """Everything that was asked for and exists was served."""
        return not self.missing and not self.gaps
