"""What waits for those who cannot get it now: in their outbox, or in a list of what they are owed.

A policy decides what is kept; what is dropped goes into the ledger. How it gets to them later is in
`lagging.py`.
"""

from collections.abc import Sequence

from penstock.core.callers import Callers
from penstock.core.clock import Clock, Scheduler
from penstock.core.fetching import Fetching
from penstock.core.holding import Holding
from penstock.core.ledger import Ledger
from penstock.core.outbox import Entry, Outbox
from penstock.core.outcomes import Outcomes
from penstock.core.owed import Owed, StoredOwed
from penstock.core.policy import Bounds, Limits, OwnLimits
from penstock.core.ports import Form
from penstock.core.recording import Recording
from penstock.core.registry import Registry
from penstock.core.sessions import Ending, Session, Subscription
from penstock.core.settings import CoreSettings
from penstock.core.shared import SharedForm, SharedGroup
from penstock.core.slow import Slow
from penstock.core.strain import note_loss
from penstock.core.topics import WILDCARDS, split_share
from penstock.model import Policy, Reason, Run

REAP_MESSAGES = 100_000
"""How many waiting messages are looked at for their expiry in one go."""


class Keeping:
    """The queues of all sessions and shared groups."""

    def __init__(
        self,
        settings: CoreSettings,
        clock: Clock,
        scheduler: Scheduler,
        ledger: Ledger,
        topics: Registry,
        sessions: dict[str, Session],
        recording: Recording,
        fetching: Fetching,
        callers: Callers,
        slow: Slow,
    ) -> None:
        self._ledger = ledger
        self._topics = topics
        self._sessions = sessions
        self._recording = recording
        self._fetching = fetching
        self._callers = callers
        self.slow = slow
        self.outbox_limits = Limits(settings.outbox.messages, settings.outbox.bytes)
        self._owed_limits = Limits(settings.sessions.owed_messages, settings.sessions.owed_bytes)
        self._block_wildcards = settings.outbox.block_wildcards
        self._expiring: dict[Session | SharedGroup, None] = {}  # something waits for them that may expire
        self.too_slow: dict[Session, None] = {}  # to be closed at the end of this flush
        self.credited: dict[Session, list[Entry]] = {}  # what those who count get at the end of this flush
        self.outcomes = Outcomes()  # of this turn
        block_timeout_s = settings.outbox.block_timeout_ms / 1000
        self.holding = Holding(clock, scheduler, block_timeout_s, self._on_block_timeout)

    def configure(self, settings: CoreSettings) -> None:
        """Let more or less wait from now on, in the queues that are there as in new ones."""
        outbox, sessions = settings.outbox, settings.sessions
        self.outbox_limits.change(outbox.messages, outbox.bytes)
        self._owed_limits.change(sessions.owed_messages, sessions.owed_bytes)
        self._block_wildcards = outbox.block_wildcards
        self.holding.timeout = outbox.block_timeout_ms / 1000

    # Coming

    def hold_all(self, session: Session, runs: list[Run], form: Form, wanted: Subscription) -> None:
        """Keep runs for a session that cannot get them now."""
        session.is_flowing = False
        if session.credit is not None and session.sink is not None:
            self._hold_counted(session, runs, form, wanted)
            return
        if session.sink is not None and session not in self.slow.watched:
            self.slow.watch(session, self.choose_policy(runs[0], wanted))
        is_durable = _is_durable(session, runs[0], form)
        if session.moves is not None and is_durable:
            self._recording.touch(session)
        queue = self._quick_queue(session, is_durable)
        for run in runs:
            if queue is None or not queue.offer(run, form):
                self._hold(session, run, form, self.choose_policy(run, wanted))
                queue = self._quick_queue(session, is_durable)

    def _hold_counted(self, session: Session, runs: list[Run], form: Form, wanted: Subscription) -> None:
        """Give runs to a session that counts: what it has credit for leaves with this flush, others wait."""
        going = self.credited.setdefault(session, [])
        for run in runs:
            credit = 0 if session.is_waiting or not session.can_take else session.credit or 0
            taken = min(run.count, credit)
            if taken:
                going.append((run.part(0, taken), form))
                session.credit = credit - taken
            if taken < run.count:
                rest = run.part(taken, run.count - taken)
                self._hold(session, rest, form, self.choose_policy(run, wanted))

    def _quick_queue(self, session: Session, is_durable: bool) -> Outbox | None:
        """Where a run goes without further ado if all of it fits; what is owed may not be overtaken."""
        if session.sink is None:
            return session.owed if is_durable else None
        return None if session.owed else session.outbox

    def choose_policy(self, run: Run, wanted: Subscription) -> Policy:
        """The topic's policy if a rule gives it one, otherwise the subscription's."""
        topic = self._topics.get(run.topic)
        policy = topic.traits.policy if topic is not None else None
        policy = policy or wanted.policy
        if policy is not Policy.BLOCK or self._block_wildcards:
            return policy
        is_broad = split_share(wanted.filter)[1].startswith(WILDCARDS)
        return Policy.DROP_OLDEST if is_broad else policy  # a reader of everything may not stop everyone

    def _hold(self, session: Session, run: Run, form: Form, policy: Policy) -> None:
        """Keep a run for a session that cannot get it now, or record why not."""
        is_durable = _is_durable(session, run, form)
        if session.sink is None:
            if is_durable:
                self.owe(session, run, form, policy)
            else:
                self._ledger.add(run, session.client_id, Reason.NOT_CONNECTED)
            return
        is_numbered = bool(run.shape.qos and form.qos)
        if session.owed and (is_numbered or not isinstance(session.owed, StoredOwed)):
            self.owe(session, run, form, policy)  # nothing overtakes what is owed, if it can wait there
            return
        outbox = self._outbox_of(session)
        if is_durable and policy is not Policy.BLOCK and not outbox.has_room(run):
            self.owe(session, run, form, policy)  # it will be fetched when the outbox is empty
            if policy is Policy.DISCONNECT:
                self.too_slow[session] = None
            return
        self._enqueue(session, outbox, run, form, policy)

    def _outbox_of(self, session: Session) -> Outbox:
        if session.outbox is None:
            session.outbox = Outbox(self._limits_of(session))
        return session.outbox

    def _limits_of(self, session: Session) -> Bounds:
        most = session.outbox_messages
        return self.outbox_limits if most is None else OwnLimits(most, self.outbox_limits)

    def _enqueue(self, session: Session, outbox: Outbox, run: Run, form: Form, policy: Policy) -> None:
        decision, dropped = outbox.add(run, form, policy)
        if run.expires_at:
            self._expiring[session] = None
        if not (decision.close and session.is_resumable):
            self._drop(dropped, run, session, Reason.OUTBOX_FULL, policy, "outbox")
        if decision.hold:
            publisher = self._publisher_of(run)
            if publisher is None or publisher is session:  # a session never blocks itself
                self._shrink(session, policy)
            else:
                self.outcomes.note_blocked(run)
                self.holding.hold(publisher, session, run.shape.qos)
        if decision.close:
            self.too_slow[session] = None

    def _publisher_of(self, run: Run) -> Session | None:
        """Who sent a run and can be made to wait; others may have the same client id at another door."""
        caller = self._callers.publisher_of(run)
        session = self._sessions.get(run.client_id) if caller is None else caller
        return session if session is not None and session.door is run.shape.door else None

    def owe(self, session: Session, run: Run, form: Form, policy: Policy) -> None:
        """Keep a run for a session until it has room, or is back."""
        owed = self._owed_of(session)
        _, dropped = owed.add(run, form, policy)
        if run.expires_at:
            self._expiring[session] = None
        self._drop(dropped, run, session, Reason.OWED_FULL, policy, "sessions.owed")
        if isinstance(owed, StoredOwed) and owed.evicted:
            self._note_evicted(session, owed, Reason.OWED_FULL, policy)

    def _note_evicted(
        self, session: Session, owed: StoredOwed, reason: Reason, policy: Policy | None = None
    ) -> None:
        evicted, owed.evicted = owed.evicted, []
        if policy is not None:
            self.slow.note_dropped(session, len(evicted), policy)
        self._fetching.note_lost(session.client_id, evicted, reason, policy)

    def _owed_of(self, session: Session) -> Owed:
        if session.owed is None:
            kind = Owed if session.moves is None else StoredOwed
            session.owed = kind(self._owed_limits)
        return session.owed

    def owe_group(self, group: SharedGroup, run: Run) -> None:
        """Keep a run for a shared group of which nobody is connected, or nobody has caught up."""
        if not group.present and not (run.shape.qos and group.wants_owed):
            self._ledger.add(run, group.filter, Reason.NOT_CONNECTED)
            return
        self._recording.touch_group(group)
        speaker = group.speaker
        _, dropped = group.owed.add(run, speaker.form, speaker.policy)
        for lost in dropped:
            self._ledger.add(lost, group.filter, Reason.OWED_FULL, speaker.policy, "sessions.owed")
        group.forget(dropped)
        if run.expires_at:
            self._expiring[group] = None

    # Too much

    def close_slow(self) -> None:
        """End connections under `disconnect`: now that what they got in this turn has been written."""
        slow, self.too_slow = self.too_slow, {}
        for session in slow:
            self.slow.mark(session, Policy.DISCONNECT)
            session.is_paused = True  # nothing more leaves until its door has let go of it
            if session.sink is not None:
                self._discard(session)
                session.sink.close(Ending.SLOW)

    def _discard(self, session: Session) -> None:
        """Drop what waits for somebody who is cut off, unless it or the others of a group get it later."""
        if not session.outbox or session.is_resumable:
            return
        for run, _ in session.outbox.remove_entries(lambda entry: not _outlives(session, *entry)):
            self._lose(run, session, Reason.OUTBOX_FULL, Policy.DISCONNECT, "outbox")

    def _drop(
        self, dropped: list[Run], cause: Run, session: Session, reason: Reason, policy: Policy, setting: str
    ) -> None:
        """Record what is lost because a run came, which its publisher is told."""
        for run in dropped:
            self._lose(run, session, reason, policy, setting)
        if dropped:
            self.outcomes.note_dropped(cause)

    def _lose(self, run: Run, session: Session, reason: Reason, policy: Policy, setting: str) -> None:
        self._ledger.add(run, session.client_id, reason, policy, setting)
        self.slow.note_dropped(session, run.count, policy)
        note_loss(session, reason, run.count)

    def _on_block_timeout(self, session: Session) -> None:
        self._shrink(session, Policy.BLOCK, Reason.BLOCK_TIMEOUT)

    def _shrink(self, session: Session, policy: Policy, reason: Reason = Reason.OUTBOX_FULL) -> None:
        if session.outbox is not None:
            for lost in session.outbox.shrink():
                self._lose(lost, session, reason, policy, "outbox")

    # Back again

    def put_first(self, session: Session, entries: Sequence[Entry]) -> None:
        """What was about to leave waits again, before everything else."""
        if not entries:
            return
        self._expiring[session] = None
        if session.sink is None:
            self._owe_first(session, entries)
            return
        outbox = self._outbox_of(session)
        for run, form in reversed(entries):
            outbox.add_first(run, form)

    def _owe_first(self, session: Session, entries: Sequence[Entry]) -> None:
        owed = self._owed_of(session)
        if isinstance(owed, StoredOwed):
            owed.put_back(entries)
        else:
            for run, form in reversed(entries):
                owed.add_first(run, form)

    def offer_again(self, entries: Sequence[Entry]) -> list[Entry]:
        """Give what came through shared groups back to them, first and in order; answer the rest."""
        rest: list[Entry] = []
        for run, form in reversed(entries):
            if not isinstance(form, SharedForm):
                rest.append((run, form))
            elif form.group:
                form.group.owed.add_first(run, form)
                form.group.again[run.offset] = None
                self._recording.touch_group(form.group)
                if run.expires_at:
                    self._expiring[form.group] = None
            else:  # the last member has left meanwhile
                self._ledger.add(run, form.group.filter, Reason.SESSION_ENDED)
        return rest[::-1]

    # Going

    def owe_rest(self, session: Session) -> list[SharedGroup]:
        """A session lost its connection: what waited for it is owed, or recorded as lost.

        Answers the shared groups whose other members may now get something.
        """
        self.holding.release(session)
        self.holding.forget(session)
        stored = session.owed if isinstance(session.owed, StoredOwed) else None
        waiting: list[Entry] = []
        if session.inflight is not None:
            unsent = session.inflight.take_from(session.gate)
            waiting += [*session.inflight.take_shared(), *((each.run, each.form) for each in unsent)]
        waiting += [*_take_all(session.outbox), *_take_all(session.owed)]
        session.outbox, session.owed = None, stored
        own: list[Entry] = []
        for run, form in self.offer_again(waiting):
            if _is_durable(session, run, form):
                own.append((run, form))
            elif not session.is_resumable:
                self._ledger.add(run, session.client_id, Reason.DISCONNECTED)
        self.put_first(session, own)
        self._recording.touch(session)
        offered = [form.group for _, form in waiting if isinstance(form, SharedForm)]
        return list(dict.fromkeys([*offered, *(session.groups or ())]))

    def end(self, session: Session) -> None:
        """A session is over: whatever it was still owed is recorded."""
        for run, _ in _take_all(session.owed):
            self._ledger.add(run, session.client_id, Reason.SESSION_ENDED)
        if isinstance(session.owed, StoredOwed):
            offsets = session.owed.discard(session.owed.stored)
            self._fetching.note_lost(session.client_id, offsets, Reason.SESSION_ENDED)
        for pending in session.inflight.entries.values() if session.inflight else ():
            if pending is not None:
                self._ledger.add(pending.run, session.client_id, Reason.SESSION_ENDED)
        session.owed = session.inflight = session.backlog = None

    def reap(self, now: float) -> list[Session]:
        """Take out of every queue what has expired; answer for whom perhaps nothing waits any more."""
        budget = REAP_MESSAGES
        looked_at: list[Session] = []
        for who in list(self._expiring):
            if budget <= 0:
                break  # the others have their turn in a second; what has expired is never sent anyway
            del self._expiring[who]
            name, queues = _queues_of(who)
            for queue in queues:
                if now >= queue.next_expiry:
                    budget -= len(queue)
                expired = queue.remove_expired(now)
                for run in expired:
                    self._ledger.add(run, name, Reason.EXPIRED)
                    if isinstance(who, Session):
                        note_loss(who, Reason.EXPIRED, run.count)
                if expired and isinstance(who, SharedGroup):
                    who.forget(expired)
                    self._recording.touch_group(who)
            if any(queue.may_expire for queue in queues):
                self._expiring[who] = None
            if isinstance(who, Session):
                looked_at.append(who)
                if isinstance(who.owed, StoredOwed) and who.owed.evicted:
                    self._note_evicted(who, who.owed, Reason.EXPIRED)
                    self._recording.touch(who)
        return looked_at


def _is_durable(session: Session, run: Run, form: Form) -> bool:
    """A session gets this even if it is away meanwhile."""
    return bool(run.shape.qos and form.qos) and session.is_persistent


def _outlives(session: Session, run: Run, form: Form) -> bool:
    """What waits for a session does not end with its connection."""
    return isinstance(form, SharedForm) or _is_durable(session, run, form)


def _queues_of(who: Session | SharedGroup) -> tuple[str, list[Outbox]]:
    """What the ledger calls someone, and what waits there."""
    if isinstance(who, SharedGroup):
        return who.filter, [who.owed] if who.owed else []
    return who.client_id, [queue for queue in (who.outbox, who.owed) if queue]


def _take_all(queue: Outbox | None) -> list[Entry]:
    return queue.take(queue.bytes + 1) if queue else []
