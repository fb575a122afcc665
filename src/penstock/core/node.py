"""Assembly of one node: topics, sessions, filters, history, delivery and durability.

The node constructs the parts and connects them. The services that decide (publish, subscribe, session
lifecycle, catch-up, recovery) share it.
"""

from penstock.core.access.access import Access
from penstock.core.delivery.backpressure import Backpressure
from penstock.core.delivery.drain import Drainer
from penstock.core.delivery.drops import Drops
from penstock.core.delivery.fanout import Fanout
from penstock.core.delivery.offline_fetch import OfflineFetch
from penstock.core.delivery.policy import Limits
from penstock.core.delivery.queueing import Queues
from penstock.core.diagnostics.audit import AuditTrail
from penstock.core.diagnostics.counters import Counters
from penstock.core.diagnostics.ledger import Ledger
from penstock.core.diagnostics.slow_consumers import SlowConsumers
from penstock.core.diagnostics.topic_stats import TopicStats
from penstock.core.durability.recorder import NullRecorder, Recorder
from penstock.core.durability.rollback import RetainedRollback, Rollback
from penstock.core.ports.log import Log
from penstock.core.ports.state import StateStore
from penstock.core.publishing.deduplication import DedupWindow
from penstock.core.publishing.request_senders import RequestSenders
from penstock.core.replay.history import History
from penstock.core.runtime.background import Background, BackgroundJob, Step, StepQueue
from penstock.core.runtime.clock import Clock, Scheduler
from penstock.core.runtime.tick import Tick
from penstock.core.sessions.clients import ClientDirectory
from penstock.core.sessions.session import Session
from penstock.core.settings import CoreSettings
from penstock.core.subscriptions.router import Router
from penstock.core.topics.catalog import TopicCatalog
from penstock.core.topics.levels import TopicLevels
from penstock.core.topics.registry import Registry, RulesRefresh
from penstock.core.topics.retained import Retained
from penstock.core.topics.rules import rules_differ
from penstock.runs import Run


class Node:
    """The parts of a broker, constructed once and shared by its services."""

    def __init__(
        self,
        settings: CoreSettings,
        access: Access,
        log: Log,
        state: StateStore,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        self.settings = settings
        self.access = access
        self.log = log
        self.state = state
        self.clock = clock
        self.scheduler = scheduler
        self.counters = Counters()
        self.catalog = TopicCatalog(log, settings.topic.max_topics)
        self.topics = Registry(settings, self.catalog.last_sequence)
        self.topics.notify_forgotten(self.catalog.note_forgotten)
        self.topic_levels = TopicLevels(self.topics, self.catalog, clock)
        self.topic_stats = TopicStats(self.topics, clock)
        self.ledger = Ledger(clock, settings.ledger.rows, self.topic_stats.note_lost)
        self.slow_consumers = SlowConsumers(settings.slow, clock)
        self.sessions: dict[str, Session] = {}
        self.clients = ClientDirectory(self.sessions)
        self.audit = AuditTrail()
        self.request_senders = RequestSenders(scheduler)
        self.retained = Retained(settings.retained.max_messages)
        self.history = History(self.topics, self.catalog, log, clock)
        limits = Limits(settings.sessions.owed_messages, settings.sessions.owed_bytes)
        self.router = Router(self.topics, limits)
        self.tick = Tick(clock, scheduler)
        self.tick.is_durable = log.is_durable
        self.background = Background(clock, scheduler)
        self.endings = StepQueue(self.background)
        self.catching_up: set[Session] = set()
        recorder = Recorder if log.is_durable else NullRecorder
        self.recorder = recorder(log, self.tick, self.sessions)
        self.dedup = DedupWindow(settings.message_ids, log, state, clock, self.recorder)
        self.offline_fetch = OfflineFetch(log, access, self.ledger, self.router)
        self.drops = Drops(self.ledger, self.slow_consumers, self.offline_fetch, self.background)
        block_timeout_s = settings.outbox.block_timeout_ms / 1000
        self.backpressure = Backpressure(
            clock, scheduler, block_timeout_s, self.drops.end_block, log.when_caught_up
        )
        self.queues = Queues(
            settings,
            self.topics,
            self.ledger,
            self.slow_consumers,
            self.drops,
            self.backpressure,
            self.recorder,
            self._find_publisher,
            self.background,
        )
        self.drainer = Drainer(
            log,
            clock,
            scheduler,
            self.counters,
            self.topic_stats,
            self.recorder,
            self.queues,
            self.offline_fetch,
        )
        self.fanout = Fanout(
            clock,
            self.ledger,
            self.counters,
            self.topic_stats,
            self.queues,
            self.drainer,
            is_durable=log.is_durable,
        )
        self.retained_rollback = RetainedRollback(log, clock, self.topics, self.retained, self.recorder)
        self.rollback = Rollback(
            log,
            self.tick,
            self.sessions,
            self.ledger,
            self.recorder,
            self.retained_rollback,
            (self.dedup.roll_back,),
            self.offline_fetch.note_gone,
            self.drainer.wake,
        )
        self.tick.on_flush = self.fanout.deliver
        self.tick.on_end = self.recorder.end_turn

    def _find_publisher(self, run: Run) -> Session | None:
        """Return the publisher of a run that can be blocked; a client id may exist at several doors."""
        sender = self.request_senders.publisher_of(run)
        session = self.sessions.get(run.client_id) if sender is None else sender
        return session if session is not None and session.door is run.shape.door else None

    def configure(self, settings: CoreSettings) -> None:
        """Apply new settings to every part that derives something from them."""
        before, self.settings = self.settings, settings
        sessions = settings.sessions
        self.ledger.resize(settings.ledger.rows)
        self.slow_consumers.configure(settings.slow)
        self.retained.limit = settings.retained.max_messages
        self.router.offline_limits.change(sessions.owed_messages, sessions.owed_bytes)
        self.dedup.configure(settings.message_ids)
        self.queues.configure(settings)
        self.catalog.limit = settings.topic.max_topics
        self.topics.configure(settings)
        works: list[Step] = [self.ledger.shed, self.dedup.shed]
        if rules_differ(before, settings):
            works += [RulesRefresh(self.topics).step, self.topics.rings.shed]
        self.run_in_background(*works)

    def run_in_background(self, *works: Step) -> None:
        """Run long jobs in slices of a few milliseconds, one job after another."""
        BackgroundJob(self.background, *works).begin()
