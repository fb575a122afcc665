"""Publish path into core: admission, stamps, ring, log and audience."""

from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from msgspec import Struct

from penstock.common.topics import check_topic, is_reserved
from penstock.core.access.identity import Identity
from penstock.core.node import Node
from penstock.core.ports.log import Settled, Ticket
from penstock.core.publishing.outcome import NOTHING_LOST, Outcome, PublishReceipt
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.audience import NOBODY
from penstock.core.topics.registry import Registry
from penstock.core.topics.topic import Topic
from penstock.errors import NotAuthorized, PenstockError, ShuttingDown, StorageUnavailable
from penstock.model import Door, Reason, Run, bare_shape

FOUND_BY_CLIENT_ID = (Door.MQTT, Door.SERVER)
"""Doors whose publishers need not be noted: one has a session for each client id, the other has one."""


OnAccepted = Callable[[Outcome, Exception | None], None]
"""Gets the outcome of a publish, and the error of a commit that failed."""


class ChunkReceipt(Struct, frozen=True, gc=False):
    """Decision about the runs of one call, valid until the turn ends."""

    topics: Registry
    ticket: Ticket | None = None
    """The commit that covers all runs; None if nothing of them is stored."""
    unmatched: int = 0
    """Number of runs to topics that no subscription matches."""

    def is_matched(self, run: Run) -> bool:
        """Return whether a subscription matches the topic of an accepted run."""
        topic = self.topics.get(run.topic)
        return topic is None or topic.audience is not NOBODY

    def subscribers_of(self, topic: str) -> int:
        """Return how many subscribers an accepted run of this topic has, offline ones included."""
        return len(self.topics[topic].audience)

    def reaches(self, session: Session, topics: Iterable[str]) -> bool:
        """Return whether a session is in the audience of one of these topics."""
        found = (self.topics.get(topic) for topic in topics)
        return any(topic is not None and topic.audience.reaches(session) for topic in found)

    def is_stored(self, run: Run) -> bool:
        """Return whether an accepted run needs a commit: in the log, or as a retained value."""
        return is_to_be_stored(run, self.topics[run.topic])


def is_to_be_stored(run: Run, topic: Topic) -> bool:
    """Return whether something of a published run goes into the log, or into the retained values."""
    if topic.rules.is_kept or (run.shape.qos and topic.audience.wants_storing):
        return True
    value = topic.retained  # there may have been no room for it
    return run.shape.retain and (run.stride == run.head or (value is not None and value.offset >= run.offset))


def raise_it(run: Run, error: PenstockError) -> NoReturn:
    """Refuse a run by an error that its publisher gets."""
    raise error


class Publisher:
    """Records runs and queues them for their subscribers."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._tick, self._router = node.tick, node.router
        self._log, self._sequencer = node.log, node.log.sequencer
        self._rollback = node.rollback
        self._topics = node.topics
        self._counters = node.counters
        self._plain_receipt = ChunkReceipt(node.topics)  # nothing is stored, and every run is matched
        self._server = Session(Identity(None, ""), Door.SERVER)
        self.is_stopping = False

    def publish(self, run: Run, sender: Session) -> PublishReceipt:
        """Record a run and queue it for its subscribers; never waits.

        Raises:
            PenstockError: the topic is invalid, not allowed, or one too many; nothing was recorded.
        """
        receipt = self.publish_all((run,), sender, raise_it)
        return PublishReceipt(run, not receipt.unmatched, receipt.ticket)

    def publish_all(  # noqa: PLR0915 - the hot path: a call for each run would cost more than it explains
        self,
        runs: Sequence[Run],
        sender: Session,
        refuse: Callable[[Run, PenstockError], None],
        *,
        is_forced: bool = False,
    ) -> ChunkReceipt:
        """Publish runs in order. Returns one receipt for all of them.

        This is the hot path of every message: it looks up once what all runs share, and stamps each run in
        place. A run that is not allowed goes to `refuse`, and the rest continues. A forced run is stored in a
        durable log even if no setting captures its topic.
        """
        tick, log, recency, sequencer = self._tick, self._log, self._topics.recency, self._sequencer
        if not tick.is_open:
            tick.open()
        find_topic, client_id, wall_us, last = sender.topics.get, sender.client_id, tick.wall_us, tick.last
        offset, version, append = sequencer.head + 1, self._router.version, sequencer.turn.runs.append
        era = recency.era if offset < recency.next_era else recency.era_at(offset)
        is_durable, failure, is_kept = log.is_durable, log.failure, False
        unmatched = kept_bytes = 0
        try:
            for run in runs:
                topic = find_topic(run.topic)
                if topic is None or topic.version != version:
                    try:
                        topic = self._look_up(run.topic, topic, sender)
                    except PenstockError as error:
                        refuse(run, error)
                        continue
                shape, count, rules = run.shape, run.count, topic.rules
                if failure is not None and shape.qos:
                    refuse(run, StorageUnavailable(str(failure)))
                    continue
                run.client_id, run.published_at = client_id, wall_us
                run.offset, offset = offset, offset + count
                run.sequence, topic.sequence = topic.sequence + 1, topic.sequence + count
                if topic.era != era:
                    recency.note(topic)
                audience = topic.audience
                if not (shape.is_plain and rules.is_plain):
                    self._publish_special(run, topic)
                    if rules.batch_size:
                        last = None  # it is gathered, not joined to what leaves with this turn
                if rules.is_kept or (is_durable and shape.qos and (is_forced or audience.wants_storing)):
                    append(run)
                    kept_bytes += len(run.slab)
                    is_kept = True
                elif is_durable and shape.retain:
                    kept_bytes += len(run.slab)
                    is_kept = True  # its value is
                if topic.ring is not None:
                    topic.ring.append(run)  # with all its stamps
                else:
                    self._topics.begin_ring(topic, run)
                if last is not None and last.audience is audience and last.shape is shape:
                    last.runs.append(run)  # the same stretch continues
                elif audience is not NOBODY:
                    last = tick.add(topic, run)
                else:
                    unmatched += 1
                if topic.stream is not None:
                    topic.stream.on_published(topic.stream, run)
        finally:
            self._advance(offset - 1, sender)
        if is_kept:
            sequencer.room_bytes -= kept_bytes
            if sequencer.room_bytes < 0:
                self._node.backpressure.block_for_log(sender)
            return ChunkReceipt(self._topics, self._rollback.watch(), unmatched)
        return ChunkReceipt(self._topics, None, unmatched) if unmatched else self._plain_receipt

    def _advance(self, head: int, sender: Session) -> None:
        """Offsets up to this one are given."""
        before, self._sequencer.head = self._sequencer.head, head
        if sender is not self._server:
            self._counters.published_at[sender.door] += head - before
        if sender.door not in FOUND_BY_CLIENT_ID and head > before:
            self._node.request_senders.note(before + 1, head, sender)

    def _publish_special(self, run: Run, topic: Topic) -> None:
        """Handle what only some messages need: expiry, retained value."""
        rules = topic.rules
        if run.ttl or rules.ttl:
            run.ttl = run.ttl or rules.ttl
            run.expires_at = self._node.clock.monotonic() + run.ttl
        if run.shape.retain:
            if topic.retained is not None and topic.ring is None and rules.has_ring:
                self._topics.make_ring(topic, before=run.sequence)  # while the value is there
            self._retain(topic, run)

    def publish_server(self, topic: str, payload: bytes, *, retain: bool = False) -> PublishReceipt:
        """Publish in the server's own name, also to `$` topics."""
        run = Run(topic, payload, 0, len(payload), 1, bare_shape(Door.SERVER, 0, retain))
        return self.publish(run, self._server)

    def when_committed(self, ticket: Ticket | None, callback: Settled) -> None:
        """Call back when publishes may be acknowledged: after their commit, or after this turn's flush.

        The callback gets the error of a commit that failed: then nothing may be acknowledged.
        """
        if ticket is None or self._log.is_committed(ticket):
            self._tick.after(lambda: callback(None))
        else:
            self._log.when_committed(ticket, callback)

    def when_accepted(self, run: Run, sender: Session, ticket: Ticket | None, callback: OnAccepted) -> None:
        """Call back when a request's publish may be acknowledged: committed, and its sender not blocked.

        To be called in the turn of the publish: its outcome is forgotten with the next.
        """
        node, found = self._node, list[Outcome]()

        def note_outcome() -> None:
            outcomes = node.queues.outcomes
            found.append(outcomes.of(run) if outcomes else NOTHING_LOST)

        def settle(failure: Exception | None) -> None:
            if failure is None:  # the flush was before the commit, unless that is of an earlier turn
                outcome = found[0] if found else NOTHING_LOST
                node.request_senders.when_acknowledgeable(sender, lambda: callback(outcome, None))
            else:
                callback(NOTHING_LOST, failure)

        self._tick.after(note_outcome)
        self.when_committed(ticket, settle)

    def when_session_stored(self, session: Session, callback: Settled) -> None:
        """Call back when a session that has just come outlives the server, or cannot.

        One that need not be remembered may still have a will, or stand in the place of one that was.
        """
        if not session.is_promised or self._log.is_committed(self._log.ticket):
            callback(None)
        else:
            self._node.recorder.when_stored(callback)

    def when_change_stored(self, session: Session, callback: Callable[[], None]) -> None:
        """Call back when what was just done for a session outlives the server; at once if it need not.

        If it cannot be stored now it is tried again, and the callback comes late.
        """
        if session.journal is None or self._log.is_committed(self._log.ticket):
            callback()
        else:
            self._wait(callback)

    def _wait(self, callback: Callable[[], None]) -> None:
        self._node.recorder.when_stored(
            lambda failure: callback() if failure is None else self._wait(callback)
        )

    def _look_up(self, name: str, known: Topic | None, sender: Session) -> Topic:
        """A topic with the audience that it has now; one that was deleted since it was used is made again."""
        topic = self.admit(name, sender) if known is None or known.is_deleted else known
        if topic.version != self._router.version:
            self._router.refresh(topic)
        return topic

    def admit(self, name: str, sender: Session) -> Topic:
        """Decide once whether a sender may use a topic.

        Raises:
            PenstockError: it may not, or there are too many topics.
        """
        check_topic(name, self._node.settings.topic)
        if sender.door is not Door.SERVER:
            if self.is_stopping:
                raise ShuttingDown("the server is about to stop")
            if is_reserved(name):
                raise NotAuthorized("topics that begin with $ are the server's own")
            if not self._node.access.may_publish(sender.identity, name):
                raise NotAuthorized(f"not allowed to publish to {name}")
        topic = self._topics.make(name)
        sender.remember(topic)
        return topic

    def forget_topics(self, sessions: Iterable[Session]) -> None:
        """Clear the topic caches of sessions, so that rights are decided anew."""
        for session in (*sessions, *self._node.request_senders.sessions(), self._server):
            session.topics.clear()

    def _retain(self, topic: Topic, run: Run) -> None:
        retained, node = self._node.retained, self._node
        if run.shape.door is Door.SERVER:  # few, always welcome, and worth nothing after a restart
            retained.put(topic, run)
        elif not run.payload(run.count - 1):
            node.retained_rollback.note(topic, run.shape.qos)
            retained.delete(topic)
            node.recorder.forget_value(topic.name)
        elif topic.retained is None and retained.is_full:
            node.ledger.add(run, run.client_id, Reason.NEVER_STORED, setting="retained.max_messages")
        else:
            node.retained_rollback.note(topic, run.shape.qos)
            expires_at = run.published_at + round(run.ttl * 1_000_000) if run.ttl else None
            node.recorder.save_value(topic.name, retained.put(topic, run), expires_at)
