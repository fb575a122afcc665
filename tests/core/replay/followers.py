"""A client that joins filters, and what it is told of that."""

import asyncio
from collections.abc import Sequence

from penstock.common.cursor import Cursor
from penstock.common.statement import Statement
from penstock.core.replay.catch_up import After, Foresight, Last, Start
from penstock.core.subscriptions.subscription import Options
from penstock.errors import PenstockError
from penstock.model import Policy
from tests.support.broker import Client, Stage
from tests.support.encodings import PlainEncoding

MOST_TURNS = 10_000


class Joiner:
    """One client and its joins: what it got before and after each statement."""

    def __init__(self, stage: Stage, client_id: str = "joiner", *, room_bytes: int | None = None) -> None:
        self.stage = stage
        self.client = stage.client(client_id, room_bytes=room_bytes)
        self.statements: list[Statement] = []
        self.places: list[int] = []  # how many messages were there when a statement came
        self.failures: list[PenstockError] = []
        self.begun: list[int] = []  # how many messages were there when a join began
        self.foresights: list[Foresight | None] = []  # what it was told then

    def join(
        self,
        filters: str | Sequence[str],
        start: Start | Cursor | int | None,
        *,
        encoding: PlainEncoding | None = None,
        past_encoding: PlainEncoding | None = None,
    ) -> None:
        """Join filters: after a cursor, or with so many last messages."""
        if isinstance(start, Cursor):
            start = After(start)
        elif isinstance(start, int):
            start = Last(start)
        encoding = encoding or PlainEncoding()
        self.stage.broker.catch_up(
            self.client.session,
            filters,
            Options(encoding.qos, encoding.no_local),
            encoding,
            policy=Policy.DROP_NEWEST,
            start=start,
            on_complete=self._on_complete,
            on_failed=self.failures.append,
            on_begin=self._on_begin,
            past_encoding=past_encoding,
        )

    def _on_begin(self, foresight: Foresight | None) -> None:
        self.begun.append(self.count)
        self.foresights.append(foresight)

    def _on_complete(self, statement: Statement) -> None:
        self.statements.append(statement)
        self.places.append(self.count)

    @property
    def count(self) -> int:
        return len(self.client.connection.deliveries)

    @property
    def is_joining(self) -> bool:
        return self.client.session.catch_ups is not None

    @property
    def got(self) -> list[bytes]:
        """The payloads of everything that has come so far."""
        return [delivered.payload for delivered in self.client.connection.deliveries]

    async def settle(self) -> None:
        """Turn both loops until the joins are at the head."""
        for _ in range(MOST_TURNS):
            self.stage.settle()
            if not self.is_joining:
                return
            await asyncio.sleep(0)
        raise AssertionError("still joining")


def missing(statement: Statement) -> list[tuple[str, int | None, int, str]]:
    """What a statement says is missing, in short."""
    return [(one.topic, one.first, one.last, str(one.reason)) for one in statement.missing]


def is_told(statement: Statement, topic: str, sequence: int, offset: int) -> bool:
    """Whether a statement says that a message is missing."""
    return any(
        one.topic == topic and (one.first or 0) <= sequence <= one.last for one in statement.missing
    ) or any(gap.first <= offset <= gap.last for gap in statement.gaps)


def numbers(first: int, last: int) -> list[bytes]:
    """Payloads of one length."""
    return [f"{number:03}".encode() for number in range(first, last + 1)]


def publish(client: Client, topic: str, payloads: Sequence[bytes], *, ttl: float = 0.0) -> None:
    """Publish payloads one by one."""
    for payload in payloads:
        client.publish(topic, payload, ttl=ttl)
