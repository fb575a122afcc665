"""Results of a publish: receipts, and the outcome for subscribers that could not get it at once."""

from collections.abc import Iterable

from msgspec import Struct

from penstock.core.ports.log import Ticket
from penstock.runs import Run


class PublishReceipt(Struct, frozen=True, gc=False):
    """Decision about one run: the run with its stamps, and the commit to wait for."""

    run: Run
    is_matched: bool
    """A subscription matched the topic."""
    ticket: Ticket | None = None
    """The commit that covers the run; None if nothing of it is stored."""


class Receipt(Struct, frozen=True, gc=False):
    """A message that was accepted: where it stands, and how many were there to get it."""

    topic: str
    sequence: int
    offset: int
    epoch: int
    published_at: int
    subscribers: int
    is_stored: bool
    """It outlives the server, as soon as its commit is made."""
    message_id: str | None = None
    ticket: Ticket | None = None
    """The commit to wait for; None if there is none."""
    is_duplicate: bool = False
    """It was accepted before, and has not been published again."""


class ListReceipt:
    """Receipts of a list of messages, in order, and the last commit to wait for."""

    __slots__ = ("failure", "receipts", "ticket")

    def __init__(self) -> None:
        self.receipts: list[Receipt] = []
        self.ticket: Ticket | None = None
        self.failure: Exception | None = None  # of the commit of a part

    def add(self, receipt: Receipt) -> None:
        """Add the receipt of the next message."""
        self.receipts.append(receipt)
        if receipt.ticket is not None:
            self.ticket = receipt.ticket if self.ticket is None else max(self.ticket, receipt.ticket)

    def note_commit(self, failure: Exception | None) -> None:
        """The commit of a part was made, or has failed."""
        self.failure = self.failure or failure


class Outcome(Struct, frozen=True):
    """Outcome of a message for subscribers that could not get it at once."""

    dropped: int = 0
    """Subscribers that dropped it, or an older message to make room for it."""
    blocked: int = 0
    """Subscribers that block its publisher."""


NOTHING_LOST = Outcome()


class Outcomes(dict[int, list[int]]):
    """By offset: how often dropped, how often held. A turn in which all is well makes none."""

    def note_dropped(self, run: Run) -> None:
        """One more subscriber has lost something because a run came."""
        self.setdefault(run.offset, [0, 0])[0] += 1

    def note_all_dropped(self, runs: Iterable[Run]) -> None:
        """One more subscriber has lost each of these runs."""
        for run in runs:
            known = self.get(run.offset)
            if known is None:
                self[run.offset] = [1, 0]
            else:
                known[0] += 1

    def note_blocked(self, run: Run) -> None:
        """One more subscriber makes the publisher of a run wait."""
        self.setdefault(run.offset, [0, 0])[1] += 1

    def of(self, run: Run) -> Outcome:
        """Return the outcome of a run of this turn."""
        if not self:
            return NOTHING_LOST
        offsets = range(run.offset, run.offset + run.count)
        found = [self[offset] for offset in offsets if offset in self]
        return Outcome(sum(dropped for dropped, _ in found), sum(blocked for _, blocked in found))
