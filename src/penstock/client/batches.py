"""Makes batches of messages, keeps few of them on their way at once, and sums up what became of them.

Messages that follow one another and are alike but for their payloads share an entry: they travel together,
and are taken or refused together.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from penstock.client.dialect import Acknowledgement, Entry, Placed
from penstock.client.statuses import named_error
from penstock.client.values import Outgoing, PublishReceipt, PublishRefusal, PublishSummary

BATCH_MESSAGES = 4_000
BATCH_BYTES = 512 * 1024
IN_FLIGHT = 8
"""How many batches may be on their way at once."""
MOST_REFUSALS = 1_000
"""How many refusals are told one by one."""

Publishable: TypeAlias = Outgoing | tuple[str, bytes | str]
"""A message to publish: with all it may have, or a topic and a payload."""


def as_bytes(payload: bytes | str) -> bytes:
    """A payload as it travels; text as UTF-8."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    raise TypeError(f"a payload is bytes or text, not {type(payload).__name__}")


def entry_of(message: Outgoing) -> Entry:
    """A message by itself, as an entry."""
    return Entry(
        message.topic,
        [as_bytes(message.payload)],
        message.content_type or "",
        as_bytes(message.correlation_id or b""),
        message.response_topic or "",
        message.retain,
        _milliseconds(message.ttl_s),
        [message.message_id] if message.message_id is not None else [],
        message.properties,
    )


class Batching:
    """Collects messages until a batch is full."""

    def __init__(self, limit_messages: int = BATCH_MESSAGES, limit_bytes: int = BATCH_BYTES) -> None:
        self._limit_messages = limit_messages
        self._limit_bytes = limit_bytes
        self._entries: list[Entry] = []
        self._payloads: list[bytes] = []  # of the last entry, if that is a plain one
        self._topic: str | None = None
        self._count = 0
        self._bytes = 0

    def __len__(self) -> int:
        """How many messages wait."""
        return self._count

    def add(self, message: Publishable) -> bool:
        """Add a message; answer whether the batch is full."""
        if isinstance(message, tuple):
            topic, payload = message
            size = self._add_plain(topic, as_bytes(payload))
        else:
            size = self._add_entry(entry_of(message))
        self._count += 1
        self._bytes += size
        return self._count >= self._limit_messages or self._bytes >= self._limit_bytes

    def take(self) -> list[Entry]:
        """The batch; the next one is empty."""
        entries, self._entries = self._entries, []
        self._topic, self._count, self._bytes = None, 0, 0
        return entries

    def _add_plain(self, topic: str, payload: bytes) -> int:
        if topic != self._topic:
            self._topic, self._payloads = topic, []
            self._entries.append(Entry(topic, self._payloads))
        self._payloads.append(payload)
        return len(payload) + 2

    def _add_entry(self, entry: Entry) -> int:
        self._topic = None
        last = self._entries[-1] if self._entries else None
        if last is not None and _are_alike(last, entry):
            last.payloads.extend(entry.payloads)  # type: ignore[attr-defined]  # lists, as we make them
            last.message_ids.extend(entry.message_ids)  # type: ignore[attr-defined]
        else:
            self._entries.append(entry)
        return len(entry.payloads[0]) + len(entry.topic) + 64


def batches(messages: Iterable[Publishable]) -> Iterator[list[Entry]]:
    """Messages in full batches, and what is left in one more."""
    batching = Batching()
    for message in messages:
        if batching.add(message):
            yield batching.take()
    if batching:
        yield batching.take()


def receipt_of(entry: Entry, answer: Acknowledgement) -> PublishReceipt:
    """The receipt of a message that was published by itself.

    Raises:
        PenstockError: the server did not take it.
    """
    for refused in answer.refused:
        raise named_error(refused.code, refused.text)
    placed = answer.placed[0] if answer.placed else Placed(0)
    given_id = entry.message_ids[0] if entry.message_ids else None
    return PublishReceipt(
        topic=entry.topic,
        sequence=placed.sequence,
        subscribers=placed.subscribers,
        dropped=placed.dropped,
        blocked=placed.blocked,
        is_duplicate=placed.duplicates > 0,
        cursor=answer.cursor,
        message_id=placed.message_id or given_id,
    )


class Tally:
    """Adds up what became of batches, in their order."""

    def __init__(self) -> None:
        self._seen = 0  # messages of all batches so far
        self._accepted = 0
        self._duplicates = 0
        self._refused = 0
        self._refusals: list[PublishRefusal] = []
        self._cursor: str | None = None

    def add(self, entries: list[Entry], answer: Acknowledgement) -> None:
        """Count a batch."""
        self._accepted += answer.accepted
        self._duplicates += sum(placed.duplicates for placed in answer.placed)
        self._cursor = answer.cursor or self._cursor
        if answer.refused:
            self._add_refusals(entries, answer)
        self._seen += sum(len(entry.payloads) for entry in entries)

    def summary(self) -> PublishSummary:
        """What it comes to."""
        return PublishSummary(
            accepted=self._accepted,
            refused=self._refused,
            duplicates=self._duplicates,
            refusals=tuple(self._refusals),
            cursor=self._cursor,
        )

    def _add_refusals(self, entries: list[Entry], answer: Acknowledgement) -> None:
        refused = {each.index: each for each in answer.refused}
        first = self._seen
        for index, entry in enumerate(entries):
            count = len(entry.payloads)
            said = refused.get(index)
            if said is not None:
                self._refused += count
                if len(self._refusals) < MOST_REFUSALS:
                    self._refusals.append(
                        PublishRefusal(
                            first=first, count=count, topic=entry.topic, code=said.code, text=said.text
                        )
                    )
            first += count


class Window:
    """Batches on their way, only so many at once, counted in their order."""

    def __init__(
        self, start: "Callable[[Sequence[Entry]], asyncio.Task[Acknowledgement]]", tally: Tally
    ) -> None:
        self._start = start
        self._tally = tally
        self._sent: deque[tuple[list[Entry], asyncio.Task[Acknowledgement]]] = deque()

    async def add(self, batch: list[Entry]) -> None:
        """Send a batch; wait for the first one if too many are on their way."""
        self._sent.append((batch, self._start(batch)))
        await asyncio.sleep(0)  # so that it leaves while the next one is being made
        while self._sent and (len(self._sent) >= IN_FLIGHT or self._sent[0][1].done()):
            await self._count_first()

    async def finish(self) -> None:
        """Wait for all."""
        while self._sent:
            await self._count_first()

    async def close(self) -> None:
        """Wait for none, if something went wrong."""
        tasks = [task for _, task in self._sent]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _count_first(self) -> None:
        batch, task = self._sent[0]
        answer = await task
        self._sent.popleft()
        self._tally.add(batch, answer)


def _are_alike(one: Entry, other: Entry) -> bool:
    return (
        one.topic == other.topic
        and bool(one.message_ids) == bool(other.message_ids)
        and one.content_type == other.content_type
        and one.correlation_id == other.correlation_id
        and one.response_topic == other.response_topic
        and one.retain == other.retain
        and one.ttl_ms == other.ttl_ms
        and one.properties == other.properties
    )


def _milliseconds(seconds: float | None) -> int:
    """A lifetime as it travels, where 0 stands for none of its own."""
    if seconds is None:
        return 0
    if not seconds > 0:
        raise ValueError("a lifetime is longer than nothing")
    return max(1, round(seconds * 1_000))
