"""What outlives the server, written once at the end of each turn that changed it.

Sessions, what they have on their way, and how far they got. All of it goes into the same commit as the
messages of the turn, so that after a crash one cannot know of something that the other does not.
"""

from collections.abc import Iterable
from itertools import islice

from penstock.core.owed import StoredOwed
from penstock.core.ports import Log, Settled, StateStore, Ticket
from penstock.core.records import (
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
from penstock.core.sessions import Former, Session, Subscription
from penstock.core.shared import SharedForm, SharedGroup
from penstock.core.tick import Tick
from penstock.core.value import Value

MOVES_KEPT = 1_000
"""How many turns of steps may lie there before the windows they belong to are written."""
ENTRIES_A_TURN = 1_000
"""How many deliveries are written with windows in one turn."""
MOST_FORMER = 100
"""How many filters that a session has left are remembered; of who changes its mind more often, the last."""


class Recording:
    """Knows what has changed, and puts it into the state store."""

    def __init__(self, log: Log, state: StateStore, tick: Tick, sessions: dict[str, Session]) -> None:
        self._log = log
        self._state = state
        self._tick = tick
        self._sessions = sessions
        self.is_on = log.is_durable
        self._unsaved: dict[Session, None] = {}
        self._touched: dict[Session, None] = {}
        self._groups: dict[SharedGroup, None] = {}
        self._backlogs: dict[Session, dict[str, int]] = {}  # what a session's record may still name
        self._dirty: dict[Session, int] = {}  # whose window is older than its steps; the number of the first
        self._deleted: dict[str, Ticket] = {}  # whose records are there until a commit is made, and which
        self._last_move = -1
        self._is_urgent = False
        self._waiting: list[Settled] = []  # for the commit of this turn

    @property
    def next_move(self) -> int:
        """The number of the next steps."""
        return self._last_move + 1

    def go_on_after(self, number: int, sessions: Iterable[Session]) -> None:
        """At start: the number of the last steps, and the sessions whose windows they are newer than."""
        self._last_move = number
        self._dirty = dict.fromkeys(sessions, 0)

    # What changed

    def begin(self, session: Session) -> None:
        """A connection begins: from now on a session that outlives it is stored.

        So are those who share something with it: if they are gone after a crash, it gets what they had.
        """
        if self.is_on:
            is_stored = session.is_persistent or any(group.is_kept for group in session.groups or ())
            session.moves = (session.moves or []) if is_stored else None
            if session.inflight is not None:
                session.inflight.moves = session.moves
            if session.moves is None:
                self._dirty.pop(session, None)

    def begin_with(self, group: SharedGroup) -> None:
        """Someone has joined a shared group."""
        for session in group.members if self.is_on and group.is_kept else ():
            if session.moves is None:
                self.begin(session)
                self.save(session)
                session.is_recorded = True
                self._state.put(WINDOWS, session.client_id, window_of(session, self._last_move))

    def save(self, session: Session) -> None:
        """Who it is and what it wants has changed."""
        is_wanted = session.moves is not None or session.will is not None or session.is_recorded
        if self.is_on and is_wanted:
            self._unsaved[session] = None
            self._ask(is_urgent=True)

    def note_former(self, session: Session, old: Subscription, head: int) -> None:
        """A filter was left, or lowered to QoS 0: what a session is owed by it up to `head` stays owed."""
        first = first_owed(session) if session.moves is not None and old.options.qos else None
        if first is not None and first <= head and old.since < head:
            known = [each for each in session.former if each.until >= first]
            new = Former(old.filter, old.options, old.policy, old.since, head)
            session.former = (*known, new)[-MOST_FORMER:]

    def touch(self, session: Session, *, is_urgent: bool = False) -> None:
        """What it has on its way, or what it is owed, has changed."""
        if session.moves is not None:
            self._touched[session] = None
            self._ask(is_urgent)

    def note_step(self, session: Session, word: int) -> None:
        """A message at QoS 2 that a session sends has come in, or will not come again."""
        if session.moves is not None:
            session.moves.append(word)
            self.touch(session, is_urgent=True)

    def touch_group(self, group: SharedGroup) -> None:
        """What a shared group is owed has changed."""
        if self.is_on:
            self._groups[group] = None
            self._ask(is_urgent=False)

    def forget(self, session: Session) -> None:
        """A session is over."""
        if self.is_on:
            for changes in (self._dirty, self._unsaved, self._backlogs):
                changes.pop(session, None)
            if session.is_recorded:
                self._delete(session)
                self._ask(is_urgent=True)

    def _delete(self, session: Session) -> None:
        session.is_recorded = False
        for table in (SESSIONS, WINDOWS, BEHIND):
            self._state.delete(table, session.client_id)
        self._deleted.pop(session.client_id, None)  # so that they stand in the order of their commits
        self._deleted[session.client_id] = self._log.ticket
        while self._deleted:
            client_id, ticket = next(iter(self._deleted.items()))
            if not self._log.is_committed(ticket):
                break
            del self._deleted[client_id]

    def has_stale_record(self, client_id: str) -> bool:
        """If the server were killed now, the next one would know a session of this client that has ended."""
        ticket = self._deleted.get(client_id)
        return ticket is not None and not self._log.is_committed(ticket)

    def forget_record(self, table: str, key: str) -> None:
        """A record is of something that is not known any more."""
        self._state.delete(table, key)
        self._ask(is_urgent=False)

    def forget_group(self, group: SharedGroup) -> None:
        """A shared group is over."""
        self._groups.pop(group, None)
        if group.stored is not None:
            self._state.delete(GROUPS, group.filter)

    def save_value(self, topic: str, value: Value, expires_at: int | None) -> None:
        """A topic has another value, which expires at a wall time or never."""
        if self.is_on:
            shape, extras = value.shape, value.extras
            properties = None if extras is None else extras.properties
            record = RetainedRecord(
                value.data, shape.door, shape.qos, value.client_id, properties, expires_at
            )
            self._state.put(RETAINED, topic, record)
            self._ask(is_urgent=False)

    def forget_value(self, topic: str) -> None:
        """A topic has no value any more."""
        if self.is_on:
            self._state.delete(RETAINED, topic)
            self._ask(is_urgent=False)

    def save_will(self, number: int, record: WillRecord) -> None:
        """A will could not be stored as a message."""
        self._state.put(WILLS, str(number), record)
        self._ask(is_urgent=True)

    def forget_will(self, number: int) -> None:
        """It was published after all."""
        self._state.delete(WILLS, str(number))
        self._ask(is_urgent=False)

    def hurry(self) -> None:
        """Commit what this turn leaves as soon as it is over."""
        self._ask(is_urgent=True)

    def when_stored(self, callback: Settled) -> None:
        """Call back when what this turn leaves is committed, or could not be."""
        self._waiting.append(callback)
        self._ask(is_urgent=True)

    def give_up(self, failure: Exception) -> None:
        """A commit has failed, and took messages with it: whoever waits for this turn's waits in vain."""
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback(failure)

    def _ask(self, is_urgent: bool) -> None:
        self._is_urgent = self._is_urgent or is_urgent
        if not (self._tick.is_open or self._tick.is_ending):
            self._tick.open()

    def owed_from(self) -> int | None:
        """The oldest offset that is on its way to someone, or owed; None if there is none."""
        oldest: list[int] = []
        groups: set[SharedGroup] = set()
        for session in self._sessions.values():
            groups.update(session.groups or ())
            first = first_owed(session)
            if first is not None:
                oldest.append(first)
            for pending in session.inflight.entries.values() if session.inflight else ():
                if pending is not None and not pending.form.is_retained:  # values are kept elsewhere
                    oldest.append(pending.run.offset)
                    if not session.groups:
                        break  # the first is the oldest, unless others had them before
        for group in groups:
            oldest += [*group.again, *(run.offset for run in islice(group.owed.runs(), 1))]
        return min(oldest, default=None)

    # The end of a turn

    def end_turn(self, head: int) -> None:
        """Write what has changed, and hand the turn to the log."""
        if self.is_on:
            if self._unsaved:
                self._save_all()
            if self._touched or self._groups:
                self._note_moves()
            is_urgent, self._is_urgent = self._is_urgent, False
            waiting, self._waiting = self._waiting, []
            for callback in waiting:  # only now: the commit may begin as soon as someone waits for it
                self._log.when_committed(self._log.ticket, callback)
            self._log.end_turn(head, is_urgent=is_urgent)

    def _save_all(self) -> None:
        unsaved, self._unsaved = self._unsaved, {}
        for session in unsaved:
            if self._sessions.get(session.client_id) is not session:
                continue
            if session.moves is not None or session.will is not None:
                session.is_recorded = True
                record = _record_of(session, self._unsent_of(session))
                self._state.put(SESSIONS, session.client_id, record)
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
            if self._sessions.get(session.client_id) is not session or session.moves is None:
                continue
            if session.moves:
                steps[session.client_id] = session.moves[:]
                session.moves.clear()
                self._dirty.setdefault(session, self.next_move)
            self._note_position(session)
        if steps:
            self._last_move = self._state.append(MOVES, MovesRecord(steps))
            self._write_windows()
        groups, self._groups = self._groups, {}
        for group in groups:
            self._note_group(group)

    def _note_position(self, session: Session) -> None:
        """How far a session that is behind has got."""
        first = first_owed(session)
        position = None if first is None else first - 1
        if position != session.position:
            session.position = position
            if position is None:
                self._state.delete(BEHIND, session.client_id)
            else:
                self._state.put(BEHIND, session.client_id, BehindRecord(position))

    def _note_group(self, group: SharedGroup) -> None:
        first = next((run.offset for run in group.owed.runs() if run.offset not in group.again), None)
        again = tuple(group.again)
        record = GroupRecord(None if first is None else first - 1, again) if group.owed else None
        if record != group.stored:
            group.stored = record
            if record is None:
                self._state.delete(GROUPS, group.filter)
            else:
                self._state.put(GROUPS, group.filter, record)

    def _write_windows(self) -> None:
        """Write the windows that have waited longest, so that their steps need not be kept."""
        budget = ENTRIES_A_TURN
        while self._dirty and budget > 0:
            session, first = next(iter(self._dirty.items()))
            if self._last_move - first < MOVES_KEPT:
                break
            del self._dirty[session]
            self._state.put(WINDOWS, session.client_id, window_of(session, self._last_move))
            budget -= 1 + len(session.inflight or ())
        if budget < ENTRIES_A_TURN:  # the last steps stay, because the next ones are numbered after them
            self._state.cut(MOVES, next(iter(self._dirty.values()), self._last_move))


def first_owed(session: Session) -> int | None:
    """The oldest offset that a session is still to get, other than by being sent again."""
    for run, form in session.outbox.entries() if session.outbox else ():
        if run.shape.qos and form.qos and not form.is_retained:
            return run.offset
    owed = session.owed
    if not isinstance(owed, StoredOwed):
        return None
    fetched = (run.offset for run, form in owed.entries() if not form.is_retained)
    return next(fetched, owed.first_offset if owed.stored else None)


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
        session.former,
    )


def window_of(session: Session, moves: int) -> WindowRecord:
    """What a session has on its way, for the state store."""
    sent: dict[int, Sent | None] = {}
    for number, pending in session.inflight.entries.items() if session.inflight else ():
        if pending is None:
            sent[number] = None
        else:
            form = pending.form
            share = form.group.filter if isinstance(form, SharedForm) else None
            sent[number] = Sent(pending.run.offset, pending.level, form.is_retained, share)
    return WindowRecord(moves, sent, tuple(session.received or ()))
