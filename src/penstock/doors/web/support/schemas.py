"""Messages, statements and times (RFC 3339) as JSON, the same in every response. No FastAPI here."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

from penstock.common.statement import Statement
from penstock.core.broker import Broker
from penstock.core.replay.message_ids import Epochs
from penstock.core.runtime.clock import Clock
from penstock.errors import InvalidRequest
from penstock.model import Properties, Reason
from penstock.runs import NEVER, Run
from penstock.wire.json_values import encode_value, value_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
LAST_US = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""Nothing later can be written."""
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""A time as RFC 3339 writes it, in UTC."""
UserProperties = dict[str, str | list[str]]


def time_text(wall_us: int) -> str:
    """A time with its microseconds, in UTC."""
    seconds, micros = divmod(min(wall_us, LAST_US), 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06}Z"


def microseconds(text: str) -> int:
    """Read a time; one without a zone is in UTC.

    Raises:
        InvalidRequest: it cannot be read.
    """
    try:
        read = datetime.fromisoformat(text)
        at = read if read.tzinfo else read.replace(tzinfo=UTC)
        return max((at - _EPOCH) // _MICROSECOND, 0)
    except (ValueError, OverflowError):
        raise InvalidRequest(f"{text!r} is not a time like 2026-01-31T12:00:00Z") from None


class MessageShape(Struct, omit_defaults=True):
    """One message. `data` is its payload: JSON as it is, text as a string beside the encoding `text`,
    anything else as `{"$bytes": "<base64>"}`.
    """

    topic: str
    sequence: int
    epoch: int
    cursor: str
    published_at: Time
    qos: int
    retain: bool
    door: str
    client_id: str
    data: Annotated[Raw, Meta(extra_json_schema={"description": "Any JSON value."})]
    encoding: Literal["text"] | None = None
    content_type: str | None = None
    correlation_id: str | dict[str, str] | None = None
    response_topic: str | None = None
    message_id: str | None = None
    expires_at: Time | None = None
    properties: UserProperties | None = None


class MissingShape(Struct):
    """Missing messages of a topic in a requested range; `first` is null if unknown."""

    topic: str
    first: int | None
    last: int
    reason: Reason


class GapShape(Struct):
    """Offsets that the log should have and has not."""

    first: int
    last: int
    reason: Reason


class StatementShape(Struct):
    """Statement of a read: what was served, what is missing and why, and where to continue."""

    after: str | None
    next: str
    served: int
    is_complete: bool
    is_at_head: bool
    missing: list[MissingShape]
    gaps: list[GapShape]


class Messages:
    """Makes the shapes of messages for one response."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._history = broker.history
        self._epochs = Epochs(broker.log)
        self._lead = clock.wall_us() / 1_000_000 - clock.monotonic()  # expiries are on the other clock

    def shape(self, run: Run, index: int = 0) -> MessageShape:
        """One message of a run."""
        offset, properties = run.offset + index, run.properties or _NO_PROPERTIES
        data, encoding = encode_value(run.payload(index))
        return MessageShape(
            topic=run.topic,
            sequence=run.sequence + index,
            epoch=self._epochs.of(offset),
            cursor=self._history.cursor(offset).encode(),
            published_at=time_text(run.published_at),
            qos=run.shape.qos,
            retain=run.shape.retain,
            door=run.shape.door,
            client_id=run.client_id,
            data=data,
            encoding=encoding,
            content_type=properties.content_type,
            correlation_id=_text_or_bytes(properties.correlation_id),
            response_topic=properties.response_topic,
            message_id=properties.message_id,
            expires_at=self._expiry(run),
            properties=_gather(properties.user),
        )

    def _expiry(self, run: Run) -> str | None:
        if run.expires_at == NEVER:
            return None
        return time_text(round((run.expires_at + self._lead) * 1_000_000))


def statement_shape(statement: Statement) -> StatementShape:
    """A statement as JSON has it."""
    return StatementShape(
        after=None if statement.after is None else statement.after.encode(),
        next=statement.next.encode(),
        served=statement.served,
        is_complete=statement.is_complete,
        is_at_head=statement.is_at_head,
        missing=[MissingShape(each.topic, each.first, each.last, each.reason) for each in statement.missing],
        gaps=[GapShape(each.first, each.last, each.reason) for each in statement.gaps],
    )


_NO_PROPERTIES = Properties()


def _text_or_bytes(data: bytes | None) -> Any:
    """Bytes as text, if they are text."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return value_of(data)


def _gather(pairs: tuple[tuple[str, str], ...]) -> UserProperties | None:
    """Properties by name; a repeated name has a list."""
    if not pairs:
        return None
    gathered: UserProperties = {}
    for name, value in pairs:
        known = gathered.get(name)
        if known is None:
            gathered[name] = value
        elif isinstance(known, str):
            gathered[name] = [known, value]
        else:
            known.append(value)
    return gathered
