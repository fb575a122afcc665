"""What was not delivered, as the server's ledger has it: records, what they say in words, and their sums."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from penstock.dashboard.answers import Asking, read_answer

SHOWN_RECORDS = 100

REASONS = {
    "outbox-full": "its outbox was full",
    "owed-full": "it was owed as much as is allowed",
    "block-timeout": "the publisher had waited as long as is allowed",
    "disconnected": "its connection ended while the message waited",
    "not-connected": "it was away, and the message was QoS 0",
    "session-ended": "its session or subscription ended first",
    "packet-too-large": "larger than the client takes",
    "refused": "the client said no",
    "failed": "it could not be sent",
    "expired": "its lifetime was over",
    "retention": "the log had it no more",
    "damaged": "the log is damaged there",
    "never-stored": "it was never stored",
    "not-authorized": "the client may not read the topic",
}
"""Why somebody did not get a message."""


class Record(Struct, frozen=True, kw_only=True):
    """A range of messages that one client did not get, for one reason."""

    client_id: str
    reason: str
    first: int
    last: int
    count: int
    first_at: datetime
    last_at: datetime
    topic: str = ""
    policy: str | None = None
    setting: str = ""
    counts_offsets: bool = False
    """`first` and `last` are offsets: nothing else is known of these messages."""

    @property
    def sequences(self) -> str:
        """Which messages."""
        kind = "offset" if self.counts_offsets else ""
        if self.first == self.last:
            return f"{kind} {self.first:,}".strip()
        return f"{kind + 's' if kind else ''} {self.first:,} to {self.last:,}".strip()

    @property
    def words(self) -> str:
        """Why."""
        return REASONS.get(self.reason, self.reason)


class Waiting(Struct, frozen=True, kw_only=True):
    """Where a message waits for one client."""

    client_id: str
    place: str
    ahead: int
    connected: bool


class Published(Struct, frozen=True, kw_only=True):
    """The message itself, or why it is not there any more."""

    published_at: datetime | None = None
    client_id: str | None = None
    qos: int | None = None
    retain: bool | None = None
    door: str | None = None
    missing: str | None = None


class Verdict(Struct, frozen=True, kw_only=True):
    """What became of one message."""

    topic: str
    sequence: int
    code: str
    text: str
    client_id: str | None = None
    newest: int = 0
    message: Published | None = None
    rows: list[Record] = []
    waiting: list[Waiting] = []
    filters: list[str] = []
    rows_forgotten: int = 0
    truncated: bool = False


class Records(Struct, frozen=True, kw_only=True):
    """Some records, the newest first."""

    drops: list[Record]
    next: int | None = None
    total: int = 0
    rows_forgotten: int = 0


def ask_why(client: Asking, topic: str, sequence: int, who: str | None = None) -> Verdict:
    """What became of a message, for one client or for all.

    Raises:
        PenstockError: the server is away, or refuses the question.
    """
    answer = client.get("/api/v1/why", topic=topic, sequence=sequence, client=who or None)
    return read_answer(answer, Verdict)


def find_records(
    client: Asking,
    *,
    topic: str = "",
    who: str = "",
    reason: str = "",
    after: int | None = None,
    limit: int = SHOWN_RECORDS,
) -> Records:
    """The newest records of a topic, of a client, for a reason.

    Raises:
        PenstockError: the server is away, or refuses the question.
    """
    asked = {"topic": topic.strip(), "client": who.strip(), "reason": reason}
    given = {name: value for name, value in asked.items() if value}
    return read_answer(client.get("/api/v1/drops", after=after, limit=limit, **given), Records)


def sums_by_reason(records: Iterable[Record]) -> list[tuple[str, int]]:
    """How many messages each reason stands for, the most first."""
    sums: Counter[str] = Counter()
    for record in records:
        sums[record.reason] += record.count
    return sums.most_common()
