"""What the state store keeps: one struct for each table.

Times are wall times in microseconds, because monotonic ones mean nothing to the next process. A record is
an array when stored: a change of its fields is a change of the format on disk.
"""

from msgspec import Struct

from penstock.core.sessions import Options, Will
from penstock.model import Door, Policy, Properties

SESSIONS = "sessions"
RETAINED = "retained"
WINDOWS = "windows"
MOVES = "moves"
BEHIND = "behind"
GROUPS = "groups"
WILLS = "wills"


class SubscriptionRecord(Struct, frozen=True, array_like=True):
    """One filter of a session, and the offset after which it counts."""

    options: Options
    policy: Policy
    since: int


class SessionRecord(Struct, frozen=True, array_like=True):
    """Who is known, by client id."""

    user: str | None
    is_certified: bool
    door: Door
    expiry: float
    subscriptions: dict[str, SubscriptionRecord]
    will: Will | None = None
    left_at: int | None = None
    """When it went away; None while it is connected."""
    born: int = 0
    """Moves before this number are those of an earlier session of the same client."""
    backlog: dict[str, int] = {}
    """Filters whose retained values are still being sent, and the newest offset when they were asked for."""


class RetainedRecord(Struct, frozen=True, array_like=True):
    """The value of a topic, by the topic's name."""

    data: bytes
    door: Door
    qos: int
    client_id: str
    properties: Properties | None = None
    expires_at: int | None = None


class Sent(Struct, frozen=True, array_like=True):
    """A delivery that is on its way: enough to find its message and to send it again."""

    offset: int
    level: int
    is_retained: bool = False
    share: str | None = None
    """The shared filter it came through."""


class WindowRecord(Struct, frozen=True, array_like=True):
    """What a session had on its way, by client id, when all moves up to a number were made."""

    moves: int
    sent: dict[int, Sent | None]
    """By delivery number; None for one at QoS 2 that arrived and is not completed."""
    received: tuple[int, ...] = ()


class MovesRecord(Struct, frozen=True, array_like=True):
    """What happened in one turn to what sessions have on their way, by client id; see `windows.py`."""

    steps: dict[str, list[int | str]]


class BehindRecord(Struct, frozen=True, array_like=True):
    """A session that is owed something, by client id: whatever it wants after this offset."""

    position: int


class GroupRecord(Struct, frozen=True, array_like=True):
    """A shared group that is owed something, by its filter.

    `again` are messages that a member had and did not acknowledge; the group is also owed whatever it wants
    after the position, if there is one.
    """

    position: int | None
    again: tuple[int, ...] = ()


class WillRecord(Struct, frozen=True, array_like=True):
    """A will whose time has come and that could not be stored as a message yet, by a number."""

    client_id: str
    user: str | None
    is_certified: bool
    door: Door
    will: Will


TABLES: dict[str, type[Struct]] = {
    SESSIONS: SessionRecord,
    RETAINED: RetainedRecord,
    WINDOWS: WindowRecord,
    MOVES: MovesRecord,
    BEHIND: BehindRecord,
    GROUPS: GroupRecord,
    WILLS: WillRecord,
}
"""What each table of the state store holds."""
