"""Packets over whatever carries them: a bare socket, TLS, WebSocket, or both."""

import asyncio
import ssl
from functools import cache
from typing import cast

from websockets.frames import Frame, Opcode

from penstock.client import PacketStream
from penstock.client.mqtt.stream import LARGEST_PACKET_BYTES
from penstock.wire.mqtt import Version
from tests.net.websocket.peers import request_bytes

END_OF_HEAD = b"\r\n\r\n"
SECURE = ("mqtts", "wss")
WEB = ("ws", "wss")


async def open_stream(scheme: str, port: int, version: Version) -> PacketStream:
    """A stream by one of the schemes that a server's addresses have."""
    context = careless() if scheme in SECURE else None
    if scheme not in WEB and context is None:
        return await PacketStream.open("127.0.0.1", port, version)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    if scheme in WEB:
        writer.write(request_bytes())
        head = await reader.readuntil(END_OF_HEAD)
        assert head.startswith(b"HTTP/1.1 101 "), head
        reader = FramedReader(reader)
        writer = cast("asyncio.StreamWriter", FramedWriter(writer))
    return PacketStream(reader, writer, version, LARGEST_PACKET_BYTES)


@cache
def careless(*protocols: str) -> ssl.SSLContext:
    """A client that does not look at the server's certificate; who the server is, is not the question."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


class FramedReader(asyncio.StreamReader):
    """What a server's frames carry; its close frame is the end."""

    def __init__(self, outer: asyncio.StreamReader) -> None:
        super().__init__()
        self._outer = outer
        self._unwrapping = asyncio.create_task(self._unwrap())

    async def _unwrap(self) -> None:
        try:
            while payload := await self._take_payload():
                self.feed_data(payload)
        except (asyncio.IncompleteReadError, OSError):
            pass
        self.feed_eof()

    async def _take_payload(self) -> bytes:
        first, size = await self._outer.readexactly(2)
        if size > 125:
            size = int.from_bytes(await self._outer.readexactly(2 if size == 126 else 8), "big")
        payload = await self._outer.readexactly(size)
        return b"" if first & 0x0F == Opcode.CLOSE else payload


class FramedWriter:
    """Puts what is written into frames."""

    def __init__(self, outer: asyncio.StreamWriter) -> None:
        self._outer = outer
        self.transport = outer.transport
        self.drain = outer.drain
        self.close = outer.close
        self.wait_closed = outer.wait_closed

    def write(self, data: bytes) -> None:
        self._outer.write(Frame(Opcode.BINARY, data).serialize(mask=True))
