"""The face of core for doors: connect, subscribe, publish, acknowledge.

Every call is synchronous and never waits; what has to wait (a slow socket, a commit, an absent client)
is kept and told of later. The broker decides; doors translate.
"""

from contextlib import suppress

from msgspec import json

from penstock.core.accepting import Accepting, Refused
from penstock.core.access import Access
from penstock.core.attendance import Arrival, Attendance
from penstock.core.clock import Clock, Scheduler
from penstock.core.declared import Declared
from penstock.core.dormant import Dormant
from penstock.core.joining import Joining
from penstock.core.node import Node
from penstock.core.paused import Paused
from penstock.core.ports import Log, StateStore
from penstock.core.publishing import Published, Publishing
from penstock.core.receipts import Receipt
from penstock.core.restoring import Restoring
from penstock.core.rights import Rights
from penstock.core.sessions import Ending
from penstock.core.settings import CoreSettings
from penstock.core.staging import Staging
from penstock.core.strain import Strains
from penstock.core.streams.engine import Streams
from penstock.core.subscribing import Subscribing
from penstock.core.topics import matches
from penstock.errors import PenstockError

__all__ = ["DROPS_TOPIC", "Arrival", "Broker", "Published", "Receipt", "Refused"]

DROPS_TOPIC = "$penstock/drops"
DROPS_A_MESSAGE = 1_000


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
        self.node_id = node_id
        self.settings = settings
        self.access = access
        self._node = node = Node(settings, access, log, state, clock, scheduler)
        self._show(node)
        # What a door may ask for:
        self._publishing = publishing = Publishing(node)
        self.publish = publishing.publish
        self.publish_all = publishing.publish_all
        self.publish_server = publishing.publish_server
        accepting = Accepting(node, publishing)
        self.publish_once = accepting.publish_once
        self.publish_each = accepting.publish_each
        self.when_free, self.when_let_go = node.callers.when_free, node.callers.when_let_go
        self.when_settled = publishing.when_settled
        self.when_stored = publishing.when_stored
        self.when_flushed = publishing.when_flushed
        self.when_remembered = publishing.when_remembered
        self.do_gradually = node.do_gradually
        self.staging = Staging(node, publishing)
        self.streams = Streams(node, publishing, accepting)
        subscribing = Subscribing(node)
        self.subscribe = subscribing.subscribe
        self.unsubscribe = subscribing.unsubscribe
        self.forget_waiting = subscribing.forget_waiting
        self.is_filter = subscribing.is_filter
        self.join = Joining(node, subscribing).join
        self.paused = Paused(node)
        self.dormant = Dormant(log, node.topics, settings.topic.max_topics)
        self._declared = declared = Declared(node, publishing, subscribing)
        self.has_topic = declared.has
        self.declare_topic = declared.declare
        self.delete_topic = declared.delete
        self.on_topic_deleted = declared.on_deleted
        self.when_declared = declared.when_stored
        self._attendance = attendance = Attendance(node, publishing, subscribing)
        self._rights = Rights(node, publishing, subscribing, attendance)
        self.on_rights_withdrawn = self._rights.on_withdrawn
        self._attend(attendance)
        self._restore()

    def _attend(self, attendance: Attendance) -> None:
        """What a door may ask for on behalf of a session."""
        self.connect = attendance.connect
        self.check_will = attendance.check_will
        self.resume = attendance.resume
        self.disconnect = attendance.disconnect
        self.dismiss = attendance.dismiss
        self.pause = attendance.pause
        self.unpause = attendance.unpause
        self.position_of = attendance.position_of
        self.grant = self._node.lagging.grant
        self.take_strain = Strains(self._node.clock, self._node.keeping.outbox_limits).take
        self.acknowledge = attendance.acknowledge
        self.refuse = attendance.refuse
        self.receive = attendance.receive
        self.take_in = attendance.take_in
        self.let_go = attendance.let_go
        self.note_given_up = attendance.note_given_up

    def _show(self, node: Node) -> None:
        """Let doors look at what they may look at."""
        self.counters = node.counters
        self.ledger = node.ledger
        self.tallies = node.tallies
        self.slow = node.slow
        self.topics = node.topics
        self.sessions = node.sessions
        self.callers = node.callers
        self.receipts = node.receipts
        self.retained = node.retained
        self.history = node.history
        self.router = node.router
        self.keeping = node.keeping
        self.lagging = node.lagging
        self.tick = node.tick
        self.log = node.log

    def _restore(self) -> None:
        """Bring back what outlived the last broker on these stores."""
        self.ledger.is_watched = self._keeps_drops  # what is found to be lost is news, too
        if self._node.recording.is_on:
            Restoring(self._node, self._attendance).restore()
            self._declared.restore()
            self.paused.restore()
            self.topics.recency.begin(self.history.head + 1)
            self.receipts.restore()
            self.staging.restore()
            self.forget_rights()  # the rules may be others than when these sessions were saved

    def configure(self, settings: CoreSettings) -> None:
        """Go by other settings from now on; known topics follow, and what is too much goes, in steps."""
        self.settings = settings
        self._node.configure(settings)
        self.dormant.limit = settings.topic.max_topics
        self.streams.configure(settings.streams)

    def forget_rights(self) -> None:
        """The rules have changed: decide anew who may stay, and who may publish and read what."""
        self._rights.reconsider()
        self.streams.reconsider()

    def reap(self) -> None:
        """Once a second: sessions, wills, retained values and waiting messages whose time has come."""
        now = self._node.clock.monotonic()
        self._attendance.reap(now)
        for topic in self.retained.reap(now):
            self._node.recording.forget_value(topic.name)
        self.receipts.reap(now)
        self.staging.reap()
        self.paused.reap(now)
        self.streams.reap()
        if self.topics.is_nearly_full:
            self._forget_topics()
        self.lagging.reap(now)
        self._tell_drops()

    def _forget_topics(self) -> None:
        """Make room for new topics at the expense of those that nothing is left of."""
        if self.topics.forget_unused():
            self._publishing.forget_topics(self.sessions.values())

    @property
    def _keeps_drops(self) -> bool:
        """The log has what was not delivered, whether someone listens or not."""
        return any(matches(filter, DROPS_TOPIC) for filter in self.settings.log.capture)

    def _tell_drops(self) -> None:
        """Publish what was not delivered, if someone listens or the log keeps it."""
        self.ledger.is_watched = self._keeps_drops or bool(self.router.match(DROPS_TOPIC))
        news = self.ledger.take_news()
        with suppress(PenstockError):  # there may be no room for one more topic
            for start in range(0, len(news) if self.ledger.is_watched else 0, DROPS_A_MESSAGE):
                self.publish_server(DROPS_TOPIC, json.encode(news[start : start + DROPS_A_MESSAGE]))

    def stop(self) -> None:
        """Take nothing new, and flush; what waits for slow subscribers goes on leaving."""
        self._publishing.is_stopping = True
        self.streams.drain()
        self._publishing.forget_topics(self.sessions.values())  # every publish is decided anew, and refused
        self.staging.stop()
        self.tick.close()
        self.keeping.holding.free_callers()  # only now: the flush may have held them back once more

    def commit_soon(self) -> None:
        """Something was put into the state store from outside: it is committed with this turn."""
        self._node.recording.hurry()

    @property
    def owed_from(self) -> int | None:
        """The oldest offset that someone is still to get; None if nobody is owed anything."""
        return self._node.recording.owed_from()

    @property
    def is_drained(self) -> bool:
        """Nothing waits for anyone who is connected."""
        connected = (session for session in self.sessions.values() if session.sink is not None)
        return not any(
            session.is_waiting or any(group.owed for group in session.groups or ()) for session in connected
        )

    def close(self) -> None:
        """End every connection; what still waits for one of them is recorded as not delivered."""
        for session in list(self.sessions.values()):
            sink, session.stood_at = session.sink, self.position_of(session)
            session.sink = None
            if sink is not None:
                self.counters.disconnections += 1
                self.lagging.detach(session)
                session.left_at = self._node.clock.wall_us()
                self._node.recording.save(session)
                sink.close(Ending.SHUTTING_DOWN)
        self.streams.close()
        if self._keeps_drops:
            self._tell_drops()  # with the last commit
