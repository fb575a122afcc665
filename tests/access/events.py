"""Server-Sent Events as an intruder meets them: who it is stands in the query, as browsers have to say it."""

import asyncio
from base64 import b64encode
from urllib.parse import quote

import httpx
from msgspec import Raw, Struct, json

from penstock.wire.json_values import payload_of
from tests.access.entrances import NULL, Ability, Credentials, Heard
from tests.access.web import HttpEntrance, HttpVisitor
from tests.support.servers import RunningServer

PATH = "/api/v1/events"
END_OF_HEAD = b"\r\n\r\n"
ANSWERED = b"HTTP/1.1 200 "
EVENT = b'data: {"type":"event"'


class Told(Struct):
    """One event."""

    topic: str
    data: Raw
    encoding: str | None = None


class Stream(asyncio.Protocol):
    """One answer that goes on, as far as it has come."""

    def __init__(self) -> None:
        self.received = b""
        self.has_begun = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, end, rest = self.received.partition(END_OF_HEAD)
        if end and (b"\n\n" in rest or not head.startswith(ANSWERED)):
            self.has_begun.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.has_begun.set()

    def take(self) -> list[Heard]:
        """What came since the last call; a block is never cut, so neither is a line."""
        whole, end, rest = self.received.rpartition(b"\n\n")
        self.received = rest
        lines = (whole + end).split(b"\n")
        events = [json.decode(line[6:], type=Told) for line in lines if line.startswith(EVENT)]
        return [(event.topic, payload_of(event.data, event.encoding)) for event in events]


class EventsVisitor(HttpVisitor):
    """Somebody who follows events, and publishes by requests."""

    def __init__(self, http: httpx.AsyncClient, port: int, token: str, client_id: str) -> None:
        super().__init__(http, iter(()))
        self._port = port
        self._token = token
        self._client_id = client_id
        self._streams: list[tuple[asyncio.Transport, Stream]] = []

    async def subscribe(self, filter: str) -> bool:
        """Follow a filter by an answer of its own."""
        loop = asyncio.get_running_loop()
        transport, stream = await loop.create_connection(Stream, "127.0.0.1", self._port)
        self._streams.append((transport, stream))
        target = f"{PATH}?filter={quote(filter.replace(NULL, chr(0)), safe='')}{self._token}"
        who = f"X-Client-Id: {self._client_id}\r\n" if self._client_id else ""
        transport.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{who}\r\n".encode())
        await stream.has_begun.wait()
        return stream.received.startswith(ANSWERED)

    async def heard(self) -> list[Heard]:
        """What came on all streams; whatever was published before a request is written before its answer."""
        for _ in range(2):
            assert (await self._http.get("/livez")).status_code == 200
        return [heard for _, stream in self._streams for heard in stream.take()]

    async def pry(self) -> list[Heard]:
        """Others do that."""
        return []

    async def leave(self) -> None:
        for transport, _ in self._streams:
            transport.abort()
        await super().leave()

    vanish = leave


class EventsEntrance(HttpEntrance):
    """The web door, by a token in the query or by none."""

    abilities = Ability.CLIENT_IDS | Ability.EXACT_NAMES

    def __init__(self) -> None:
        super().__init__(iter(()))
        self._visitors: list[EventsVisitor] = []

    async def enter(
        self,
        server: RunningServer,
        credentials: Credentials,
        client_id: str = "",
        *,
        will: Heard | None = None,
        stays: bool = False,
    ) -> EventsVisitor | None:
        """Try to be let in by the stream alone."""
        headers = {b"X-Client-Id": client_id.encode()} if client_id else {}
        token = ""
        if credentials.user is not None:
            user = credentials.user.replace(NULL, "\0").encode()
            pair = b64encode(user + b":" + (credentials.password or b""))
            token = "&access_token=" + quote(pair.decode(), safe="")
            headers[b"Authorization"] = b"Basic " + pair  # to publish, where no token in the query counts
        port = server.port_of("http")
        client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20)
        self._clients.append(client)
        visitor = EventsVisitor(client, port, token, client_id)
        self._visitors.append(visitor)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as stranger:
            answer = await HttpVisitor(stranger, iter(()))._send("HEAD", f"{PATH}?filter=x{token}")
        is_known = answer is not None and answer.status_code in (200, 403)  # whatever it may follow
        return visitor if is_known else None

    async def close(self) -> None:
        for visitor in self._visitors:
            await visitor.leave()
