"""Records of the state store: one struct per table.

Times are wall-clock microseconds, because monotonic time has no meaning for the next process. A change of
fields is a change of the format on disk.
"""

from msgspec import Struct, field

from penstock.common.cursor import Position
from penstock.core.subscriptions.subscription import Options, PastSubscription
from penstock.model import Door, Policy, Properties, Will

SESSIONS = "sessions"
RETAINED = "retained"
WINDOWS = "windows"
MOVES = "moves"
BEHIND = "behind"
GROUPS = "groups"
WILLS = "wills"
RECEIPTS = "receipts"
STAGED = "staged"
CHUNKS = "staged_chunks"
DECIDED = "stage_commits"
PROGRESS = "stage_progress"
RELEASED = "stage_keys"
DECLARED = "declared"
PAUSED = "paused"


class SubscriptionRecord(Struct, frozen=True, array_like=True):
    """One filter of a session, and the offset after which it counts."""

    options: Options
    policy: Policy
    since: int


class SessionRecord(Struct, frozen=True, array_like=True):
    """Session, by client id."""

    user: str | None
    is_certified: bool
    door: Door
    expiry: float
    subscriptions: dict[str, SubscriptionRecord]
    will: Will | None = None
    left_at: int | None = None
    """Time of the disconnection; None while it is connected."""
    born: int = 0
    """Moves before this number are those of an earlier session of the same client."""
    backlog: dict[str, int] = {}
    """Filters whose retained values are still being sent, and the newest offset when they were asked for."""
    past_subscriptions: tuple[PastSubscription, ...] = field(default=(), name="former")


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
    """In-flight window, by client id, with all steps up to a number applied."""

    steps_until: int
    sent: dict[int, Sent | None]
    """By delivery number; None for one at QoS 2 that arrived and is not completed."""
    received: tuple[int, ...] = ()


class MovesRecord(Struct, frozen=True, array_like=True):
    """Steps of one turn, by client id; see `inflight_journal.py`."""

    steps: dict[str, list[int | str]]


class BehindRecord(Struct, frozen=True, array_like=True):
    """Position of a session that is behind, by client id: everything after this offset is queued."""

    position: int


class GroupRecord(Struct, frozen=True, array_like=True):
    """Position of a shared group that is behind, by its filter.

    `again` are unacknowledged messages of a member; messages after the position are queued too, if there is
    one.
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


class ChunkRecord(Struct, frozen=True, array_like=True):
    """Some rows of a part of a stage, by a number; see `chunks.py`."""

    topics: tuple[str, ...]
    rows: int
    data: bytes


class StagedRecord(Struct, frozen=True, array_like=True):
    """One part of a stage, by a number: whose it is, when it came, and the numbers of its chunks."""

    stage: str
    part: int
    owner: str | None
    staged_at: int
    chunks: tuple[int, ...]


class DecidedRecord(Struct, frozen=True, array_like=True):
    """A commit of stages that is decided and not finished, by a number: its chunks are published in order."""

    owner: str | None
    key: str
    digest: bytes
    """Of the names of its stages."""
    user: str | None
    client_id: str
    is_certified: bool
    rows: int
    chunks: tuple[int, ...]


class ProgressRecord(Struct, frozen=True, array_like=True):
    """Published chunks of a stage commit, by its number, with their positions."""

    done: int
    first: Position
    last: Position


class ReleasedRecord(Struct, frozen=True, array_like=True):
    """A commit of stages that is finished, by its number."""

    owner: str | None
    key: str
    digest: bytes
    rows: int
    first: Position
    last: Position
    finished_at: int


class ReceiptRecord(Struct, frozen=True, array_like=True):
    """A stored message that was accepted under an id, by its topic, its user and the id."""

    topic: str
    message_id: str
    sequence: int
    offset: int
    epoch: int
    published_at: int
    subscribers: int
    user: str | None = None


class DeclaredRecord(Struct, frozen=True, array_like=True):
    """A topic that was made on purpose, or deleted, by its name."""

    deleted_at: int | None = None
    """The last sequence it had when it was deleted; None while it is there."""
    floor: int = 0
    """The newest offset when it was last deleted; 0 if it never was."""


class PausedRecord(Struct, frozen=True, array_like=True):
    """Paused subscription, by its id."""

    user: str | None
    client_id: str
    filters: tuple[str, ...]
    """As they were asked for."""
    ttl: float
    """Seconds for which it is kept once it is paused."""
    position: int
    """Everything up to this offset was sent, or is accounted for."""
    epoch: int
    """In which its client was given what it has; a position of a later one may mean other messages."""
    paused_at: int | None = None
    """In microseconds of wall time; None while it is live."""
    receive_retained: bool = False
    max_buffer: int = 0
    """Limit of its queue; 0 if the client gave none."""
    since: int = 0
    """The newest offset when its stream began."""
    stale: dict[str, tuple[int, int]] | None = {}
    """Sequences that its client had of an earlier epoch when the stream began, with that epoch: as long as it
    names the same, it means that. None if they were too many to keep: then no sequence says
    anything that goes beyond what there was before this epoch."""
    sequences: dict[str, int] = {}
    """The last ones up to the position, of topics that it asked for by name; none where that is not known."""


TABLES: dict[str, type[Struct]] = {
    SESSIONS: SessionRecord,
    RETAINED: RetainedRecord,
    WINDOWS: WindowRecord,
    MOVES: MovesRecord,
    BEHIND: BehindRecord,
    GROUPS: GroupRecord,
    WILLS: WillRecord,
    STAGED: StagedRecord,
    CHUNKS: ChunkRecord,
    DECIDED: DecidedRecord,
    PROGRESS: ProgressRecord,
    RELEASED: ReleasedRecord,
    RECEIPTS: ReceiptRecord,
    DECLARED: DeclaredRecord,
    PAUSED: PausedRecord,
}
"""Record types by table."""
