"""The answer of `GET /api/v1/slow` as values."""

from msgspec import Struct, convert


class SlowSubscriber(Struct, frozen=True, kw_only=True):
    """One who cannot keep up, or could not until a while ago."""

    client_id: str
    door: str = ""
    is_slow: bool = False
    connected: bool = False
    recovered: bool = False
    waiting_messages: int = 0
    waiting_bytes: int = 0
    oldest_age_s: float = 0.0
    dropped: int = 0
    policy: str = ""
    since: str = ""
    last_slow_at: str = ""


def read_slow(answer: object) -> list[SlowSubscriber]:
    """Who is slow, the one for whom most waits first.

    Raises:
        msgspec.ValidationError: this is no answer of a Penstock server.
    """
    rows = convert(answer, list[SlowSubscriber])
    return sorted(rows, key=lambda row: (row.is_slow, row.waiting_messages, row.dropped), reverse=True)
