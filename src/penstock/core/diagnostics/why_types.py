"""Value types of an explanation: verdict, sentence and facts."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from penstock.core.diagnostics.ledger import Row
from penstock.model import Door, Reason

REASONS = {
    Reason.OUTBOX_FULL: "it was too slow, and its outbox was full",
    Reason.OFFLINE_QUEUE_FULL: "it was offline or behind, and its offline queue was full",
    Reason.BLOCK_TIMEOUT: "it was too slow, and the publisher had waited for it as long as is allowed",
    Reason.DISCONNECTED: "its connection ended while the message waited, and took it along",
    Reason.NOT_CONNECTED: "it was not connected, and the message was not to be kept for it",
    Reason.SESSION_ENDED: "its session or its subscription ended before the message could leave",
    Reason.PACKET_TOO_LARGE: "the message was larger than the largest packet it takes",
    Reason.REFUSED: "it refused the message",
    Reason.FAILED: "sending it failed",
    Reason.EVICTED: "the message had left the ring already",
    Reason.EXPIRED: "the message expired before it could leave",
    Reason.RETENTION: "the log had removed the message already",
    Reason.NEVER_STORED: "the message was not stored",
    Reason.LOST_UNCOMMITTED: "the server stopped before the message was stored",
    Reason.EPOCH_CHANGED: "the server was started anew meanwhile",
    Reason.DAMAGED: "the message was stored in a place that is damaged",
    Reason.NOT_AUTHORIZED: "it may not read this topic",
}
"""Each reason as the end of a sentence about a client."""


class Code(StrEnum):
    """Verdict of an explanation."""

    NOT_PUBLISHED = "not-published"
    PUBLISHED = "published"
    """Only when no client is named."""
    NOT_DELIVERED = "not-delivered"
    IN_FLIGHT = "in-flight"
    WAITING = "waiting"
    NOT_AUTHORIZED = "not-authorized"
    NO_SESSION = "no-session"
    NO_SUBSCRIPTION = "no-subscription"
    SUBSCRIBED_LATER = "subscribed-later"
    OWN_MESSAGE = "own-message"
    NO_RECORD = "no-record"


class Published(Struct, frozen=True):
    """Facts about the message itself; for one that is gone, only the reason."""

    published_at: int | None = None
    client_id: str | None = None
    qos: int | None = None
    retain: bool | None = None
    door: Door | None = None
    offset: int | None = None
    missing: Reason | None = None


class Waiting(Struct, frozen=True):
    """Queue that holds a message; a shared group is named by its filter, a stream is `$stream`."""

    client_id: str
    place: str
    """`in-flight`, `outbox`, `owed`, `group`, `retained` or `stream`."""
    ahead: int
    """Messages before it in the same queue."""
    is_connected: bool


class Explanation(Struct, frozen=True):
    """A verdict in one sentence, and the facts it rests on."""

    topic: str
    sequence: int
    client_id: str | None
    code: Code
    text: str
    message: Published | None = None
    rows: Sequence[Row] = ()
    """Rows of the ledger."""
    waiting: Sequence[Waiting] = ()
    filters: Sequence[str] = ()
    """The client's subscriptions that match the topic now."""
    newest: int = 0
    """The last sequence of the topic."""
    rows_forgotten: int = 0
    """Rows that the ledger dropped since start."""
    is_truncated: bool = False
    """There are more rows, or more sessions wait, than are named here."""
