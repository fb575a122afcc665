"""Those who are not on the fast path: away, slow, or still catching up.

What they cannot get now is kept in their outbox or owed list, under their policy; what is dropped goes
into the ledger. `drain` brings them back: first what waits in the outbox, then what is owed, then
retained values, then the fast path again.
"""

from collections.abc import Callable, Sequence

from penstock.core.backlog import take_from
from penstock.core.clock import Clock, Scheduler
from penstock.core.counters import Counters
from penstock.core.holding import Holding
from penstock.core.inflight import Inflight, Pending
from penstock.core.ledger import Ledger
from penstock.core.outbox import Entry, Outbox
from penstock.core.owed import Owed
from penstock.core.policy import Limits
from penstock.core.ports import Form
from penstock.core.registry import Registry
from penstock.core.sessions import Ending, Session, Subscription
from penstock.core.settings import CoreSettings
from penstock.core.shared import SharedForm, SharedGroup, reform_any
from penstock.core.topics import WILDCARDS, split_share
from penstock.model import NEVER, Policy, Reason, Run

CHUNK_BYTES = 64 * 1024
TURN_BYTES = 4 * CHUNK_BYTES
"""How much one session may drain in one turn of the loop before others have theirs."""
TURN_STEPS = 500
"""How many retained values are looked at for one session in one turn."""


REAP_MESSAGES = 100_000
"""How many waiting messages are looked at for their expiry in one go."""


class Lagging:
    """Keeps runs for sessions that cannot get them now, and gets them there later."""

    def __init__(
        self,
        settings: CoreSettings,
        clock: Clock,
        scheduler: Scheduler,
        ledger: Ledger,
        counters: Counters,
        topics: Registry,
        sessions: dict[str, Session],
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._ledger = ledger
        self._counters = counters
        self._topics = topics
        self._sessions = sessions
        self._outbox_limits = Limits(settings.outbox.messages, settings.outbox.bytes)
        self._owed_limits = Limits(settings.sessions.owed_messages, settings.sessions.owed_bytes)
        self._block_wildcards = settings.outbox.block_wildcards
        self._expiring: dict[Session | SharedGroup, None] = {}  # something waits for them that may expire
        self._ready: dict[Session, None] = {}  # will drain in the next turn
        self.too_slow: dict[Session, None] = {}  # to be closed at the end of this flush
        self.outcomes: dict[int, list[int]] = {}  # of this turn, by offset: how often dropped, held
        self.holding = Holding(scheduler, settings.outbox.block_timeout_ms / 1000, self._on_block_timeout)
        self.on_caught_up: Callable[[Session], None] = lambda session: None

    # Keeping

    def close_slow(self) -> None:
        """End connections under `disconnect`: now that what they got in this turn has been written."""
        slow, self.too_slow = self.too_slow, {}
        for session in slow:
            session.is_paused = True  # nothing more leaves until its door has let go of it
            if session.sink is not None:
                session.sink.close(Ending.SLOW)

    def hold_all(self, session: Session, runs: list[Run], form: Form, wanted: Subscription) -> None:
        """Keep runs for a session that cannot get them now."""
        outbox = session.outbox
        has_queue = outbox is not None and session.sink is not None and not session.owed
        session.is_flowing = False
        for run in runs:
            if not (has_queue and outbox is not None and outbox.offer(run, form)):
                self._hold(session, run, form, self._choose_policy(run, wanted))
                has_queue = has_queue and not session.owed  # what is owed may not be overtaken

    def _choose_policy(self, run: Run, wanted: Subscription) -> Policy:
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
        if run.expires_at:
            self._expiring[session] = None
        is_durable = _is_durable(session, run, form)
        if session.sink is None:
            if is_durable:
                self._owe(session, run, form, policy)
            else:
                self._ledger.add(run, session.client_id, Reason.NOT_CONNECTED)
            return
        if session.owed:
            self._owe(session, run, form, policy)  # nothing overtakes what is owed
            return
        if session.outbox is None:
            session.outbox = Outbox(self._outbox_limits)
        if is_durable and policy is not Policy.BLOCK and not session.outbox.has_room(run):
            self._owe(session, run, form, policy)  # it will be fetched when the outbox is empty
            if policy is Policy.DISCONNECT:
                self.too_slow[session] = None
            return
        self._enqueue(session, session.outbox, run, form, policy)

    def _enqueue(self, session: Session, outbox: Outbox, run: Run, form: Form, policy: Policy) -> None:
        decision, dropped = outbox.add(run, form, policy)
        for lost in dropped:
            self._drop(lost, session, Reason.OUTBOX_FULL, policy, "outbox")
        if decision.hold:
            publisher = self._sessions.get(run.client_id)
            if publisher is None or publisher is session:  # a session never blocks itself
                self._shrink(session, policy)
            else:
                self.outcomes.setdefault(run.offset, [0, 0])[1] += 1
                self.holding.hold(publisher, session, run.shape.qos)
        if decision.close:
            self.too_slow[session] = None

    def _owe(self, session: Session, run: Run, form: Form, policy: Policy) -> None:
        if session.owed is None:
            session.owed = Owed(self._owed_limits)
        _, dropped = session.owed.add(run, form, policy)
        for lost in dropped:
            self._drop(lost, session, Reason.OWED_FULL, policy, "sessions.owed")

    def owe_group(self, group: SharedGroup, run: Run) -> None:
        """Keep a run for a shared group of which nobody is connected, or nobody has caught up."""
        if not group.present and not (run.shape.qos and group.wants_owed):
            self._ledger.add(run, group.filter, Reason.NOT_CONNECTED)
            return
        speaker = group.speaker
        _, dropped = group.owed.add(run, speaker.form, speaker.policy)
        for lost in dropped:
            self._ledger.add(lost, group.filter, Reason.OWED_FULL, speaker.policy, "sessions.owed")
        if run.expires_at:
            self._expiring[group] = None

    def _drop(self, run: Run, session: Session, reason: Reason, policy: Policy, setting: str) -> None:
        self._ledger.add(run, session.client_id, reason, policy, setting)
        self.outcomes.setdefault(run.offset, [0, 0])[0] += 1

    def outcome(self, run: Run) -> tuple[int, int]:
        """For how many subscribers a run of this turn was dropped, and how many hold its publisher back."""
        offsets = range(run.offset, run.offset + run.count)
        found = [self.outcomes[offset] for offset in offsets if offset in self.outcomes]
        return sum(dropped for dropped, _ in found), sum(blocked for _, blocked in found)

    def _on_block_timeout(self, session: Session) -> None:
        self._shrink(session, Policy.BLOCK, Reason.BLOCK_TIMEOUT)

    def _shrink(self, session: Session, policy: Policy, reason: Reason = Reason.OUTBOX_FULL) -> None:
        if session.outbox is not None:
            for lost in session.outbox.shrink():
                self._drop(lost, session, reason, policy, "outbox")

    # Catching up

    def window(self, session: Session) -> Inflight:
        """A session's window of deliveries that wait for their acknowledgement."""
        if session.inflight is None:
            session.inflight = Inflight(session.window_limit)
        return session.inflight

    def wake(self, session: Session) -> None:
        """Something changed for a session that waits: drain it in the next turn."""
        if session not in self._ready:
            if not self._ready:
                self._scheduler.call_soon(self._drain_ready)
            self._ready[session] = None

    def _drain_ready(self) -> None:
        ready, self._ready = self._ready, {}
        for session in ready:
            self.drain(session)

    def drain(self, session: Session) -> None:
        """Send what waits, as much as the socket takes; then the session is on the fast path again."""
        budget, steps = TURN_BYTES, TURN_STEPS
        now = self._clock.monotonic()
        while session.sink is not None and not session.is_paused:
            if budget <= 0 or steps <= 0:
                self.wake(session)
                break
            entries, steps = self._next_entries(session, steps, now)
            if entries:
                sent, is_blocked = self._send(session, entries, now)
                budget -= sent
                if is_blocked:
                    break
            elif not session.is_waiting:
                session.backlog = None
                session.is_flowing = True
                break
        self._let_go(session)
        if session.is_flowing and session.groups:
            self.on_caught_up(session)

    def _let_go(self, session: Session) -> None:
        if self.holding.is_awaited(session) and not (session.outbox and session.outbox.is_over):
            self.holding.release(session)

    def _next_entries(self, session: Session, steps: int, now: float) -> tuple[list[Entry], int]:
        """What leaves next, and how many of the steps are left."""
        if session.outbox:
            return session.outbox.take(CHUNK_BYTES), steps
        if session.owed:
            return session.owed.take(CHUNK_BYTES), steps
        if session.backlog:
            return take_from(session.backlog, CHUNK_BYTES, steps, now)
        return [], steps

    def _send(self, session: Session, entries: list[Entry], now: float) -> tuple[int, bool]:
        """Send entries in order; answer the bytes sent and whether the window stopped it."""
        parts: list[bytes] = []
        stop = len(entries)
        for position, (run, form) in enumerate(entries):
            if NEVER < run.expires_at <= now:
                self._ledger.add(run, session.client_id, Reason.EXPIRED)
            elif run.shape.qos and form.qos:
                sent = self._number(session, run, form, now, parts)
                if sent < run.count:
                    entries[position] = (run.part(sent, run.count - sent), form)
                    stop = position
                    break
            else:
                parts.append(form.encode((run,), now))
                self._counters.delivered += run.count - self._note_oversize(session, run, form, now)
        if stop < len(entries):
            if session.outbox is None:
                session.outbox = Outbox(self._outbox_limits)
            for run, form in reversed(entries[stop:]):
                session.outbox.add_first(run, form)
            self._expiring[session] = None
        data = b"".join(parts)
        if data and session.sink is not None:
            session.sink.write(data)
        return len(data), stop < len(entries)

    def _number(self, session: Session, run: Run, form: Form, now: float, parts: list[bytes]) -> int:
        """Send as many messages of a run as the window takes; answer how many."""
        inflight = self.window(session)
        level = min(run.shape.qos, form.qos)
        done = 0
        while done < run.count and (room := inflight.room):
            part = run.part(done, min(room, run.count - done))
            frames = form.frames((part,), now)
            inflight.add_all(frames, form, level, parts)
            self._counters.delivered += len(frames)
            self._note_oversize(session, part, form, now)  # these take no room in the window
            done += part.count
        return done

    def _note_oversize(self, session: Session, run: Run, form: Form, now: float) -> int:
        """Record what was left out; answer how many messages that were."""
        lost = form.oversize((run,), now) if form.limit_bytes else []
        for part in lost:
            self._ledger.add(part, session.client_id, Reason.PACKET_TOO_LARGE)
        return sum(part.count for part in lost)

    # Coming and going

    def detach(self, session: Session) -> list[SharedGroup]:
        """A session lost its connection: what waited for it is owed, or recorded as lost.

        Answers the shared groups whose other members may now get something.
        """
        session.is_flowing = session.is_paused = False
        session.parts.clear()
        for group in session.groups or ():
            group.depart(session)
        self._ready.pop(session, None)
        self.holding.release(session)
        self.holding.forget(session)
        waiting = [*_take_all(session.outbox), *_take_all(session.owed)]
        session.outbox = session.owed = None
        own: list[Entry] = []
        shared: list[Entry] = list(session.inflight.take_shared()) if session.inflight else []
        for run, form in waiting:
            if isinstance(form, SharedForm):
                shared.append((run, form))
            elif _is_durable(session, run, form):
                own.append((run, form))
            else:
                self._ledger.add(run, session.client_id, Reason.DISCONNECTED)
        self.offer_again(shared)
        if own:
            session.owed = owed = Owed(self._owed_limits)
            self._expiring[session] = None
            for run, form in reversed(own):
                owed.add_first(run, form)
        offered = [form.group for _, form in shared if isinstance(form, SharedForm)]
        return list(dict.fromkeys([*offered, *(session.groups or ())]))

    def offer_again(self, entries: Sequence[Entry]) -> list[Entry]:
        """Give what came through shared groups back to them, first and in order; answer the rest."""
        rest: list[Entry] = []
        for run, form in reversed(entries):
            if not isinstance(form, SharedForm):
                rest.append((run, form))
            elif form.group:
                form.group.owed.add_first(run, form)
                if run.expires_at:
                    self._expiring[form.group] = None
            else:  # the last member has left meanwhile
                self._ledger.add(run, form.group.filter, Reason.SESSION_ENDED)
        return rest[::-1]

    def reform(self, session: Session, reform: Callable[[Form], Form]) -> None:
        """Remake the forms of everything a session still gets."""
        _reform_waiting(session, lambda form: reform_any(form, reform))
        for backlog in session.backlog.values() if session.backlog else ():
            backlog.form = reform(backlog.form)

    def leave(self, session: Session, group: SharedGroup) -> None:
        """A session left a shared group: what it was chosen for stays its own, whoever is left."""
        _reform_waiting(
            session,
            lambda form: form.form if isinstance(form, SharedForm) and form.group is group else form,
        )

    def end(self, session: Session) -> None:
        """A session is over: whatever it was still owed is recorded."""
        for run, _ in _take_all(session.owed):
            self._ledger.add(run, session.client_id, Reason.SESSION_ENDED)
        for pending in session.inflight.entries.values() if session.inflight else ():
            if pending is not None:
                self._ledger.add(pending.run, session.client_id, Reason.SESSION_ENDED)
        session.owed = session.inflight = session.backlog = None

    def reap(self, now: float) -> None:
        """Take out of every outbox and owed list what has expired."""
        budget = REAP_MESSAGES
        for who in list(self._expiring):
            if budget <= 0:
                return  # the others have their turn in a second; what has expired is never sent anyway
            del self._expiring[who]
            name, queues = _queues_of(who)
            for queue in queues:
                if now >= queue.next_expiry:
                    budget -= queue.messages
                for run in queue.remove_expired(now):
                    self._ledger.add(run, name, Reason.EXPIRED)
            if any(queue.may_expire for queue in queues):
                self._expiring[who] = None
            if isinstance(who, Session) and who.sink is not None and not who.is_flowing:
                self.wake(who)  # perhaps nothing waits any more


def _is_durable(session: Session, run: Run, form: Form) -> bool:
    """A session gets this even if it is away meanwhile."""
    return bool(run.shape.qos and form.qos) and session.is_persistent


def _queues_of(who: Session | SharedGroup) -> tuple[str, list[Outbox]]:
    """What the ledger calls someone, and what waits there."""
    if isinstance(who, SharedGroup):
        return who.filter, [who.owed] if who.owed else []
    return who.client_id, [queue for queue in (who.outbox, who.owed) if queue]


def _take_all(queue: Outbox | None) -> list[Entry]:
    return queue.take(queue.bytes + 1) if queue else []


def _reform_waiting(session: Session, reform: Callable[[Form], Form]) -> None:
    if session.inflight is not None:
        for number, pending in session.inflight.entries.items():
            if pending is not None:
                session.inflight.entries[number] = Pending(pending.run, reform(pending.form), pending.level)
    for queue in (session.outbox, session.owed):
        if queue:
            queue.reform(reform)
