"""Subscription over `penstock.v1`: one stream, on which filters are added and removed.

Credit-based flow control: the server sends no more messages than the application has room for.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from penstock.client.errors import ConnectionLost, error_from_code, is_worth_retrying
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
from penstock.client.grpc.v1.resume import FilterState
from penstock.client.messages import Gap, Missing, ReceivedRun, Statement
from penstock.errors import Conflict, InvalidCursor, PenstockError
from penstock.model import Reason
from penstock.wire.sidecar.messages import penstock as pb

if TYPE_CHECKING:
    import grpc.aio

    OpenStream = Callable[[AsyncIterator[pb.SubscribeRequest]], grpc.aio.StreamStreamCall[Any, Any]]

_POLICIES = {
    None: pb.POLICY_UNSPECIFIED,
    "drop-oldest": pb.POLICY_DROP_OLDEST,
    "drop-newest": pb.POLICY_DROP_NEWEST,
    "block": pb.POLICY_BLOCK,
    "disconnect": pb.POLICY_DISCONNECT,
}


class RequestStream:
    """Queue of the requests of one stream."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[pb.SubscribeRequest | None] = asyncio.Queue()

    def put(self, request: pb.SubscribeRequest) -> None:
        """Queue a request."""
        self._waiting.put_nowait(request)

    def end(self) -> None:
        """End the stream after the queued requests."""
        self._waiting.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[pb.SubscribeRequest]:
        while (request := await self._waiting.get()) is not None:
            yield request


class V1Feed:
    """`Feed` over `penstock.v1`."""

    def __init__(self, options: FeedOptions, open_stream: "OpenStream") -> None:
        if options.policy not in _POLICIES:
            raise ValueError(
                f"{options.policy!r} is not a valid policy; choose from {', '.join(filter(None, _POLICIES))}"
            )
        self._options = options
        self._open_stream = open_stream
        self._state = FilterState()
        self._ids = count(1)
        self._removals: dict[int, asyncio.Future[None]] = {}
        self._waiters: set[asyncio.Future[None]] = set()
        self._room = options.buffer  # grantable credit: the buffer, less messages that are not taken
        self._granted = 0  # granted credit that the server has not used
        # Of one connection:
        self._requests = RequestStream()
        self._call: grpc.aio.StreamStreamCall[Any, Any] | None = None

    @property
    def cursor(self) -> str | None:
        return self._state.cursor

    @property
    def filters(self) -> tuple[str, ...]:
        return self._state.filters

    async def open(self) -> None:
        self._cancel_call()
        for waiter in self._removals.values():  # a new stream does not contain the removed filters
            _resolve(waiter)
        self._removals.clear()
        self._requests = RequestStream()
        self._granted = max(1, self._room)  # 0 would mean no limit
        self._requests.put(self._open_request())
        self._state.reset()
        self._call = self._open_stream(aiter(self._requests))
        if not (await self._read()).HasField("opened"):
            raise PenstockError("protocol error: the first event of the server is not `opened`")
        self._send_next()

    async def receive(self) -> FeedEvent:
        while True:
            event = await self._read()
            translated = self._on_event(event)
            self._send_next()
            if translated is not None:
                return translated

    async def add(self, filters: Sequence[str], start: Start) -> None:
        _make_add(filters, start)  # raises here what protobuf cannot encode, before any state changes
        fresh = [filter for filter in filters if filter not in self.filters]
        accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(accepted)
        accepted.add_done_callback(self._waiters.discard)
        self._state.add(filters, start, lambda error: _resolve(accepted, error))
        self._send_next()
        try:
            await accepted
        except asyncio.CancelledError:
            self._send_remove(pb.Remove(filters=fresh))
            raise

    async def remove(self, filters: Sequence[str]) -> None:
        request_id = self._send_remove(pb.Remove(filters=filters))
        if self._call is not None:
            removed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._removals[request_id] = removed
            await removed

    def taken(self, count: int) -> None:
        self._room += count
        more = self._room - self._granted
        if self._call is not None and more * 2 >= self._options.buffer:
            self._granted += more
            self._requests.put(pb.SubscribeRequest(credit=pb.Credit(messages=more)))

    async def close(self) -> None:
        self._cancel_call()
        for waiter in [*self._waiters, *self._removals.values()]:
            _resolve(waiter, ConnectionLost("the subscription was closed"))

    # Requests

    def _open_request(self) -> pb.SubscribeRequest:
        options = self._options
        opening = pb.Open(client_id=options.client_id, policy=_POLICIES[options.policy], credit=self._granted)
        return pb.SubscribeRequest(request_id=next(self._ids), open=opening)

    def _send_next(self) -> None:
        """Send the next request for filters, unless one is in progress."""
        if self._call is None:
            return
        request = self._state.next_request(next(self._ids))
        if request is not None:
            add = _make_add(request.filters, request.start)
            self._requests.put(pb.SubscribeRequest(request_id=request.request_id, add=add))

    def _send_remove(self, remove: pb.Remove) -> int:
        self._state.remove(remove.filters)
        request_id = next(self._ids)
        if self._call is not None and remove.filters:
            self._requests.put(pb.SubscribeRequest(request_id=request_id, remove=remove))
        return request_id

    def _cancel_call(self) -> None:
        self._requests.end()
        if self._call is not None:
            self._call.cancel()
            self._call = None

    async def _read(self) -> pb.SubscribeEvent:
        if self._call is None:
            raise ConnectionLost("the subscription is not open")
        try:
            event: pb.SubscribeEvent | None = await read_next(self._call)
        except Conflict as error:  # disconnected by an administrator, who has left the session alone
            raise ConnectionLost(str(error)) from None
        if event is None:
            raise ConnectionLost("the server ended the subscription")
        return event

    # Events

    def _on_event(self, event: pb.SubscribeEvent) -> FeedEvent | None:
        match event.WhichOneof("event"):
            case "delivery":
                return self._on_delivery(event.delivery)
            case "heartbeat":
                return Arrived((), self._state.on_heartbeat(event.heartbeat.cursor), 0)
            case "added":
                added = event.added
                self._state.on_added(added.request_id, added.cursor, added.replay_started)
                return Arrived((), self._state.cursor, 0)
            case "statement":
                statement = event.statement
                filters = self._state.on_statement(statement.request_id, statement.next)
                return Replayed(filters, statement_from_wire(statement)) if filters else None
            case "removed":
                _resolve(self._removals.pop(event.removed.request_id, None))
            case "refused":
                return self._on_refused(event.refused)
            case "withdrawn":
                self._state.remove(event.withdrawn.filters)
                return Withdrawn(tuple(event.withdrawn.filters), event.withdrawn.code)
            case "warning":
                warning: Any = event.warning  # type checkers take the name for the built-in class
                return Dropped(warning.messages_dropped + warning.messages_expired, warning.reason)
        return None

    def _on_delivery(self, delivery: pb.Delivery) -> Arrived:
        runs = [run_from_wire(run) for run in delivery.runs]
        count = sum([len(run.payloads) for run in runs])
        self._room -= count
        self._granted -= count
        first = runs[0] if runs else None
        if first is not None and first.is_replay:
            runs = [run for run in runs if not self._state.is_duplicate(run.topic)]
            wanted = sum([len(run.payloads) for run in runs])
            self.taken(count - wanted)
            count = wanted
        cursor = self._state.on_delivery(
            delivery.cursor,
            is_replay=first is not None and first.is_replay,
            is_retained=first is not None and first.is_retained,
        )
        return Arrived(runs, cursor, count)

    def _on_refused(self, refused: pb.Refused) -> FeedEvent | None:
        error = error_from_code(refused.code, refused.text)
        _resolve(self._removals.pop(refused.request_id, None), error)
        request = self._state.on_refused(refused.request_id, error)
        if request is None:
            return None
        if is_worth_retrying(error):
            raise error
        if isinstance(error, InvalidCursor):
            return PositionLost(request.filters, Reason.EPOCH_CHANGED.value)
        return Withdrawn(request.filters, error.code)


def _resolve(future: "asyncio.Future[None] | None", error: PenstockError | None = None) -> None:
    if future is None or future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _make_add(filters: Sequence[str], start: Start) -> pb.Add:
    if start.after is not None:
        return pb.Add(filters=filters, after=start.after)
    if start.last is not None:
        return pb.Add(filters=filters, last=start.last)
    return pb.Add(filters=filters, receive_retained=start.retained)


def run_from_wire(run: pb.Run) -> ReceivedRun:
    """Decode a run of messages."""
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


def statement_from_wire(statement: pb.Statement) -> Statement:
    """Decode the statement about a replay."""
    missing = tuple(
        Missing(each.topic, each.first if each.HasField("first") else None, each.last, each.reason)
        for each in statement.missing
    )
    gaps = tuple(Gap(each.first, each.last, each.reason) for each in statement.gaps)
    return Statement(
        after=statement.after or None,
        next=statement.next,
        served=statement.served,
        is_complete=not missing and not gaps,
        is_at_head=True,
        missing=missing,
        gaps=gaps,
    )
