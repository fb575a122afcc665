"""Outcome of one batch: positions of published entries, and refused entries."""

from collections.abc import Sequence
from operator import attrgetter

from msgspec import Struct

from penstock.core.broker import Broker, Refused, Steps
from penstock.core.ports.log import Ticket
from penstock.core.sessions.session import Session
from penstock.core.settings import CoreSettings
from penstock.doors.sidecar.transport.status import error_of
from penstock.doors.sidecar.v1.entries import carried_bytes, has_ids, runs_of
from penstock.errors import NotAuthorized, PenstockError, TooLarge
from penstock.runs import Run
from penstock.wire.sidecar.batches import Entry
from penstock.wire.sidecar.messages.penstock import Placed, PublishAck, Refusal

CARRIED_BYTES = 32 * 1024 * 1024
"""Limit of what messages of a batch carry beside their payloads: the batch has it once for many messages,
the log and some subscribers with each.
"""
RUNS_A_STEP = 50
"""Runs that are published in one step, each perhaps to a new topic."""
ENTRIES_A_STEP = 200
"""Entries whose outcome is encoded in one step."""
_offset_of = attrgetter("offset")


class Place(Struct):
    """Positions of the messages of an entry."""

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
        "_failure",
        "_gathered",
        "_gathered_runs",
        "_places",
        "_refusals",
        "_unnoted",
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
        self._failure: Exception | None = None  # of the commit of a part
        self._carried_bytes = 0
        self._gathered: dict[int, Sequence[Run]] = {}  # by index: to be published together
        self._gathered_runs = 0
        self._unnoted: list[tuple[Place, Sequence[Run]]] = []  # published, and not flushed
        self._places: dict[int, Place] = {}
        self._refusals: dict[int, PenstockError] = {}

    def publish(self, entries: Sequence[Entry]) -> Steps[None]:
        """Publish entries in their order and in steps; what is wrong with one costs the others nothing."""
        settings = self._broker.settings
        for index, entry in enumerate(entries):
            try:
                runs = yield from self._runs_of(entry, settings)
            except PenstockError as error:
                self._refuse(index, error)
                continue
            if has_ids(entry):
                self._publish_gathered()
                yield from self._publish_once(index, runs)
            else:
                self._gathered[index] = runs
                self._gathered_runs += len(runs)
                if self._gathered_runs >= RUNS_A_STEP and index + 1 < len(entries):
                    self._publish_gathered()
                    yield
        self._publish_gathered()

    def _runs_of(self, entry: Entry, settings: CoreSettings) -> Steps[list[Run]]:
        runs = yield from runs_of(entry, settings)
        carried = self._carried_bytes + carried_bytes(runs)
        if carried > CARRIED_BYTES:
            raise TooLarge(f"what the messages of the batch carry has more than {CARRIED_BYTES} bytes in all")
        self._carried_bytes = carried
        return runs

    def _publish_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        if not gathered:
            return
        count, self._gathered_runs = self._gathered_runs, 0
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
            place = self._places[index] = Place(
                sum(run.count for run in some),
                some[0].sequence,
                subscribers=receipt.subscribers_of(last.topic),
                last_offset=last.last_offset,
                is_stored=receipt.is_stored(last),
            )
            self._unnoted.append((place, some))
        self._broker.when_flushed(self.note_outcomes)  # what this turn has dropped is forgotten in the next
        self._broker.flush_part(count)

    def _publish_once(self, index: int, runs: Sequence[Run]) -> Steps[None]:
        """Publish messages with ids, unless they were published before."""
        place = Place(len(runs))

        def note_part(fresh: Sequence[Run]) -> None:
            self._unnoted.append((place, fresh))
            self._broker.when_flushed(self.note_outcomes)

        try:
            published = yield from self._broker.publish_each(runs, self.sender, note_part)
        except Refused as refused:
            self._refuse(index, next(iter(refused.errors.values())))
            return
        except PenstockError as error:
            self._refuse(index, error)
            return
        receipts = published.receipts
        self.note_commit(published.failure)
        if published.failure is None:
            self._wait_for(published.ticket)
        fresh = [receipt for receipt in receipts if not receipt.is_duplicate]
        place.sequence = (fresh or receipts)[0].sequence
        place.duplicates = len(receipts) - len(fresh)
        place.subscribers, place.last_offset = receipts[0].subscribers, max(map(_offset_of, receipts))
        place.is_stored = published.ticket is not None
        self._places[index] = place

    def _wait_for(self, ticket: Ticket | None) -> None:
        """Learn of a commit that fails before the batch is published whole; it is forgotten after a retry."""
        if ticket is None or ticket == self.ticket:
            return
        self._broker.when_committed(ticket, self.note_commit)
        self.ticket = ticket if self.ticket is None else max(self.ticket, ticket)

    @property
    def has_failed(self) -> bool:
        """The commit of a part has failed."""
        return self._failure is not None

    def note_commit(self, failure: Exception | None) -> None:
        """The commit of a part was made, or has failed."""
        self._failure = self._failure or failure

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
        unnoted, self._unnoted = self._unnoted, []
        for place, runs in unnoted:
            for run in runs:
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

    def acknowledgement(self) -> Steps[bytes]:
        """Response to the publisher, in steps."""
        self.note_outcomes()  # an earlier batch of the turn may take this one along, before its own callback
        if self._failure is not None:
            self.roll_back(self._failure)
        places, refusals = self._places, sorted(self._refusals.items())
        last_offset = max((place.last_offset for place in places.values()), default=None)
        first = PublishAck(
            batch_id=self.batch_id,
            accepted=sum(place.messages for place in places.values()),
            cursor="" if last_offset is None else self._broker.history.cursor(last_offset).encode(),
        )
        parts = [first.SerializeToString()]  # joined, these are one message: lists continue
        placed = list(places.items())
        for start in range(0, max(len(placed), len(refusals)), ENTRIES_A_STEP):
            if start:
                yield
            some = slice(start, start + ENTRIES_A_STEP)
            ack = PublishAck(
                placed=[_placed(index, place) for index, place in placed[some]],
                refusals=[Refusal(index=at, code=each.code, text=str(each)) for at, each in refusals[some]],
            )
            parts.append(ack.SerializeToString())
        return b"".join(parts)


def _placed(index: int, place: Place) -> Placed:
    return Placed(
        index=index,
        sequence=place.sequence,
        duplicates=place.duplicates,
        subscribers=place.subscribers,
        subscribers_dropped=place.dropped,
        subscribers_blocked=place.blocked,
    )
