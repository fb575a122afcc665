"""Many MQTT clients in one event loop: connect, subscribe, disconnect, reconnect, count messages.

They speak a minimum of MQTT 3.1.1, so that ten thousand of them keep up with a server.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from bench.errors import BenchError
from bench.peers.target import LOOPBACK
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import Connect, Disconnect, Publish, Request, Subscribe, Version

T = TypeVar("T")
CONNECTING = 500
"""Concurrent connection attempts; more would wait in the accept queue."""
BATCH = 1_000
TIMEOUT_S = 120.0

CONNACK, PUBLISH, PUBACK = 0x20, 0x30, 0x40
SESSION_PRESENT = 1


class Client(asyncio.Protocol):
    """One client with a persistent session."""

    def __init__(self, client_id: str, expected: int = 0) -> None:
        """Args:
        expected: number of messages it waits for.
        """
        self.client_id = client_id
        self.is_known = False
        self.got = 0
        self._acks = 0
        self._expected = expected
        self._rest = b""
        self._transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        self.has_all: asyncio.Future[None] = loop.create_future()
        self._acked: asyncio.Future[None] = loop.create_future()
        self._closed: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    async def request(self, data: bytes, acks: int = 1) -> None:
        """Send packets and wait for this many acknowledgements."""
        assert self._transport is not None
        self._acks, self._acked = acks, asyncio.get_running_loop().create_future()
        self._transport.write(data)
        await self._acked

    def data_received(self, data: bytes) -> None:
        data, position = self._rest + data, 0
        acks: list[bytes] = []
        while (body := find_body(data, position)) is not None:
            start, stop = body
            if data[position] & 0xF0 == PUBLISH:
                id_at = start + 2 + int.from_bytes(data[start : start + 2], "big")
                acks.append(b"\x40\x02" + data[id_at : id_at + 2])
            else:
                self._on_ack(data[position], data[start:stop])
            position = stop
        self._rest = data[position:]
        if acks and self._transport is not None:
            self._transport.write(b"".join(acks))
            self.got += len(acks)
            self._check_all()

    def _on_ack(self, first: int, body: bytes) -> None:
        if first == CONNACK:
            if body[1]:
                self._fail(BenchError(f"CONNACK refused: {body[1]}"))
                return
            self.is_known = bool(body[0] & SESSION_PRESENT)
        self._acks -= 1
        if self._acks == 0:
            self._acked.set_result(None)
            self._check_all()

    def _check_all(self) -> None:
        if self.got >= self._expected and not self.has_all.done():
            self.has_all.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._closed.set_result(None)
        self._fail(error or BenchError(f"the server closed the connection of {self.client_id}"))

    def _fail(self, error: Exception) -> None:
        for future in (self._acked, self.has_all):
            if not future.done():
                future.set_exception(error)
                future.exception()  # mark as retrieved: the caller may wait for the other future only

    async def disconnect(self) -> None:
        """Disconnect; the session stays."""
        assert self._transport is not None
        self._transport.write(encode_packet(Disconnect(), Version.V311))
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        assert self._transport is not None
        self._transport.close()
        await self._closed


def find_body(data: bytes, position: int) -> tuple[int, int] | None:
    """Start and end of a packet's body; None if it is incomplete."""
    size = shift = 0
    for place in range(position + 1, min(position + 5, len(data))):
        size |= (data[place] & 0x7F) << shift
        if data[place] < 0x80:
            return (place + 1, place + 1 + size) if place + 1 + size <= len(data) else None
        shift += 7
    return None


ClientT = TypeVar("ClientT", bound=Client)


async def connect(port: int, client_id: str, expected: int = 0) -> Client:
    """Connect, and resume the session if there is one."""
    return await connect_as(port, Client(client_id, expected))


async def connect_as(port: int, client: ClientT) -> ClientT:
    """Connect a client of any kind, and resume its session if there is one."""
    await asyncio.get_running_loop().create_connection(lambda: client, LOOPBACK, port)
    hello = Connect(client.client_id, clean_start=False, keep_alive=3600)
    try:
        await client.request(encode_packet(hello, Version.V311))
    except BenchError:
        await client.close()
        raise
    return client


async def make_offline_sessions(port: int, filters: Sequence[tuple[str, str]]) -> None:
    """For each client id and filter: connect, subscribe at QoS 1, disconnect."""

    async def make_one(client_id: str, filter: str) -> None:
        client = await connect(port, client_id)
        await client.request(encode_packet(Subscribe(1, (Request(filter, qos=1),)), Version.V311))
        await client.disconnect()

    await _limited(make_one(*each) for each in filters)


async def publish(port: int, messages: Iterable[tuple[str, bytes]], *, is_retained: bool = False) -> None:
    """Publish at QoS 1 in batches, and wait for all acknowledgements."""
    client = await connect(port, "bench-publisher")
    packets: list[bytes] = []
    for topic, payload in messages:
        packet = Publish(topic, payload, qos=1, retain=is_retained, packet_id=len(packets) + 1)
        packets.append(encode_packet(packet, Version.V311))
        if len(packets) == BATCH:
            await client.request(b"".join(packets), len(packets))
            packets.clear()
    if packets:
        await client.request(b"".join(packets), len(packets))
    await client.disconnect()


async def reconnect_all(port: int, client_ids: Sequence[str], expected: int) -> tuple[list[Client], float]:
    """Reconnect all clients at once and wait until each has the expected messages; then disconnect.

    Returns:
        The clients, and the seconds until all had everything, or until the timeout.
    """

    async def reconnect_one(client_id: str) -> None:
        clients.append(await connect(port, client_id, expected))

    clients: list[Client] = []
    began = time.monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(TIMEOUT_S):
            await _limited(reconnect_one(client_id) for client_id in client_ids)
            await asyncio.gather(*(client.has_all for client in clients))
    took_s = time.monotonic() - began
    await asyncio.gather(*(client.disconnect() for client in clients))
    return clients, took_s


async def _limited(work: Iterable[Coroutine[Any, Any, T]]) -> None:
    slots = asyncio.Semaphore(CONNECTING)

    async def do(one: Coroutine[Any, Any, T]) -> None:
        async with slots:
            await one

    await asyncio.gather(*map(do, work))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run in a uvloop if it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
