"""The face of core for doors: connect, subscribe, publish, acknowledge.

Every call is synchronous and never waits; what has to wait (a slow socket, a commit, an absent client)
is kept and told of later. The broker decides; doors translate.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from msgspec import Struct, json

from penstock.core.access import Access, Identity
from penstock.core.audience import NOBODY, Audience
from penstock.core.clock import Clock, Scheduler
from penstock.core.counters import Counters
from penstock.core.delivery import Delivery
from penstock.core.history import History
from penstock.core.ledger import Ledger
from penstock.core.policy import Limits
from penstock.core.ports import Form, Log, Sink, StateStore, Ticket
from penstock.core.registry import Registry, Topic
from penstock.core.retained import Retained
from penstock.core.router import Router
from penstock.core.sessions import FOREVER, Ending, Options, Session, Subscription, Will
from penstock.core.settings import CoreSettings
from penstock.core.shared import SharedGroup
from penstock.core.tick import Tick
from penstock.core.topics import WILDCARDS, check_filter, check_topic, split_share
from penstock.errors import NotAuthorized, PenstockError, QuotaExceeded, ShuttingDown
from penstock.model import NEVER, Door, Policy, Reason, Run, Shape

DROPS_TOPIC = "$penstock/drops"
STALE_DEADLINES = 1_000
"""How many deadlines of sessions that came back may wait for their time before they are cleared away."""


class Receipt(Struct, frozen=True, gc=False):
    """What became of a publish: its stamps are in the run, its readers in the audience."""

    run: Run
    audience: Audience
    ticket: Ticket | None = None


class Arrival(Struct, frozen=True):
    """Who connects, and what it wants to be remembered of it."""

    identity: Identity
    door: Door
    clean: bool = True
    expiry: float = 0.0
    window_limit: int = 1
    will: Will | None = None
    wire: object = None


def bare_shape(door: Door, qos: int, retain: bool) -> Shape:
    """The shape of a run whose slab is the payload and nothing else."""
    return _SHAPES[door, qos, retain]


_SHAPES = {
    (door, qos, retain): Shape("", door, qos, retain, is_plain=False)
    for door in Door
    for qos in range(3)
    for retain in (False, True)
}


def _raise(run: Run, error: PenstockError) -> NoReturn:
    raise error


class Broker:
    """One node's topics, sessions and messages."""

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
        self.settings = settings
        self.node_id = node_id
        self.access = access
        self.counters = Counters()
        self.ledger = Ledger(clock, settings.ledger.rows)
        self.topics = Registry(settings)
        self.sessions: dict[str, Session] = {}
        self.retained = Retained(settings.retained.max_messages)
        self.history = History(self.topics, log, clock)
        self._log = log
        self._state = state
        self._clock = clock
        self._scheduler = scheduler
        limits = Limits(settings.sessions.owed_messages, settings.sessions.owed_bytes)
        self.router = Router(self.topics, limits)
        self.delivery = Delivery(
            settings, clock, scheduler, self.ledger, self.counters, self.topics, self.sessions
        )
        self.tick = Tick(clock, scheduler, self.delivery)
        self._deadlines: list[tuple[float, int, Session]] = []  # of absent sessions and late wills
        self._deadline_number = 0
        self._server = Session(Identity(None, ""), Door.SERVER)
        self._is_stopping = False

    # Publishing

    def publish(self, run: Run, sender: Session) -> Receipt:
        """Record a run and queue it for everyone who asked; never waits.

        Raises:
            PenstockError: the topic is invalid, forbidden or one too many; nothing was recorded.
        """
        ticket = self.publish_all((run,), sender, _raise)
        return Receipt(run, sender.topics[run.topic].audience, ticket)

    def publish_all(
        self, runs: Sequence[Run], sender: Session, refuse: Callable[[Run, PenstockError], None]
    ) -> Ticket | None:
        """Publish runs in order; answer the ticket that covers them all, if the log keeps one of them.

        This is the path of every message, so it looks up once what all runs share and stamps each run
        where it stands. A run that may not be published is handed to `refuse`, and the rest goes on.
        """
        tick, history, router = self.tick, self.history, self.router
        if not tick.is_open:
            tick.open()
        find_topic, client_id, wall_us = sender.topics.get, sender.client_id, tick.wall_us
        version, last, offset = router.version, tick.last, history.head + 1
        ticket: Ticket | None = None
        try:
            for run in runs:
                topic = find_topic(run.topic)
                if topic is None:
                    try:
                        topic = self._admit(run.topic, sender)
                    except PenstockError as error:
                        refuse(run, error)
                        continue
                shape, count = run.shape, run.count
                run.client_id = client_id
                run.published_at = wall_us
                run.offset = offset
                offset += count
                run.sequence = sequence = topic.sequence + 1
                topic.sequence = sequence + count - 1
                if not (shape.is_plain and topic.traits.is_plain):
                    ticket = self._publish_special(run, topic) or ticket
                    if topic.traits.batch_size:
                        last = None  # it is gathered, not joined to what leaves with this turn
                (topic.ring or self.topics.make_ring(topic)).append(run)  # with all its stamps
                if topic.version != version:
                    router.refresh(topic)
                audience = topic.audience
                if last is not None and last.audience is audience and last.shape is shape:
                    last.runs.append(run)  # the same stretch goes on
                elif audience is not NOBODY:
                    last = tick.add(topic, run)
        finally:
            history.head = offset - 1
        return ticket

    def _publish_special(self, run: Run, topic: Topic) -> Ticket | None:
        """What only some messages need: expiry, retained value, log."""
        traits = topic.traits
        if run.ttl or traits.ttl:
            run.expires_at = self._clock.monotonic() + (run.ttl or traits.ttl)
        if run.shape.retain:
            self._retain(topic, run)
        return self._log.append(run) if traits.is_kept else None

    def publish_server(self, topic: str, payload: bytes, *, retain: bool = False) -> Receipt:
        """Publish in the server's own name, also to `$` topics."""
        run = Run(topic, payload, 0, len(payload), 1, bare_shape(Door.SERVER, 0, retain))
        return self.publish(run, self._server)

    def when_settled(self, receipt: Receipt, callback: Callable[[], None]) -> None:
        """Call back when a publish may be acknowledged: after its commit, or after this turn's flush."""
        if receipt.ticket is not None and (commit := self._log.committed(receipt.ticket)) is not None:
            commit.add_done_callback(lambda _: callback())
        else:
            self.tick.after(callback)

    def _admit(self, name: str, sender: Session) -> Topic:
        """Decide once whether a sender may use a topic."""
        check_topic(name, self.settings.topic)
        if sender.door is not Door.SERVER:
            if self._is_stopping:
                raise ShuttingDown("the server is about to stop")
            if name.startswith("$"):
                raise NotAuthorized("topics that begin with $ are the server's own")
            if not self.access.may_publish(sender.identity, name):
                raise NotAuthorized(f"not allowed to publish to {name}")
        topic = self.topics.make(name)
        sender.remember(topic)
        return topic

    def forget_rights(self) -> None:
        """Rights have changed: decide anew who may publish where, and end what may not be read any more."""
        for session in self.sessions.values():
            session.topics.clear()
            for filter in list(session.subscriptions):
                if not self.access.may_subscribe(session.identity, split_share(filter)[1]):
                    self.unsubscribe(session, filter)

    def _retain(self, topic: Topic, run: Run) -> None:
        if not run.payload(run.count - 1):
            self.retained.delete(topic)
            self._state.delete("retained", topic.name)
        elif topic.retained is None and self.retained.is_full:
            self.ledger.add(run, run.client_id, Reason.NEVER_STORED, setting="retained.max_messages")
        else:
            self.retained.put(topic, run)
            self._state.put("retained", topic.name, run)

    # Sessions

    def connect(self, arrival: Arrival, sink: Sink, reform: Callable[[Form], Form]) -> tuple[Session, bool]:
        """Give a client its session, an old one if it has one and wants it, in one step.

        Whoever holds the session now is taken over. The door then sends what is on its way again and
        calls `resume`. `reform` remakes a form for this connection's wire, if that is another than the
        last one's. Answers the session and whether it was known.

        Raises:
            QuotaExceeded: there are too many sessions.
            ShuttingDown: the server is about to stop.
        """
        if self._is_stopping:
            raise ShuttingDown("the server is about to stop")
        client_id = arrival.identity.client_id
        session = self.sessions.get(client_id)
        if session is not None:
            is_foreign = session.identity.user != arrival.identity.user  # never shown to someone else
            if session.sink is not None:
                self._take_over(session)
            if arrival.clean or is_foreign or not session.is_persistent:
                self._end(session)
                session = None
        is_known = session is not None
        if session is None:
            if len(self.sessions) >= self.settings.sessions.max_sessions:
                raise QuotaExceeded(f"there are {len(self.sessions)} sessions already")
            session = self.sessions[client_id] = Session(arrival.identity, arrival.door)
        session.identity = arrival.identity
        session.expiry = min(arrival.expiry, self.settings.sessions.max_expiry_s)
        session.expires_at = FOREVER
        if session.will is not None:
            self._settle_old_will(session)
        session.will, session.will_due = arrival.will, FOREVER
        session.window_limit = arrival.window_limit
        if session.inflight is not None:
            session.inflight.limit = arrival.window_limit
        session.sink = sink
        if is_known and session.wire != arrival.wire:
            self._reform(session, reform)
        session.wire = arrival.wire
        self.counters.connections += 1
        self._save(session)
        return session, is_known

    def resume(self, session: Session) -> None:
        """What is on its way has been sent again: go on with what is owed, then with live messages."""
        if session.is_waiting:
            self.delivery.wake(session)
        else:
            session.is_flowing = not session.is_paused
        for filter in session.subscriptions:
            if isinstance(group := self.router.find_group(filter), SharedGroup):
                self.delivery.serve_group(group)

    def disconnect(
        self, session: Session, sink: Sink, *, is_graceful: bool, expiry: float | None = None
    ) -> None:
        """A connection ended. It may be one that was taken over long ago; then nothing happens."""
        if session.sink is not sink:
            return
        if expiry is not None:
            session.expiry = min(expiry, self.settings.sessions.max_expiry_s)
        if is_graceful:
            session.will = None
        self._detach(session)
        now = self._clock.monotonic()
        if not session.is_persistent:
            self._end(session)
            return
        session.expires_at = now + session.expiry
        self._set_deadline(session.expires_at, session)
        if session.will is not None:
            session.will_due = now + min(session.will.delay, session.expiry)
            self._set_deadline(session.will_due, session)
            self._publish_due_will(session, now)
        self._save(session)

    def pause(self, session: Session) -> None:
        """The session's socket is full."""
        session.is_paused = True
        session.is_flowing = False

    def unpause(self, session: Session) -> None:
        """The session's socket takes data again."""
        session.is_paused = False
        self.delivery.drain(session)

    def acknowledge(self, session: Session, number: int) -> bool:
        """A delivery is complete. False if its number is not known."""
        inflight = session.inflight
        if inflight is None or not inflight.complete(number):
            return False
        if not session.is_flowing and session.is_waiting:
            self.delivery.wake(session)
        return True

    def refuse(self, session: Session, number: int) -> bool:
        """The subscriber refused a delivery: it is over, and recorded. False if its number is not known."""
        pending = session.inflight.entries.get(number) if session.inflight else None
        if pending is not None:
            self.ledger.add(pending.run, session.client_id, Reason.REFUSED)
        return self.acknowledge(session, number)

    def _take_over(self, session: Session) -> None:
        """End the present connection of a session that another one claims."""
        self.counters.takeovers += 1
        sink = session.sink
        assert sink is not None
        self._detach(session)
        sink.close(Ending.TAKEN_OVER)

    def _detach(self, session: Session) -> None:
        session.sink = None
        session.topics.clear()
        self.delivery.detach(session)
        for filter in session.subscriptions:
            if isinstance(group := self.router.find_group(filter), SharedGroup):
                self.delivery.serve_group(group)  # what it had not acknowledged goes to the others

    def _end(self, session: Session) -> None:
        """Forget a session and everything it still wanted."""
        for filter in list(session.subscriptions):
            self._leave(session, filter)
        self.delivery.end(session)
        if self.sessions.get(session.client_id) is session:
            del self.sessions[session.client_id]
            self._state.delete("sessions", session.client_id)
        if session.will is not None:
            self._publish_will(session)

    def _reform(self, session: Session, reform: Callable[[Form], Form]) -> None:
        """The client came back on another wire: remake every form it had."""
        for filter, old in list(session.subscriptions.items()):
            new = Subscription(filter, old.options, reform(old.form), old.policy)
            group = self.router.open_group(filter)
            group.leave(session, old)
            session.subscriptions[filter] = new
            group.join(session, new)
        self.delivery.reform(session, reform)

    # Wills

    def _settle_old_will(self, session: Session) -> None:
        """A session goes on with a new connection: a will that was to come at once still comes."""
        if session.will is not None and not session.will.delay:
            self._publish_will(session)

    def _publish_due_will(self, session: Session, now: float) -> None:
        if session.will is not None and session.will_due <= now:
            self._publish_will(session)

    def _publish_will(self, session: Session) -> None:
        will, session.will = session.will, None
        assert will is not None
        shape = bare_shape(session.door, will.qos, will.retain)
        run = Run(will.topic, will.payload, 0, len(will.payload), 1, shape, will.properties, will.ttl)
        try:
            self.publish(run, session)
        except PenstockError:
            # Rights or room may have gone since the will was accepted.
            self.ledger.add(run, session.client_id, Reason.NOT_AUTHORIZED)

    def check_will(self, identity: Identity, will: Will) -> None:
        """Refuse a will that could not be published."""
        check_topic(will.topic, self.settings.topic)
        if will.topic.startswith("$") or not self.access.may_publish(identity, will.topic):
            raise NotAuthorized(f"not allowed to publish to {will.topic}")

    # Subscriptions

    def subscribe(
        self,
        session: Session,
        filter: str,
        options: Options,
        form: Form,
        *,
        policy: Policy,
        retained: bool = True,
        retained_if_known: bool = True,
    ) -> None:
        """Add a filter to a session, or replace it.

        `retained` sends the retained values that match, `retained_if_known` also when the filter was
        there before.

        Raises:
            PenstockError: the filter is invalid, forbidden or one too many; nothing changed.
        """
        check_filter(filter, self.settings.topic)
        share, inner = split_share(filter)
        if not self.access.may_subscribe(session.identity, inner):
            raise NotAuthorized(f"not allowed to subscribe to {inner}")
        old = session.subscriptions.get(filter)
        if old is None and len(session.subscriptions) >= self.settings.sessions.max_subscriptions:
            raise QuotaExceeded(f"{len(session.subscriptions)} subscriptions already")
        if (
            policy is Policy.BLOCK
            and inner.startswith(WILDCARDS)
            and not self.settings.outbox.block_wildcards
        ):
            policy = Policy.DROP_OLDEST  # a reader of everything may not stop everyone
        self.tick.settle(inner)
        subscription = Subscription(filter, options, form, policy)
        group = self.router.open_group(filter)
        if old is not None:
            group.leave(session, old)
        group.join(session, subscription)
        session.subscriptions[filter] = subscription
        self._save(session)
        if share is None and retained and (old is None or retained_if_known) and len(self.retained):
            self._send_retained(session, inner, form.as_retained())
        if isinstance(group, SharedGroup) and session.sink is not None:
            self.delivery.serve_group(group)

    def unsubscribe(self, session: Session, filter: str) -> bool:
        """Remove a filter from a session; False if it had none such."""
        if filter not in session.subscriptions:
            return False
        self._leave(session, filter)
        self._save(session)
        return True

    def _leave(self, session: Session, filter: str) -> None:
        self.tick.settle(split_share(filter)[1])
        subscription = session.subscriptions.pop(filter)
        group = self.router.find_group(filter)
        assert group is not None
        group.leave(session, subscription)
        if isinstance(group, SharedGroup):
            self.delivery.leave(session, group)
        if not group:
            self.router.close_group(filter)
            if isinstance(group, SharedGroup):
                self._note_unserved(group)

    def _note_unserved(self, group: SharedGroup) -> None:
        for run, _ in group.owed.take(group.owed.bytes + 1):
            self.ledger.add(run, group.name, Reason.SESSION_ENDED)

    def _send_retained(self, session: Session, filter: str, form: Form) -> None:
        """Queue retained values; they leave in chunks, as the socket takes them."""
        if session.backlog is None:
            session.backlog = []
        session.backlog.append(self._retained_entries(session, filter, form, self.history.head))
        session.is_flowing = False
        self.delivery.wake(session)

    def _retained_entries(
        self, session: Session, filter: str, form: Form, head: int
    ) -> Iterator[tuple[Run, Form]]:
        for topic in self.retained.match(filter):
            run = topic.retained
            # A value published since then has been delivered live already.
            if run is None or run.offset > head or NEVER < run.expires_at <= self._clock.monotonic():
                continue
            if not (form.no_local and run.client_id == session.client_id):  # MQTT-3.8.3-3
                yield run, form

    # Time

    def reap(self) -> None:
        """Once a second: sessions, wills, retained values and waiting messages whose time has come."""
        now = self._clock.monotonic()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, session = heapq.heappop(self._deadlines)
            if session.sink is None and self.sessions.get(session.client_id) is session:
                self._publish_due_will(session, now)
                if session.expires_at <= now:
                    self.counters.sessions_expired += 1
                    self._end(session)
        self.retained.reap(now)
        self.delivery.reap(now)
        self._tell_drops()

    def _tell_drops(self) -> None:
        """Publish what was not delivered, if someone listens."""
        self.ledger.is_watched = bool(self.router.match(DROPS_TOPIC))
        news = self.ledger.take_news()
        if self.ledger.is_watched and news:
            self.publish_server(DROPS_TOPIC, json.encode(news))

    def _set_deadline(self, when: float, session: Session) -> None:
        self._deadline_number += 1
        heapq.heappush(self._deadlines, (when, self._deadline_number, session))
        if len(self._deadlines) > 4 * len(self.sessions) + STALE_DEADLINES:
            self._forget_stale_deadlines()

    def _forget_stale_deadlines(self) -> None:
        away = [session for session in self.sessions.values() if session.sink is None]
        self._deadlines = []
        for session in away:
            for when in (session.expires_at, session.will_due):
                if when < FOREVER:
                    self._deadline_number += 1
                    self._deadlines.append((when, self._deadline_number, session))
        heapq.heapify(self._deadlines)

    def stop(self) -> None:
        """Take nothing new, and flush; what waits for slow subscribers goes on leaving."""
        self._is_stopping = True
        for session in self.sessions.values():
            session.topics.clear()  # so that every publish is decided anew, and refused
        self.tick.close()

    @property
    def is_drained(self) -> bool:
        """Nothing waits for anyone who is connected."""
        return not any(session.sink is not None and session.is_waiting for session in self.sessions.values())

    def close(self) -> None:
        """End every connection; what still waits for one of them is recorded as not delivered."""
        for session in list(self.sessions.values()):
            sink, session.sink = session.sink, None
            if sink is not None:
                self.delivery.detach(session)
                sink.close(Ending.SHUTTING_DOWN)

    def _save(self, session: Session) -> None:
        if session.is_persistent:
            record = SessionRecord(
                session.identity.user,
                session.door,
                session.expiry,
                {filter: subscription.options for filter, subscription in session.subscriptions.items()},
                session.will,
            )
            self._state.put("sessions", session.client_id, record)


class SessionRecord(Struct, frozen=True):
    """What the state store keeps of a session."""

    user: str | None
    door: Door
    expiry: float
    subscriptions: dict[str, Options]
    will: Will | None = None
