"""Packets over a connection, plain, with TLS or in a WebSocket, without any of MQTT's rules.

The client stands on it; tests use it to say exactly what they want, also what no client would say.
"""

import asyncio
import contextlib
import os
import re
import ssl
from collections import deque
from functools import partial
from socket import gaierror
from types import TracebackType
from typing import Self, cast

from penstock.client.errors import ConnectionLost, ConnectionRefused
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import Connect, Packet, Version
from penstock.wire.mqtt.primitives import MAX_VARINT
from penstock.wire.mqtt.reader import PacketReader

LARGEST_PACKET_BYTES = MAX_VARINT + 5
CHUNK_BYTES = 64 * 1024
CLOSE_TIMEOUT_S = 2.0
_ERRNO = re.compile(r"\[Errno (\d+)\]")


class LastWords(asyncio.StreamReader):
    """Keeps what arrived before a reset readable: a server's reason may have come just before it."""

    def set_exception(self, exc: Exception) -> None:
        self.feed_eof()


class PacketStream:
    """Packets over one TCP connection, as they come; speaks the version of the CONNECT that is sent.

    That the connection is over is told by `receive` alone, after everything that came before.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        version: Version = Version.V5,
        limit_bytes: int = LARGEST_PACKET_BYTES,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = PacketReader(limit_bytes, version)
        self._packets: deque[Packet] = deque()

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        version: Version = Version.V5,
        limit_bytes: int = LARGEST_PACKET_BYTES,
        *,
        tls: ssl.SSLContext | None = None,
        websocket_path: str | None = None,
    ) -> Self:
        """A stream to whoever listens there.

        Args:
            tls: what to trust; without it the connection is plain.
            websocket_path: speak in a WebSocket with this path.

        Raises:
            ConnectionRefused: nobody does, the host is not known, or no TLS or WebSocket came about.
        """
        try:
            streams = await _open_streams(host, port, tls, websocket_path)
        except OSError as error:
            raise ConnectionRefused(_why(error, f"{host}:{port}", tls is not None)) from None
        return cls(*streams, version, limit_bytes)

    @property
    def version(self) -> Version:
        """The version that packets are written and read in."""
        return self._decoder.version

    def write(self, *packets: Packet) -> None:
        """Hand packets to the connection without waiting for room in its buffer."""
        for packet in packets:
            if isinstance(packet, Connect):
                self._decoder.version = packet.version
            self.write_bytes(encode_packet(packet, self.version))

    def write_bytes(self, data: bytes) -> None:
        """Hand over bytes as they are, also such as no packet is made of."""
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait until there is room for more."""
        with contextlib.suppress(OSError):
            await self._writer.drain()

    async def send(self, *packets: Packet) -> None:
        """Write packets and wait until there is room for more."""
        self.write(*packets)
        await self.drain()

    async def receive(self, timeout: float | None = None) -> Packet:
        """The next packet.

        Raises:
            ConnectionLost: the other side has closed, and all it sent has been received.
            TimeoutError: nothing came in time.
            MqttWireError: what came is not MQTT.
        """
        if not self._packets:
            async with asyncio.timeout(timeout):
                await self._fill()
        return self._packets.popleft()

    async def wait_closed(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Read and discard until the other side closes.

        Raises:
            TimeoutError: it did not in time.
        """
        async with asyncio.timeout(timeout):
            while await self._reader.read(CHUNK_BYTES):
                pass

    def hang_up(self) -> None:
        """Close once everything written is sent, without waiting for that."""
        self._writer.close()

    async def close(self) -> None:
        """Close, and wait until everything written is sent."""
        self.hang_up()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                # Shielded, because the writer has one future for all who wait, and a timeout would cancel it.
                await asyncio.shield(self._writer.wait_closed())
        except OSError:  # a peer that does not read, or is gone
            self.abort()

    def abort(self) -> None:
        """Close now, whatever is unsent."""
        self._writer.transport.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _fill(self) -> None:
        while not self._packets:
            if self._decoder.error is not None:
                raise self._decoder.error
            chunk = await self._reader.read(CHUNK_BYTES)
            if not chunk:
                raise ConnectionLost("the server closed the connection")
            self._packets.extend(cast(list[Packet], self._decoder.feed(chunk)))


async def _open_streams(
    host: str, port: int, tls: ssl.SSLContext | None, path: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = LastWords()
    protocol = asyncio.StreamReaderProtocol(reader)
    if path is None:
        transport, _ = await loop.create_connection(lambda: protocol, host, port, ssl=tls)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
    from penstock.client.websocket import WebSocketLine  # noqa: PLC0415 - few need it, and it takes a while

    make = partial(WebSocketLine, protocol, host, port, path, tls is not None)
    plain, line = await loop.create_connection(make, host, port, ssl=tls)
    try:
        await line.opened
    except BaseException:
        plain.abort()
        raise
    return reader, asyncio.StreamWriter(line.framed, protocol, reader, loop)


def _why(error: OSError, place: str, with_tls: bool) -> str:
    """Why no connection came about."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"no connection to {place}: its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"no connection to {place}: TLS failed ({error.reason or 'no reason given'})"
    if isinstance(error, gaierror):
        return f"no connection to {place}: there is no host of that name"
    if with_tls and isinstance(error, ConnectionResetError):
        return f"no connection to {place}: TLS failed (the connection was ended)"
    return f"nobody answers at {place}: {_words(error)}"


def _words(error: OSError) -> str:
    """What the system says; asyncio has words of its own, and some for several addresses."""
    found = _ERRNO.search(str(error))
    return os.strerror(int(found[1])) if found else str(error.strerror or error or type(error).__name__)
