"""What one node has: topics, sessions, filters, history, and what moves between them. No rules.

The rules are in `publishing.py`, `subscribing.py` and `attendance.py`, which share this.
"""

from penstock.core.access import Access
from penstock.core.callers import Callers
from penstock.core.clock import Clock, Scheduler
from penstock.core.counters import Counters
from penstock.core.delivery import Delivery
from penstock.core.fetching import Fetching
from penstock.core.gradually import Gradually, Step
from penstock.core.history import History
from penstock.core.keeping import Keeping
from penstock.core.lagging import Lagging
from penstock.core.leaving import Leaving
from penstock.core.ledger import Ledger
from penstock.core.policy import Limits
from penstock.core.ports import Log, StateStore
from penstock.core.receipts import Receipts
from penstock.core.recording import Recording
from penstock.core.registry import Registry
from penstock.core.renewal import Renewal, traits_differ
from penstock.core.replaced import Replaced
from penstock.core.retained import Retained
from penstock.core.router import Router
from penstock.core.sessions import Session
from penstock.core.settings import CoreSettings
from penstock.core.slow import Slow
from penstock.core.tallies import Tallies
from penstock.core.tick import Tick
from penstock.core.turns import Turns
from penstock.core.unstored import Unstored


class Node:
    """The parts of a broker, made once and known to all its rules."""

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
        self.ledger = Ledger(clock, settings.ledger.rows)
        self.topics = Registry(settings, log.last_sequence)
        self.tallies = Tallies(self.topics, clock)
        self.ledger.on_lost = self.tallies.note_lost
        self.slow = Slow(settings.slow, clock)
        self.sessions: dict[str, Session] = {}
        self.callers = Callers(scheduler)
        self.retained = Retained(settings.retained.max_messages)
        self.history = History(self.topics, log, clock)
        self.history.head = log.last_offset
        limits = Limits(settings.sessions.owed_messages, settings.sessions.owed_bytes)
        self.router = Router(self.topics, limits)
        self.tick = Tick(clock, scheduler)
        self.tick.is_durable = log.is_durable
        self.turns = Turns(clock, scheduler)
        self.joining: set[Session] = set()  # those that have joins
        self.recording = Recording(log, state, self.tick, self.sessions)
        self.receipts = Receipts(settings.message_ids, log, state, clock, self.recording)
        self.leaving = Leaving(log, self.recording, self.ledger)
        self.fetching = Fetching(log, access, self.ledger, self.router)
        self.keeping = Keeping(
            settings,
            clock,
            scheduler,
            self.ledger,
            self.topics,
            self.sessions,
            self.recording,
            self.fetching,
            self.callers,
            self.slow,
        )
        self.lagging = Lagging(
            clock,
            scheduler,
            self.ledger,
            self.counters,
            self.tallies,
            self.recording,
            self.keeping,
            self.leaving,
            self.fetching,
        )
        self.delivery = Delivery(
            clock,
            self.ledger,
            self.counters,
            self.tallies,
            self.keeping,
            self.lagging,
            self.leaving,
            self.recording,
        )
        self.replaced = Replaced(log, clock, self.topics, self.retained, self.recording)
        self.unstored = Unstored(
            log,
            self.tick,
            self.sessions,
            self.ledger,
            self.recording,
            self.fetching,
            self.replaced,
            self.receipts,
        )
        self.unstored.on_less = self.lagging.wake
        self.tick.on_flush = self.delivery.deliver
        self.tick.on_end = self._end_turn

    def configure(self, settings: CoreSettings) -> None:
        """Hand other settings to all parts that made something of the ones before."""
        before, self.settings = self.settings, settings
        owed = settings.sessions
        self.ledger.resize(settings.ledger.rows)
        self.slow.configure(settings.slow)
        self.retained.limit = settings.retained.max_messages
        self.router.owed_limits.change(owed.owed_messages, owed.owed_bytes)
        self.receipts.configure(settings.message_ids)
        self.keeping.configure(settings)
        self.topics.configure(settings)
        works: list[Step] = [self.ledger.shed, self.receipts.shed]
        if traits_differ(before, settings):
            works += [Renewal(self.topics).step, self.topics.rings.shed]
        self.do_gradually(*works)

    def do_gradually(self, *works: Step) -> None:
        """Do what would stop everybody if it were done at once."""
        Gradually(self.turns, *works).begin()

    def _end_turn(self) -> None:
        self.recording.end_turn(self.history.head)
