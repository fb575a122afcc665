"""NexusD's clients in the hands of a test: stubs of the service on channels of grpcio."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Self

import grpc
import pytest

from penstock.app import Server
from penstock.wire.sidecar.messages import nexusd
from tests.doors.sidecar.serving import channel_of

SERVICE = "nexusd.sidecar.SidecarService"
TIMEOUT_S = 30.0
"""How long a test waits for what has to come."""
SILENCE_S = 0.2
"""How long it waits for what must not."""

Metadata = Sequence[tuple[str, str]]


class Stub:
    """The calls of the service, on a channel of either kind of grpcio's."""

    def __init__(self, channel: Any) -> None:
        self.publish = _unary(channel, "Publish", nexusd.PublishResponse)
        self.unsubscribe = _unary(channel, "Unsubscribe", nexusd.UnsubscribeResponse)
        self.get_topics = _unary(channel, "GetTopics", nexusd.GetTopicsResponse)
        self.get_peers = _unary(channel, "GetPeers", nexusd.GetPeersResponse)
        self.subscribe = _stream(channel, "Subscribe")
        self.resume = _stream(channel, "ResumeSubscribe")


def _unary(channel: Any, method: str, response: Any) -> Any:
    return channel.unary_unary(
        f"/{SERVICE}/{method}", request_serializer=serialize, response_deserializer=response.FromString
    )


def _stream(channel: Any, method: str) -> Any:
    return channel.unary_stream(
        f"/{SERVICE}/{method}",
        request_serializer=serialize,
        response_deserializer=nexusd.MessageEvent.FromString,
    )


def serialize(request: Any) -> bytes:
    """A request as bytes; bytes are sent as they are, to see what becomes of bad ones."""
    return request if isinstance(request, bytes) else request.SerializeToString()


class Events:
    """The events of one stream, as a test reads them."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.id = ""

    async def next(self) -> nexusd.MessageEvent:
        """The next event; fails if the stream has ended."""
        read = await asyncio.wait_for(self.call.read(), TIMEOUT_S)
        assert read is not grpc.aio.EOF, "the stream has ended"
        event: nexusd.MessageEvent = read
        return event

    async def begin(self) -> nexusd.SubscriptionInfo:
        """The first event, which is always the same kind."""
        event = await self.next()
        assert event.WhichOneof("event") == "subscription_info"
        self.id = event.subscription_info.subscription_id
        return event.subscription_info

    async def take(self, count: int) -> list[tuple[str, nexusd.MessageEvent]]:
        """So many events with their kinds."""
        events = [await self.next() for _ in range(count)]
        return [(event.WhichOneof("event") or "", event) for event in events]

    async def messages(self, count: int, kind: str = "message") -> list[nexusd.Message]:
        """So many messages of one kind; anything else fails."""
        taken = await self.take(count)
        assert [kind] * count == [found for found, _ in taken]
        return [getattr(event, kind) for _, event in taken]

    async def payloads(self, count: int, kind: str = "message") -> list[bytes]:
        """The payloads of so many messages of one kind."""
        return [message.payload for message in await self.messages(count, kind)]

    async def is_silent(self) -> bool:
        """Whether nothing comes for a while. Nothing can be read afterwards."""
        reading = asyncio.ensure_future(self.call.read())
        done, _ = await asyncio.wait((reading,), timeout=SILENCE_S)
        reading.cancel()
        return not done

    async def end(self) -> tuple[grpc.StatusCode, str]:
        """How the stream ends, whatever comes before."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                while await self.call.read() is not grpc.aio.EOF:
                    pass
            except grpc.aio.AioRpcError as error:
                return error.code(), error.details() or ""
            return await self.call.code(), await self.call.details()


class Client:
    """One client with a channel of its own, to be entered."""

    def __init__(self, server: Server, metadata: Metadata = (), *options: tuple[str, Any]) -> None:
        self._metadata = tuple(metadata)
        self.channel = channel_of(server, *options)
        self.stub = Stub(self.channel)

    async def __aenter__(self) -> Self:
        await self.channel.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    async def publish(self, topic: str, payload: bytes = b"x", **fields: Any) -> nexusd.PublishResponse:
        """Publish one message."""
        request = nexusd.PublishRequest(topic=topic, payload=payload, **fields)
        response: nexusd.PublishResponse = await self.stub.publish(
            request, timeout=TIMEOUT_S, metadata=self._metadata
        )
        return response

    def ask(self, request: Any, **options: Any) -> Events:
        """Begin a stream, and read nothing of it."""
        is_resume = isinstance(request, nexusd.ResumeSubscribeRequest)
        call = self.stub.resume if is_resume else self.stub.subscribe
        return Events(call(request, metadata=self._metadata, **options))

    async def subscribe(self, *topics: str, **fields: Any) -> Events:
        """Subscribe, and read that it is so."""
        events = self.ask(nexusd.SubscribeRequest(topics=topics, **fields))
        await events.begin()
        return events

    async def resume(
        self, id: str, mode: int = nexusd.GAP_RECOVERY_REPLAY_BUFFER, **fields: Any
    ) -> tuple[Events, nexusd.SubscriptionInfo]:
        """Resume, and read what the first event says."""
        events = self.ask(
            nexusd.ResumeSubscribeRequest(subscription_id=id, gap_recovery_mode=mode, **fields)  # type: ignore[arg-type]
        )
        return events, await events.begin()

    async def unsubscribe(self, id: str, *, pause: bool = False) -> nexusd.UnsubscribeResponse:
        """End a subscription."""
        request = nexusd.UnsubscribeRequest(subscription_id=id, pause=pause)
        response: nexusd.UnsubscribeResponse = await self.stub.unsubscribe(
            request, timeout=TIMEOUT_S, metadata=self._metadata
        )
        return response

    async def topics(self, *, include_counts: bool = True) -> dict[str, int]:
        """Which topics there are."""
        request = nexusd.GetTopicsRequest(include_counts=include_counts)
        answer = await self.stub.get_topics(request, timeout=TIMEOUT_S, metadata=self._metadata)
        return dict(answer.topics)


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    """How a call is refused; fails if it is not."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


def sequences(messages: Iterable[nexusd.Message]) -> list[int]:
    """The sequences of messages."""
    return [message.sequence_number for message in messages]
