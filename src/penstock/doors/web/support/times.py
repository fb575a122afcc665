"""Times: RFC 3339 text to microseconds and back, without FastAPI."""

from datetime import UTC, datetime, timedelta

from penstock.errors import InvalidRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
LAST_US = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""Nothing later can be written."""


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
