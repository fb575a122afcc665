"""Clients of `/ws` in the hands of a test, by the `websockets` package."""

import contextlib
import json
import socket
from collections import deque
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from penstock.app import Server
from tests.doors.serving import port_of

Said = dict[str, Any]


class Talker:
    """One client: sends requests, and tells events from answers."""

    def __init__(self, server: Server, **options: Any) -> None:
        mine = {"compression": None, "proxy": None, "max_size": None, "max_queue": None}
        self._options = {**mine, **options}
        self._address = f"ws://127.0.0.1:{port_of(server, 'http')}/ws"
        self._events: deque[Said] = deque()
        self._answers: deque[Said] = deque()
        self.connection: ClientConnection
        self.client_id = ""

    async def __aenter__(self) -> Self:
        self.connection = await connect(self._address, **self._options)
        hello = await self.read()
        assert hello["type"] == "info"
        self.client_id = hello["message"].removeprefix("Connected with client_id: ")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.connection.close()

    async def send(self, *messages: Said | str | bytes) -> None:
        """Send messages; a dict as JSON."""
        for message in messages:
            await self.connection.send(json.dumps(message) if isinstance(message, dict) else message)

    async def send_at_once(self, *messages: Said | None) -> None:
        """Send messages in one write; None stands for a ping of the WebSocket itself."""
        protocol = self.connection.protocol
        for message in messages:
            if message is None:
                protocol.send_ping(b"")
            else:
                protocol.send_text(json.dumps(message).encode())
        self.connection.transport.write(b"".join(protocol.data_to_send()))

    async def read(self) -> Said:
        """What comes next, whatever it is."""
        text = await self.connection.recv()
        assert isinstance(text, str)
        said: Said = json.loads(text)
        return said

    async def answer(self) -> Said:
        """The next that is no event; events are kept."""
        while not self._answers:
            said = await self.read()
            (self._events if said["type"] == "event" else self._answers).append(said)
        return self._answers.popleft()

    async def event(self) -> Said:
        """The next event; what else comes is kept."""
        while not self._events:
            said = await self.read()
            (self._events if said["type"] == "event" else self._answers).append(said)
        return self._events.popleft()

    async def ask(self, type: str, **request: Any) -> Said:
        """Send a request and wait for the answer."""
        await self.send({"type": type, **request})
        return await self.answer()

    async def subscribe(self, topic: str, **request: Any) -> None:
        """Subscribe to a topic, which has to succeed."""
        assert (await self.ask("subscribe", topic=topic, **request))["type"] == "ack"

    async def publish(self, topic: str, *data: object) -> None:
        """Publish values one after another, without waiting between them; all have to succeed."""
        await self.send(*({"type": "publish", "topic": topic, "data": each} for each in data))
        for _ in data:
            assert (await self.answer())["type"] == "ack"

    async def data(self, count: int) -> list[Any]:
        """The data of the next events."""
        return [(await self.event())["data"] for _ in range(count)]

    def forget_events(self) -> None:
        """Whatever events have come."""
        self._events.clear()


class Sloth(Talker):
    """A client that reads nothing unless it is asked to, and for which little fits on the way."""

    def __init__(self, server: Server, **options: Any) -> None:
        narrow = socket.create_connection(("127.0.0.1", port_of(server, "http")))
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
        super().__init__(server, sock=narrow, max_queue=1, **options)

    async def read_all(self) -> list[Said]:
        """Everything until the server has closed."""
        said = []
        with contextlib.suppress(ConnectionClosed):
            while True:
                said.append(await self.read())
        return said
