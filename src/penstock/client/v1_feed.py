"""A subscription in the words of `penstock.v1`: one stream on which filters come and go.

No more messages are on their way than the application has room for: it grants the server credit.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from penstock.client.answers import Gap, Missing, Statement
from penstock.client.calls import next_of
from penstock.client.course import Course
from penstock.client.dialect import (
    Arrived,
    Dropped,
    FeedEvent,
    FeedOptions,
    Forgotten,
    Replayed,
    Start,
    Withdrawn,
)
from penstock.client.errors import ConnectionLost
from penstock.client.reconnection import is_worth_a_try
from penstock.client.statuses import named_error
from penstock.client.values import ReceivedRun
from penstock.errors import InvalidCursor, PenstockError
from penstock.model import Reason
from penstock.wire.sidecar import penstock as words

if TYPE_CHECKING:
    import grpc.aio

    OpenStream = Callable[[AsyncIterator[words.SubscribeRequest]], grpc.aio.StreamStreamCall[Any, Any]]

_POLICIES = {
    None: words.POLICY_UNSPECIFIED,
    "drop-oldest": words.POLICY_DROP_OLDEST,
    "drop-newest": words.POLICY_DROP_NEWEST,
    "block": words.POLICY_BLOCK,
    "disconnect": words.POLICY_DISCONNECT,
}


class Requests:
    """What is to be said on one stream, in order."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[words.SubscribeRequest | None] = asyncio.Queue()

    def say(self, request: words.SubscribeRequest) -> None:
        """Say something, soon."""
        self._waiting.put_nowait(request)

    def end(self) -> None:
        """Say nothing more."""
        self._waiting.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[words.SubscribeRequest]:
        while (request := await self._waiting.get()) is not None:
            yield request


class V1Feed:
    """One subscription; see `Feed`."""

    def __init__(self, options: FeedOptions, open_stream: "OpenStream") -> None:
        if options.policy not in _POLICIES:
            raise ValueError(
                f"{options.policy!r} is no policy; there are {', '.join(filter(None, _POLICIES))}"
            )
        self._options = options
        self._open_stream = open_stream
        self._course = Course()
        self._ids = count(1)
        self._removals: dict[int, asyncio.Future[None]] = {}
        self._waiters: set[asyncio.Future[None]] = set()
        self._room = options.buffer  # what may be granted, less what came and was not taken
        self._granted = 0  # of it, what is still to come
        # Of one connection:
        self._requests = Requests()
        self._call: grpc.aio.StreamStreamCall[Any, Any] | None = None

    @property
    def cursor(self) -> str | None:
        return self._course.cursor

    @property
    def filters(self) -> tuple[str, ...]:
        return self._course.filters

    async def open(self) -> None:
        self._hang_up()
        for waiter in self._removals.values():  # they are not asked for again, which is all that was wanted
            _settle(waiter)
        self._removals.clear()
        self._requests = Requests()
        self._granted = max(1, self._room)  # nothing would stand for no limit
        self._requests.say(self._hello())
        self._course.begin()
        self._call = self._open_stream(aiter(self._requests))
        if not (await self._read()).HasField("opened"):
            raise PenstockError("the server does not begin as it should")
        self._ask()

    async def receive(self) -> FeedEvent:
        while True:
            event = await self._read()
            said = self._on_event(event)
            self._ask()
            if said is not None:
                return said

    async def add(self, filters: Sequence[str], start: Start) -> None:
        _add_of(filters, start)  # what cannot be said at all is refused here, before anybody relies on it
        fresh = [filter for filter in filters if filter not in self.filters]
        agreed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(agreed)
        agreed.add_done_callback(self._waiters.discard)
        self._course.add(filters, start, lambda error: _settle(agreed, error))
        self._ask()
        try:
            await agreed
        except asyncio.CancelledError:
            self._take_back(words.Remove(filters=fresh))
            raise

    async def remove(self, filters: Sequence[str]) -> None:
        request_id = self._take_back(words.Remove(filters=filters))
        if self._call is not None:
            removed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._removals[request_id] = removed
            await removed

    def taken(self, count: int) -> None:
        self._room += count
        more = self._room - self._granted
        if self._call is not None and more * 2 >= self._options.buffer:
            self._granted += more
            self._requests.say(words.SubscribeRequest(credit=words.Credit(messages=more)))

    async def close(self) -> None:
        self._hang_up()
        for waiter in [*self._waiters, *self._removals.values()]:
            _settle(waiter, ConnectionLost("the subscription was closed"))

    # Talking

    def _hello(self) -> words.SubscribeRequest:
        options = self._options
        hello = words.Open(
            client_id=options.client_id, policy=_POLICIES[options.policy], credit=self._granted
        )
        return words.SubscribeRequest(request_id=next(self._ids), open=hello)

    def _ask(self) -> None:
        """Ask for the next filters, if none are being asked for."""
        if self._call is None:
            return
        wish = self._course.next_wish(next(self._ids))
        if wish is not None:
            add = _add_of(wish.filters, wish.start)
            self._requests.say(words.SubscribeRequest(request_id=wish.request_id, add=add))

    def _take_back(self, remove: words.Remove) -> int:
        self._course.remove(remove.filters)
        request_id = next(self._ids)
        if self._call is not None and remove.filters:
            self._requests.say(words.SubscribeRequest(request_id=request_id, remove=remove))
        return request_id

    def _hang_up(self) -> None:
        self._requests.end()
        if self._call is not None:
            self._call.cancel()
            self._call = None

    async def _read(self) -> words.SubscribeEvent:
        if self._call is None:
            raise ConnectionLost("the subscription is not open")
        event: words.SubscribeEvent | None = await next_of(self._call)
        if event is None:
            raise ConnectionLost("the server has ended the subscription")
        return event

    # Listening

    def _on_event(self, event: words.SubscribeEvent) -> FeedEvent | None:
        match event.WhichOneof("event"):
            case "delivery":
                return self._on_delivery(event.delivery)
            case "heartbeat":
                return Arrived((), self._course.on_heartbeat(event.heartbeat.cursor), 0)
            case "added":
                added = event.added
                self._course.on_added(added.request_id, added.cursor, added.replay_started)
                return Arrived((), self._course.cursor, 0)
            case "statement":
                said = event.statement
                filters = self._course.on_statement(said.request_id, said.next)
                return Replayed(filters, statement_of(said)) if filters else None
            case "removed":
                _settle(self._removals.pop(event.removed.request_id, None))
            case "refused":
                return self._on_refused(event.refused)
            case "withdrawn":
                self._course.remove(event.withdrawn.filters)
                return Withdrawn(tuple(event.withdrawn.filters), event.withdrawn.code)
            case "warning":
                warning: Any = event.warning  # to type checkers the name means the built-in one
                return Dropped(warning.messages_dropped + warning.messages_expired, warning.reason)
        return None

    def _on_delivery(self, delivery: words.Delivery) -> Arrived:
        runs = [run_of(run) for run in delivery.runs]
        count = sum([len(run.payloads) for run in runs])
        self._room -= count
        self._granted -= count
        first = runs[0] if runs else None
        if first is not None and first.is_replay:
            runs = [run for run in runs if not self._course.is_repeated(run.topic)]
            wanted = sum([len(run.payloads) for run in runs])
            self.taken(count - wanted)
            count = wanted
        cursor = self._course.on_delivery(
            delivery.cursor,
            is_replay=first is not None and first.is_replay,
            is_retained=first is not None and first.is_retained,
        )
        return Arrived(runs, cursor, count)

    def _on_refused(self, refused: words.Refused) -> FeedEvent | None:
        error = named_error(refused.code, refused.text)
        _settle(self._removals.pop(refused.request_id, None), error)
        wish = self._course.on_refused(refused.request_id, error)
        if wish is None:
            return None
        if is_worth_a_try(error):
            raise error
        if isinstance(error, InvalidCursor):
            return Forgotten(wish.filters, Reason.EPOCH_CHANGED.value)
        return Withdrawn(wish.filters, error.code)


def _settle(future: "asyncio.Future[None] | None", error: PenstockError | None = None) -> None:
    if future is None or future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _add_of(filters: Sequence[str], start: Start) -> words.Add:
    if start.after is not None:
        return words.Add(filters=filters, after=start.after)
    if start.last is not None:
        return words.Add(filters=filters, last=start.last)
    return words.Add(filters=filters, receive_retained=start.retained)


def run_of(run: words.Run) -> ReceivedRun:
    """Messages as they came, as values."""
    return ReceivedRun(
        run.topic,
        tuple(run.payloads),
        run.sequence,
        run.epoch,
        run.published_at_us,
        run.content_type or None,
        run.correlation_id or None,
        run.response_topic or None,
        run.message_id or None,
        tuple((each.name, each.value) for each in run.user_properties) if run.user_properties else (),
        run.is_retained,
        run.is_replay,
    )


def statement_of(said: words.Statement) -> Statement:
    """The end of a replay as a value."""
    missing = tuple(
        Missing(each.topic, each.first if each.HasField("first") else None, each.last, each.reason)
        for each in said.missing
    )
    gaps = tuple(Gap(each.first, each.last, each.reason) for each in said.gaps)
    return Statement(
        after=said.after or None,
        next=said.next,
        served=said.served,
        is_complete=not missing and not gaps,
        is_at_head=True,
        missing=missing,
        gaps=gaps,
    )
