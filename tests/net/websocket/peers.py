"""Both ends of a WebSocket in the hands of a test: a client that sends any bytes, a door that notes all."""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, Self, TypeVar, cast

from websockets.frames import Frame, Opcode

from penstock.net.door import Peer
from penstock.net.origins import Origins
from penstock.net.websocket import WebSocketSettings
from penstock.net.websocket.byte_socket import ByteSocket
from penstock.net.websocket.entrance import BaseEntrance, ByteEntrance
from penstock.net.websocket.handshake import Terms
from tests.support.waiting import until

TIMEOUT_S = 20.0
MIB = 1024 * 1024
HELLO = {
    "Host": "localhost",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "mqtt",
}


def make_terms(host: str = "127.0.0.1", settings: WebSocketSettings | None = None, **changes: Any) -> Terms:
    settings = settings or WebSocketSettings()
    given = {
        "path": "/mqtt",
        "subprotocols": ("mqtt",),
        "origins": Origins(host, settings.hosts, settings.origins),
        "limit_bytes": MIB,
        "timeout_s": TIMEOUT_S,
    }
    return Terms(**{**given, **changes})


def request_bytes(path: str = "/mqtt", method: str = "GET", **changes: str) -> bytes:
    """A request that is accepted unless it is changed; dashes in the names of headers are written as _."""
    headers = HELLO | {name.replace("_", "-"): value for name, value in changes.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def frame(payload: bytes = b"", opcode: Opcode = Opcode.BINARY, *, is_final: bool = True) -> bytes:
    """A client's frame."""
    return Frame(opcode, payload, is_final).serialize(mask=True)


async def has_somebody_waiting(entrance: BaseEntrance) -> None:
    await until(lambda: entrance.waiting, "no connection is waiting", timeout_s=TIMEOUT_S, every_s=0.001)


async def has_nobody_waiting(entrance: BaseEntrance) -> None:
    await until(
        lambda: not entrance.waiting, "a connection is still waiting", timeout_s=TIMEOUT_S, every_s=0.001
    )


class Recorder:
    """A door's protocol that notes what happens to it."""

    def __init__(self, hall: "Hall", peer: Peer | None) -> None:
        self._hall = hall
        self.peer = peer
        self.pieces: list[bytes] = []
        self.losses: list[Exception | None] = []
        self.is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        inner = cast("object", transport)
        assert isinstance(inner, ByteSocket)
        self.transport = inner
        self._hall.doors.append(self)
        self._hall.on_made(self)
        self._hall.note()

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        self._hall.on_data(self, data)
        self._hall.note()

    def pause_writing(self) -> None:
        self.is_full = True
        self._hall.note()

    def resume_writing(self) -> None:
        self.is_full = False
        self._hall.note()

    def connection_lost(self, error: Exception | None) -> None:
        self.losses.append(error)
        self._hall.note()

    @property
    def received(self) -> bytes:
        return b"".join(self.pieces)


class Client:
    """The other end of the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def transport(self) -> asyncio.Transport:
        """The transport of both directions."""
        return cast("asyncio.Transport", self.writer.transport)

    def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))

    async def read_response(self) -> tuple[int, bytes]:
        """Status and body of the answer; an acceptance has none."""
        async with asyncio.timeout(TIMEOUT_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            status = int(head.split()[1])
            return status, b"" if status == 101 else await self.reader.read()

    async def shake(self, *behind: bytes) -> Self:
        """Open the WebSocket; what follows the request goes out with it."""
        self.send(request_bytes(), *behind)
        status, _ = await self.read_response()
        assert status == 101
        return self

    async def read_frame(self) -> tuple[Opcode, bytes]:
        async with asyncio.timeout(TIMEOUT_S):
            first, size = await self.reader.readexactly(2)
            assert first & 0xF0 == 0x80, "servers send whole frames without reserved bits"
            assert size < 128, "servers do not mask"
            if size > 125:
                size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8), "big")
            return Opcode(first & 0x0F), await self.reader.readexactly(size)

    async def read_close(self) -> tuple[int, bytes]:
        """The code of the close frame that comes next, and what follows it until the end."""
        opcode, payload = await self.read_frame()
        assert opcode is Opcode.CLOSE
        return int.from_bytes(payload[:2], "big"), await self.read_rest()

    async def read_rest(self) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.reader.read()

    async def fence(self) -> list[tuple[Opcode, bytes]]:
        """What came before the answer to a ping: after it, everything sent so far was read."""
        self.send(frame(b"fence", Opcode.PING))
        frames = []
        while (latest := await self.read_frame()) != (Opcode.PONG, b"fence"):
            frames.append(latest)
        return frames

    async def is_cut(self) -> bool:
        """The connection ended, without a word."""
        try:
            return await self.read_rest() == b""
        except ConnectionResetError:
            return True


class TransportInfo(Protocol):
    """Transport that has a socket while it is open."""

    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


class RecordingDoor(Protocol):
    """Door that records the end of its connection."""

    @property
    def losses(self) -> list[Exception | None]: ...

    @property
    def transport(self) -> TransportInfo: ...


DoorType = TypeVar("DoorType", bound=RecordingDoor)
ClientType = TypeVar("ClientType", bound=Client)
EntranceType = TypeVar("EntranceType", bound=BaseEntrance)


class BaseHall(ABC, Generic[DoorType, ClientType, EntranceType]):
    """Base class: listeners, the doors behind them, and clients; all end with the test."""

    def __init__(self) -> None:
        self.doors: list[DoorType] = []
        self.port = 0
        self._changed = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._entrances: list[EntranceType] = []
        self._clients: list[ClientType] = []

    @property
    def door(self) -> DoorType:
        """The only one."""
        [door] = self.doors
        return door

    @abstractmethod
    def new_entrance(self, **changes: Any) -> EntranceType:
        """An entrance with terms that may be changed."""

    @abstractmethod
    def make_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> ClientType:
        """A client of an open connection."""

    def make_entrance(self, **changes: Any) -> EntranceType:
        """An entrance that is closed with the hall."""
        entrance = self.new_entrance(**changes)
        self._entrances.append(entrance)
        return entrance

    async def open(self, **changes: Any) -> EntranceType:
        """Listen with terms that may be changed."""
        entrance = self.make_entrance(**changes)
        await self.listen(entrance.accept)
        return entrance

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], ssl_context: ssl.SSLContext | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(factory, "127.0.0.1", 0, ssl=ssl_context)
        self._servers.append(server)
        self.port = server.sockets[0].getsockname()[1]

    async def connect(self, ssl_context: ssl.SSLContext | None = None) -> ClientType:
        streams = await asyncio.open_connection("127.0.0.1", self.port, ssl=ssl_context)
        client = self.make_client(*streams)
        self._clients.append(client)
        return client

    async def enter(self) -> ClientType:
        """A client after its handshake."""
        return await (await self.connect()).shake()

    def note(self) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to have happened at the doors."""
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def close(self) -> None:
        for client in self._clients:
            client.writer.transport.abort()
        for server in self._servers:
            server.close()
        for entrance in self._entrances:
            entrance.close()
            await has_nobody_waiting(entrance)
        await self.until(lambda: all(door.losses for door in self.doors))
        assert all(len(door.losses) == 1 for door in self.doors)
        # A door whose peer broke the rules is told at once; the socket itself goes a moment later.
        await until(
            lambda: not any(door.transport.get_extra_info("socket") is not None for door in self.doors),
            "a socket is still open",
            every_s=0.001,
        )


class Hall(BaseHall[Recorder, Client, ByteEntrance]):
    """Listeners for bytes, the doors behind them, and clients."""

    def __init__(self) -> None:
        super().__init__()
        self.on_made: Callable[[Recorder], None] = lambda door: None
        self.on_data: Callable[[Recorder, bytes], None] = lambda door, data: None

    def make_door(self, peer: Peer | None) -> Recorder:
        return Recorder(self, peer)

    def new_entrance(
        self, *, admits: Callable[[str], bool] = lambda host: True, **changes: Any
    ) -> ByteEntrance:
        buffer = memoryview(bytearray(64 * 1024))
        return ByteEntrance(make_terms(**changes), self.make_door, buffer, admits)

    def make_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Client:
        return Client(reader, writer)
