"""Publishing in the words of `penstock.v1`: one stream of batches, and one of acknowledgements.

What is published while a batch is being sent goes together into the next one, so that many who publish single
messages at once do not pay for a batch each. A batch that is too large ends its stream: what was sent behind
it is sent again by another one.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.client.calls import next_of
from penstock.client.dialect import Acknowledgement, Entry, Placed, Refused
from penstock.client.errors import ConnectionLost, again
from penstock.client.reconnection import is_worth_a_try
from penstock.errors import PenstockError, TooLarge
from penstock.wire.sidecar import penstock as words

if TYPE_CHECKING:
    import grpc.aio

    OpenStream = Callable[[AsyncIterator[words.PublishBatch]], grpc.aio.StreamStreamCall[Any, Any]]

JOINED_MESSAGES = 8_000  # a server takes 10,000 at once
JOINED_BYTES = 1024 * 1024


class Share(Struct, eq=False):
    """The entries of one call, which may travel with those of others."""

    entries: Sequence[Entry]
    messages: list[words.Messages]  # the same, as they travel
    answer: "asyncio.Future[Acknowledgement]"
    count: int
    size: int

    def fail(self, error: PenstockError) -> None:
        """Tell who waits, if somebody still does."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Publisher:
    """Publishes by one stream, as long as that lasts."""

    def __init__(self, open_stream: "OpenStream") -> None:
        self._open_stream = open_stream
        self._ids = count(1)
        self._waiting: deque[Share] = deque()
        self._something = asyncio.Event()
        self._sent: deque[tuple[int, list[Share]]] = deque()  # batches that were not acknowledged yet
        self._reading: asyncio.Task[None] | None = None
        self._error: PenstockError | None = None
        self._stream = 0  # the number of the one of now

    @property
    def is_spoilt(self) -> bool:
        """It ended because of what was said, and not because of the connection: another one may go on."""
        return self._error is not None and not is_worth_a_try(self._error)

    async def publish(self, entries: Sequence[Entry]) -> Acknowledgement:
        """Publish a batch, behind those before it."""
        if self._error is not None:
            raise again(self._error)
        share = _share_of(entries)
        self._waiting.append(share)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        self._something.set()
        try:
            return await share.answer
        except asyncio.CancelledError:
            with suppress(ValueError):  # it has left
                self._waiting.remove(share)
            raise

    async def close(self) -> None:
        """End it; who still waits gets `ConnectionLost`."""
        self._fail(ConnectionLost("the client was closed"))
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    # Sending

    async def _batches(self, stream: int) -> AsyncIterator[words.PublishBatch]:
        while self._error is None and stream == self._stream:
            if self._waiting:
                yield self._next_batch()
            else:
                self._something.clear()
                await self._something.wait()

    def _next_batch(self) -> words.PublishBatch:
        """As much of what waits as may travel together."""
        shares: list[Share] = []
        count = size = 0
        while self._waiting:
            share = self._waiting[0]
            count, size = count + share.count, size + share.size
            if shares and (count > JOINED_MESSAGES or size > JOINED_BYTES):
                break
            shares.append(self._waiting.popleft())
        batch_id = next(self._ids)
        self._sent.append((batch_id, shares))
        messages = [each for share in shares for each in share.messages]
        return words.PublishBatch(batch_id=batch_id, messages=messages)

    # Being answered

    async def _read(self) -> None:
        """Publish by one stream after another, until one ends for a reason that concerns all."""
        while self._error is None:
            try:
                await self._read_stream()
                self._fail(ConnectionLost("the server takes no more"))
            except TooLarge as error:
                self._leave_out_largest(error)
            except PenstockError as error:
                self._fail(error)
            except Exception as unforeseen:
                self._fail(PenstockError(f"publishing cannot go on: {unforeseen!r}"))

    async def _read_stream(self) -> None:
        call = self._open_stream(self._batches(self._stream))
        try:
            while (ack := await next_of(call)) is not None:
                self._on_ack(ack)
        finally:
            call.cancel()
            self._stream += 1
            self._something.set()

    def _on_ack(self, ack: words.PublishAck) -> None:
        batch_id, shares = self._sent.popleft() if self._sent else (0, [])
        if batch_id != ack.batch_id:
            raise PenstockError("the server acknowledges out of order")
        whole = acknowledgement_of(ack)
        answers = [whole] if len(shares) == 1 else _split(whole, shares)
        for share, answer in zip(shares, answers, strict=True):
            if not share.answer.done():
                share.answer.set_result(answer)

    def _fail(self, error: PenstockError) -> None:
        shares = [share for _, shares in self._sent for share in shares] + list(self._waiting)
        self._sent.clear()
        self._waiting.clear()
        self._error = self._error or error
        self._something.set()
        for share in shares:
            share.fail(again(error))

    def _leave_out_largest(self, error: TooLarge) -> None:
        """Go on behind what was too large; of what was before it nobody knows what became."""
        shares = [share for _, shares in self._sent for share in shares]
        self._sent.clear()
        if not shares:
            self._fail(error)
            return
        guilty = max(range(len(shares)), key=lambda index: shares[index].size)
        for share in shares[:guilty]:
            share.fail(_ended_by(error))
        shares[guilty].fail(again(error))
        self._waiting.extendleft(share for share in reversed(shares[guilty + 1 :]) if not share.answer.done())


def _share_of(entries: Sequence[Entry]) -> Share:
    return Share(
        entries,
        [messages_of(entry) for entry in entries],
        asyncio.get_running_loop().create_future(),
        sum(len(entry.payloads) for entry in entries),
        _size_of(entries),
    )


def messages_of(entry: Entry) -> words.Messages:
    """An entry as it travels."""
    return words.Messages(
        topic=entry.topic,
        payloads=entry.payloads,
        content_type=entry.content_type,
        correlation_id=entry.correlation_id,
        response_topic=entry.response_topic,
        retain=entry.retain,
        ttl_ms=entry.ttl_ms,
        message_ids=entry.message_ids,
        user_properties=[words.Property(name=name, value=value) for name, value in entry.properties],
    )


def acknowledgement_of(ack: words.PublishAck) -> Acknowledgement:
    """What became of a batch, as a value."""
    placed = [
        Placed(
            each.index,
            each.sequence,
            each.duplicates,
            each.subscribers,
            each.subscribers_dropped,
            each.subscribers_blocked,
        )
        for each in ack.placed
    ]
    refused = [Refused(each.index, each.code, each.text) for each in ack.refusals]
    return Acknowledgement(ack.accepted, placed, refused, ack.cursor or None)


def _split(whole: Acknowledgement, shares: list[Share]) -> list[Acknowledgement]:
    """What became of each share of a batch."""
    placed = {each.index: each for each in whole.placed}
    refused = {each.index: each for each in whole.refused}
    answers, first = [], 0
    for share in shares:
        span = range(first, first + len(share.entries))
        answers.append(
            Acknowledgement(
                sum(len(share.entries[index - first].payloads) for index in span if index in placed),
                [replace(placed[index], index=index - first) for index in span if index in placed],
                [replace(refused[index], index=index - first) for index in span if index in refused],
                whole.cursor,
            )
        )
        first = span.stop
    return answers


def _size_of(entries: Sequence[Entry]) -> int:
    return sum(sum(map(len, entry.payloads)) + len(entry.topic) + 64 for entry in entries)


def _ended_by(error: PenstockError) -> PenstockError:
    """What to tell who published beside something that ended the stream."""
    return ConnectionLost(f"a message beside this one was refused: {error}")
