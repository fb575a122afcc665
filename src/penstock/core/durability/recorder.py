"""Recorder: adds changed sessions, windows and groups to each turn.

They are committed with the messages of the turn. After a crash neither knows of something that the
other does not.
"""

from collections.abc import Iterable

from msgspec import Struct

from penstock.core.durability.records import (
    BEHIND,
    GROUPS,
    MOVES,
    RETAINED,
    SESSIONS,
    WILLS,
    WINDOWS,
    BehindRecord,
    GroupRecord,
    MovesRecord,
    RetainedRecord,
    Sent,
    SessionRecord,
    SubscriptionRecord,
    WillRecord,
    WindowRecord,
)
from penstock.core.ports.log import LogWriter, Settled, Ticket
from penstock.core.ports.turn import Turn
from penstock.core.runtime.tick import Tick
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedGroup, group_of
from penstock.core.subscriptions.subscription import PastSubscription, Subscription
from penstock.core.topics.retained_value import RetainedValue

MOVES_KEPT = 1_000
"""Turns of journal steps that may accumulate before their windows are written."""
ENTRIES_A_TURN = 1_000
"""Most deliveries that are written with windows in one turn."""
MOST_PAST_SUBSCRIPTIONS = 100
"""Most past filters of a session that are kept; the oldest are dropped."""


class Recorder:
    """Tracks changes, and puts them into the turn before it is committed."""

    def __init__(self, log: LogWriter, tick: Tick, sessions: dict[str, Session]) -> None:
        self._log = log
        self._sequencer = log.sequencer
        self._tick = tick
        self._sessions = sessions
        self._unsaved: dict[Session, None] = {}
        self._touched: dict[Session, None] = {}
        self._groups: dict[SharedGroup[Session], None] = {}
        self._group_records: dict[SharedGroup[Session], GroupRecord] = {}  # what the state store says of each
        self._backlogs: dict[Session, dict[str, int]] = {}  # what a session's record may still name
        self._dirty: dict[Session, int] = {}  # whose window is older than its steps; the number of the first
        self._deleted: dict[str, Ticket] = {}  # whose records are there until a commit is made, and which
        self._last_move = -1
        self._is_urgent = False
        self._waiting: list[Settled] = []  # for the commit of this turn

    @property
    def next_move(self) -> int:
        """Number of the next journal record."""
        return self._last_move + 1

    def continue_after(self, number: int, sessions: Iterable[Session]) -> None:
        """Continue after recovery, with the last journal number and sessions with newer steps."""
        self._last_move = number
        self._dirty = dict.fromkeys(sessions, 0)

    def continue_group(self, group: SharedGroup[Session], record: GroupRecord) -> None:
        """Continue after recovery with the record of a shared group."""
        self._group_records[group] = record

    # What changed

    def begin(self, session: Session) -> None:
        """Begin to store a session that outlives its connection.

        Members of its shared groups are stored too: if they are gone after a crash, it gets their messages.
        """
        is_stored = session.is_persistent or any(group.is_kept for group in session.groups or ())
        session.journal = (session.journal or []) if is_stored else None
        if session.inflight is not None:
            session.inflight.journal = session.journal
        if session.journal is None:
            self._dirty.pop(session, None)

    def begin_with(self, group: SharedGroup[Session]) -> None:
        """Store the members of a shared group that got a persistent member."""
        for session in group.members if group.is_kept else ():
            if session.journal is None and not session.is_over:
                self.begin(session)
                self.save(session)
                session.is_recorded = True
                self._turn.put(WINDOWS, session.client_id, window_of(session, self._last_move))

    def save(self, session: Session) -> None:
        """Mark identity or subscriptions of a session as changed."""
        is_wanted = session.journal is not None or session.will is not None or session.is_recorded
        if is_wanted:
            self._unsaved[session] = None
            self._ask(is_urgent=True)

    def note_past_subscription(self, session: Session, old: Subscription, head: int) -> None:
        """Keep a filter that was removed or lowered to QoS 0, while messages up to `head` are queued."""
        first = first_queued_offset(session) if session.journal is not None and old.options.qos else None
        if first is not None and first <= head and old.since < head:
            known = [each for each in session.past_subscriptions if each.until >= first]
            new = PastSubscription(old.filter, old.options, old.policy, old.since, head)
            session.past_subscriptions = (*known, new)[-MOST_PAST_SUBSCRIPTIONS:]

    def touch(self, session: Session, *, is_urgent: bool = False) -> None:
        """Mark the in-flight window or queue of a session as changed."""
        if session.journal is not None:
            self._touched[session] = None
            self._ask(is_urgent)

    def note_step(self, session: Session, word: int) -> None:
        """Add a step of an incoming QoS 2 message to the journal."""
        if session.journal is not None:
            session.journal.append(word)
            self.touch(session, is_urgent=True)

    def touch_group(self, group: SharedGroup[Session]) -> None:
        """Mark the queue of a shared group as changed."""
        self._groups[group] = None
        self._ask(is_urgent=False)

    def forget(self, session: Session) -> None:
        """Delete the records of a session that ended."""
        for changes in (self._dirty, self._unsaved, self._backlogs):
            changes.pop(session, None)
        session.journal = None
        if session.is_recorded:
            self._delete(session)
            self._ask(is_urgent=True)

    def _delete(self, session: Session) -> None:
        session.is_recorded = False
        for table in (SESSIONS, WINDOWS, BEHIND):
            self._turn.delete(table, session.client_id)
        self._deleted.pop(session.client_id, None)  # so that they stand in the order of their commits
        self._deleted[session.client_id] = self._log.ticket
        while self._deleted:
            client_id, ticket = next(iter(self._deleted.items()))
            if not self._log.is_committed(ticket):
                break
            del self._deleted[client_id]

    def has_stale_record(self, client_id: str) -> bool:
        """Return whether a crash now would bring back a session of this client that has ended."""
        ticket = self._deleted.get(client_id)
        return ticket is not None and not self._log.is_committed(ticket)

    def put(self, table: str, key: str, record: Struct, *, is_urgent: bool = False) -> None:
        """Store a record with this turn; another one of its key is replaced."""
        self._turn.put(table, key, record)
        self._ask(is_urgent)

    def delete(self, table: str, key: str) -> None:
        """Delete a record with this turn."""
        self._turn.delete(table, key)
        self._ask(is_urgent=False)

    def forget_group(self, group: SharedGroup[Session]) -> None:
        """Delete the record of a shared group that ended."""
        self._groups.pop(group, None)
        if self._group_records.pop(group, None) is not None:
            self._turn.delete(GROUPS, group.filter)
            self._ask(is_urgent=False)

    def save_value(self, topic: str, value: RetainedValue, expires_at: int | None) -> None:
        """Store the retained value of a topic, with the wall time of its expiry."""
        shape, extras = value.shape, value.extras
        properties = None if extras is None else extras.properties
        record = RetainedRecord(value.data, shape.door, shape.qos, value.client_id, properties, expires_at)
        self._turn.put(RETAINED, topic, record)
        self._ask(is_urgent=False)

    def forget_value(self, topic: str) -> None:
        """Delete the retained value of a topic."""
        self._turn.delete(RETAINED, topic)
        self._ask(is_urgent=False)

    def save_will(self, number: int, record: WillRecord) -> None:
        """Store a will that could not be published."""
        self._turn.put(WILLS, str(number), record)
        self._ask(is_urgent=True)

    def forget_will(self, number: int) -> None:
        """Delete the record of a published will."""
        self._turn.delete(WILLS, str(number))
        self._ask(is_urgent=False)

    def hurry(self) -> None:
        """Commit this turn as soon as it ends."""
        self._ask(is_urgent=True)

    def when_stored(self, callback: Settled) -> None:
        """Call back when this turn is committed, or failed to be."""
        self._waiting.append(callback)
        self._ask(is_urgent=True)

    def give_up(self, failure: Exception) -> None:
        """Report a failed commit to the callbacks of this turn."""
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback(failure)

    def _ask(self, is_urgent: bool) -> None:
        self._is_urgent = self._is_urgent or is_urgent
        if not (self._tick.is_open or self._tick.is_ending):
            self._tick.open()

    # The end of a turn

    @property
    def _turn(self) -> Turn:
        return self._sequencer.turn

    def end_turn(self) -> None:
        """Add what has changed to the turn, and hand it to the log."""
        if self._unsaved:
            self._save_all()
        if self._touched or self._groups:
            self._note_moves()
        is_urgent, self._is_urgent = self._is_urgent, False
        waiting, self._waiting = self._waiting, []
        for callback in waiting:  # only now: the commit may begin as soon as a callback waits for it
            self._log.when_committed(self._log.ticket, callback)
        self._log.commit(self._sequencer.end_turn(is_urgent=is_urgent))

    def _save_all(self) -> None:
        unsaved, self._unsaved = self._unsaved, {}
        for session in unsaved:
            if self._sessions.get(session.client_id) is not session:
                continue
            if session.journal is not None or session.will is not None:
                session.is_recorded = True
                record = _record_of(session, self._unsent_of(session))
                self._turn.put(SESSIONS, session.client_id, record)
            else:
                self._delete(session)

    def _unsent_of(self, session: Session) -> dict[str, int]:
        """Filters whose retained values have not all left: the last of them may wait in the outbox."""
        if session.backlog is None:
            self._backlogs.pop(session, None)
            return {}
        heads = self._backlogs.setdefault(session, {})
        heads.update({filter: backlog.head for filter, backlog in session.backlog.items()})
        return {filter: head for filter, head in heads.items() if filter in session.subscriptions}

    def _note_moves(self) -> None:
        touched, self._touched = self._touched, {}
        steps: dict[str, list[int | str]] = {}
        for session in touched:
            if self._sessions.get(session.client_id) is not session or session.journal is None:
                continue
            if session.journal:
                steps[session.client_id] = session.journal[:]
                session.journal.clear()
                self._dirty.setdefault(session, self.next_move)
            self._note_position(session)
        if steps:
            self._last_move += 1
            self._turn.put(MOVES, self._last_move, MovesRecord(steps))
            self._write_windows()
        groups, self._groups = self._groups, {}
        for group in groups:
            self._note_group(group)

    def _note_position(self, session: Session) -> None:
        """Record the position of a session that is behind."""
        first = first_queued_offset(session)
        position = None if first is None else first - 1
        if position != session.position:
            session.position = position
            if position is None:
                self._turn.delete(BEHIND, session.client_id)
            else:
                self._turn.put(BEHIND, session.client_id, BehindRecord(position))

    def _note_group(self, group: SharedGroup[Session]) -> None:
        first = next(
            (run.offset for run in group.offline_queue.runs() if run.offset not in group.again), None
        )
        again = tuple(group.again)
        record = GroupRecord(None if first is None else first - 1, again) if group.offline_queue else None
        if record == self._group_records.get(group):
            return
        if record is None:
            del self._group_records[group]
            self._turn.delete(GROUPS, group.filter)
        else:
            self._group_records[group] = record
            self._turn.put(GROUPS, group.filter, record)

    def _write_windows(self) -> None:
        """Write the windows that have waited longest, so that their steps need not be kept."""
        budget = ENTRIES_A_TURN
        while self._dirty and budget > 0:
            session, first = next(iter(self._dirty.items()))
            if self._last_move - first < MOVES_KEPT:
                break
            del self._dirty[session]
            self._turn.put(WINDOWS, session.client_id, window_of(session, self._last_move))
            budget -= 1 + len(session.inflight or ())
        if budget < ENTRIES_A_TURN:  # the last steps stay, because the next ones are numbered after them
            self._turn.cut(MOVES, next(iter(self._dirty.values()), self._last_move))


class NullRecorder(Recorder):
    """Recorder of a server without a durable log: nothing is stored, and a commit is done at once."""

    def begin(self, session: Session) -> None: ...

    def begin_with(self, group: SharedGroup[Session]) -> None: ...

    def save(self, session: Session) -> None: ...

    def touch(self, session: Session, *, is_urgent: bool = False) -> None: ...

    def touch_group(self, group: SharedGroup[Session]) -> None: ...

    def forget(self, session: Session) -> None: ...

    def put(self, table: str, key: str, record: Struct, *, is_urgent: bool = False) -> None: ...

    def delete(self, table: str, key: str) -> None: ...

    def forget_group(self, group: SharedGroup[Session]) -> None: ...

    def save_value(self, topic: str, value: RetainedValue, expires_at: int | None) -> None: ...

    def forget_value(self, topic: str) -> None: ...

    def hurry(self) -> None: ...

    def when_stored(self, callback: Settled) -> None:
        callback(None)

    def end_turn(self) -> None:
        if self._turn.runs:
            self._log.commit(self._sequencer.end_turn(is_urgent=False))


def first_queued_offset(session: Session) -> int | None:
    """The oldest offset that a session is still to get, other than by being sent again."""
    for run, encoding in session.outbox.entries() if session.outbox else ():
        if run.shape.qos and encoding.qos and not encoding.is_retained:
            return run.offset
    return session.offline_queue.first_offset if session.offline_queue else None


def _record_of(session: Session, backlog: dict[str, int]) -> SessionRecord:
    wanted = session.subscriptions.items()
    return SessionRecord(
        session.identity.user,
        session.identity.is_certified,
        session.door,
        session.expiry,
        {filter: SubscriptionRecord(each.options, each.policy, each.since) for filter, each in wanted},
        session.will,
        session.left_at,
        session.born,
        backlog,
        session.past_subscriptions,
    )


def window_of(session: Session, journal: int) -> WindowRecord:
    """Return the in-flight window as a record."""
    sent: dict[int, Sent | None] = {}
    for number, pending in session.inflight.entries.items() if session.inflight else ():
        if pending is None:
            sent[number] = None
        else:
            group = group_of(pending.encoding)
            share = None if group is None else group.filter
            sent[number] = Sent(pending.run.offset, pending.level, pending.encoding.is_retained, share)
    return WindowRecord(journal, sent, tuple(session.received or ()))
