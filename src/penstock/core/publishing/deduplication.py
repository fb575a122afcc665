"""Deduplication window: receipts of recent publishes by message id.

A publisher without a response sends again. The second publish of an id to a topic by the same user returns
the receipt of the first. Ids are kept for a while and up to a number. The entry of a stored message is in the
same commit as the message, so a crash leaves both or neither.
"""

from operator import attrgetter

from msgspec.structs import replace

from penstock.core.durability.recorder import Recorder
from penstock.core.durability.records import RECEIPTS, ReceiptRecord
from penstock.core.ports.log import Log
from penstock.core.ports.state import StateStore
from penstock.core.publishing.outcome import Receipt
from penstock.core.publishing.properties import MAX_ID_BYTES
from penstock.core.runtime.bounded_map import BoundedMap
from penstock.core.runtime.clock import Clock
from penstock.core.settings import MessageIdSettings
from penstock.errors import InvalidRequest
from penstock.model import Reason
from penstock.runs import Run

DROPPED_A_TIME = 2
"""Most ids that are dropped for each new one: expired ones, and those above the limit."""
SHED_A_STEP = 200
"""Most ids that are dropped in one step: they have expired, or the limit was lowered."""

_offset_of = attrgetter("offset")

Key = tuple[str | None, str, str]
"""A user, a topic and a message id."""


class DedupWindow:
    """The receipts of messages with an id, oldest first."""

    def __init__(
        self, settings: MessageIdSettings, log: Log, state: StateStore, clock: Clock, recorder: Recorder
    ) -> None:
        self._known: BoundedMap[Key, Receipt] = BoundedMap(settings.max)
        self.configure(settings)
        self._log = log
        self._state = state
        self._clock = clock
        self._recorder = recorder

    def configure(self, settings: MessageIdSettings) -> None:
        """Remember ids that come from now on for another time, or another number of them; see `shed`."""
        self._window = settings.window_s
        self._known.limit = settings.max
        self.is_on = bool(settings.window_s and settings.max)

    def __len__(self) -> int:
        return len(self._known)

    def key_of(self, run: Run, user: str | None, known_as: str | None = None) -> Key | None:
        """Key of a user's message; None if it has no id.

        Args:
            known_as: its id in the one spelling that counts, if it may be written in others.

        Raises:
            InvalidRequest: its id is empty, too long or no text that can be written.
        """
        message_id = None if run.properties is None else run.properties.message_id
        if message_id is None:
            return None
        try:
            size = len(message_id.encode())
        except UnicodeEncodeError:
            raise InvalidRequest("a message id is text, and this one is half a character") from None
        if not 0 < size <= MAX_ID_BYTES:
            raise InvalidRequest(f"a message id has 1 to {MAX_ID_BYTES} bytes, and this one has {size}")
        return (user, run.topic, known_as or message_id) if self.is_on else None

    def find(self, key: Key) -> Receipt | None:
        """The receipt of the message that was accepted under this key, if it is not too long ago."""
        receipt = self._known.find(key, self._clock.monotonic())
        return None if receipt is None else replace(receipt, is_duplicate=True)

    def add(self, key: Key, receipt: Receipt) -> None:
        """Remember a message that was accepted in this turn."""
        now = self._clock.monotonic()
        expired = self._known.put(key, receipt, now + self._window)
        if expired is not None:
            self._delete_record(key, expired)
        if receipt.is_stored:
            self._recorder.put(RECEIPTS, _name(key), _record_of(key, receipt))
        self._drop_stale(now, DROPPED_A_TIME)

    def shed(self) -> bool:
        """Drop some ids above the limit, oldest first. Returns whether there are more."""
        self._drop_stale(self._clock.monotonic(), SHED_A_STEP)
        return len(self._known) > self._known.limit

    def roll_back(self) -> None:
        """A commit has failed: what it took with it was never accepted, and its ids are free again."""
        last_offset, lost = self._log.last_offset, list[tuple[Key, Receipt]]()
        for key in reversed(self._known):
            receipt = self._known.find(key)
            if receipt is None or receipt.offset <= last_offset:
                break
            if receipt.is_stored:
                lost.append((key, receipt))
        for key, receipt in lost:
            self._known.pop(key)
            self._delete_record(key, receipt)

    def reap(self, now: float) -> bool:
        """Forget some of what is old enough. Returns whether there may be more."""
        return self._drop_stale(now, SHED_A_STEP)

    def _drop_stale(self, now: float, most: int) -> bool:
        stale = self._known.take_stale(now, most)
        for key, receipt in stale:
            self._delete_record(key, receipt)
        return len(stale) == most

    def _delete_record(self, key: Key, receipt: Receipt) -> None:
        if receipt.is_stored:
            self._recorder.delete(RECEIPTS, _name(key))

    def restore(self) -> None:
        """At start: remember what outlived the last server, unless its time is over."""
        now, wall_us = self._clock.monotonic(), self._clock.wall_us()
        records = [record for _, record in self._state.scan(RECEIPTS) if isinstance(record, ReceiptRecord)]
        records.sort(key=_offset_of)
        for place, record in enumerate(records):
            key = (record.user, record.topic, record.message_id)
            age_us = max(wall_us - record.published_at, 0)  # not younger because the clock was set back
            age = age_us / 1_000_000
            is_one_of_many = len(records) - place > self._known.limit
            if is_one_of_many or age >= self._window or self._is_lost(record):
                self._recorder.delete(RECEIPTS, _name(key))
            else:
                self._known.put(key, _receipt_of(record), now + self._window - age)

    def _is_lost(self, record: ReceiptRecord) -> bool:
        """Drop an entry whose message was never stored.

        State changes outlive a failed commit; a server that stopped before it noticed leaves such an entry.
        """
        return self._log.reason_of(record.offset) is Reason.NEVER_STORED


def _name(key: Key) -> str:
    """The name of a record. A topic holds no null character, so it means one key only."""
    user, topic, message_id = key
    return f"{topic}\0\0{message_id}" if user is None else f"{topic}\0{len(user)}\0{user}{message_id}"


def _record_of(key: Key, receipt: Receipt) -> ReceiptRecord:
    user, topic, message_id = key
    return ReceiptRecord(
        topic,
        message_id,
        receipt.sequence,
        receipt.offset,
        receipt.epoch,
        receipt.published_at,
        receipt.subscribers,
        user,
    )


def _receipt_of(record: ReceiptRecord) -> Receipt:
    return Receipt(
        record.topic,
        record.sequence,
        record.offset,
        record.epoch,
        record.published_at,
        record.subscribers,
        True,
        record.message_id,
    )
