"""Batched publishing: batch building, a window of batches in flight, and the summary.

Consecutive messages that differ only in their payloads share an entry: they are sent together, and accepted
or refused together. From an asynchronous source batches are full under load and small otherwise.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from penstock.client.errors import error_from_code
from penstock.client.grpc.dialect import Acknowledgement, Entry, Placed
from penstock.client.messages import Outgoing, PublishReceipt, PublishRefusal, PublishSummary

BATCH_MESSAGES = 4_000
BATCH_BYTES = 512 * 1024
IN_FLIGHT = 8
"""Limit of batches in flight."""
MAX_REFUSALS = 1_000
"""Limit of refusals listed in a summary."""

Publishable: TypeAlias = Outgoing | tuple[str, bytes | str]
"""A message to publish: with all properties, or only topic and payload."""


def as_bytes(payload: bytes | str) -> bytes:
    """A payload as bytes; text is encoded as UTF-8."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    raise TypeError(f"a payload must be bytes or text, not {type(payload).__name__}")


def make_entry(message: Outgoing) -> Entry:
    """One message as an entry."""
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


class BatchBuilder:
    """Collects messages until a batch is full."""

    def __init__(self, limit_messages: int = BATCH_MESSAGES, limit_bytes: int = BATCH_BYTES) -> None:
        self._limit_messages = limit_messages
        self._limit_bytes = limit_bytes
        self._entries: list[Entry] = []
        self._payloads: list[bytes] = []  # of the last entry, if it has no properties
        self._topic: str | None = None
        self._count = 0
        self._bytes = 0

    def __len__(self) -> int:
        """Number of collected messages."""
        return self._count

    def add(self, message: Publishable) -> bool:
        """Add a message; returns whether the batch is full."""
        if isinstance(message, tuple):
            topic, payload = message
            size = self._add_plain(topic, as_bytes(payload))
        else:
            size = self._add_entry(make_entry(message))
        self._count += 1
        self._bytes += size
        return self._count >= self._limit_messages or self._bytes >= self._limit_bytes

    def take(self) -> list[Entry]:
        """Return the batch and start an empty one."""
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
            last.payloads.extend(entry.payloads)  # type: ignore[attr-defined]  # lists, see make_entry
            last.message_ids.extend(entry.message_ids)  # type: ignore[attr-defined]
        else:
            self._entries.append(entry)
        return len(entry.payloads[0]) + len(entry.topic) + 64


def make_batches(messages: Iterable[Publishable]) -> Iterator[list[Entry]]:
    """Split messages into full batches and a last one with the rest."""
    builder = BatchBuilder()
    for message in messages:
        if builder.add(message):
            yield builder.take()
    if builder:
        yield builder.take()


async def gather_batches(messages: AsyncIterable[Publishable]) -> AsyncGenerator[list[Entry], None]:
    """Split messages of an asynchronous source into batches, without waiting for full ones."""
    gatherer = _Gatherer()
    task = asyncio.create_task(gatherer.run(messages))
    try:
        while gatherer.builder or not task.done():
            if gatherer.builder:
                batch = gatherer.builder.take()
                gatherer.room.set()
                yield batch
            else:
                gatherer.changed.clear()
                await gatherer.changed.wait()
        await task  # raises the errors of the source
    finally:
        task.cancel()
        await asyncio.wait([task])


def make_receipt(entry: Entry, acknowledgement: Acknowledgement) -> PublishReceipt:
    """Receipt of a single message.

    Raises:
        PenstockError: the server refused it.
    """
    for refused in acknowledgement.refused:
        raise error_from_code(refused.code, refused.text)
    placed = acknowledgement.placed[0] if acknowledgement.placed else Placed(0)
    given_id = entry.message_ids[0] if entry.message_ids else None
    return PublishReceipt(
        topic=entry.topic,
        sequence=placed.sequence,
        subscribers=placed.subscribers,
        dropped=placed.dropped,
        blocked=placed.blocked,
        is_duplicate=placed.duplicates > 0,
        cursor=acknowledgement.cursor,
        message_id=placed.message_id or given_id,
    )


class SummaryBuilder:
    """Sums up the acknowledgements of batches, in order."""

    def __init__(self) -> None:
        self._count = 0  # messages of all batches so far
        self._accepted = 0
        self._duplicates = 0
        self._refused = 0
        self._refusals: list[PublishRefusal] = []
        self._cursor: str | None = None

    def add(self, entries: list[Entry], acknowledgement: Acknowledgement) -> None:
        """Add a batch."""
        self._accepted += acknowledgement.accepted
        self._duplicates += sum(placed.duplicates for placed in acknowledgement.placed)
        self._cursor = acknowledgement.cursor or self._cursor
        if acknowledgement.refused:
            self._add_refusals(entries, acknowledgement)
        self._count += sum(len(entry.payloads) for entry in entries)

    def build(self) -> PublishSummary:
        """The summary so far."""
        return PublishSummary(
            accepted=self._accepted,
            refused=self._refused,
            duplicates=self._duplicates,
            refusals=tuple(self._refusals),
            cursor=self._cursor,
        )

    def _add_refusals(self, entries: list[Entry], acknowledgement: Acknowledgement) -> None:
        refused = {each.index: each for each in acknowledgement.refused}
        first = self._count
        for index, entry in enumerate(entries):
            count = len(entry.payloads)
            refusal = refused.get(index)
            if refusal is not None:
                self._refused += count
                if len(self._refusals) < MAX_REFUSALS:
                    self._refusals.append(
                        PublishRefusal(
                            first=first, count=count, topic=entry.topic, code=refusal.code, text=refusal.text
                        )
                    )
            first += count


class SendWindow:
    """Sliding window: limits the batches in flight, and sums them up in order."""

    def __init__(
        self, start: "Callable[[Sequence[Entry]], asyncio.Task[Acknowledgement]]", summary: SummaryBuilder
    ) -> None:
        self._start = start
        self._summary = summary
        self._sent: deque[tuple[list[Entry], asyncio.Task[Acknowledgement]]] = deque()

    async def add(self, batch: list[Entry]) -> None:
        """Send a batch; wait for the oldest one if the window is full."""
        self._sent.append((batch, self._start(batch)))
        await asyncio.sleep(0)  # lets it be sent while the next one is built
        while self._sent and (len(self._sent) >= IN_FLIGHT or self._sent[0][1].done()):
            await self._finish_first()

    async def finish(self) -> None:
        """Wait for all batches."""
        while self._sent:
            await self._finish_first()

    async def close(self) -> None:
        """Cancel the batches that are still in flight."""
        tasks = [task for _, task in self._sent]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _finish_first(self) -> None:
        batch, task = self._sent[0]
        acknowledgement = await task
        self._sent.popleft()
        self._summary.add(batch, acknowledgement)


class _Gatherer:
    """Reads the source into a batch while the previous one is sent."""

    def __init__(self) -> None:
        self.builder = BatchBuilder()
        self.changed = asyncio.Event()
        self.room = asyncio.Event()

    async def run(self, messages: AsyncIterable[Publishable]) -> None:
        try:
            async for message in messages:
                is_full = self.builder.add(message)
                self.changed.set()
                if is_full:
                    self.room.clear()
                    await self.room.wait()
        finally:
            self.changed.set()


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
    """Time to live in milliseconds; 0 for none."""
    if seconds is None:
        return 0
    if not seconds > 0:
        raise ValueError(f"a time to live must be positive, not {seconds:g} s")
    return max(1, round(seconds * 1_000))
