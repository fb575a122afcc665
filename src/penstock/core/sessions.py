"""Who is known, connected or not.

A session holds what outlives a connection: subscriptions, what is on its way, what is owed. The sink is
its connection while it has one. `is_flowing` is the one flag the hot path looks at: connected, socket not
full, nothing waiting that would be overtaken. A session that gives credit never is: each of its messages is
counted.
"""

from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.core.access import Identity
from penstock.core.backlog import Backlog
from penstock.core.inflight import Inflight
from penstock.core.moves import Step
from penstock.core.outbox import Outbox
from penstock.core.owed import Owed
from penstock.core.ports import Form, Sink, Ticket
from penstock.core.registry import Topic
from penstock.core.shared import SharedGroup
from penstock.model import NEVER, Door, Policy, Properties

if TYPE_CHECKING:
    from penstock.core.joins import Joins
    from penstock.core.strain import Losses

FOREVER = float("inf")
TOPICS_REMEMBERED = 1_024


class Ending(StrEnum):
    """Why core ends a connection."""

    TAKEN_OVER = "taken-over"
    SLOW = "slow"
    UNSTORED = "unstored"
    """What it was about to get could not be stored."""
    UNKNOWN = "unknown"
    """The files no longer know who it is."""
    ADMINISTRATIVE = "administrative"
    """Whoever runs the server wants it so."""
    SHUTTING_DOWN = "shutting-down"


class Options(Struct, frozen=True):
    """What a subscriber asked for, in no protocol's words."""

    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0
    marks: bool = False
    """Sequence, time and cursor come with each message."""


class Subscription(Struct, frozen=True, gc=False):
    """One filter of one session."""

    filter: str
    options: Options
    form: Form
    policy: Policy
    since: int = 0
    """The newest offset when it was made; replacing it changes nothing."""


class Former(Struct, frozen=True, array_like=True):
    """A filter that was left, or lowered to QoS 0, while its session was still owed something by it."""

    filter: str
    options: Options
    policy: Policy
    since: int
    until: int
    """The newest offset when it was left."""


class Will(Struct, frozen=True):
    """What is published when a session's connection ends without a goodbye."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties | None = None
    ttl: float = NEVER
    delay: float = 0.0


class Session:
    """One client, as long as it is remembered."""

    __slots__ = (
        "backlog",
        "born",
        "client_id",
        "connected_at",
        "credit",
        "door",
        "expires_at",
        "expiry",
        "former",
        "gate",
        "groups",
        "held_by",
        "identity",
        "inflight",
        "is_coming",
        "is_fetching",
        "is_flowing",
        "is_paused",
        "is_promised",
        "is_recorded",
        "is_resumable",
        "joins",
        "left_at",
        "losses",
        "moves",
        "outbox",
        "outbox_messages",
        "owed",
        "parts",
        "position",
        "received",
        "sink",
        "stood_at",
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
        self.subscriptions: dict[str, Subscription] = {}
        self.groups: dict[SharedGroup, None] | None = None  # the shared ones among them, which keep this
        self.inflight: Inflight | None = None
        self.owed: Owed | None = None
        self.backlog: dict[str, Backlog] | None = None  # by filter: retained values still to be sent
        self.received: dict[int, Ticket | None] | None = None  # at QoS 2, and not released yet; the commit
        self.will: Will | None = None
        self.will_due = FOREVER
        self.window_limit = 1  # deliveries that may wait for their acknowledgement
        self.wire: object = None  # what its forms were made for; a door compares it on return
        # Of what is stored; nothing is while `moves` is None:
        self.moves: list[Step] | None = None  # what happened to `inflight` and `received` in this turn
        self.position: int | None = None  # it is owed what it wants after this offset; None if nothing
        self.former: tuple[Former, ...] = ()  # what it wanted earlier, and is owed too
        self.left_at: int | None = None  # when it went away, in wall time
        self.born = 0  # its first step
        self.is_recorded = False  # the state store knows of it
        self.is_promised = False  # its last coming changed what the state store knows
        # Of the connection:
        self.sink: Sink | None = None
        self.connected_at = 0  # in wall time
        self.topics: dict[str, Topic] = {}  # those it may publish to, decided once
        self.outbox: Outbox | None = None
        self.outbox_messages: int | None = None  # what may wait there, if that is less than the settings say
        self.credit: int | None = None  # so many messages it takes before it says more; None for any number
        self.losses: Losses | None = None  # since its door last asked; None if there were none
        self.is_resumable = False  # what still waits when the connection ends is read back if it returns
        self.stood_at: int | None = None  # once the connection has ended: how far it had got
        self.is_coming = False  # it is not told yet that it is connected, and gets nothing before
        self.is_paused = False
        self.is_flowing = False
        self.is_fetching = False  # what it is owed is being read
        self.gate = 0  # the first delivery that waits for its commit, and holds back what is behind it
        self.joins: Joins | None = None  # filters whose past is being sent before they are live
        self.held_by: set[Session] | None = None  # slow subscribers that make it wait under `block`
        # Of the tick:
        self.parts: list[bytes] = []

    def attach(self, sink: Sink) -> None:
        """A connection begins; what the last one had asked for is over."""
        self.sink, self.is_coming, self.is_resumable = sink, True, False
        self.outbox_messages = self.credit = self.losses = self.stood_at = None

    @property
    def is_waiting(self) -> bool:
        """Something waits that must leave before anything new."""
        return bool(self.outbox) or bool(self.owed) or bool(self.backlog)

    @property
    def can_take(self) -> bool:
        """Something that waits may leave now."""
        return self.sink is not None and not (
            self.is_paused or self.gate or self.is_fetching or self.is_coming
        )

    @property
    def keeps_up(self) -> bool:
        """Nothing waits that a join would overtake. With a credit that is not said by `is_flowing`."""
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
