"""Outcome of one batch: positions of published entries, and refused entries."""

from collections.abc import Sequence
from operator import attrgetter

from msgspec import Struct

from penstock.core.broker import Broker, Receipt, Refused
from penstock.core.ports.log import Ticket
from penstock.core.sessions.session import Session
from penstock.core.settings import CoreSettings
from penstock.doors.sidecar.transport.status import error_of
from penstock.doors.sidecar.v1.entries import carried_bytes, has_ids, runs_of
from penstock.errors import NotAuthorized, PenstockError, TooLarge
from penstock.model import Run
from penstock.wire.sidecar.batches import Entry
from penstock.wire.sidecar.messages.penstock import Placed, PublishAck, Refusal

CARRIED_BYTES = 32 * 1024 * 1024
"""Limit of what messages of a batch carry beside their payloads: the batch has it once for many messages,
the log and some subscribers with each.
"""
_offset_of = attrgetter("offset")


class Place(Struct):
    """Positions of the messages of an entry."""

    runs: Sequence[Run]
    """Those that were published now."""
    messages: int
    sequence: int = 0
    duplicates: int = 0
    subscribers: int = 0
    last_offset: int = 0
    is_stored: bool = False
    """It waits for a commit, and is nothing if that fails."""
    dropped: int = 0
    blocked: int = 0


class Batch:
    """One batch on its way from its publisher to the acknowledgement."""

    __slots__ = (
        "_broker",
        "_carried_bytes",
        "_gathered",
        "_has_outcomes",
        "_places",
        "_refusals",
        "batch_id",
        "sender",
        "size_bytes",
        "ticket",
    )

    def __init__(self, broker: Broker, sender: Session, batch_id: int, size_bytes: int) -> None:
        self._broker = broker
        self.sender = sender
        self.batch_id = batch_id
        self.size_bytes = size_bytes
        self.ticket: Ticket | None = None  # of the commit that covers all of it
        self._has_outcomes = False
        self._carried_bytes = 0
        self._gathered: dict[int, Sequence[Run]] = {}  # by index: to be published together
        self._places: dict[int, Place] = {}
        self._refusals: dict[int, PenstockError] = {}

    def publish(self, entries: Sequence[Entry]) -> None:
        """Publish entries in their order; what is wrong with one of them costs the others nothing."""
        settings = self._broker.settings
        for index, entry in enumerate(entries):
            try:
                runs = self._runs_of(entry, settings)
            except PenstockError as error:
                self._refuse(index, error)
                continue
            if has_ids(entry):
                self._publish_gathered()
                self._publish_once(index, runs)
            else:
                self._gathered[index] = runs
        self._publish_gathered()

    def _runs_of(self, entry: Entry, settings: CoreSettings) -> list[Run]:
        runs = runs_of(entry, settings)
        carried = self._carried_bytes + carried_bytes(runs)
        if carried > CARRIED_BYTES:
            raise TooLarge(f"what the messages of the batch carry has more than {CARRIED_BYTES} bytes in all")
        self._carried_bytes = carried
        return runs

    def _publish_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        if not gathered:
            return
        runs = [run for some in gathered.values() for run in some]
        refused: dict[str, PenstockError] = {}  # by topic: what is true of a run is true of all to its topic
        receipt = self._broker.publish_all(
            runs, self.sender, lambda run, error: refused.update({run.topic: error})
        )
        self._wait_for(receipt.ticket)
        for index, some in gathered.items():
            error = refused.get(some[0].topic)
            if error is not None:
                self._refuse(index, error)
                continue
            last = some[-1]
            self._places[index] = Place(
                some,
                sum(run.count for run in some),
                some[0].sequence,
                subscribers=receipt.subscribers_of(last.topic),
                last_offset=last.last_offset,
                is_stored=receipt.is_stored(last),
            )

    def _publish_once(self, index: int, runs: Sequence[Run]) -> None:
        """Publish messages with ids, unless they were published before."""
        try:
            receipts = self._broker.publish_each(runs, self.sender)
        except Refused as refused:
            self._refuse(index, next(iter(refused.errors.values())))
            return
        ticket = max((each.ticket for each in receipts if each.ticket is not None), default=None)
        self._wait_for(ticket)
        fresh = [run for run, receipt in zip(runs, receipts, strict=True) if not receipt.is_duplicate]
        first: Run | Receipt = fresh[0] if fresh else receipts[0]
        self._places[index] = Place(
            fresh,
            len(runs),
            first.sequence,
            duplicates=len(runs) - len(fresh),
            subscribers=receipts[0].subscribers,
            last_offset=max(map(_offset_of, receipts)),
            is_stored=ticket is not None,
        )

    def _wait_for(self, ticket: Ticket | None) -> None:
        if ticket is not None:
            self.ticket = ticket if self.ticket is None else max(self.ticket, ticket)

    def _refuse(self, index: int, error: PenstockError) -> None:
        counters = self._broker.counters
        counters.publishes_refused += 1
        counters.actions_forbidden += isinstance(error, NotAuthorized)
        self._refusals[index] = error

    @property
    def refusal(self) -> PenstockError | None:
        """Why the first entry that was refused was."""
        return self._refusals[min(self._refusals)] if self._refusals else None

    # Afterwards

    def note_outcomes(self) -> None:
        """Count drops and blocks of the turn that is being flushed; the next one forgets them. Idempotent."""
        if self._has_outcomes:
            return
        self._has_outcomes = True
        for place in self._places.values():
            for run in place.runs:
                outcome = self._broker.outcome_of(run)
                place.dropped += outcome.dropped
                place.blocked += outcome.blocked

    def roll_back(self, failure: Exception) -> "Batch":
        """Refuse what had to be stored, because the commit failed. Returns the batch itself."""
        error = error_of(failure)
        for index in [index for index, place in self._places.items() if place.is_stored]:
            del self._places[index]
            self._refuse(index, error)
        return self

    def acknowledgement(self) -> PublishAck:
        """Response to the publisher."""
        self.note_outcomes()  # an earlier batch of the turn may take this one along, before its own callback
        places, refusals = self._places, self._refusals
        last_offset = max((place.last_offset for place in places.values()), default=None)
        return PublishAck(
            batch_id=self.batch_id,
            accepted=sum(place.messages for place in places.values()),
            placed=[_placed(index, place) for index, place in places.items()],
            refusals=[
                Refusal(index=at, code=each.code, text=str(each)) for at, each in sorted(refusals.items())
            ],
            cursor="" if last_offset is None else self._broker.history.cursor(last_offset).encode(),
        )


def _placed(index: int, place: Place) -> Placed:
    return Placed(
        index=index,
        sequence=place.sequence,
        duplicates=place.duplicates,
        subscribers=place.subscribers,
        subscribers_dropped=place.dropped,
        subscribers_blocked=place.blocked,
    )
