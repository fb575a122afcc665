"""A subscription in NexusD's words: one stream for each set of filters that was added.

The cursor is our own: it names the subscriptions at the daemon, and the last number of each of their topics.
"""

import asyncio
import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.calls import next_of
from penstock.client.dialect import Arrived, FeedEvent, FeedOptions, Forgotten, Start, Withdrawn
from penstock.client.errors import ConnectionLost, RequestRefused
from penstock.client.nexusd_following import Following
from penstock.client.nexusd_line import Line, run_of
from penstock.client.nexusd_stub import Request
from penstock.client.reconnection import is_worth_a_try
from penstock.errors import InvalidCursor, InvalidRequest, PenstockError, UnknownClient
from penstock.model import Reason
from penstock.wire.sidecar import nexusd

if TYPE_CHECKING:
    import grpc.aio

    Call = grpc.aio.UnaryStreamCall[Any, Any]

CURSOR_PREFIX = "nexusd-"
_GOODBYE_S = 2.0
"""How long a daemon may take to hear that we leave."""
MESSAGES = frozenset({"message", "replay_message", "retained_message"})


class Place(msgspec.Struct, array_like=True):
    """Where one subscription at the daemon is."""

    subscription_id: str
    topics: tuple[str, ...]
    last_sequences: dict[str, int]


class Stream:
    """A line with its call, and who waits for the daemon's yes."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.agreed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.call: Call | None = None
        self.reading: asyncio.Task[None] | None = None

    async def hang_up(self) -> None:
        """Let go of the call, if there is one."""
        call, self.call = self.call, None
        reading, self.reading = self.reading, None
        if call is not None:
            call.cancel()
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])


class NexusdFeed:
    """One subscription; see `Feed`."""

    def __init__(
        self,
        options: FeedOptions,
        open_stream: "Callable[[Request], Call]",
        unsubscribe: Callable[[str, bool], Any],
    ) -> None:
        if options.policy is not None:
            raise InvalidRequest("a NexusD daemon does not let subscribers choose a policy")
        self._options = options
        self._open_stream = open_stream
        self._unsubscribe = unsubscribe
        self._streams: list[Stream] = []
        self._told: deque[FeedEvent] = deque()  # to be said next
        self._room = asyncio.Semaphore(options.buffer)
        self._is_open = False
        # For each message that is with the application: was it the first of its topic?
        self._untaken: deque[bool] = deque()
        # Of one connection:
        self._events: asyncio.Queue[tuple[Stream, nexusd.MessageEvent | PenstockError]] = asyncio.Queue()

    @property
    def cursor(self) -> str | None:
        lines = [stream.line.following for stream in self._streams if stream.line.following.subscription_id]
        places = [Place(line.subscription_id, line.topics, line.last_sequences) for line in lines]
        return encode_places(places) if places else None

    @property
    def filters(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(filter for stream in self._streams for filter in stream.line.filters))

    async def open(self) -> None:
        await self._hang_up()
        self._is_open = True
        for stream in list(self._streams):
            await self._begin(stream)

    async def receive(self) -> FeedEvent:
        while not self._told:
            stream, event = await self._events.get()
            if isinstance(event, PenstockError):
                raise event
            self._take(stream, event)
        return self._told.popleft()

    async def add(self, filters: Sequence[str], start: Start) -> None:
        if start.last is not None:
            raise InvalidRequest("a NexusD daemon cannot be asked for the last messages")
        fresh = [filter for filter in dict.fromkeys(filters) if filter not in self.filters]
        streams = [Stream(line) for line in self._lines(fresh, start)]
        self._streams += streams
        try:
            if self._is_open:
                await self._begin_added(streams)
            for stream in streams:
                await stream.agreed
        except BaseException:
            await self._drop([stream for stream in streams if not stream.line.is_agreed])
            raise

    async def remove(self, filters: Sequence[str]) -> None:
        for stream in self._streams:
            stream.line.remove(filters)
        unwanted = [stream for stream in self._streams if not stream.line.filters]
        await self._drop(unwanted)
        for stream in unwanted:
            await self._unsubscribe(stream.line.following.subscription_id, False)

    def taken(self, count: int) -> None:
        for _ in range(count):
            self._untaken.popleft()
            self._room.release()

    async def close(self) -> None:
        """Pause it, so that its cursor is good for as long as the daemon keeps what is paused.

        Of a topic that the cursor does not name the daemon would go on behind what it has sent. So with a
        first message that was not dealt with it is only left: better a gap that is told than one that is not.
        """
        for stream in self._streams:
            if not stream.agreed.done():
                stream.agreed.set_exception(ConnectionLost("the subscription was closed"))
        ids = [stream.line.following.subscription_id for stream in self._streams if stream.call is not None]
        self._is_open = False
        if not any(self._untaken):
            with suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_S):
                    for subscription_id in filter(None, ids):
                        await self._unsubscribe(subscription_id, True)
        await self._hang_up()

    # Streams

    def _lines(self, filters: list[str], start: Start) -> list[Line]:
        """What to ask the daemon for: to go on with what a cursor names, and the rest anew."""
        places = decode_places(start.after) if start.after is not None else []
        known = [place for place in places if set(place.topics) <= set(filters)]
        resumed = {topic for place in known for topic in place.topics}
        lost = {topic for place in places for topic in place.topics if topic in filters} - resumed
        if lost:  # asked for together with others: the daemon cannot go on with a part
            self._told.append(Forgotten(tuple(sorted(lost)), Reason.EPOCH_CHANGED.value))
        lines = [self._line(place.topics, start, place) for place in known]
        fresh = [filter for filter in filters if filter not in resumed]
        return lines + ([self._line(fresh, start)] if fresh else [])

    def _line(self, filters: Sequence[str], start: Start, place: Place | None = None) -> Line:
        return Line(
            Following(
                filters,
                client_id=self._options.client_id,
                receive_retained=start.retained,
                subscription_id=place.subscription_id if place else "",
                last_sequences=place.last_sequences if place else None,
            )
        )

    async def _begin_added(self, streams: list[Stream]) -> None:
        """If the connection goes meanwhile, who receives has to know; the next `open` asks again."""
        for stream in streams:
            try:
                await self._begin(stream)
            except PenstockError as error:
                self._events.put_nowait((stream, error))
                return

    async def _begin(self, stream: Stream) -> None:
        """Have the daemon accept a stream, and read it from then on."""
        try:
            first = await self._first_event(stream)
        except PenstockError as error:
            if is_worth_a_try(error):
                raise
            await self._refused(stream, error)
            return
        self._take(stream, first)
        stream.line.is_agreed = True
        if not stream.agreed.done():
            stream.agreed.set_result(None)
        self._told.append(Arrived((), self.cursor, 0))  # there is a place to go on from
        stream.reading = asyncio.create_task(self._read(stream))

    async def _first_event(self, stream: Stream) -> nexusd.MessageEvent:
        following = stream.line.following
        while True:
            stream.call = self._open_stream(following.next_request())
            try:
                event: nexusd.MessageEvent | None = await next_of(stream.call)
            except (RequestRefused, UnknownClient):
                if not following.subscription_id:
                    raise
                following.forget()
                continue
            if event is None or not event.HasField("subscription_info"):
                raise PenstockError("the daemon does not begin as it should")
            return event

    async def _read(self, stream: Stream) -> None:
        """Read as much as there is room for."""
        assert stream.call is not None
        try:
            while (event := await next_of(stream.call)) is not None:
                if event.WhichOneof("event") in MESSAGES:
                    await self._room.acquire()
                self._events.put_nowait((stream, event))
            self._events.put_nowait((stream, ConnectionLost("the daemon has ended the subscription")))
        except PenstockError as error:
            self._events.put_nowait((stream, error))

    def _take(self, stream: Stream, event: nexusd.MessageEvent) -> None:
        if stream not in self._streams:
            arrival = None
        else:
            known = set(stream.line.following.last_sequences)
            told, arrival = stream.line.take(event)
            self._told += told
        if arrival is not None:
            self._untaken.append(arrival.message.topic not in known)
            self._told.append(Arrived((run_of(arrival),), self.cursor, 1))
        elif event.WhichOneof("event") in MESSAGES:
            self._room.release()  # nobody will take it

    async def _refused(self, stream: Stream, error: PenstockError) -> None:
        await self._drop([stream])
        if stream.line.is_agreed:
            self._told.append(Withdrawn(stream.line.filters))
        elif not stream.agreed.done():
            stream.agreed.set_exception(error)

    async def _drop(self, streams: Sequence[Stream]) -> None:
        self._streams = [stream for stream in self._streams if stream not in streams]
        for stream in streams:
            await stream.hang_up()

    async def _hang_up(self) -> None:
        """Forget what was read and not received: it comes again."""
        for stream in list(self._streams):
            await stream.hang_up()
        while not self._events.empty():
            _, event = self._events.get_nowait()
            if isinstance(event, nexusd.MessageEvent) and event.WhichOneof("event") in MESSAGES:
                self._room.release()


def encode_places(places: Sequence[Place]) -> str:
    """A cursor in our own words."""
    return CURSOR_PREFIX + urlsafe_b64encode(msgspec.msgpack.encode(places)).decode().rstrip("=")


def decode_places(cursor: str) -> list[Place]:
    """What a cursor of ours says.

    Raises:
        InvalidCursor: it is not one.
    """
    if not cursor.startswith(CURSOR_PREFIX):
        raise InvalidCursor("this is no cursor of a subscription at a NexusD daemon")
    text = cursor.removeprefix(CURSOR_PREFIX)
    try:
        return msgspec.msgpack.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=list[Place])
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise InvalidCursor("this is no cursor of a subscription at a NexusD daemon") from None
