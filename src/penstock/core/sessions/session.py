"""Session: the state of a client that outlives its connection.

It holds subscriptions, the in-flight window and queues. `connection` is set while the client is connected.
`is_flowing` is the one flag that the hot path reads: connected, socket not full, nothing queued that would be
overtaken. A session with credit never flows: each of its messages is counted.
"""

from collections.abc import Callable
from enum import StrEnum

from penstock.core.access.identity import Identity
from penstock.core.delivery.inflight import Inflight, Step
from penstock.core.delivery.offline_queue import OfflineQueue
from penstock.core.delivery.outbox import Outbox
from penstock.core.ports.connection import ConnectionPort
from penstock.core.ports.log import Ticket
from penstock.core.sessions.catch_up_slots import CatchUpSlots
from penstock.core.subscriptions.shared import SharedGroup
from penstock.core.subscriptions.subscription import PastSubscription, Subscription
from penstock.core.topics.retained_backlog import Backlog
from penstock.core.topics.topic import Topic
from penstock.model import Door, Will


class LossCounts:
    """Messages that a session lost since its door last asked."""

    __slots__ = ("dropped", "expired")

    def __init__(self) -> None:
        self.dropped = 0
        """There was no room for them."""
        self.expired = 0
        """They had waited for longer than they lived."""


FOREVER = float("inf")
TOPICS_REMEMBERED = 1_024


class Ending(StrEnum):
    """Why core ends a connection."""

    TAKEN_OVER = "taken-over"
    SLOW = "slow"
    UNSTORED = "unstored"
    """A delivery could not be stored."""
    UNKNOWN = "unknown"
    """The password file no longer has its user."""
    ADMINISTRATIVE = "administrative"
    """An operator ended it; the client may return."""
    SESSION_ENDED = "session-ended"
    """An operator ended its session."""
    SHUTTING_DOWN = "shutting-down"


class Session:
    """One client, as long as it is remembered."""

    __slots__ = (
        "backlog",
        "blocked_by",
        "born",
        "catch_ups",
        "client_id",
        "connected_at",
        "connection",
        "credit",
        "detach_soon",
        "door",
        "expires_at",
        "expiry",
        "first_uncommitted_id",
        "groups",
        "identity",
        "inflight",
        "is_coming",
        "is_fetching",
        "is_flowing",
        "is_over",
        "is_paused",
        "is_promised",
        "is_recorded",
        "is_resumable",
        "journal",
        "last_position",
        "left_at",
        "losses",
        "offline_queue",
        "outbox",
        "outbox_messages",
        "parts",
        "past_subscriptions",
        "position",
        "received",
        "subscriptions",
        "topics",
        "will",
        "will_due",
        "window_limit",
        "wire",
    )

    def __init__(self, identity: Identity, door: Door) -> None:
        self.client_id = identity.client_id
        self.identity = identity
        self.door = door
        # Of the session:
        self.expiry = 0.0  # seconds it outlives its connection
        self.expires_at = FOREVER  # when, while it is away
        self.is_over = False  # it has ended; its filters are removed in background steps
        self.subscriptions: dict[str, Subscription] = {}
        self.groups: dict[SharedGroup[Session], None] | None = None  # shared ones among them
        self.inflight: Inflight | None = None
        self.offline_queue: OfflineQueue | None = None
        self.backlog: dict[str, Backlog] | None = None  # by filter: retained values still to be sent
        self.received: dict[int, Ticket | None] | None = None  # at QoS 2, and not released yet; the commit
        self.will: Will | None = None
        self.will_due = FOREVER
        self.window_limit = 1  # deliveries that may wait for their acknowledgement
        self.wire: object = None  # what its forms were made for; a door compares it on return
        # Of what is stored; nothing is while `journal` is None:
        self.journal: list[Step] | None = None  # what happened to `inflight` and `received` in this turn
        self.position: int | None = None  # messages after this offset are queued; None if there are none
        self.past_subscriptions: tuple[PastSubscription, ...] = ()  # earlier filters with queued messages
        self.left_at: int | None = None  # when it went away, in wall time
        self.born = 0  # its first step
        self.is_recorded = False  # the state store knows of it
        self.is_promised = False  # its last coming changed what the state store knows
        # Of the connection:
        self.connection: ConnectionPort | None = None
        self.detach_soon: DetachSoon | None = None  # of the service that attached the connection
        self.connected_at = 0  # in wall time
        self.topics: dict[str, Topic] = {}  # those it may publish to, decided once
        self.outbox: Outbox | None = None
        self.outbox_messages: int | None = None  # what may wait there, if that is less than the settings say
        self.credit: int | None = None  # messages that it still takes; None for any number
        self.losses: LossCounts | None = None  # since its door last asked; None if there were none
        self.is_resumable = False  # what still waits when the connection ends is read back if it returns
        self.last_position: int | None = None  # once the connection has ended: how far it had got
        self.is_coming = False  # its door has not confirmed the connection; nothing is sent before
        self.is_paused = False
        self.is_flowing = False
        self.is_fetching = False  # its offline queue is being fetched
        self.first_uncommitted_id = 0  # first delivery that waits for its commit, with all behind it
        self.catch_ups: CatchUpSlots | None = None  # filters whose past is being sent before they are live
        self.blocked_by: set[Session] | None = None  # slow subscribers that make it wait under `block`
        # Of the tick:
        self.parts: list[bytes] = []

    def attach(self, connection: ConnectionPort, detach_soon: "DetachSoon") -> None:
        """A connection begins; what the last one had asked for is over."""
        self.connection, self.is_coming, self.is_resumable = connection, True, False
        self.detach_soon = detach_soon
        self.outbox_messages = self.credit = self.losses = self.last_position = None

    def close(self, ending: Ending) -> None:
        """End the connection in the middle of a delivery; the session is detached after that."""
        connection = self.connection
        if connection is not None and self.detach_soon is not None:
            self.is_paused, self.is_flowing = True, False  # nothing more leaves
            try:
                connection.close(ending)
            finally:
                self.detach_soon(self, connection)

    @property
    def name(self) -> str:
        """Id that the client gives itself; a stream has a session id of its own beside it."""
        return self.identity.client_id or self.client_id

    @property
    def is_waiting(self) -> bool:
        """Something waits that must leave before anything new."""
        return bool(self.outbox) or bool(self.offline_queue) or bool(self.backlog)

    @property
    def can_take(self) -> bool:
        """Something that waits may leave now."""
        return self.connection is not None and not (
            self.is_paused or self.first_uncommitted_id or self.is_fetching or self.is_coming
        )

    @property
    def keeps_up(self) -> bool:
        """Nothing is queued that a catch-up would overtake. With credit, `is_flowing` does not show that."""
        return self.is_flowing if self.credit is None else self.can_take and not self.is_waiting

    @property
    def is_persistent(self) -> bool:
        """Outlives its connection."""
        return self.expiry > 0

    def remember(self, topic: Topic) -> None:
        """This session may publish to this topic."""
        if len(self.topics) >= TOPICS_REMEMBERED:
            self.topics.clear()
        self.topics[topic.name] = topic


DetachSoon = Callable[[Session, ConnectionPort], None]
"""Detaches a connection from its session in the next turn of the loop."""
