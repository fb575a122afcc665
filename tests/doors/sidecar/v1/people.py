"""Those who take part in the stories of our own service: clients of grpcio, and the server they call."""

from asyncio import Task, ensure_future, sleep, wait, wait_for
from typing import Any

import grpc
import grpc.aio

from penstock.app import Server
from penstock.doors.sidecar.v1.service import NAME
from penstock.wire.sidecar.messages import penstock as wire
from tests.doors.serving import Start
from tests.doors.sidecar.serving import channel_of

PATIENCE_S = 30.0
Delivered = tuple[str, bytes, int]
"""Topic, payload and sequence of a message."""


class House:
    """A server, and those who call it."""

    def __init__(self, server: Server, start: Start) -> None:
        self.server = server
        self.broker = server.broker
        self._start = start
        self._channels: list[grpc.aio.Channel] = []

    async def hang_up(self) -> None:
        """End whatever goes on."""
        for channel in self._channels:
            await channel.close()

    async def close(self) -> None:
        """Stop the server before the test is over."""
        await self.hang_up()
        await self._start.stop(self.server)

    async def is_left(self) -> None:
        """Wait until nobody listens any more."""
        for _ in range(1_000):
            if not any(name.startswith("v1-") for name in self.broker.sessions):
                return
            await sleep(0.02)
        raise AssertionError("somebody is still there")

    def caller(self, user: str | None = None, password: str = "") -> "Caller":
        channel = channel_of(self.server)
        self._channels.append(channel)
        return Caller(channel, () if user is None else (("username", user), ("password", password)))


class Caller:
    """Somebody with a channel."""

    def __init__(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._channel = channel
        self._metadata = metadata

    def publish(self, **options: Any) -> "Publisher":
        method: grpc.aio.StreamStreamMultiCallable[bytes, wire.PublishAck] = self._channel.stream_stream(
            f"/{NAME}/Publish", None, wire.PublishAck.FromString
        )
        return Publisher(method(metadata=self._metadata, **options))

    async def publish_once(self, topic: str, *payloads: bytes, **fields: Any) -> wire.PublishAck:
        """Publish one entry in a call of its own."""
        publisher = self.publish()
        ack = await publisher.send(wire.Messages(topic=topic, payloads=payloads, **fields))
        await publisher.end()
        return ack

    def subscribe(self, **options: Any) -> "Listener":
        method: grpc.aio.StreamStreamMultiCallable[bytes, wire.SubscribeEvent] = self._channel.stream_stream(
            f"/{NAME}/Subscribe", None, wire.SubscribeEvent.FromString
        )
        return Listener(method(metadata=self._metadata, **options))

    async def listen(self, *filters: str, **fields: Any) -> "Listener":
        """Somebody who listens to filters already."""
        listener = self.subscribe()
        await listener.ask(open=wire.Open(**fields))
        await listener.hear("opened")
        await listener.add(*filters)
        await listener.hear("added")
        return listener

    async def why(self, **fields: Any) -> wire.WhyResponse:
        request = wire.WhyRequest(**fields).SerializeToString()
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, wire.WhyResponse] = self._channel.unary_unary(
            f"/{NAME}/Why", None, wire.WhyResponse.FromString
        )
        return await wait_for(method(request, metadata=self._metadata), PATIENCE_S)


class Conversation:
    """A call of two streams."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self._last_id = 0
        self._reading: Task[Any] | None = None

    async def take(self, timeout: float = PATIENCE_S) -> Any:
        """The next message; grpcio would cancel the call with a read that takes too long."""
        self._reading = self._reading or ensure_future(self.call.read())
        done, _ = await wait((self._reading,), timeout=timeout)
        if not done:
            raise TimeoutError
        reading, self._reading = self._reading, None
        message = reading.result()
        assert message is not grpc.aio.EOF, "the call has ended"
        return message

    async def ending(self) -> tuple[grpc.StatusCode, str]:
        """How the call ends; nothing may come before that."""
        try:
            message = await wait_for(self._reading or self.call.read(), PATIENCE_S)
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        assert message is grpc.aio.EOF, message
        return await wait_for(self.call.code(), PATIENCE_S), await self.call.details()


class Publisher(Conversation):
    """A call that publishes."""

    async def write(self, *entries: wire.Messages) -> int:
        """Send a batch and answer its number."""
        self._last_id += 1
        batch = wire.PublishBatch(batch_id=self._last_id, messages=entries)
        await self.call.write(batch.SerializeToString())
        return self._last_id

    async def read(self, timeout: float = PATIENCE_S) -> wire.PublishAck:
        ack = await self.take(timeout)
        assert isinstance(ack, wire.PublishAck)
        return ack

    async def send(self, *entries: wire.Messages) -> wire.PublishAck:
        """Publish a batch, and wait for what becomes of it."""
        batch_id = await self.write(*entries)
        ack = await self.read()
        assert ack.batch_id == batch_id
        return ack

    async def end(self) -> None:
        """Send no more, and see the call end well."""
        await self.call.done_writing()
        assert await self.ending() == (grpc.StatusCode.OK, "")


class Listener(Conversation):
    """A call that subscribes."""

    def __init__(self, call: Any) -> None:
        super().__init__(call)
        self.cursor = ""
        self.runs: list[wire.Run] = []

    async def ask(self, **action: Any) -> int:
        """Send a request and answer its number."""
        self._last_id += 1
        request = wire.SubscribeRequest(request_id=self._last_id, **action)
        await self.call.write(request.SerializeToString())
        return self._last_id

    async def add(self, *filters: str, **fields: Any) -> int:
        return await self.ask(add=wire.Add(filters=filters, **fields))

    async def hear(self, kind: str) -> Any:
        """The next event, which has to be of a kind."""
        event = await self.take()
        assert event.WhichOneof("event") == kind, event
        return getattr(event, kind)

    async def messages(self, count: int) -> list[Delivered]:
        """The next messages; nothing else may come before them."""
        got: list[Delivered] = []
        while len(got) < count:
            delivery = await self.hear("delivery")
            self.cursor = delivery.cursor or self.cursor
            self.runs += delivery.runs
            got += [message for run in delivery.runs for message in messages_of(run)]
        assert len(got) == count, got
        return got

    async def hears_nothing(self, seconds: float = 0.3) -> bool:
        try:
            event = await self.take(seconds)
        except TimeoutError:
            return True
        raise AssertionError(event)


def messages_of(run: wire.Run) -> list[Delivered]:
    return [(run.topic, payload, run.sequence + index) for index, payload in enumerate(run.payloads)]


def entry(topic: str, *payloads: bytes, **fields: Any) -> wire.Messages:
    return wire.Messages(topic=topic, payloads=payloads, **fields)
