"""What the HTTP API answers, as values. A server may say more than is named here; that is left out."""

from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.client.errors import ConnectionRefused
from penstock.wire.jsonvalue import payload_of

T = TypeVar("T")


class NewMessage(Struct, kw_only=True, omit_defaults=True):
    """A message to publish: a topic, and either `data` (anything JSON can say) or `payload`."""

    topic: str
    data: Any = UNSET
    payload: str | UnsetType = UNSET
    qos: int = 1
    retain: bool = False
    ttl_ms: int | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    response_topic: str | None = None
    message_id: str | None = None
    """Publishing the same id again within the server's window publishes nothing and answers the same."""
    properties: dict[str, str | list[str]] | None = None


class Receipt(Struct, frozen=True, kw_only=True):
    """What became of a published message."""

    topic: str
    sequence: int
    epoch: int
    cursor: str
    subscribers: int
    stored: bool
    """It is in a log on disk."""
    message_id: str | None = None
    duplicate: bool = False
    """It had been published before; this is the receipt of that time."""


class Message(Struct, frozen=True, kw_only=True):
    """A message as the server has it."""

    topic: str
    sequence: int
    epoch: int
    cursor: str
    published_at: datetime
    qos: int
    retain: bool
    door: str
    client_id: str
    value: Raw = msgspec.field(name="data")
    content_type: str | None = None
    correlation_id: Any = None
    response_topic: str | None = None
    message_id: str | None = None
    expires_at: datetime | None = None
    properties: dict[str, str | list[str]] = {}

    @property
    def payload(self) -> bytes:
        """Its bytes."""
        return payload_of(self.value)

    @property
    def data(self) -> Any:
        """Its value, if the payload is JSON."""
        return msgspec.json.decode(self.payload)


class Missing(Struct, frozen=True):
    """Messages of a topic that were asked for and are not there."""

    topic: str
    first: int | None
    last: int
    reason: str


class Gap(Struct, frozen=True):
    """Offsets that the log should have and has not."""

    first: int
    last: int
    reason: str


class Statement(Struct, frozen=True, kw_only=True):
    """The end of a read: what was served, what is missing and why, and where to go on."""

    after: str | None = None
    next: str
    served: int
    is_complete: bool
    is_at_head: bool
    missing: tuple[Missing, ...] = ()
    gaps: tuple[Gap, ...] = ()


class History(Struct, frozen=True):
    """Messages of a topic, and what can be said of them."""

    messages: tuple[Message, ...]
    statement: Statement


class LogPosition(Struct, frozen=True, kw_only=True):
    """A place in the log."""

    cursor: str
    offset: int
    epoch: int
    log_id: str
    time: datetime | None = None
    lag_rows: int | None = None
    """How many rows there are between the cursor that was given and here, at most."""


class LogRange(Struct, frozen=True, kw_only=True):
    """A part of the log, to be read with `read_log(after=..., until=...)`."""

    after: str
    until: str
    rows: int
    """There may be fewer, but not more."""
    bytes: int
    """As stored, about."""


class LogRanges(Struct, frozen=True, kw_only=True):
    """A stretch of the log in ranges that meet: where one ends the next begins."""

    after: str
    until: str
    rows: int
    """There may be fewer, but not more."""
    ranges: list[LogRange]
    gaps: list[Gap] = []
    """What is missing, as far as that is known without reading it; a read may find more."""


class Hold(Struct, frozen=True, kw_only=True):
    """A promise that what comes after a cursor stays in the log."""

    name: str
    owner: str
    cursor: str
    offset: int
    lapse_s: float
    """How long it lasts after each sign of life."""
    lapses_at: datetime
    filters: tuple[str, ...] = ()
    """What its owner wants to read; nothing stands for everything."""


class StagedPart(Struct, frozen=True, kw_only=True):
    """Rows that wait for the commit of their stage."""

    id: str
    part: int
    rows: int
    lapses_at: datetime | None = None


class StageCommit(Struct, frozen=True, kw_only=True):
    """Stages that were published, once and for all."""

    key: str
    rows: int
    first: str | None = None
    last: str | None = None
    duplicate: bool = False
    """The key had been used before; nothing was published again."""


def read(body: bytes, kind: type[T]) -> T:
    """An answer of a certain kind."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise ConnectionRefused(f"this is not what a Penstock server answers: {error}") from None
