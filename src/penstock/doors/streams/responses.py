"""Response bodies of the streams door."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

from msgspec import json

from penstock.common.statement import Missing
from penstock.doors.streams.shapes import INVALID, InvalidForm, MissingShape, Received, ReceivedPage
from penstock.errors import PenstockError, WaitTimeout
from penstock.net.http.errors import status_of
from penstock.net.http.request import Request
from penstock.runs import Run
from penstock.wire.json_values import encode_value

SENT = b'{"errorType":0}'
HEALTHY = b'{"status":"ok"}'
WAITED_IN_VAIN = b'{"error":"long poll waiting timeout"}'
MALFORMED = b'{"error":"%b"}' % INVALID.encode()
DETAIL = "Penstock-Detail"
SEQUENCE, CURSOR, MISSING = "Penstock-Sequence", "Penstock-Cursor", "Penstock-Missing"
ENCODING = "Penstock-Encoding"
MISSING_LIMIT = 32
"""Gaps in a header; clients take some 8 KiB of headers."""
LAST_SECOND = 253_402_300_799
"""Nothing later can be written."""
_encoder = json.Encoder()


def shape_of(run: Run, index: int, cursor: str) -> Received:
    """One message of a run, with the cursor behind it."""
    value, encoding = encode_value(run.payload(index))
    return Received(
        message_id=None if run.properties is None else run.properties.message_id,
        message=value,
        encoding=encoding,
        timestamp=time_text(run.published_at),
        sequence=run.sequence + index,
        cursor=cursor,
    )


def missing_shapes(missing: Sequence[Missing]) -> tuple[MissingShape, ...]:
    """Return the gaps of a statement for the one topic that was read."""
    return tuple(MissingShape(each.first, each.last, each.reason) for each in missing)


def give(request: Request, message: Received, *, has_position: bool) -> None:
    """Respond with one message; position and encoding are in headers, and in keys if that was asked for."""
    headers = [(SEQUENCE, str(message.sequence)), (CURSOR, message.cursor)]
    if message.encoding is not None:
        headers.append((ENCODING, message.encoding))
    if message.missing:
        headers.append((MISSING, _encoder.encode(message.missing[:MISSING_LIMIT]).decode()))
    if not has_position:
        message.sequence, message.cursor, message.encoding, message.missing = 0, "", None, ()
    request.respond(200, _encoder.encode(message), headers=headers)


def give_page(request: Request, page: ReceivedPage) -> None:
    """Respond with several messages."""
    request.respond(200, _encoder.encode(page))


def fail(request: Request, error: PenstockError) -> None:
    """Respond with an error."""
    if isinstance(error, WaitTimeout):
        request.respond(status_of(error), WAITED_IN_VAIN)
    elif isinstance(error, InvalidForm):
        # Their body has one key and one text, so the rest stands in a header, where only signs of ASCII may.
        detail = error.detail.encode("unicode_escape").decode("ascii")
        request.respond(status_of(error), MALFORMED, headers=[(DETAIL, detail)])
    else:
        request.fail(error)


def time_text(wall_us: int) -> str:
    """A time as RFC 3339 writes it, with its microseconds, in UTC."""
    seconds, micros = divmod(wall_us, 1_000_000)
    return f"{_second_text(min(seconds, LAST_SECOND))}.{str(micros).zfill(6)}Z"


@lru_cache(maxsize=1024)
def _second_text(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
