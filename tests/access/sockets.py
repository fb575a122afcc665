"""`/ws` as an intruder meets it: who it is stands in the query, as browsers have to say it."""

from base64 import b64encode
from typing import Any
from urllib.parse import quote

from msgspec import Raw, json
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from penstock.wire.json_values import payload_of
from tests.access.entrances import NULL, Ability, Credentials, Heard
from tests.support.servers import RunningServer

LAST = 1_000
"""How much of the past a visitor asks for with everything it subscribes to."""


class SocketVisitor:
    """A client of `/ws`."""

    is_known = False

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._events: list[Heard] = []

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> bool:
        """Publish bytes; nothing is retained from here."""
        data = {"$bytes": b64encode(payload).decode()}
        return await self._ask(type="publish", topic=topic.replace(NULL, "\0"), data=data)

    async def subscribe(self, filter: str) -> bool:
        """Subscribe, to the past as well where there is one."""
        is_shared = filter.startswith("$share/")
        last = {} if is_shared else {"last_n": LAST}
        is_granted = await self._ask(type="subscribe", filter=filter.replace(NULL, "\0"), **last)
        if is_granted and last:
            while (await self._take()).get("message") != "replay_complete":
                pass  # nothing is live before that
        return is_granted

    async def heard(self) -> list[Heard]:
        await self._ask(type="ping")
        events, self._events = self._events, []
        return events

    async def _ask(self, **request: Any) -> bool:
        """Whether a request is carried out; False if the connection ends instead."""
        try:
            await self._connection.send(json.encode({**request, "request_id": 1}).decode())
            while "request_id" not in (said := await self._take()):
                pass
        except ConnectionClosed:
            return False
        return bool(said["type"] in ("ack", "pong"))

    async def _take(self) -> dict[str, Any]:
        """The next thing that the server says; events are kept."""
        said: dict[str, Any] = json.decode(await self._connection.recv())
        if said["type"] == "event":
            payload = payload_of(Raw(json.encode(said["data"])), said.get("encoding"))
            self._events.append((said["topic"], payload))
        return said

    async def leave(self) -> None:
        await self._connection.close()

    async def vanish(self) -> None:
        self._connection.transport.abort()


class SocketEntrance:
    """JSON over WebSocket, by a token in the query or by none."""

    abilities = Ability.EXACT_NAMES | Ability.FILTERS | Ability.SHARES

    def __init__(self) -> None:
        self._connections: list[ClientConnection] = []

    async def enter(
        self,
        server: RunningServer,
        credentials: Credentials,
        client_id: str = "",
        *,
        will: Heard | None = None,
        stays: bool = False,
    ) -> SocketVisitor | None:
        address = f"ws://127.0.0.1:{server.port_of('http')}/ws"
        if credentials.user is not None:
            user = credentials.user.replace(NULL, "\0").encode()
            token = b64encode(user + b":" + (credentials.password or b"")).decode()
            address += f"?access_token={quote(token, safe='')}"
        try:
            connection = await connect(address, proxy=None, compression=None, max_size=None)
        except InvalidHandshake:
            return None
        self._connections.append(connection)
        assert json.decode(await connection.recv())["type"] == "info"
        return SocketVisitor(connection)

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()
