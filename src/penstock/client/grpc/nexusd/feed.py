"""Subscription at a NexusD daemon: one stream for each set of filters that was added.

A daemon has no cursors and no statements. Its own reports (messages that are no longer available, skipped
numbers, warnings) are translated to events of the dialect, each missing message once. The cursor is made
here: it contains the daemon's subscription ids, and the last number of each of their topics.
"""

import asyncio
import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.errors import ConnectionLost, RequestRefused, is_worth_retrying
from penstock.client.grpc.connection import read_next
from penstock.client.grpc.dialect import (
    Arrived,
    Dropped,
    FeedEvent,
    FeedOptions,
    PositionLost,
    Replayed,
    Start,
    Withdrawn,
)
from penstock.client.grpc.nexusd.resume import UNKNOWN, Arrival, Gap, ResumeState, Started
from penstock.client.grpc.nexusd.stub import Request
from penstock.client.messages import Missing, ReceivedRun, Statement
from penstock.common.topics import matches
from penstock.errors import InvalidCursor, InvalidRequest, PenstockError, UnknownClient
from penstock.model import Reason
from penstock.wire.sidecar.messages import nexusd

if TYPE_CHECKING:
    import grpc.aio

    Call = grpc.aio.UnaryStreamCall[Any, Any]

CURSOR_PREFIX = "nexusd-"
SLOW_CONSUMER = "slow_consumer"
"""Reason for messages missing from a live stream, if the daemon gives none."""
MESSAGE_EVENTS = frozenset({"message", "replay_message", "retained_message"})

_CLOSE_TIMEOUT_S = 2.0
"""Limit for the daemon to confirm a pause."""


class StreamState:
    """Filters of one stream, and the translation of its events."""

    def __init__(self, resume: ResumeState) -> None:
        self.resume = resume
        self.filters = resume.topics
        """Filters that have not been removed."""
        self.was_accepted = False
        """Return whether the daemon accepted it before: a refusal now has to be reported as a loss."""
        self._unnumbered = 0  # missing messages reported by the daemon, whose numbers are not known yet
        self._warned = 0  # missing messages of warnings, not yet seen as skipped numbers
        self._reason = SLOW_CONSUMER
        # Of one replay:
        self._replays_left = 0
        self._served = 0
        self._missing: list[Missing] = []

    def remove(self, filters: Sequence[str]) -> None:
        """Remove filters. A stream cannot be changed, so their messages are filtered out here."""
        self.filters = tuple(filter for filter in self.filters if filter not in filters)

    def handle(self, event: nexusd.MessageEvent) -> tuple[list[FeedEvent], Arrival | None]:
        """Translate an event to reports of missing messages, and its message if that is subscribed to."""
        match self.resume.handle(event):
            case Started() as started:
                return self._on_started(started), None
            case Arrival() as arrival:
                reports = self._on_arrival(arrival)
                return reports, arrival if self._is_subscribed(arrival.message.topic) else None
            case nexusd.ReplayComplete():
                self._replays_left -= 1
                return ([] if self._replays_left else self._replay_ended()), None
            case nexusd.BackpressureWarning() as warning:
                return self._on_warning(warning), None
        return [], None

    def _is_subscribed(self, topic: str) -> bool:
        if len(self.filters) == len(self.resume.topics):
            return True
        return any(matches(filter, topic) for filter in self.filters)

    def _on_started(self, started: Started) -> list[FeedEvent]:
        self._warned = 0
        self._served = 0
        self._missing = []
        self._replays_left = len(self.resume.topics) if started.is_resumed else 0
        self._unnumbered = max(started.missed, 0)
        if started.missed == UNKNOWN:
            return [PositionLost(self.filters, Reason.EPOCH_CHANGED.value)]
        return []

    def _on_arrival(self, arrival: Arrival) -> list[FeedEvent]:
        if arrival.is_retained:
            return []
        reports = [] if arrival.is_replay or self._replays_left <= 0 else self._replay_ended()
        self._served += arrival.is_replay
        if arrival.gap is None:
            return reports
        on_gap = self._on_replay_gap if arrival.is_replay else self._on_gap
        return reports + on_gap(arrival.gap)

    def _on_replay_gap(self, gap: Gap) -> list[FeedEvent]:
        """Keep a gap for the statement at the end of the replay."""
        if gap.missed == UNKNOWN:
            return [PositionLost(self.filters, Reason.EPOCH_CHANGED.value)]
        self._unnumbered = max(0, self._unnumbered - gap.missed)
        self._missing.append(Missing(gap.topic, gap.expected, gap.actual - 1, Reason.EVICTED.value))
        return []

    def _on_gap(self, gap: Gap) -> list[FeedEvent]:
        """Report skipped numbers of a live stream, unless a warning has done so."""
        if gap.missed == UNKNOWN:
            return [PositionLost(self.filters, Reason.EPOCH_CHANGED.value)]
        more = gap.missed - self._warned
        self._warned = max(0, -more)
        return [Dropped(more, self._reason)] if more > 0 else []

    def _on_warning(self, warning: nexusd.BackpressureWarning) -> list[FeedEvent]:
        count = warning.messages_dropped + warning.messages_expired
        self._reason = warning.reason or SLOW_CONSUMER
        self._warned += count
        return [Dropped(count, self._reason)] if count else []

    def _replay_ended(self) -> list[FeedEvent]:
        self._replays_left = 0
        missing = tuple(self._missing)
        if self._unnumbered:  # of topics without an earlier message
            missing += (Missing(", ".join(self.filters), None, 0, Reason.EVICTED.value),)
            self._unnumbered = 0
        statement = Statement(
            next="", served=self._served, is_complete=not missing, is_at_head=True, missing=missing
        )
        return [Replayed(self.filters, statement)]


class Position(msgspec.Struct, array_like=True):
    """Position of one subscription at the daemon."""

    subscription_id: str
    topics: tuple[str, ...]
    last_sequences: dict[str, int]


class Stream:
    """One stream: its state, its call, and the future of its acceptance."""

    def __init__(self, state: StreamState) -> None:
        self.state = state
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.call: Call | None = None
        self.reading: asyncio.Task[None] | None = None

    async def cancel(self) -> None:
        """Cancel the call, if there is one."""
        call, self.call = self.call, None
        reading, self.reading = self.reading, None
        if call is not None:
            call.cancel()
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])


class NexusdFeed:
    """`Feed` at a NexusD daemon."""

    def __init__(
        self,
        options: FeedOptions,
        open_stream: "Callable[[Request], Call]",
        unsubscribe: Callable[[str, bool], Any],
    ) -> None:
        if options.policy is not None:
            raise InvalidRequest("a NexusD daemon does not support a subscriber's policy")
        self._options = options
        self._open_stream = open_stream
        self._unsubscribe = unsubscribe
        self._streams: list[Stream] = []
        self._pending: deque[FeedEvent] = deque()  # events to return next
        self._room = asyncio.Semaphore(options.buffer)
        self._is_open = False
        # One flag per message at the application: whether it was the first of its topic.
        self._untaken: deque[bool] = deque()
        # Of one connection:
        self._events: asyncio.Queue[tuple[Stream, nexusd.MessageEvent | PenstockError]] = asyncio.Queue()

    @property
    def cursor(self) -> str | None:
        states = [stream.state.resume for stream in self._streams if stream.state.resume.subscription_id]
        positions = [Position(each.subscription_id, each.topics, each.last_sequences) for each in states]
        return encode_cursor(positions) if positions else None

    @property
    def filters(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(filter for stream in self._streams for filter in stream.state.filters))

    async def open(self) -> None:
        await self._cancel()
        self._is_open = True
        for stream in list(self._streams):
            await self._open_one(stream)

    async def receive(self) -> FeedEvent:
        while not self._pending:
            stream, event = await self._events.get()
            if isinstance(event, PenstockError):
                raise event
            self._handle(stream, event)
        return self._pending.popleft()

    async def add(self, filters: Sequence[str], start: Start) -> None:
        if start.last is not None:
            raise InvalidRequest("a NexusD daemon does not support `last`")
        fresh = [filter for filter in dict.fromkeys(filters) if filter not in self.filters]
        streams = [Stream(state) for state in self._make_states(fresh, start)]
        self._streams += streams
        try:
            if self._is_open:
                await self._open_added(streams)
            for stream in streams:
                await stream.accepted
        except BaseException:
            await self._drop([stream for stream in streams if not stream.state.was_accepted])
            raise

    async def remove(self, filters: Sequence[str]) -> None:
        for stream in self._streams:
            stream.state.remove(filters)
        unwanted = [stream for stream in self._streams if not stream.state.filters]
        await self._drop(unwanted)
        for stream in unwanted:
            await self._unsubscribe(stream.state.resume.subscription_id, False)

    def taken(self, count: int) -> None:
        for _ in range(count):
            self._untaken.popleft()
            self._room.release()

    async def close(self) -> None:
        """Pause it, so that the cursor stays valid as long as the daemon keeps paused subscriptions.

        For a topic that the cursor does not contain, the daemon would resume after everything it has sent. So
        while the first message of a topic is not processed, the subscription is not paused: a later resume
        then reports a gap instead of skipping messages silently.
        """
        for stream in self._streams:
            if not stream.accepted.done():
                stream.accepted.set_exception(ConnectionLost("the subscription was closed"))
        ids = [stream.state.resume.subscription_id for stream in self._streams if stream.call is not None]
        self._is_open = False
        if not any(self._untaken):
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    for subscription_id in filter(None, ids):
                        await self._unsubscribe(subscription_id, True)
        await self._cancel()

    # Streams

    def _make_states(self, filters: list[str], start: Start) -> list[StreamState]:
        """Streams to open: those of the cursor are resumed, all other filters form a new one."""
        positions = decode_cursor(start.after) if start.after is not None else []
        known = [position for position in positions if set(position.topics) <= set(filters)]
        resumed = {topic for position in known for topic in position.topics}
        lost = {topic for position in positions for topic in position.topics if topic in filters} - resumed
        if lost:  # part of a larger subscription, which the daemon can only resume as a whole
            self._pending.append(PositionLost(tuple(sorted(lost)), Reason.EPOCH_CHANGED.value))
        states = [self._make_state(position.topics, start, position) for position in known]
        fresh = [filter for filter in filters if filter not in resumed]
        return states + ([self._make_state(fresh, start)] if fresh else [])

    def _make_state(
        self, filters: Sequence[str], start: Start, position: Position | None = None
    ) -> StreamState:
        return StreamState(
            ResumeState(
                filters,
                client_id=self._options.client_id,
                receive_retained=start.retained,
                subscription_id=position.subscription_id if position else "",
                last_sequences=position.last_sequences if position else None,
            )
        )

    async def _open_added(self, streams: list[Stream]) -> None:
        """Open added streams; a lost connection is reported by `receive`, and the next `open` retries."""
        for stream in streams:
            try:
                await self._open_one(stream)
            except PenstockError as error:
                self._events.put_nowait((stream, error))
                return

    async def _open_one(self, stream: Stream) -> None:
        """Open a stream and read it once the daemon has accepted it."""
        try:
            first = await self._first_event(stream)
        except PenstockError as error:
            if is_worth_retrying(error):
                raise
            await self._refused(stream, error)
            return
        self._handle(stream, first)
        stream.state.was_accepted = True
        if not stream.accepted.done():
            stream.accepted.set_result(None)
        self._pending.append(Arrived((), self.cursor, 0))  # announces the cursor
        stream.reading = asyncio.create_task(self._read(stream))

    async def _first_event(self, stream: Stream) -> nexusd.MessageEvent:
        resume = stream.state.resume
        while True:
            stream.call = self._open_stream(resume.next_request())
            try:
                event: nexusd.MessageEvent | None = await read_next(stream.call)
            except (RequestRefused, UnknownClient):
                if not resume.subscription_id:
                    raise
                resume.reset()
                continue
            if event is None or not event.HasField("subscription_info"):
                raise PenstockError("protocol error: the daemon's first event is not `subscription_info`")
            return event

    async def _read(self, stream: Stream) -> None:
        """Read events while the buffer has room."""
        assert stream.call is not None
        try:
            while (event := await read_next(stream.call)) is not None:
                if event.WhichOneof("event") in MESSAGE_EVENTS:
                    await self._room.acquire()
                self._events.put_nowait((stream, event))
            self._events.put_nowait((stream, ConnectionLost("the daemon ended the subscription")))
        except PenstockError as error:
            self._events.put_nowait((stream, error))

    def _handle(self, stream: Stream, event: nexusd.MessageEvent) -> None:
        if stream not in self._streams:
            arrival = None
        else:
            known = set(stream.state.resume.last_sequences)
            reports, arrival = stream.state.handle(event)
            self._pending += reports
        if arrival is not None:
            self._untaken.append(arrival.message.topic not in known)
            self._pending.append(Arrived((run_from_wire(arrival),), self.cursor, 1))
        elif event.WhichOneof("event") in MESSAGE_EVENTS:
            self._room.release()  # it is not delivered

    async def _refused(self, stream: Stream, error: PenstockError) -> None:
        await self._drop([stream])
        if stream.state.was_accepted:
            self._pending.append(Withdrawn(stream.state.filters))
        elif not stream.accepted.done():
            stream.accepted.set_exception(error)

    async def _drop(self, streams: Sequence[Stream]) -> None:
        self._streams = [stream for stream in self._streams if stream not in streams]
        for stream in streams:
            await stream.cancel()

    async def _cancel(self) -> None:
        """Cancel all streams, and discard unreceived events: they are redelivered."""
        for stream in list(self._streams):
            await stream.cancel()
        while not self._events.empty():
            _, event = self._events.get_nowait()
            if isinstance(event, nexusd.MessageEvent) and event.WhichOneof("event") in MESSAGE_EVENTS:
                self._room.release()


def run_from_wire(arrival: Arrival) -> ReceivedRun:
    """Decode a message."""
    message = arrival.message
    return ReceivedRun(
        message.topic,
        (message.payload,),
        message.sequence_number,
        0,
        message.timestamp_ms * 1_000,
        message.content_type or None,
        message.correlation_id.encode() or None,
        None,
        message.message_id or None,
        (),
        arrival.is_retained,
        arrival.is_replay,
        message.source_node_id or None,
    )


def encode_cursor(positions: Sequence[Position]) -> str:
    """Encode positions as a cursor."""
    return CURSOR_PREFIX + urlsafe_b64encode(msgspec.msgpack.encode(positions)).decode().rstrip("=")


def decode_cursor(cursor: str) -> list[Position]:
    """Decode the positions of a cursor.

    Raises:
        InvalidCursor: this is not a cursor of `encode_cursor`.
    """
    if not cursor.startswith(CURSOR_PREFIX):
        raise InvalidCursor("not a cursor of a subscription at a NexusD daemon")
    text = cursor.removeprefix(CURSOR_PREFIX)
    try:
        return msgspec.msgpack.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=list[Position])
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise InvalidCursor("not a cursor of a subscription at a NexusD daemon") from None
