"""Queueing for sessions that cannot take a message now: outbox, offline queue, overflow.

The policy decides what is queued; drops go to the ledger. `drain.py` sends queued messages later.
"""

from collections.abc import Callable, Sequence

from penstock.common.topics import WILDCARDS, split_share
from penstock.core.delivery.backpressure import Backpressure
from penstock.core.delivery.drops import Drops
from penstock.core.delivery.offline_queue import LogBackedQueue, OfflineQueue
from penstock.core.delivery.outbox import Entry, Outbox
from penstock.core.delivery.policy import Limits
from penstock.core.delivery.ports import ChangeRecorder
from penstock.core.delivery.shared_buffer import SharedBuffer
from penstock.core.diagnostics.ledger import Ledger
from penstock.core.diagnostics.slow_consumers import SlowConsumers
from penstock.core.ports.connection import Encoding
from penstock.core.publishing.outcome import Outcomes
from penstock.core.sessions.session import Ending, Session
from penstock.core.settings import CoreSettings
from penstock.core.subscriptions.shared import SharedGroup, group_of, is_shared
from penstock.core.subscriptions.subscription import Subscription
from penstock.core.topics.registry import Registry
from penstock.model import Policy, Reason, Run

REAP_MESSAGES = 100_000
"""Most queued messages that one pass examines for expiry."""


class Queues:
    """The queues of all sessions and shared groups."""

    def __init__(
        self,
        settings: CoreSettings,
        topics: Registry,
        ledger: Ledger,
        slow_consumers: SlowConsumers,
        drops: Drops,
        backpressure: Backpressure,
        recorder: ChangeRecorder,
        find_publisher: Callable[[Run], Session | None],
    ) -> None:
        self._topics = topics
        self._ledger = ledger
        self.slow_consumers = slow_consumers
        self.drops = drops
        self.backpressure = backpressure
        self._recorder = recorder
        self._find_publisher = find_publisher
        outbox = settings.outbox
        self.shared_buffer = SharedBuffer(outbox.messages, outbox.bytes, outbox.shared_bytes)
        self._offline_limits = Limits(settings.sessions.owed_messages, settings.sessions.owed_bytes)
        self._block_wildcards = settings.outbox.block_wildcards
        self._expiring: dict[Session | SharedGroup[Session], None] = {}  # a queued message may expire
        self.too_slow: dict[Session, None] = {}  # to be closed at the end of this flush
        self.credited: dict[
            Session, list[Entry]
        ] = {}  # sent to sessions with credit at the end of this flush
        self.outcomes = Outcomes()  # of this turn

    def configure(self, settings: CoreSettings) -> None:
        """Let more or less wait from now on, in the queues that are there as in new ones."""
        outbox, sessions = settings.outbox, settings.sessions
        self.shared_buffer.configure(outbox.messages, outbox.bytes, outbox.shared_bytes)
        self._offline_limits.change(sessions.owed_messages, sessions.owed_bytes)
        self._block_wildcards = outbox.block_wildcards
        self.backpressure.timeout = outbox.block_timeout_ms / 1000

    # Coming

    def enqueue_all(
        self, session: Session, runs: list[Run], encoding: Encoding, wanted: Subscription
    ) -> None:
        """Keep runs for a session that cannot get them now."""
        session.is_flowing = False
        if session.credit is not None and session.connection is not None:
            self._enqueue_credited(session, runs, encoding, wanted)
            return
        if session.connection is not None and session not in self.slow_consumers.watched:
            self.slow_consumers.watch(session, self.choose_policy(runs[0], wanted))
        is_durable = _is_durable(session, runs[0], encoding)
        if session.journal is not None and is_durable:
            self._recorder.touch(session)
        queue = self._quick_queue(session, is_durable)
        for run in runs:
            if queue is None or not queue.offer(run, encoding):
                self._enqueue_one(session, run, encoding, self.choose_policy(run, wanted))
                queue = self._quick_queue(session, is_durable)

    def _enqueue_credited(
        self, session: Session, runs: list[Run], encoding: Encoding, wanted: Subscription
    ) -> None:
        """Give runs to a session that counts: what it has credit for leaves with this flush, others wait."""
        going = self.credited.setdefault(session, [])
        for run in runs:
            credit = 0 if session.is_waiting or not session.can_take else session.credit or 0
            taken = min(run.count, credit)
            if taken:
                going.append((run.part(0, taken), encoding))
                session.credit = credit - taken
            if taken < run.count:
                rest = run.part(taken, run.count - taken)
                self._enqueue_one(session, rest, encoding, self.choose_policy(run, wanted))

    def _quick_queue(self, session: Session, is_durable: bool) -> Outbox | None:
        """Return the queue that takes a run without a policy; queued messages are never overtaken."""
        if session.connection is None:
            return session.offline_queue if is_durable else None
        return None if session.offline_queue else session.outbox

    def choose_policy(self, run: Run, wanted: Subscription) -> Policy:
        """The topic's policy if a rule gives it one, otherwise the subscription's."""
        topic = self._topics.get(run.topic)
        policy = topic.rules.policy if topic is not None else None
        policy = policy or wanted.policy
        if policy is not Policy.BLOCK or self._block_wildcards:
            return policy
        is_broad = split_share(wanted.filter)[1].startswith(WILDCARDS)
        return Policy.DROP_OLDEST if is_broad else policy  # a reader of everything may not stop everyone

    def _enqueue_one(self, session: Session, run: Run, encoding: Encoding, policy: Policy) -> None:
        """Keep a run for a session that cannot get it now, or record why not."""
        is_durable = _is_durable(session, run, encoding)
        if session.connection is None:
            if is_durable:
                self.enqueue_offline(session, run, encoding, policy)
            else:
                self._ledger.add(run, session.client_id, Reason.NOT_CONNECTED)
            return
        is_numbered = bool(run.shape.qos and encoding.qos)
        if session.offline_queue and (is_numbered or session.offline_queue.takes_qos0):
            self.enqueue_offline(session, run, encoding, policy)  # nothing overtakes what waits there
            return
        outbox = self._outbox_of(session)
        if is_durable and policy is not Policy.BLOCK and not outbox.has_room(run):
            self.enqueue_offline(session, run, encoding, policy)  # fetched when the outbox is empty
            if policy is Policy.DISCONNECT:
                self.too_slow[session] = None
            return
        self._enqueue(session, outbox, run, encoding, policy)

    def _outbox_of(self, session: Session) -> Outbox:
        if session.outbox is None:
            session.outbox = Outbox(self.shared_buffer.allow(session.outbox_messages))
        return session.outbox

    def _enqueue(
        self, session: Session, outbox: Outbox, run: Run, encoding: Encoding, policy: Policy
    ) -> None:
        decision, dropped = outbox.add(run, encoding, policy)
        if run.expires_at:
            self._expiring[session] = None
        if not (decision.close and session.is_resumable):
            self._drop(dropped, run, session, Reason.OUTBOX_FULL, policy, "outbox")
        if decision.block:
            publisher = self._find_publisher(run)
            if publisher is None or publisher is session:  # a session never blocks itself
                self.drops.shrink_outbox(session, policy)
            else:
                self.outcomes.note_blocked(run)
                self.backpressure.block(publisher, session, run.shape.qos)
        if decision.close:
            self.too_slow[session] = None

    def enqueue_offline(self, session: Session, run: Run, encoding: Encoding, policy: Policy) -> None:
        """Keep a run for a session until it has room, or is back."""
        offline_queue = self._offline_queue_of(session)
        _, dropped = offline_queue.add(run, encoding, policy)
        if run.expires_at:
            self._expiring[session] = None
        self._drop(dropped, run, session, Reason.OWED_FULL, policy, "sessions.owed")
        evicted = offline_queue.take_evicted()
        if evicted:
            self.drops.drop_evicted(evicted, session, policy)

    def _offline_queue_of(self, session: Session) -> OfflineQueue:
        if session.offline_queue is None:
            kind = OfflineQueue if session.journal is None else LogBackedQueue
            session.offline_queue = kind(self._offline_limits)
        return session.offline_queue

    def enqueue_for_group(self, group: SharedGroup[Session], run: Run) -> None:
        """Enqueue a run for a shared group without a connected or caught-up member."""
        if not group.present and not (run.shape.qos and group.wants_owed):
            self._ledger.add(run, group.filter, Reason.NOT_CONNECTED)
            return
        self._recorder.touch_group(group)
        speaker = group.speaker
        _, dropped = group.offline_queue.add(run, speaker.encoding, speaker.policy)
        for lost in dropped:
            self._ledger.add(lost, group.filter, Reason.OWED_FULL, speaker.policy, "sessions.owed")
        group.forget(dropped)
        if run.expires_at:
            self._expiring[group] = None

    # Too much

    def cut_slow(self, session: Session) -> None:
        """End one connection as policy `disconnect` does."""
        self.too_slow[session] = None
        self.close_slow()

    def close_slow(self) -> None:
        """End connections under `disconnect`: now that what they got in this turn has been written."""
        slow, self.too_slow = self.too_slow, {}
        for session in slow:
            self.slow_consumers.mark(session, Policy.DISCONNECT)
            if session.connection is not None:  # else it left in this turn, and may be back
                self._discard(session)
                session.close(Ending.SLOW)

    def _discard(self, session: Session) -> None:
        """Drop the outbox of a cut session, except messages that it or its group gets later."""
        if not session.outbox or session.is_resumable:
            return
        for run, _ in session.outbox.remove_entries(lambda entry: not _outlives(session, *entry)):
            self.drops.drop(run, session, Reason.OUTBOX_FULL, Policy.DISCONNECT, "outbox")

    def _drop(
        self, dropped: list[Run], cause: Run, session: Session, reason: Reason, policy: Policy, setting: str
    ) -> None:
        """Record what a run displaced, and count it for the publisher's outcome."""
        for run in dropped:
            self.drops.drop(run, session, reason, policy, setting)
        if dropped:
            self.outcomes.note_dropped(cause)

    # Back again

    def put_first(self, session: Session, entries: Sequence[Entry]) -> None:
        """Put entries back that could not be sent, before everything else."""
        if not entries:
            return
        self._expiring[session] = None
        if session.connection is None:
            self._offline_queue_of(session).put_back(entries)
            return
        outbox = self._outbox_of(session)
        for run, encoding in reversed(entries):
            outbox.add_first(run, encoding)

    def return_to_groups(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return entries of shared groups to their groups, first and in order; return the rest."""
        rest: list[Entry] = []
        for run, encoding in reversed(entries):
            group = group_of(encoding)
            if group is None:
                rest.append((run, encoding))
            elif group:
                group.offline_queue.add_first(run, encoding)
                group.again[run.offset] = None
                self._recorder.touch_group(group)
                if run.expires_at:
                    self._expiring[group] = None
            else:  # the last member has left meanwhile
                self._ledger.add(run, group.filter, Reason.SESSION_ENDED)
        return rest[::-1]

    # Going

    def requeue_offline(self, session: Session) -> list[SharedGroup[Session]]:
        """Move queues of a disconnected session to its offline queue, or record their loss.

        Returns the shared groups whose other members may get something.
        """
        self.too_slow.pop(session, None)
        self.backpressure.unblock(session)
        self.backpressure.forget(session)
        waiting: list[Entry] = []
        if session.inflight is not None:
            unsent = session.inflight.take_from(session.first_uncommitted_id)
            waiting += session.inflight.take_qos1(is_shared)
            waiting += [(each.run, each.encoding) for each in unsent]
        waiting += [*_take_all(session.outbox), *_take_all(session.offline_queue)]
        session.outbox, session.offline_queue = None, session.offline_queue or None  # offsets stay
        own: list[Entry] = []
        for run, encoding in self.return_to_groups(waiting):
            if _is_durable(session, run, encoding):
                own.append((run, encoding))
            elif not session.is_resumable:
                self._ledger.add(run, session.client_id, Reason.DISCONNECTED)
        self.put_first(session, own)
        self._recorder.touch(session)
        offered = [group for _, encoding in waiting if (group := group_of(encoding)) is not None]
        return list(dict.fromkeys([*offered, *(session.groups or ())]))

    def end(self, session: Session) -> None:
        """Record everything that was still queued for a session that ended."""
        for run, _ in _take_all(session.offline_queue):
            self.drops.end(run, session)
        if session.offline_queue:
            offsets = session.offline_queue.discard(session.offline_queue.stored)
            self.drops.drop_offsets(offsets, session, Reason.SESSION_ENDED)
        for pending in session.inflight.entries.values() if session.inflight else ():
            if pending is not None:
                self.drops.end(pending.run, session)
        session.offline_queue = session.inflight = session.backlog = None

    def reap(self, now: float) -> list[Session]:
        """Remove expired messages from every queue; return sessions that may have nothing queued any more."""
        budget = REAP_MESSAGES
        looked_at: list[Session] = []
        for who in list(self._expiring):
            if budget <= 0:
                break  # the others have their turn in a second; what has expired is never sent anyway
            del self._expiring[who]
            queues = _queues_of(who)
            for queue in queues:
                if now >= queue.next_expiry:
                    budget -= len(queue)
                expired = queue.remove_expired(now)
                for run in expired:
                    if isinstance(who, Session):
                        self.drops.expire(run, who)
                    else:
                        self.drops.expire_in_group(run, who)
                if expired and isinstance(who, SharedGroup):
                    who.forget(expired)
                    self._recorder.touch_group(who)
            if any(queue.may_expire for queue in queues):
                self._expiring[who] = None
            if isinstance(who, Session):
                looked_at.append(who)
                evicted = who.offline_queue.take_evicted() if who.offline_queue is not None else ()
                if evicted:
                    self.drops.drop_offsets(evicted, who, Reason.EXPIRED)
                    self._recorder.touch(who)
        return looked_at


def _is_durable(session: Session, run: Run, encoding: Encoding) -> bool:
    """Return whether a session gets a message even if it disconnects meanwhile."""
    return bool(run.shape.qos and encoding.qos) and session.is_persistent


def _outlives(session: Session, run: Run, encoding: Encoding) -> bool:
    """Return whether a queued message outlives the connection."""
    return is_shared(encoding) or _is_durable(session, run, encoding)


def _queues_of(who: Session | SharedGroup[Session]) -> list[Outbox]:
    """Return the queues of a session or group that have messages."""
    queues = (who.outbox, who.offline_queue) if isinstance(who, Session) else (who.offline_queue,)
    return [queue for queue in queues if queue]


def _take_all(queue: Outbox | None) -> list[Entry]:
    return queue.take(queue.bytes + 1) if queue else []
