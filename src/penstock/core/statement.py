"""What a replay served and what it could not, with the reason: every read ends with one."""

from msgspec import Struct

from penstock.core.cursor import Cursor
from penstock.model import Reason


class Missing(Struct, frozen=True):
    """Messages of a topic that were asked for and are not there.

    `first` is None when it is not known how far back the loss reaches.
    """

    topic: str
    first: int | None
    last: int
    reason: Reason


class Statement(Struct, frozen=True):
    """The end of a replay, or of a chunk of it: what was served, what is missing, where to go on."""

    after: Cursor | None
    next: Cursor
    served: int
    missing: tuple[Missing, ...] = ()
    is_at_head: bool = True

    @property
    def is_complete(self) -> bool:
        """Everything that was asked for and exists was served."""
        return not self.missing
