"""Facade of core: everything that doors, telemetry and the app may do with a node.

Every call is synchronous and never waits. Work that has to wait (a slow socket, a commit, an offline
client) is queued, and a callback reports its end. The broker decides; doors translate.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from penstock.core.access.access import Access
from penstock.core.access.identity import Identity
from penstock.core.access.revocation import OnWithdrawn, Revocation
from penstock.core.delivery.backpressure import Backpressure
from penstock.core.diagnostics.audit import AuditTrail
from penstock.core.diagnostics.counters import Counters
from penstock.core.diagnostics.drops_topic import DROPS_TOPIC, DropsTopic
from penstock.core.diagnostics.ledger import Ledger
from penstock.core.diagnostics.slow_consumers import LossReport, LossReports, SlowConsumers
from penstock.core.diagnostics.topic_stats import TopicStats
from penstock.core.durability.oldest_queued import Found, OldestQueuedSearch
from penstock.core.durability.recovery import Recovery
from penstock.core.node import Node
from penstock.core.ports.connection import ConnectionPort, Encoding
from penstock.core.ports.log import Log, Settled, Ticket
from penstock.core.ports.state import StateStore
from penstock.core.publishing.idempotent import IdempotentPublisher, Refused, ignore_part
from penstock.core.publishing.outcome import NOTHING_LOST, ListReceipt, Outcome, PublishReceipt, Receipt
from penstock.core.publishing.publish import ChunkReceipt, OnAccepted, Publisher
from penstock.core.publishing.request_senders import is_request_sender
from penstock.core.replay.catch_up import (
    CatchUp,
    CatchUps,
    OnBegin,
    OnComplete,
    OnFailed,
    Start,
    ignore_begin,
)
from penstock.core.replay.history import History
from penstock.core.runtime.background import Procedure, Step, StepQueue, Steps
from penstock.core.runtime.clock import Clock, Scheduler
from penstock.core.sessions.acks import Acks
from penstock.core.sessions.clients import ClientDirectory
from penstock.core.sessions.lifecycle import Arrival, SessionService
from penstock.core.sessions.paused_subscriptions import PausedSubscriptions
from penstock.core.sessions.session import Session
from penstock.core.settings import CoreSettings
from penstock.core.staging.staging import Staging
from penstock.core.streams.streams import Streams
from penstock.core.subscriptions.audience import Audience
from penstock.core.subscriptions.subscribe import Subscriber
from penstock.core.subscriptions.subscription import Options
from penstock.core.topics.admin import OnDeleted, TopicAdmin
from penstock.core.topics.catalog import TopicCatalog
from penstock.core.topics.levels import TopicLevels
from penstock.core.topics.registry import Registry, UnusedRemoval
from penstock.core.topics.retained import Retained
from penstock.errors import PenstockError
from penstock.model import Door, Policy, Reason, Will
from penstock.runs import Run, Train

__all__ = [
    "DROPS_TOPIC",
    "Arrival",
    "Broker",
    "ChunkReceipt",
    "ListReceipt",
    "PublishReceipt",
    "Receipt",
    "Refused",
    "Steps",
]

T = TypeVar("T")


class Broker:
    """One node's topics, sessions and messages.

    Attributes that are not methods are views: doors and telemetry read them, and call their public methods.
    """

    def __init__(
        self,
        settings: CoreSettings,
        access: Access,
        log: Log,
        state: StateStore,
        clock: Clock,
        scheduler: Scheduler,
        node_id: str = "",
    ) -> None:
        self.node_id = node_id
        self.settings = settings
        self.access = access
        self.log = log
        self._node = node = Node(settings, access, log, state, clock, scheduler)
        self._publisher = Publisher(node)
        self._idempotent = IdempotentPublisher(node, self._publisher)
        self._subscriber = Subscriber(node)
        self._catch_ups = CatchUps(node, self._subscriber)
        self._topic_admin = TopicAdmin(node, self._publisher, self._subscriber)
        self._session_service = SessionService(node, self._publisher, self._subscriber)
        self._acks = Acks(node)
        self._revocation = Revocation(node, self._publisher, self._subscriber, self._session_service)
        self._loss_reports = LossReports(clock, node.queues.shared_buffer.most)
        self.staging = Staging(node, self._publisher)
        self.streams = Streams(node, self._publisher, self._idempotent)
        self.paused = PausedSubscriptions(node)
        self._running: dict[Procedure[Any], None] = {}  # requests that are done in steps
        self._reaping = StepQueue(node.background)
        self._forgetting = StepQueue(node.background)
        self._oldest_queued = StepQueue(node.background)
        self._drops_topic = DropsTopic(node, self._publisher)
        self._recover()

    # Views

    @property
    def counters(self) -> Counters:
        """Totals since start."""
        return self._node.counters

    @property
    def ledger(self) -> Ledger:
        """Record of every message that was not delivered."""
        return self._node.ledger

    @property
    def topic_stats(self) -> TopicStats:
        """Statistics by topic."""
        return self._node.topic_stats

    @property
    def slow_consumers(self) -> SlowConsumers:
        """Slow-consumer report."""
        return self._node.slow_consumers

    @property
    def backpressure(self) -> Backpressure:
        """Publishers that wait for slow subscribers."""
        return self._node.backpressure

    @property
    def topics(self) -> Registry:
        """Known topics by name."""
        return self._node.topics

    @property
    def catalog(self) -> TopicCatalog:
        """Topics that are not in memory: names and last sequences."""
        return self._node.catalog

    @property
    def topic_levels(self) -> TopicLevels:
        """Topics as a tree of levels."""
        return self._node.topic_levels

    @property
    def sessions(self) -> Mapping[str, Session]:
        """Sessions by client id, connected or not."""
        return self._node.sessions

    @property
    def clients(self) -> ClientDirectory:
        """Clients by the ids that they give themselves."""
        return self._node.clients

    @property
    def audit(self) -> AuditTrail:
        """Record of connections, logins, subscriptions and acts of administrators."""
        return self._node.audit

    @property
    def retained(self) -> Retained:
        """Retained values."""
        return self._node.retained

    @property
    def history(self) -> History:
        """Messages of the past: rings and log."""
        return self._node.history

    # Turns of the loop

    def turn(self, now: float) -> AbstractContextManager[None]:
        """Handle one chunk of input as a part of a turn; `now` is the time of the event loop.

        On an idle server the chunk is a turn of its own, and leaving the context flushes it at once. On a
        busy server chunks share the flush at the end of the turn.
        """
        return self._node.tick.chunk(now)

    def flush(self) -> None:
        """Deliver everything that was published in this turn, and end the turn."""
        self._node.tick.flush()

    def flush_part(self, count: int) -> None:
        """Deliver now if a long input has published much; `count` runs and packets of it were worked off."""
        self._node.tick.flush_part(count)

    def deliver_now(self) -> None:
        """Deliver what was published before a subscriber comes or goes, to the present subscribers."""
        self._node.tick.settle()

    def commit_soon(self) -> None:
        """Commit this turn as soon as it ends: another part has put something into the state store."""
        self._node.recorder.hurry()

    def run_steps(
        self, steps: Steps[T], done: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        """Work off a request in steps: the first one now, the others in turns with background work.

        It is worked off whole, even if the server is about to stop.
        """
        running = self._running

        def end(report: Callable[[T], None] | Callable[[Exception], None], result: Any) -> None:
            running.pop(procedure, None)
            report(result)

        procedure = Procedure(self._node.background, steps, partial(end, done), partial(end, failed))
        running[procedure] = None
        procedure.begin()

    def run_in_background(self, *jobs: Step) -> None:
        """Run long jobs in slices of a few milliseconds, one job after another."""
        self._node.run_in_background(*jobs)

    # Sessions

    def connect(
        self, arrival: Arrival, connection: ConnectionPort, reencode: Callable[[Encoding], Encoding]
    ) -> tuple[Session, bool]:
        """Attach a connection to the session of its client, and take over an older connection.

        The door then resends the messages in flight and calls `resume`. `reencode` adapts an encoding to the
        wire of this connection, if it differs from the last one. Returns the session, and whether it existed.

        Raises:
            ClientIdTaken: the session of this client id belongs to another user.
            QuotaExceeded: there are too many sessions.
            ShuttingDown: the server is about to stop.
            StorageUnavailable: the session cannot be stored now.
        """
        return self._session_service.connect(arrival, connection, reencode)

    def check_will(self, identity: Identity, will: Will) -> None:
        """Validate a will before its session connects.

        Raises:
            PenstockError: the will could not be published.
        """
        self._session_service.check_will(identity, will)

    def check_owner(self, identity: Identity) -> None:
        """Check that a client may take over the session of its client id, if there is one.

        Raises:
            ClientIdTaken: it belongs to another user.
        """
        self._session_service.check_owner(identity)

    def resume(self, session: Session) -> None:
        """Continue with queued, then with live messages: the messages in flight have been resent."""
        self._session_service.resume(session)

    def disconnect(
        self, session: Session, connection: ConnectionPort, *, is_graceful: bool, expiry: float | None = None
    ) -> None:
        """Detach a connection that ended. Idempotent, also for a connection that was taken over."""
        self._session_service.disconnect(session, connection, is_graceful=is_graceful, expiry=expiry)

    def disconnect_soon(
        self, session: Session, connection: ConnectionPort, *, is_final: bool = False
    ) -> None:
        """Detach a connection that its door ended, perhaps in the middle of a delivery. Idempotent.

        The core detaches connections that it closes by itself.

        Args:
            is_final: the client does not resume, so what still waits for it is lost.
        """
        self._session_service.disconnect_soon(session, connection, is_final=is_final)

    def dismiss(self, session: Session, *, ends_session: bool = False) -> bool:
        """End the connection of a session by an operator's request. Returns False if it had none.

        Args:
            ends_session: end the session, too, so that its client id is free.
        """
        return self._session_service.dismiss(session, ends_session=ends_session)

    def pause(self, session: Session) -> None:
        """Stop sending: the socket of a session is full."""
        self._session_service.pause(session)

    def unpause(self, session: Session) -> None:
        """Continue sending: the socket of a session takes data again."""
        self._session_service.unpause(session)

    def grant(self, session: Session, messages: int) -> None:
        """Add credit for this many messages; the first grant switches a session to credit."""
        self._node.drainer.grant(session, messages)

    def cut_slow(self, session: Session) -> None:
        """End a connection that does not keep up, as policy `disconnect` does."""
        self._node.queues.cut_slow(session)

    def position_of(self, session: Session) -> int:
        """Return the offset up to which a session has got everything it asked for."""
        return self._session_service.position_of(session)

    def when_losses_recorded(self, callback: Callable[[], None]) -> None:
        """Call back when everything that was dropped so far is in the ledger."""
        self._node.drops.when_recorded(callback)

    def take_loss_report(self, session: Session) -> LossReport | None:
        """Return the losses of a session since the last call; None if there are none."""
        return self._loss_reports.take(session)

    def when_session_stored(self, session: Session, callback: Settled) -> None:
        """Call back when a new connection's session outlives the server, or cannot be stored."""
        self._publisher.when_session_stored(session, callback)

    def when_change_stored(self, session: Session, callback: Callable[[], None]) -> None:
        """Call back when the last change of a session is stored; at once if it need not be."""
        self._publisher.when_change_stored(session, callback)

    # Acknowledgements

    def awaited_step(self, session: Session, number: int) -> int | None:
        """Return the step that a delivery waits for (`inflight.AWAITS_*`); None for an unknown number."""
        return self._acks.awaited_step(session, number)

    def acknowledge(self, session: Session, numbers: Sequence[int], awaited: int) -> int:
        """Complete deliveries that wait for this step, in order, up to one that waits for another.

        Unknown numbers are passed over. Returns how many numbers were taken.
        """
        return self._acks.acknowledge(session, numbers, awaited)

    def confirm_receipts(self, session: Session, numbers: Sequence[int]) -> list[bool]:
        """Release the messages of QoS 2 deliveries, in order, and keep their numbers.

        Returns whether each number is known, up to one whose delivery is not at QoS 2.
        """
        return self._acks.confirm_receipts(session, numbers)

    def refuse(self, session: Session, number: int) -> bool:
        """Complete a delivery that the subscriber refused, and record the loss."""
        return self._acks.refuse(session, number)

    def give_up(self, session: Session, run: Run, reason: Reason) -> None:
        """Record a delivery that is not sent again."""
        self._acks.give_up(session, run, reason)

    def begin_qos2(self, session: Session, number: int, ticket: Ticket | None) -> None:
        """Remember the number of a published QoS 2 message until its sender releases it."""
        self._acks.begin_qos2(session, number, ticket)

    def end_qos2(self, session: Session, numbers: Sequence[int]) -> list[bool]:
        """Release QoS 2 numbers, in order. Returns whether each is known."""
        return self._acks.end_qos2(session, numbers)

    # Subscriptions

    def subscribe(
        self,
        session: Session,
        filter: str,
        options: Options,
        encoding: Encoding,
        *,
        policy: Policy,
        retained: bool = True,
        retained_if_known: bool = True,
        sent_topics: set[str] | None = None,
    ) -> None:
        """Add a filter to a session, or replace it.

        Raises:
            PenstockError: the filter is invalid, not allowed, or one too many.
        """
        self._subscriber.subscribe(
            session,
            filter,
            options,
            encoding,
            policy=policy,
            retained=retained,
            retained_if_known=retained_if_known,
            sent_topics=sent_topics,
        )
        self.audit.record_session("subscribed", session, filter=filter, qos=options.qos)

    def catch_up(
        self,
        session: Session,
        filters: str | Sequence[str],
        options: Options,
        encoding: Encoding,
        *,
        policy: Policy,
        start: Start | None,
        on_complete: OnComplete,
        on_failed: OnFailed,
        on_begin: OnBegin = ignore_begin,
        past_encoding: Encoding | None = None,
    ) -> CatchUp | None:
        """Subscribe with a replay from a start on, which ends in live messages without gap or duplicate.

        Raises:
            PenstockError: a filter or the start is invalid, or not allowed.
        """
        catch_up = self._catch_ups.begin(
            session,
            filters,
            options,
            encoding,
            policy=policy,
            start=start,
            on_complete=on_complete,
            on_failed=on_failed,
            on_begin=on_begin,
            past_encoding=past_encoding,
        )
        for filter in (filters,) if isinstance(filters, str) else filters:
            self.audit.record_session("subscribed", session, filter=filter, qos=options.qos, replay=True)
        return catch_up

    def unsubscribe(self, session: Session, filter: str) -> bool:
        """Remove a filter from a session. Returns False if it had no such filter."""
        is_removed = self._subscriber.unsubscribe(session, filter)
        if is_removed:
            self.audit.record_session("unsubscribed", session, filter=filter)
        return is_removed

    def drop_queued(self, session: Session, left: str | Sequence[str]) -> None:
        """Remove from a session's outbox what came by filters that it has left, and by no other."""
        self._subscriber.drop_queued(session, left)

    def is_filter(self, text: str) -> bool:
        """Return whether a text is a valid filter."""
        return self._subscriber.is_filter(text)

    def audience_of(self, topic: str) -> Audience[Session]:
        """Return the subscribers of a topic by encoding, known topic or not."""
        return self._node.router.find_audience(topic)

    def subscriber_count(self, topic: str) -> int:
        """Return how many sessions a topic reaches."""
        return len(self._node.router.find_audience(topic))

    def subscribed_names(self) -> list[str]:
        """Return the topics that are subscribed to by name, used or not."""
        return self._node.router.names()

    @property
    def filter_count(self) -> int:
        """Number of different filters."""
        return self._node.router.filters

    # Publishing

    def publish(self, run: Run, sender: Session) -> PublishReceipt:
        """Record a run and queue it for its subscribers.

        Raises:
            PenstockError: the topic is invalid, not allowed, or one too many; nothing was recorded.
        """
        return self._publisher.publish(run, sender)

    def publish_all(
        self, runs: Sequence[Run], sender: Session, refuse: Callable[[Run, PenstockError], None]
    ) -> ChunkReceipt:
        """Publish runs in order; a run that is not allowed goes to `refuse`, and the rest continues.

        Returns one receipt for all runs: the commit to wait for, and what was decided about each of them.
        """
        return self._publisher.publish_all(runs, sender, refuse)

    def publish_train(
        self, train: Train, sender: Session, refuse: Callable[[Run, PenstockError], None]
    ) -> None:
        """Publish a train in order; a message that is not allowed goes to `refuse`, the rest continues."""
        self._publisher.publish_train(train, sender, refuse)

    def publish_once(
        self, run: Run, sender: Session, *, is_forced: bool = False, known_as: str | None = None
    ) -> Receipt:
        """Publish a message, unless the same user recently published one with its message id. Idempotent.

        Args:
            is_forced: store it in a durable log even if no setting captures its topic.
            known_as: the canonical form of its id, if it can be spelled in several ways.

        Raises:
            PenstockError: it is not allowed, too large, or cannot be stored now.
        """
        return self._idempotent.publish_once(run, sender, is_forced=is_forced, known_as=known_as)

    def publish_each(
        self, runs: Sequence[Run], sender: Session, on_part: Callable[[Sequence[Run]], None] = ignore_part
    ) -> Steps[ListReceipt]:
        """Publish a list of messages: all of them or, if one is not allowed, none. Idempotent by message id.

        Nothing happens until its steps are taken. A long list is published in parts.

        Args:
            on_part: gets the runs of each part that were published, before they are flushed.

        Raises:
            Refused: the error of each message that is not allowed.
            StorageUnavailable: the log failed while parts of the list were published.
        """
        return self._idempotent.publish_each(runs, sender, on_part)

    def publish_server(self, topic: str, payload: bytes, *, retain: bool = False) -> PublishReceipt:
        """Publish as the server itself, also to `$` topics."""
        return self._publisher.publish_server(topic, payload, retain=retain)

    def request_sender(self, identity: Identity, door: Door, lane: str = "") -> Session:
        """Return the session in whose name a request without a connection of its own publishes."""
        return self._node.request_senders.of(identity, door, lane)

    def when_committed(self, ticket: Ticket | None, callback: Settled) -> None:
        """Call back when publishes may be acknowledged: after their commit, or after this turn's flush."""
        self._publisher.when_committed(ticket, callback)

    def when_flushed(self, callback: Callable[[], None]) -> None:
        """Call back after this turn's deliveries."""
        self._node.tick.after(callback)

    def is_unblocked(self, sender: Session) -> bool:
        """Return whether a request sender may publish now: not blocked, and no other request of it waits."""
        return self._node.request_senders.is_free(sender)

    def when_unblocked(self, sender: Session, callback: Callable[[], None]) -> None:
        """Call back when a request sender may publish: at once, unless policy `block` stops it."""
        self._node.request_senders.when_unblocked(sender, callback)

    def when_acknowledgeable(self, sender: Session, callback: Callable[[], None]) -> None:
        """Call back when a request sender's publish may be acknowledged: at once, unless it is blocked."""
        self._node.request_senders.when_acknowledgeable(sender, callback)

    def when_accepted(self, run: Run, sender: Session, ticket: Ticket | None, callback: OnAccepted) -> None:
        """Call back when a request's publish may be acknowledged: committed, and its sender not blocked.

        To be called right after the publish. The callback gets the outcome for slow subscribers, and the
        error of a commit that failed.
        """
        self._publisher.when_accepted(run, sender, ticket, callback)

    def outcome_of(self, run: Run) -> Outcome:
        """Return how many subscribers dropped or block a run of this turn; call it in `when_flushed`."""
        outcomes = self._node.queues.outcomes
        return outcomes.of(run) if outcomes else NOTHING_LOST

    @property
    def borrowed_bytes(self) -> int:
        """Part of `outbox.shared_bytes` that outboxes have borrowed."""
        return self._node.queues.shared_buffer.borrowed

    # Topics

    def has_topic(self, name: str) -> bool:
        """Return whether a topic exists: created or used, and not deleted since."""
        return self._topic_admin.has(name)

    def is_dormant(self, name: str) -> bool:
        """Return whether only the log knows a topic: neither used nor deleted since start."""
        topics = self.topics
        return name in self.catalog.stored and name not in topics and name not in topics.gone

    def declare_topic(self, name: str, *, by: Identity | None = None) -> bool:
        """Create a topic that stays until it is deleted. Returns False if it was created before."""
        is_new = self._topic_admin.declare(name, by=by)
        if is_new and by is not None:
            self.audit.record("topic created", user=by.user, topic=name)
        return is_new

    def delete_topic(self, name: str, *, by: Identity | None = None) -> bool:
        """Delete a topic with its last messages and retained value. Returns False if there is none."""
        is_deleted = self._topic_admin.delete(name, by=by)
        if is_deleted and by is not None:
            self.audit.record("topic deleted", user=by.user, topic=name)
        return is_deleted

    def when_topics_stored(self, callback: Settled) -> None:
        """Call back when the topics created or deleted in this turn are stored."""
        self._topic_admin.when_stored(callback)

    def notify_topic_deleted(self, callback: OnDeleted) -> None:
        """Register a callback for deleted topics; it gets the topic and its subscribers."""
        self._topic_admin.on_deleted.append(callback)

    # Rights and settings

    def notify_withdrawn(self, callback: OnWithdrawn) -> None:
        """Register a callback for filters that a connected session lost by a change of rights."""
        self._revocation.on_withdrawn.append(callback)

    def recheck_rights(self) -> None:
        """Decide anew what every session may do: users or access list have changed."""
        self._revocation.reconsider()
        self.streams.reconsider()

    def configure(self, settings: CoreSettings) -> None:
        """Apply new settings. Known topics and full queues follow in background steps."""
        self.settings = settings
        self._node.configure(settings)
        self.streams.configure(settings.streams)

    # Lifetime

    def _recover(self) -> None:
        """Recover what the last broker on these stores left."""
        node = self._node
        if node.log.is_durable:
            Recovery(node, self._session_service).restore()
            self._topic_admin.restore()
            self.paused.restore()
            node.topics.recency.begin(node.history.head + 1)
            node.dedup.restore()
            self.staging.restore()
            self.recheck_rights()  # the rules may have changed since these sessions were stored

    def reap(self) -> None:
        """Once a second: end sessions, wills, retained values and queued messages that have expired.

        That is background work: of very many some are ended in each turn of the loop.
        """
        if self._reaping:
            return  # the last pass is not finished
        node, clock = self._node, self._node.clock
        node.queues.expiry.begin_pass()
        for step in (
            self._session_service.wills.publish_kept,
            lambda: self._session_service.reap(clock.monotonic()),
            self._reap_retained,
            lambda: node.dedup.reap(clock.monotonic()),
            lambda: self.paused.reap(clock.monotonic()),
            self._reap_rest,
            lambda: node.drainer.reap(clock.monotonic()),
            self._reap_slow_consumers,
            node.topic_levels.reap,
            self._drops_topic.take,
            self._drops_topic.publish,
        ):
            self._reaping.add(step)

    def _reap_retained(self) -> bool:
        topics = self._node.retained.reap(self._node.clock.monotonic())
        for topic in topics:
            self._node.recorder.forget_value(topic.name)
        return bool(topics)

    def _reap_rest(self) -> bool:
        """Reap what is bounded by itself: stages and streams. One step."""
        node = self._node
        self.staging.reap()
        self.streams.reap()
        if node.topics.is_nearly_full and not self._forgetting:
            self._forgetting.add(UnusedRemoval(node.topics).step)
        return False

    def _reap_slow_consumers(self) -> bool:
        self._node.slow_consumers.reap(self._node.clock.monotonic())
        return False

    def find_oldest_queued(self, found: Found) -> None:
        """Find the oldest offset that is still queued or in flight for a session, in background steps."""
        if not self._oldest_queued:  # else the last search is not finished
            search = OldestQueuedSearch(self.sessions.values(), self._node.history.head, found)
            self._oldest_queued.add(search.step)

    @property
    def is_drained(self) -> bool:
        """Nothing is queued for a connected session."""
        return not any(
            session.is_waiting or any(group.offline_queue for group in session.groups or ())
            for session in self.sessions.values()
            if session.connection is not None
        )

    def stop(self) -> None:
        """Refuse new publishes and flush. Queues of slow subscribers continue to drain."""
        while self._running:  # one may begin another
            next(iter(self._running)).finish()
        self._publisher.is_stopping = True
        self.streams.drain()
        self._publisher.forget_topics(self.sessions.values())  # every publish is decided anew, and refused
        self.staging.stop()
        self._node.tick.close()
        self.backpressure.unblock_where(is_request_sender)  # last: the flush may have blocked them again

    def close(self) -> None:
        """End every connection; messages still queued for one of them are recorded as not delivered."""
        self._session_service.close_all()
        self.streams.close()
        self._node.endings.finish()
        self._node.drops.finish()
        self._drops_topic.finish()
