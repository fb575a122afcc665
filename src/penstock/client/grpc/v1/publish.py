"""Publishing over `penstock.v1`: one stream of batches, and one of acknowledgements.

Calls made while a batch is being sent share the next one, so that concurrent single publishes stay cheap. A
batch that is too large ends its stream; the batches sent after it are sent again on another one.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.client.errors import ConnectionLost, copy_error, is_worth_retrying
from penstock.client.grpc.connection import read_next
from penstock.client.grpc.dialect import Acknowledgement, Entry, Placed, Refused
from penstock.errors import Conflict, PenstockError, TooLarge
from penstock.wire.sidecar.messages import penstock as pb

if TYPE_CHECKING:
    import grpc.aio

    OpenStream = Callable[[AsyncIterator[pb.PublishBatch]], grpc.aio.StreamStreamCall[Any, Any]]

MERGED_MESSAGES = 8_000  # a server accepts 10,000
MERGED_BYTES = 1024 * 1024


class Submission(Struct, eq=False):
    """Entries of one call, which may share a batch with those of others."""

    entries: Sequence[Entry]
    messages: list[pb.Messages]  # the same, encoded
    result: "asyncio.Future[Acknowledgement]"
    count: int
    size: int

    def fail(self, error: PenstockError) -> None:
        """Fail the call, unless it was cancelled."""
        if not self.result.done():
            self.result.set_exception(error)


class Publisher:
    """Publishes over one stream after another, until one ends with an error for all."""

    def __init__(self, open_stream: "OpenStream") -> None:
        self._open_stream = open_stream
        self._ids = count(1)
        self._waiting: deque[Submission] = deque()
        self._changed = asyncio.Event()
        self._sent: deque[tuple[int, list[Submission]]] = deque()  # batches in flight
        self._reading: asyncio.Task[None] | None = None
        self._error: PenstockError | None = None
        self._stream = 0  # number of the current stream

    @property
    def has_failed(self) -> bool:
        """Return whether a refusal ended it, not the connection: a new publisher can continue."""
        return self._error is not None and not is_worth_retrying(self._error)

    async def publish(self, entries: Sequence[Entry]) -> Acknowledgement:
        """Publish a batch, in the order of the calls."""
        if self._error is not None:
            raise copy_error(self._error)
        submission = _make_submission(entries)
        self._waiting.append(submission)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        self._changed.set()
        try:
            return await submission.result
        except asyncio.CancelledError:
            with suppress(ValueError):  # already sent
                self._waiting.remove(submission)
            raise

    async def close(self) -> None:
        """End it; pending calls get `ConnectionLost`."""
        self._fail(ConnectionLost("the client was closed"))
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    # Sending

    async def _batches(self, stream: int) -> AsyncIterator[pb.PublishBatch]:
        while self._error is None and stream == self._stream:
            if self._waiting:
                yield self._next_batch()
            else:
                self._changed.clear()
                await self._changed.wait()

    def _next_batch(self) -> pb.PublishBatch:
        """Batch of as many waiting submissions as fit."""
        submissions: list[Submission] = []
        count = size = 0
        while self._waiting:
            submission = self._waiting[0]
            count, size = count + submission.count, size + submission.size
            if submissions and (count > MERGED_MESSAGES or size > MERGED_BYTES):
                break
            submissions.append(self._waiting.popleft())
        batch_id = next(self._ids)
        self._sent.append((batch_id, submissions))
        messages = [each for submission in submissions for each in submission.messages]
        return pb.PublishBatch(batch_id=batch_id, messages=messages)

    # Acknowledgements

    async def _read(self) -> None:
        """Read one stream after another, until one ends with an error for all."""
        while self._error is None:
            try:
                await self._read_stream()
                self._fail(ConnectionLost("the server ended the stream of publishes"))
            except TooLarge as error:
                self._skip_largest(error)
            except Conflict as error:  # disconnected by an administrator
                self._fail(ConnectionLost(str(error)))
            except PenstockError as error:
                self._fail(error)
            except Exception as unforeseen:
                self._fail(PenstockError(f"unexpected error while publishing: {unforeseen!r}"))

    async def _read_stream(self) -> None:
        call = self._open_stream(self._batches(self._stream))
        try:
            while (ack := await read_next(call)) is not None:
                self._on_ack(ack)
        finally:
            call.cancel()
            self._stream += 1
            self._changed.set()

    def _on_ack(self, ack: pb.PublishAck) -> None:
        batch_id, submissions = self._sent.popleft() if self._sent else (0, [])
        if batch_id != ack.batch_id:
            raise PenstockError("protocol error: acknowledgement out of order")
        whole = acknowledgement_from_wire(ack)
        parts = [whole] if len(submissions) == 1 else _split(whole, submissions)
        for submission, part in zip(submissions, parts, strict=True):
            if not submission.result.done():
                submission.result.set_result(part)

    def _fail(self, error: PenstockError) -> None:
        submissions = [each for _, batch in self._sent for each in batch] + list(self._waiting)
        self._sent.clear()
        self._waiting.clear()
        self._error = self._error or error
        self._changed.set()
        for submission in submissions:
            submission.fail(copy_error(error))

    def _skip_largest(self, error: TooLarge) -> None:
        """Continue after the submission that was too large; those before it may have been published."""
        submissions = [each for _, batch in self._sent for each in batch]
        self._sent.clear()
        if not submissions:
            self._fail(error)
            return
        largest = max(range(len(submissions)), key=lambda index: submissions[index].size)
        for submission in submissions[:largest]:
            submission.fail(_stream_ended(error))
        submissions[largest].fail(copy_error(error))
        self._waiting.extendleft(
            submission for submission in reversed(submissions[largest + 1 :]) if not submission.result.done()
        )


def _make_submission(entries: Sequence[Entry]) -> Submission:
    return Submission(
        entries,
        [messages_to_wire(entry) for entry in entries],
        asyncio.get_running_loop().create_future(),
        sum(len(entry.payloads) for entry in entries),
        _size_of(entries),
    )


def messages_to_wire(entry: Entry) -> pb.Messages:
    """Encode an entry."""
    return pb.Messages(
        topic=entry.topic,
        payloads=entry.payloads,
        content_type=entry.content_type,
        correlation_id=entry.correlation_id,
        response_topic=entry.response_topic,
        retain=entry.retain,
        ttl_ms=entry.ttl_ms,
        message_ids=entry.message_ids,
        user_properties=[pb.Property(name=name, value=value) for name, value in entry.properties],
    )


def acknowledgement_from_wire(ack: pb.PublishAck) -> Acknowledgement:
    """Decode the acknowledgement of a batch."""
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


def _split(whole: Acknowledgement, submissions: list[Submission]) -> list[Acknowledgement]:
    """Split the acknowledgement of a batch by submission."""
    placed = {each.index: each for each in whole.placed}
    refused = {each.index: each for each in whole.refused}
    parts, first = [], 0
    for submission in submissions:
        span = range(first, first + len(submission.entries))
        parts.append(
            Acknowledgement(
                sum(len(submission.entries[index - first].payloads) for index in span if index in placed),
                [replace(placed[index], index=index - first) for index in span if index in placed],
                [replace(refused[index], index=index - first) for index in span if index in refused],
                whole.cursor,
            )
        )
        first = span.stop
    return parts


def _size_of(entries: Sequence[Entry]) -> int:
    return sum(sum(map(len, entry.payloads)) + len(entry.topic) + 64 for entry in entries)


def _stream_ended(error: PenstockError) -> PenstockError:
    """Error of submissions whose stream ended because of another one."""
    return ConnectionLost(f"another message of the stream was refused: {error}")
