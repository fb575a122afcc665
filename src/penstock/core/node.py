"""What one node has: topics, sessions, filters, history, and what moves between them. No rules.

The rules are in `publishing.py`, `subscribing.py` and `attendance.py`, which share this.
"""

from msgspec import Struct

from penstock.core.access import Access
from penstock.core.clock import Clock, Scheduler
from penstock.core.counters import Counters
from penstock.core.delivery import Delivery
from penstock.core.history import History
from penstock.core.lagging import Lagging
from penstock.core.ledger import Ledger
from penstock.core.policy import Limits
from penstock.core.ports import Log, StateStore
from penstock.core.registry import Registry
from penstock.core.retained import Retained
from penstock.core.router import Router
from penstock.core.sessions import Options, Session, Will
from penstock.core.settings import CoreSettings
from penstock.core.tick import Tick
from penstock.model import Door, Policy


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
        self.counters = Counters()
        self.ledger = Ledger(clock, settings.ledger.rows)
        self.topics = Registry(settings)
        self.sessions: dict[str, Session] = {}
        self.retained = Retained(settings.retained.max_messages)
        self.history = History(self.topics, log, clock)
        limits = Limits(settings.sessions.owed_messages, settings.sessions.owed_bytes)
        self.router = Router(self.topics, limits)
        self.lagging = Lagging(
            settings, clock, scheduler, self.ledger, self.counters, self.topics, self.sessions
        )
        self.delivery = Delivery(clock, self.ledger, self.counters, self.lagging)
        self.tick = Tick(clock, scheduler, self.delivery)
        self._unsaved: dict[Session, None] = {}

    def save(self, session: Session) -> None:
        """Put into the state store what outlives the session's connection: once, at the end of this turn."""
        if session.is_persistent:
            if not self._unsaved:
                self.tick.after(self._save_all)
            self._unsaved[session] = None

    def _save_all(self) -> None:
        unsaved, self._unsaved = self._unsaved, {}
        for session in unsaved:
            if self.sessions.get(session.client_id) is session:
                wanted = session.subscriptions.items()
                record = SessionRecord(
                    session.identity.user,
                    session.identity.is_certified,
                    session.door,
                    session.expiry,
                    {filter: (subscription.options, subscription.policy) for filter, subscription in wanted},
                    session.will,
                )
                self.state.put("sessions", session.client_id, record)


class SessionRecord(Struct, frozen=True):
    """What the state store keeps of a session."""

    user: str | None
    is_certified: bool
    door: Door
    expiry: float
    subscriptions: dict[str, tuple[Options, Policy]]
    will: Will | None = None
