"""Our own HTTP/2 client, on a real socket, at the gRPC port of a real server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Self

import pytest

from penstock.app import Server
from penstock.wire.grpc import MessageReader, Status, encode_message
from penstock.wire.http2 import (
    BodyReceived,
    ClientConnection,
    ErrorCode,
    Event,
    Field,
    GoneAway,
    Limits,
    Ponged,
    ResponseStarted,
    TrailersReceived,
    encode_request,
)
from penstock.wire.sidecar.messages import nexusd
from penstock.wire.sidecar.messages import penstock as wire
from tests.doors.serving import Start, port_of
from tests.doors.sidecar.calling import TIMEOUT_S, Client
from tests.doors.sidecar.v1.people import entry

GRPC: list[Field] = [(b"te", b"trailers"), (b"content-type", b"application/grpc")]
NEXUSD_PUBLISH = b"/nexusd.sidecar.SidecarService/Publish"
PUBLISH = b"/penstock.v1.Penstock/Publish"
NARROW = Limits(stream_window_bytes=65_535, connection_window_bytes=65_535)


def block_of(path: bytes) -> bytes:
    return encode_request(b"POST", path, b"localhost", GRPC)


class Link:
    """A client on asyncio's streams: the socket and the clock that the connection does not have."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.http2 = ClientConnection(limits)
        self.events: list[Event] = []
        self.bodies: dict[int, bytes] = {}
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self, server: Server) -> Self:
        port = port_of(server, "grpc")
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def close(self) -> None:
        self._writer.close()
        await asyncio.wait([asyncio.ensure_future(self._writer.wait_closed())])

    async def wait_for(self, kind: type[Event], stream_id: int | None = None) -> Event:
        """Write what is to be written, and read until there is such an event."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                for event in self.events:
                    if type(event) is kind and stream_id in (None, getattr(event, "stream_id", None)):
                        self.events.remove(event)
                        return event
                await self._step()

    async def _step(self) -> None:
        self._writer.write(self.http2.drain())
        await self._writer.drain()
        data = await self._reader.read(65_536)
        assert data, "the server has closed the connection"
        for event in self.http2.feed(data, asyncio.get_running_loop().time()):
            self.events.append(event)
            if isinstance(event, BodyReceived):
                self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
                self.http2.consumed(event.stream_id, len(event.data))
        assert self.http2.error is None


@pytest.fixture
async def link(server: Server) -> AsyncIterator[Link]:
    link = await Link().open(server)
    yield link
    await link.close()


async def publish(link: Link, topic: str, payload: bytes) -> nexusd.PublishResponse:
    """One unary call."""
    request = nexusd.PublishRequest(topic=topic, payload=payload).SerializeToString()
    stream_id = link.http2.request_whole(block_of(NEXUSD_PUBLISH), encode_message(request))
    started = await link.wait_for(ResponseStarted, stream_id)
    assert isinstance(started, ResponseStarted)
    assert started.head.status == 200
    ended = await link.wait_for(TrailersReceived, stream_id)
    assert isinstance(ended, TrailersReceived)
    assert (b"grpc-status", b"0") in ended.fields
    (message,) = MessageReader(1_000_000).feed(link.bodies.pop(stream_id))
    return nexusd.PublishResponse.FromString(message)


async def test_a_unary_publish_reaches_a_subscriber(link: Link, client: Client) -> None:
    events = await client.subscribe("plant/1")
    answer = await publish(link, "plant/1", b"hello")
    (message,) = await events.messages(1)
    assert answer.success
    assert answer.subscriber_count == 1
    assert (message.payload, message.message_id) == (b"hello", answer.message_id)
    assert link.http2.open_streams == 0


async def test_a_payload_larger_than_all_windows_arrives(link: Link, client: Client) -> None:
    events = await client.subscribe("plant/1")
    payload = bytes(range(256)) * 8_000
    assert (await publish(link, "plant/1", payload)).success
    (message,) = await events.messages(1)
    assert message.payload == payload


async def test_many_calls_on_one_connection_are_all_answered(link: Link) -> None:
    answers = [await publish(link, "plant/1", b"%d" % number) for number in range(200)]
    assert len({answer.message_id for answer in answers}) == 200


async def test_a_stream_both_ways_carries_many_batches(server: Server) -> None:
    link = await Link(NARROW).open(server)
    stream_id = link.http2.request(block_of(PUBLISH))
    reader = MessageReader(1_000_000)
    acks: list[wire.PublishAck] = []
    for number in range(2_000):
        batch = wire.PublishBatch(batch_id=number + 1, messages=[entry("plant/1", bytes(100))])
        link.http2.send(stream_id, encode_message(batch.SerializeToString()))
    link.http2.finish(stream_id)
    assert link.http2.waiting_bytes(stream_id)
    ended = await link.wait_for(TrailersReceived, stream_id)
    assert isinstance(ended, TrailersReceived)
    assert (b"grpc-status", b"0") in ended.fields
    acks += map(wire.PublishAck.FromString, reader.feed(link.bodies[stream_id]))
    assert [(ack.batch_id, ack.accepted) for ack in acks] == [(number + 1, 1) for number in range(2_000)]
    assert len(link.bodies[stream_id]) > 65_535, "the windows of the client were never used up"
    await link.close()


async def test_a_method_that_does_not_exist_ends_with_its_head(link: Link) -> None:
    stream_id = link.http2.request_whole(block_of(b"/test.Nothing/Here"), encode_message(b""))
    started = await link.wait_for(ResponseStarted, stream_id)
    assert isinstance(started, ResponseStarted)
    assert started.is_last
    assert dict(started.head.fields)[b"grpc-status"] == b"%d" % Status.UNIMPLEMENTED
    assert link.http2.open_streams == 0


async def test_heartbeats_are_answered(link: Link) -> None:
    link.http2.ping(b"beat 001")
    assert await link.wait_for(Ponged) == Ponged(b"beat 001")
    assert link.http2.is_settled


async def test_a_server_that_stops_says_goodbye_first(start: Start) -> None:
    server = await start()
    link = await Link().open(server)
    await publish(link, "plant/1", b"hello")
    stopping = asyncio.create_task(start.stop(server))
    goodbye = await link.wait_for(GoneAway)
    assert goodbye == GoneAway(ErrorCode.NO_ERROR, "")
    assert link.http2.free_streams == 0
    await link.close()
    await stopping
