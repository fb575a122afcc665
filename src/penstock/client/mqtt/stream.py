"""MQTT packets over TCP, TLS or a WebSocket, without protocol rules.

Base of the client; tests use it to send any packets, also invalid ones.
"""

import asyncio
import contextlib
import os
import re
import ssl
from collections import deque
from functools import partial
from types import TracebackType
from typing import Self, cast

from penstock.client.errors import ConnectionLost, ConnectionRefused, describe_connect_error
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import Connect, Packet, Version
from penstock.wire.mqtt.primitives import MAX_VARINT
from penstock.wire.mqtt.reader import PacketReader

LARGEST_PACKET_BYTES = MAX_VARINT + 5
CHUNK_BYTES = 64 * 1024
CLOSE_TIMEOUT_S = 2.0
_ERRNO = re.compile(r"\[Errno (\d+)\]")


class _ResetTolerantReader(asyncio.StreamReader):
    """Keeps data that arrived before a reset readable, such as the server's reason."""

    def set_exception(self, exc: Exception) -> None:
        self.feed_eof()


class PacketStream:
    """Packets over one connection, in the version of the CONNECT that is sent.

    Only `receive` reports the end of the connection, after all packets that arrived before.
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
        """Open a connection.

        Args:
            tls: TLS context; default: no TLS.
            websocket_path: connect through a WebSocket at this path.

        Raises:
            ConnectionRefused: no connection, or the TLS or WebSocket handshake failed.
        """
        try:
            streams = await _open_streams(host, port, tls, websocket_path)
        except OSError as error:
            cause = _connect_cause(error, tls is not None)
            raise ConnectionRefused(f"no connection to {host}:{port}: {cause}") from None
        return cls(*streams, version, limit_bytes)

    @property
    def version(self) -> Version:
        """Protocol version of the packets."""
        return self._decoder.version

    def write(self, *packets: Packet) -> None:
        """Write packets without waiting for room in the buffer."""
        for packet in packets:
            if isinstance(packet, Connect):
                self._decoder.version = packet.version
            self.write_bytes(encode_packet(packet, self.version))

    def write_bytes(self, data: bytes) -> None:
        """Write raw bytes, also invalid ones."""
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait until the buffer has room."""
        with contextlib.suppress(OSError):
            await self._writer.drain()

    async def send(self, *packets: Packet) -> None:
        """Write packets and wait until the buffer has room."""
        self.write(*packets)
        await self.drain()

    async def receive(self, timeout: float | None = None) -> Packet:
        """The next packet.

        Raises:
            ConnectionLost: the server has closed the connection, and all its packets have been received.
            TimeoutError: no packet in time.
            MqttWireError: the received bytes are not MQTT.
        """
        if not self._packets:
            async with asyncio.timeout(timeout):
                await self._fill()
        return self._packets.popleft()

    async def receive_bytes(self) -> bytes:
        """The next bytes, not decoded; empty at the end. Not to be mixed with `receive`."""
        return await self._reader.read(CHUNK_BYTES)

    async def wait_closed(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Read and discard until the server closes the connection.

        Raises:
            TimeoutError: the server did not close it in time.
        """
        async with asyncio.timeout(timeout):
            while await self._reader.read(CHUNK_BYTES):
                pass

    def hang_up(self) -> None:
        """Close after everything written is sent, without waiting."""
        self._writer.close()

    async def close(self) -> None:
        """Close, and wait until everything written is sent."""
        self.hang_up()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                # Shielded: the writer shares one future among all waiters, and a timeout would cancel it.
                await asyncio.shield(self._writer.wait_closed())
        except OSError:  # the peer does not read, or is gone
            self.abort()

    def abort(self) -> None:
        """Close immediately, and discard unsent data."""
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
    reader = _ResetTolerantReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    if path is None:
        transport, _ = await loop.create_connection(lambda: protocol, host, port, ssl=tls)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
    from penstock.client.mqtt.websocket import WebSocketAdapter  # noqa: PLC0415 - slow import

    make = partial(WebSocketAdapter, protocol, host, port, path, tls is not None)
    plain, adapter = await loop.create_connection(make, host, port, ssl=tls)
    try:
        await adapter.opened
    except BaseException:
        plain.abort()
        raise
    return reader, asyncio.StreamWriter(adapter.framed, protocol, reader, loop)


def _connect_cause(error: OSError, with_tls: bool) -> str:
    if with_tls and isinstance(error, ConnectionResetError):
        return "TLS failed (the server closed the connection)"
    return describe_connect_error(error) or _text_of(error)


def _text_of(error: OSError) -> str:
    """Text of the system; asyncio writes its own, also one for several addresses."""
    found = _ERRNO.search(str(error))
    return os.strerror(int(found[1])) if found else str(error.strerror or error or type(error).__name__)
