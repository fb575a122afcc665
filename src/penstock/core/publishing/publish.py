"""Publish path into core: admission, stamps, ring, log and audience."""

from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from penstock.common.topics import check_topic, is_reserved
from penstock.core.access.identity import Identity
from penstock.core.node import Node
from penstock.core.ports.log import Settled, Ticket
from penstock.core.publishing.outcome import NOTHING_LOST, Outcome, PublishReceipt
from penstock.core.runtime.tick import TrainPart
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.audience import NOBODY
from penstock.core.topics.registry import Registry
from penstock.core.topics.topic import Topic
from penstock.errors import NotAuthorized, PenstockError, ShuttingDown, StorageUnavailable
from penstock.model import Door, Reason
from penstock.runs import Run, Train, bare_shape

FOUND_BY_CLIENT_ID = (Door.MQTT, Door.SERVER)
"""Doors whose publishers need not be noted: one has a session for each client id, the other has one."""


OnAccepted = Callable[[Outcome, Exception | None], None]
"""Gets the outcome of a publish, and the error of a commit that failed."""


class ChunkReceipt:
    """Decision about the runs of one call, valid until the turn ends."""

    __slots__ = ("ticket", "topics", "unmatched")

    def __init__(self, topics: Registry, ticket: Ticket | None = None, unmatched: int = 0) -> None:
        self.topics = topics
        self.ticket = ticket
        """The commit that covers all runs; None if nothing of them is stored."""
        self.unmatched = unmatched
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
        for name in topics:
            topic = self.topics.get(name)
            if topic is not None and topic.audience.reaches(session):
                return True
        return False

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


class PendingAcceptance:
    """A request's publish between its turn and its acknowledgement."""

    __slots__ = ("_callback", "_node", "_outcome", "_run", "_sender")

    def __init__(self, node: Node, run: Run, sender: Session, callback: OnAccepted) -> None:
        self._node = node
        self._run = run
        self._sender = sender
        self._callback = callback
        self._outcome = NOTHING_LOST

    def note_outcome(self) -> None:
        """The turn is flushed: its outcomes are there, and forgotten with the next."""
        outcomes = self._node.queues.outcomes
        if outcomes:
            self._outcome = outcomes.of(self._run)

    def on_flushed(self) -> None:
        """The turn is flushed, and no commit is to be waited for."""
        self.note_outcome()
        self.settle(None)

    def settle(self, failure: Exception | None) -> None:
        """The commit is over; the flush was before it, unless it is of an earlier turn."""
        if failure is None:
            self._node.request_senders.when_acknowledgeable(self._sender, self._accept)
        else:
            self._callback(NOTHING_LOST, failure)

    def _accept(self) -> None:
        self._callback(self._outcome, None)


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
        topics, client_id, wall_us, last = sender.topics, sender.client_id, tick.wall_us, tick.last
        offset, version, kept, nobody = sequencer.head + 1, self._router.version, sequencer.turn.runs, NOBODY
        era = recency.era if offset < recency.next_era else recency.era_at(offset)
        is_durable, failure, is_kept = log.is_durable, log.failure, False
        unmatched = kept_bytes = 0
        try:
            for run in runs:
                topic = topics.get(run.topic)
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
                    kept.append(run)
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
                elif audience is not nobody:
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

    def publish_train(
        self, train: Train, sender: Session, refuse: Callable[[Run, PenstockError], None]
    ) -> None:
        """Publish a train: as it is up to the first message that needs a look, then as runs."""
        if not self._tick.is_open:
            self._tick.open()
        count = self._publish_plain(train, sender)
        if count < train.count:
            self.publish_all(train.runs(count), sender, refuse)

    def _publish_plain(self, train: Train, sender: Session) -> int:  # noqa: PLR0915 - as `publish_all`
        """Publish messages of known topics that only have a ring and an audience.

        Returns the number of messages. Neighbours with one audience leave as one slice of the train.
        """
        tick, sequencer, recency, ends = self._tick, self._sequencer, self._topics.recency, train.ends
        topics, client_id, shape, slab = sender.topics, sender.client_id, train.shape, train.slab
        nobody, version, heads, batches = NOBODY, self._router.version, train.heads, tick.batches
        offset = sequencer.head + 1
        era = recency.era if offset < recency.next_era else recency.era_at(offset)
        wall_us = tick.wall_us
        shared_wall_us: object = wall_us
        audience = nobody
        part: TrainPart | None = None
        last: Topic | None = None
        index = start = last_sequence = 0
        try:
            for name in train.names:
                topic = topics.get(name)
                if topic is None or topic.version != version:
                    break
                rules, ring = topic.rules, topic.ring
                if not rules.is_plain or rules.is_kept or topic.stream is not None:
                    break
                if batches and topic in batches:
                    break
                sequence, stop = topic.sequence + 1, ends[index]
                topic.sequence = sequence
                if ring is None or not ring.append_plain(
                    slab[start:stop], heads[index], shape, client_id, offset, shared_wall_us
                ):
                    run = train.run(index, client_id, wall_us, offset, sequence)
                    if ring is None:
                        self._topics.begin_ring(topic, run)
                    else:
                        ring.append(run)
                if topic.era != era:
                    recency.note(topic)
                if topic.audience is not audience:
                    if part is not None:
                        tick.add_part(part)
                        part = None
                    elif last is not None and audience is not nobody:
                        tick.add(last, train.run(index - 1, client_id, wall_us, offset - 1, last_sequence))
                    audience = topic.audience
                elif part is not None:
                    part.topics.append(topic)
                    part.sequences.append(sequence)
                elif last is not None and audience is not nobody:
                    part = TrainPart(train, index - 1, client_id, offset - 1, wall_us)
                    part.topics += (last, topic)
                    part.sequences += (last_sequence, sequence)
                last, last_sequence = topic, sequence
                offset += 1
                index += 1
                start = stop
            if part is not None:
                tick.add_part(part)
            elif last is not None and audience is not nobody:
                tick.add(last, train.run(index - 1, client_id, wall_us, offset - 1, last_sequence))
        finally:
            self._advance(offset - 1, sender)
        return index

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
        pending = PendingAcceptance(self._node, run, sender, callback)
        if ticket is None or self._log.is_committed(ticket):
            self._tick.after(pending.on_flushed)
        else:
            self._tick.after(pending.note_outcome)
            self._log.when_committed(ticket, pending.settle)

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
