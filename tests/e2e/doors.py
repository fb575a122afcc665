"""Somebody at each door of one server, who can publish there and follow what comes, as its own clients do."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import grpc
import httpx
from msgspec import json
from websockets.asyncio.client import ClientConnection, connect

import penstock
from penstock.client import Client, MqttClient, ReceivedMessage
from penstock.wire.sidecar.messages import nexusd
from tests.doors.sidecar.calling import Events, Stub
from tests.support.servers import RunningServer

HOST = "127.0.0.1"
TIMEOUT_S = 30.0


class Told(NamedTuple):
    """What a door tells of a message; an id only if it always tells one, or the message was given it."""

    topic: str
    payload: bytes
    sequence: int
    message_id: str | None
    cursor: str | None = None


class Following(Protocol):
    """Somebody who follows a filter."""

    async def take(self, count: int) -> list[Told]:
        """The next messages."""


class Doors:
    """All doors of one server, to be entered."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._stack = AsyncExitStack()
        self.mqtt: MqttClient
        self.http: httpx.AsyncClient
        self.sidecar: Stub
        self.own: Client

    async def __aenter__(self) -> "Doors":
        enter, server = self._stack.enter_async_context, self._server
        self.mqtt = await enter(MqttClient.connect(port=server.port))
        address = f"http://{HOST}:{server.port_of('http')}"
        self.http = await enter(httpx.AsyncClient(base_url=address, timeout=TIMEOUT_S))
        self.sidecar = Stub(await enter(grpc.aio.insecure_channel(f"{HOST}:{server.port_of('grpc')}")))
        self.own = await enter(penstock.connect(f"{HOST}:{server.port_of('grpc')}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    # Publishing

    async def publish_everywhere(self, topic: str) -> list[bytes]:
        """Publish a message at each door, one after another; answers what they hold, which is JSON."""
        answers = await self._ask_socket({"type": "publish", "topic": topic, "data": 0, "request_id": 1})
        assert answers["type"] == "ack"
        await self.mqtt.publish(topic, b"1", qos=1)
        answer = await self.http.post("/api/v1/publish", params={"topic": topic}, content=b"2")
        assert answer.status_code == 200
        body = {"streamId": topic, "messageUuid": str(uuid4()), "message": 3}
        answer = await self.http.post("/api/v1/streams/send", json=body)
        assert answer.status_code == 200
        await self.sidecar.publish(nexusd.PublishRequest(topic=topic, payload=b"4"), timeout=TIMEOUT_S)
        await self.own.publish(topic, b"5", message_id="five")
        return [b"%d" % number for number in range(6)]

    async def _ask_socket(self, request: dict[str, Any]) -> dict[str, Any]:
        async with self._socket() as socket:
            await socket.send(json.encode(request).decode())
            while "request_id" not in (said := json.decode(await socket.recv())):
                pass
        return dict(said)

    def _socket(self) -> connect:
        return connect(f"ws://{HOST}:{self._server.port_of('http')}/ws", proxy=None)

    async def figures(self) -> dict[str, Any]:
        """What the server says of itself."""
        return dict((await self.http.get("/metrics")).json())

    # Following

    async def follow_socket(self, filter: str, after: str | None = None) -> Following:
        """By `/ws`."""
        socket = await self._stack.enter_async_context(self._socket())
        place = {} if after is None else {"after": after}
        await socket.send(
            json.encode({"type": "subscribe", "filter": filter, "request_id": 1, **place}).decode()
        )
        while json.decode(await socket.recv()).get("request_id") != 1:
            pass
        return JsonFollowing(_said_by(socket))

    async def follow_events(self, filter: str, after: str | None = None) -> Following:
        """By Server-Sent Events."""
        asked = {"filter": filter} | ({} if after is None else {"after": after})
        stream = await self._stack.enter_async_context(
            self.http.stream("GET", "/api/v1/events", params=asked)
        )
        assert stream.status_code == 200
        return JsonFollowing(_lines_of(stream))

    async def follow_sidecar(self, filter: str) -> "SidecarFollowing":
        """By NexusD's service."""
        events = Events(self.sidecar.subscribe(nexusd.SubscribeRequest(topics=[filter])))
        await events.begin()
        return SidecarFollowing(events)

    async def follow_own(self, filter: str, after: str | None = None) -> Following:
        """By our own service."""
        messages = await self._stack.enter_async_context(self.own.subscribe(filter, after=after))
        return OwnFollowing(aiter(messages))


class JsonFollowing:
    """Reads events in JSON."""

    def __init__(self, texts: AsyncIterator[str | bytes]) -> None:
        self._texts = texts

    async def take(self, count: int) -> list[Told]:
        told: list[Told] = []
        while len(told) < count:
            event = json.decode(await anext(self._texts))
            if event.get("type") == "event":
                payload = json.encode(event["data"])
                told.append(
                    Told(event["topic"], payload, event["sequence"], event["message_id"], event["cursor"])
                )
        return told


class SidecarFollowing:
    """Reads events of NexusD's service."""

    def __init__(self, events: Events) -> None:
        self.events = events

    async def take(self, count: int) -> list[Told]:
        messages = await self.events.messages(count)
        return [Told(each.topic, each.payload, each.sequence_number, each.message_id) for each in messages]


class OwnFollowing:
    """Reads messages of our own client's."""

    def __init__(self, messages: AsyncIterator[ReceivedMessage]) -> None:
        self._messages = messages

    async def take(self, count: int) -> list[Told]:
        messages = [await anext(self._messages) for _ in range(count)]
        return [
            Told(each.topic, each.payload, each.sequence, each.message_id, each.cursor) for each in messages
        ]


async def _said_by(socket: ClientConnection) -> AsyncIterator[str | bytes]:
    async for text in socket:
        yield text


async def _lines_of(stream: httpx.Response) -> AsyncIterator[str]:
    async for line in stream.aiter_lines():
        if line.startswith("data: {"):
            yield line.removeprefix("data: ")
