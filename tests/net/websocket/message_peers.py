"""Both ends of a WebSocket that speaks in messages, in the hands of a test."""

import zlib
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Sequence
from typing import Any, Self

from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from penstock.core.access.identity import Identity
from penstock.net.door import Peer
from penstock.net.websocket.entrance import MessageEntrance
from penstock.net.websocket.message_socket import MessageSocket
from penstock.wire.websocket.deflate import TAIL
from penstock.wire.websocket.encoding import Pinged
from penstock.wire.websocket.messages import Messages
from tests.net.websocket import peers
from tests.net.websocket.peers import BaseHall, Client, make_terms, request_bytes
from tests.support.clock import ManualClock, ManualScheduler

PATH = "/ws"


def frame(payload: bytes = b"", opcode: Opcode = Opcode.TEXT, *, is_final: bool = True) -> bytes:
    """A client's frame."""
    return peers.frame(payload, opcode, is_final=is_final)


def deflated(payload: bytes, opcode: Opcode = Opcode.TEXT, cuts: Sequence[int] = ()) -> bytes:
    """A client's compressed message, in fragments of these sizes and one of what is left."""
    deflater = zlib.compressobj(wbits=-15)
    data = (deflater.compress(payload) + deflater.flush(zlib.Z_SYNC_FLUSH)).removesuffix(TAIL)
    return compressed_frames(data, opcode, cuts)


def compressed_frames(data: bytes, opcode: Opcode = Opcode.TEXT, cuts: Sequence[int] = ()) -> bytes:
    """A client's frames of a message that is compressed already."""
    parts = []
    for size in cuts:
        parts.append(data[:size])
        data = data[size:]
    parts.append(data)
    frames = [
        frame(part, Opcode.CONT if number else opcode, is_final=number == len(parts) - 1)
        for number, part in enumerate(parts)
    ]
    first = bytes((frames[0][0] | 0x40,)) + frames[0][1:]
    return b"".join([first, *frames[1:]])


def engine_messages(
    messages: Sequence[str | bytes], cuts: Sequence[int], *, is_compressed: bool
) -> list[bytes]:
    """What a client of the `websockets` package sends for these messages, cut at these sizes."""
    client = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN)
    if is_compressed:
        client.extensions = [PerMessageDeflate(True, True, 15, 15)]
    for message in messages:
        data = message.encode() if isinstance(message, str) else message
        send: Callable[..., None] = client.send_text if isinstance(message, str) else client.send_binary
        for cut in cuts:
            send(data[:cut], fin=False)
            data, send = data[cut:], client.send_continuation
        send(data, fin=True)
    return client.data_to_send()


class MessageRecorder:
    """A door's protocol that notes what happens to it."""

    def __init__(self, hall: "MessageHall", peer: Peer, identity: Identity | None, target: str) -> None:
        self._hall = hall
        self.peer = peer
        self.identity = identity
        self.target = target
        self.batches: list[list[str | bytes]] = []
        self.losses: list[Exception | None] = []
        self.is_full = False
        self.received_bytes = 0

    def opened(self, socket: MessageSocket) -> None:
        self.socket = self.transport = socket
        self._hall.doors.append(self)
        self._hall.on_opened(self)
        self._hall.note()

    def messages_received(self, messages: Messages, size_bytes: int) -> None:
        assert messages
        assert size_bytes
        self.received_bytes += size_bytes
        said = [message for message in messages if not isinstance(message, Pinged)]
        if said:
            self.batches.append(said)
        for message in messages:
            if isinstance(message, Pinged):
                self.socket.write(message.pong)
            else:
                self._hall.on_messages(self, [message])
        self._hall.note()

    def pause_writing(self) -> None:
        self.is_full = True
        self._hall.note()

    def resume_writing(self) -> None:
        self.is_full = False
        self._hall.note()

    def closed(self, error: Exception | None) -> None:
        self.losses.append(error)
        self._hall.note()

    @property
    def received(self) -> list[str | bytes]:
        return [message for batch in self.batches for message in batch]


class MessageClient(Client):
    """The other end of the socket."""

    async def shake(self, *behind: bytes, **changes: str) -> Self:
        """Open the WebSocket; what follows the request goes out with it."""
        self.send(request_bytes(PATH, **changes), *behind)
        status, _ = await self.read_response()
        assert status == 101
        return self


class MessageHall(BaseHall[MessageRecorder, MessageClient, MessageEntrance]):
    """Listeners for messages, the doors behind them, and clients. Pings come when a test moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.on_opened: Callable[[MessageRecorder], None] = lambda door: None
        self.on_messages: Callable[[MessageRecorder, list[str | bytes]], None] = lambda door, messages: None
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)

    def make_message_door(self, peer: Peer, identity: Identity | None, target: str) -> MessageRecorder:
        return MessageRecorder(self, peer, identity, target)

    def new_entrance(
        self, *, ping_s: float = 20.0, ping_timeout_s: float = 10.0, **changes: Any
    ) -> MessageEntrance:
        return MessageEntrance(
            make_terms(**{"path": PATH, "subprotocols": (), **changes}),
            self.make_message_door,
            memoryview(bytearray(64 * 1024)),
            self.clock,
            self.scheduler,
            ping_s=ping_s,
            ping_timeout_s=ping_timeout_s,
        )

    def make_client(self, reader: StreamReader, writer: StreamWriter) -> MessageClient:
        return MessageClient(reader, writer)
