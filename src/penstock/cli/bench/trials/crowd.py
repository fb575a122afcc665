"""Many MQTT clients in one loop: they come, subscribe, go, come back, and count what they get.

They speak MQTT 3.1.1 in as few words as possible, so that ten thousand of them keep up with a server.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from penstock.cli.bench.problems import BenchError
from penstock.cli.bench.targets import LOOPBACK
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import Connect, Disconnect, Publish, Request, Subscribe, Version

T = TypeVar("T")
CONNECTING = 500
"""Connections that are being made at once; more would wait in the system's queue."""
PUBLISHED_AT_ONCE = 1_000
PATIENCE_S = 120.0

CONNACK, PUBLISH, PUBACK = 0x20, 0x30, 0x40
SESSION_PRESENT = 1


class Member(asyncio.Protocol):
    """One client. Its session stays when it goes."""

    def __init__(self, client_id: str, expected: int = 0) -> None:
        """Args:
        expected: how many messages it waits for.
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
        self._answer: asyncio.Future[None] = loop.create_future()
        self._is_gone: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    async def ask(self, data: bytes, answers: int = 1) -> None:
        """Send packets and wait for as many answers."""
        assert self._transport is not None
        self._acks, self._answer = answers, asyncio.get_running_loop().create_future()
        self._transport.write(data)
        await self._answer

    def data_received(self, data: bytes) -> None:
        data, position = self._rest + data, 0
        acks: list[bytes] = []
        while (body := _body_of(data, position)) is not None:
            start, stop = body
            if data[position] & 0xF0 == PUBLISH:
                id_at = start + 2 + int.from_bytes(data[start : start + 2], "big")
                acks.append(b"\x40\x02" + data[id_at : id_at + 2])
            else:
                self._on_answer(data[position], data[start:stop])
            position = stop
        self._rest = data[position:]
        if acks and self._transport is not None:
            self._transport.write(b"".join(acks))
            self.got += len(acks)
            self._look()

    def _on_answer(self, first: int, body: bytes) -> None:
        if first == CONNACK:
            if body[1]:
                self._fail(BenchError(f"CONNACK refused: {body[1]}"))
                return
            self.is_known = bool(body[0] & SESSION_PRESENT)
        self._acks -= 1
        if self._acks == 0:
            self._answer.set_result(None)
            self._look()

    def _look(self) -> None:
        if self.got >= self._expected and not self.has_all.done():
            self.has_all.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_gone.set_result(None)
        self._fail(error or BenchError(f"the server closed the connection of {self.client_id}"))

    def _fail(self, error: Exception) -> None:
        for future in (self._answer, self.has_all):
            if not future.done():
                future.set_exception(error)
                future.exception()  # someone may be waiting for the other one only

    async def leave(self) -> None:
        """Say goodbye; the session stays."""
        assert self._transport is not None
        self._transport.write(encode_packet(Disconnect(), Version.V311))
        self._transport.close()
        await self._is_gone


def _body_of(data: bytes, position: int) -> tuple[int, int] | None:
    """Where the body of a packet begins and ends; None if it is not whole."""
    size = shift = 0
    for place in range(position + 1, min(position + 5, len(data))):
        size |= (data[place] & 0x7F) << shift
        if data[place] < 0x80:
            return (place + 1, place + 1 + size) if place + 1 + size <= len(data) else None
        shift += 7
    return None


async def connect(port: int, client_id: str, expected: int = 0) -> Member:
    """Let a client come, or come back."""
    loop = asyncio.get_running_loop()
    _, member = await loop.create_connection(lambda: Member(client_id, expected), LOOPBACK, port)
    hello = Connect(client_id, clean_start=False, keep_alive=3600)
    await member.ask(encode_packet(hello, Version.V311))
    return member


async def leave_sessions(port: int, filters: Sequence[tuple[str, str]]) -> None:
    """For each client id and filter: come, subscribe at QoS 1, and go."""

    async def leave_one(client_id: str, filter: str) -> None:
        member = await connect(port, client_id)
        await member.ask(encode_packet(Subscribe(1, (Request(filter, qos=1),)), Version.V311))
        await member.leave()

    await _few_at_once(leave_one(*each) for each in filters)


async def publish(port: int, messages: Iterable[tuple[str, bytes]]) -> None:
    """Publish topics and payloads at QoS 1, some at once, and wait until all are acknowledged."""
    member = await connect(port, "bench-publisher")
    packets: list[bytes] = []
    for topic, payload in messages:
        packet = Publish(topic, payload, qos=1, packet_id=len(packets) + 1)
        packets.append(encode_packet(packet, Version.V311))
        if len(packets) == PUBLISHED_AT_ONCE:
            await member.ask(b"".join(packets), len(packets))
            packets.clear()
    if packets:
        await member.ask(b"".join(packets), len(packets))
    await member.leave()


async def return_all(port: int, client_ids: Sequence[str], expected: int) -> tuple[list[Member], float]:
    """Let clients come back at once; answer them, and in how many seconds each had as many messages as it is
    owed. Then they go again.
    """

    async def return_one(client_id: str) -> None:
        members.append(await connect(port, client_id, expected))

    members: list[Member] = []
    began = time.monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            await _few_at_once(return_one(client_id) for client_id in client_ids)
            await asyncio.gather(*(member.has_all for member in members))
    took_s = time.monotonic() - began
    await asyncio.gather(*(member.leave() for member in members))
    return members, took_s


async def _few_at_once(work: Iterable[Coroutine[Any, Any, T]]) -> None:
    places = asyncio.Semaphore(CONNECTING)

    async def do(one: Coroutine[Any, Any, T]) -> None:
        async with places:
            await one

    await asyncio.gather(*map(do, work))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run something in the fastest loop there is."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
