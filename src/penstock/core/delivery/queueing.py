"""Queueing for sessions that cannot take a message now: outbox, offline queue, overflow.

The policy decides what is queued; drops go to the ledger. `drain.py` sends queued messages later.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from sys import maxsize

from penstock.common.topics import WILDCARDS, split_share
from penstock.core.delivery.backpressure import Backpressure
from penstock.core.delivery.drops import Drops
from penstock.core.delivery.expiry import QueueExpiry
from penstock.core.delivery.offline_queue import LogBackedQueue, OfflineQueue
from penstock.core.delivery.outbox import Entry, Outbox
from penstock.core.delivery.policy import Limits
from penstock.core.delivery.ports import ChangeRecorder
from penstock.core.delivery.shared_buffer import SharedBuffer
from penstock.core.diagnostics.ledger import Ledger
from penstock.core.diagnostics.slow_consumers import SlowConsumers
from penstock.core.ports.connection import Encoding
from penstock.core.publishing.outcome import Outcomes
from penstock.core.runtime.background import Background, StepQueue
from penstock.core.sessions.session import Ending, Session
from penstock.core.settings import CoreSettings
from penstock.core.subscriptions.shared import SharedGroup, group_of, is_shared
from penstock.core.subscriptions.subscription import Subscription
from penstock.core.topics.registry import Registry
from penstock.model import Policy, Reason
from penstock.runs import Run


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
        background: Background,
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
        self.expiry = QueueExpiry(drops, recorder)
        self.too_slow: dict[Session, None] = {}  # to be cut at the end of this flush
        self._cut: dict[Session, None] = {}  # being cut, until they are detached
        self._cuts = StepQueue(background)
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
        if session.is_over:
            return
        session.is_flowing = False
        if (session in self._cut or session in self.too_slow) and _loses_queue(session):
            self._enqueue_late(session, runs, encoding)
            return
        if session.credit is not None and session.connection is not None:
            self._enqueue_credited(session, runs, encoding, wanted)
            return
        if session.connection is not None and session not in self.slow_consumers.watched:
            self.slow_consumers.watch(session, self.choose_policy(runs[0], wanted))
        is_durable = _is_durable(session, runs[0], encoding)
        if session.journal is not None and is_durable:
            self._recorder.touch(session)
        queue = self._quick_queue(session, is_durable)
        overflow: list[Run] = []
        refused_bytes = maxsize  # a single message of this size found no room; within a call none is made
        for index, run in enumerate(runs):
            if queue is not None and queue.offer(run, encoding):
                continue
            policy = self.choose_policy(run, wanted)
            is_newest_dropped = policy is Policy.DROP_NEWEST and not is_durable
            if is_newest_dropped and len(run.slab) >= refused_bytes and run.count == 1:
                overflow.append(run)
            elif is_newest_dropped and _is_refused(session, queue, run):
                refused_bytes = len(run.slab)
                overflow.append(run)
            else:
                self._enqueue_one(session, run, encoding, policy)
                queue, refused_bytes = self._quick_queue(session, is_durable), maxsize
                if policy is Policy.DISCONNECT and session in self.too_slow and _loses_queue(session):
                    self._enqueue_late(session, runs[index + 1 :], encoding)
                    break
        if overflow:
            self.drops.drop_all(overflow, session, Reason.OUTBOX_FULL, Policy.DROP_NEWEST, "outbox")
            self.outcomes.note_all_dropped(overflow)

    def _enqueue_late(self, session: Session, runs: list[Run], encoding: Encoding) -> None:
        """Queue runs for a session that is cut in a moment: they are recorded with the rest of its queue."""
        outbox = self._outbox_of(session)
        for run in runs:
            outbox.add_last(run, encoding)
        self.outcomes.note_all_dropped(runs)

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
            self.expiry.watch(session)
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
        offline_queue = self.offline_queue_of(session)
        _, dropped = offline_queue.add(run, encoding, policy)
        if run.expires_at:
            self.expiry.watch(session)
        self._drop(dropped, run, session, Reason.OFFLINE_QUEUE_FULL, policy, "sessions.owed")
        evicted = offline_queue.take_evicted()
        if evicted:
            self.drops.drop_evicted(evicted, session, policy)

    def offline_queue_of(self, session: Session) -> OfflineQueue:
        """The offline queue of a session, made if there is none."""
        if session.offline_queue is None:
            kind = OfflineQueue if session.journal is None else LogBackedQueue
            session.offline_queue = kind(self._offline_limits)
        return session.offline_queue

    def enqueue_for_group(self, group: SharedGroup[Session], run: Run) -> None:
        """Enqueue a run for a shared group without a connected or caught-up member."""
        if not group.present and not (run.shape.qos and group.queues_offline):
            self._ledger.add(run, group.filter, Reason.NOT_CONNECTED)
            return
        self._recorder.touch_group(group)
        speaker = group.speaker
        _, dropped = group.offline_queue.add(run, speaker.encoding, speaker.policy)
        for lost in dropped:
            self._ledger.add(lost, group.filter, Reason.OFFLINE_QUEUE_FULL, speaker.policy, "sessions.owed")
        group.forget(dropped)
        if run.expires_at:
            self.expiry.watch(group)

    # Too much

    def cut_slow(self, session: Session) -> None:
        """End one connection as policy `disconnect` does."""
        self.too_slow[session] = None
        self.close_slow()

    def close_slow(self) -> None:
        """End connections under `disconnect`: now that what they got in this turn has been written.

        Of very many, some are ended in each turn.
        """
        slow, self.too_slow = self.too_slow, {}
        for session in slow:
            self.slow_consumers.mark(session, Policy.DISCONNECT)
            if session not in self._cut and session.connection is not None:  # else it left in this turn
                self._cut[session] = None
                self._cuts.add(partial(self._close, session))

    def _close(self, session: Session) -> bool:
        """Step of background work: cut one session, unless it has left meanwhile."""
        if session in self._cut and session.connection is not None:
            self._discard(session)
            session.close(Ending.SLOW)
        return False

    def discard_late(self, session: Session) -> None:
        """Drop messages that were published between a cut and the end of its connection."""
        if session in self._cut:
            self._discard(session)

    def _discard(self, session: Session) -> None:
        """Drop the outbox of a cut session, except messages that it or its group gets later."""
        outbox = session.outbox
        if not outbox or session.is_resumable:
            return
        if _outlives_nothing(session):
            self.drops.drop_queue(outbox, session, Policy.DISCONNECT, "outbox")
            return
        lost = [run for run, _ in outbox.remove_entries(lambda entry: not _outlives(session, *entry))]
        if lost:
            self.drops.drop_all(lost, session, Reason.OUTBOX_FULL, Policy.DISCONNECT, "outbox")

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
        self.expiry.watch(session)
        if session.connection is None:
            self.offline_queue_of(session).put_back(entries)
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
                    self.expiry.watch(group)
            else:  # the last member has left meanwhile
                self._ledger.add(run, group.filter, Reason.SESSION_ENDED)
        return rest[::-1]

    # Going

    def requeue_offline(self, session: Session) -> list[SharedGroup[Session]]:
        """Move queues of a disconnected session to its offline queue, or record their loss.

        Returns the shared groups whose other members may get something.
        """
        self.too_slow.pop(session, None)
        self._cut.pop(session, None)
        self.backpressure.unblock(session)
        self.backpressure.forget(session)
        waiting: deque[Entry] = deque()
        if session.inflight is not None:
            unsent = session.inflight.take_from(session.first_uncommitted_id)
            waiting += session.inflight.take_qos1(is_shared) if session.groups is not None else ()
            waiting += [(each.run, each.encoding) for each in unsent]
        size = 0
        for queue in (session.outbox, session.offline_queue):
            if queue:
                size += queue.bytes
                waiting = waiting + queue.detach() if waiting else queue.detach()
        session.outbox, session.offline_queue = None, session.offline_queue or None  # offsets stay
        self._recorder.touch(session)
        if _outlives_nothing(session):
            if not session.is_resumable:
                self.drops.record(waiting, session.client_id, Reason.DISCONNECTED, size=size)
            return []
        return self._requeue(session, waiting)

    def _requeue(self, session: Session, waiting: deque[Entry]) -> list[SharedGroup[Session]]:
        """Queue messages that outlive a connection, each where it belongs; the others are lost."""
        own: list[Entry] = []
        lost: deque[Entry] = deque()
        is_shared_at_all, is_persistent = session.groups is not None, session.is_persistent
        for entry in self.return_to_groups(waiting) if is_shared_at_all else waiting:
            if entry[0].shape.qos and entry[1].qos and is_persistent:
                own.append(entry)
            else:
                lost.append(entry)
        if not session.is_resumable:
            self.drops.record(lost, session.client_id, Reason.DISCONNECTED)
        self.put_first(session, own)
        if not is_shared_at_all:
            return []
        offered = [group for _, encoding in waiting if (group := group_of(encoding)) is not None]
        return list(dict.fromkeys([*offered, *(session.groups or ())]))

    def end(self, session: Session) -> None:
        """Record everything that was still queued for a session that ended."""
        queue = session.offline_queue
        if queue:
            self.drops.record_queue(queue, session.client_id, Reason.SESSION_ENDED)
            offsets = queue.discard(queue.stored)
            self.drops.drop_offsets(offsets, session, Reason.SESSION_ENDED)
        sent = session.inflight.entries.values() if session.inflight else ()
        unacknowledged = deque([(each.run, each.encoding) for each in sent if each is not None])
        self.drops.record(unacknowledged, session.client_id, Reason.SESSION_ENDED)
        session.offline_queue = session.inflight = session.backlog = None


def _is_durable(session: Session, run: Run, encoding: Encoding) -> bool:
    """Return whether a session gets a message even if it disconnects meanwhile."""
    return bool(run.shape.qos and encoding.qos) and session.is_persistent


def _outlives(session: Session, run: Run, encoding: Encoding) -> bool:
    """Return whether a queued message outlives the connection."""
    return is_shared(encoding) or _is_durable(session, run, encoding)


def _outlives_nothing(session: Session) -> bool:
    """Return whether the connection takes all queued messages with it: there is no need to look at them."""
    return not session.is_persistent and session.groups is None


def _loses_queue(session: Session) -> bool:
    """Return whether a session that is cut for its slowness loses all that is queued."""
    return _outlives_nothing(session) and not session.is_resumable


def _is_refused(session: Session, queue: Outbox | None, run: Run) -> bool:
    """Return whether there is no room for a single message in the outbox of a connected session."""
    return queue is not None and queue is session.outbox and run.count == 1 and not queue.make_room(run)
