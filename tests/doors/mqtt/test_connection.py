"""A connection on a transport in memory: what the buffers of a real socket would hide for megabytes."""

import asyncio
from functools import partial
from itertools import count
from typing import cast

import pytest

from penstock.app import Server
from penstock.config import load
from penstock.doors.mqtt import outbound
from penstock.doors.mqtt.connection import Connection
from penstock.net.turn_shares import SHARE_S, TurnShares
from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketReader,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    Request,
    Subscribe,
    Version,
    encode_packet,
)
from tests.doors.mqtt.memory_transport import MemoryTransport
from tests.support.waiting import until

STEP_S = 0.000_02
"""Time between two looks at the clock of the shares."""


class Wire:
    """A connection of a door that does not listen, and its transport."""

    def __init__(self, version: Version = Version.V5) -> None:
        self.version = version
        self.door = Server(load(flags={"mqtt.receive_maximum": 10}).settings).mqtt
        # Time passes by steps, so that a busy machine does not end the share of a turn.
        clock = partial(next, count(0.0, STEP_S))
        self.door.shares = TurnShares(self.door.loop, clock)
        self.reconnect()
        assert isinstance(self.take()[0], ConnAck)

    def reconnect(self) -> None:
        self.transport = MemoryTransport()
        self.connection = Connection(self.door)
        self.connection.connection_made(self.transport)
        self.feed(Connect("c", self.version))

    def feed(self, *packets: Packet) -> None:
        data = b"".join(encode_packet(packet, self.version) for packet in packets)
        self.door.buffer[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def take(self) -> list[Packet]:
        """What was written since the last time; now the transport is empty."""
        data = bytes(self.transport.written)
        self.transport.written.clear()
        return cast(list[Packet], PacketReader(10_000_000, self.version).feed(data))


async def test_peer_that_does_not_read_its_answers_is_no_longer_read_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit_bytes = 30_000
    monkeypatch.setattr(outbound, "CONTROL_LIMIT_BYTES", limit_bytes)
    wire = Wire()
    pings = 0
    while wire.transport.is_reading_now:
        wire.feed(*[PingReq()] * 1_000)
        pings += 1_000
        assert pings < limit_bytes
        await until(lambda: not len(wire.door.shares), "pings were not worked off")
    assert len(wire.transport.written) > limit_bytes
    assert wire.take() == [PingResp()] * pings  # every one was answered
    wire.connection.resume_writing()
    assert wire.transport.is_reading_now


@pytest.mark.parametrize("version", list(Version))
async def test_held_publisher_is_read_from_until_its_window_is_full(version: Version) -> None:
    wire = Wire(version)
    wire.connection.block(is_unacknowledged=False)
    for number in range(1, 11):
        assert wire.transport.is_reading_now
        wire.feed(Publish("t", b"", 1, packet_id=number))
    await asyncio.sleep(0)
    assert wire.take() == []
    assert not wire.transport.is_reading_now
    wire.connection.unblock()
    assert [packet.packet_id for packet in cast(list[PubAck], wire.take())] == list(range(1, 11))
    assert wire.transport.is_reading_now


async def test_publisher_without_acknowledgements_is_held_at_once() -> None:
    wire = Wire()
    wire.connection.block(is_unacknowledged=True)
    assert not wire.transport.is_reading_now
    wire.connection.unblock()
    assert wire.transport.is_reading_now


@pytest.mark.parametrize("version", list(Version))
async def test_nothing_follows_the_last_word(version: Version) -> None:
    wire = Wire(version)
    wire.feed(Publish("t", b"", 1, packet_id=1), PingReq(), Connect("c", version), PingReq())
    await asyncio.sleep(0)
    words = wire.take()
    assert words[0] == PingResp()
    assert [type(word) for word in words[1:]] == ([Disconnect] if version is Version.V5 else [])
    wire.feed(PingReq())
    wire.connection.outbound.control(b"\xd0\x00")
    wire.connection.unblock()
    assert wire.take() == []


async def test_turn_ends_even_if_something_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire()
    monkeypatch.setattr(wire.door.broker.access, "may_publish", None)  # any error within a turn
    with pytest.raises(TypeError):
        wire.feed(Publish("t", b"x"))
    assert not wire.door.broker._node.tick.is_open  # or no message would ever leave again


async def test_what_was_read_before_the_socket_was_lost_is_worked_off() -> None:
    """A goodbye behind a long input takes the will with it, however soon the socket is closed."""
    wire = Wire()
    session = wire.door.broker.sessions["c"]
    wire.feed(*[PingReq()] * 20_000, Disconnect())
    assert len(wire.door.shares) == 1
    wire.connection.connection_lost(ConnectionResetError())
    assert wire.connection.client_id == session.client_id
    await until(lambda: not len(wire.door.shares), "input still waits")
    assert wire.connection.is_closing
    assert wire.connection not in wire.door.connections


async def test_input_that_waits_is_dropped_with_an_abort() -> None:
    wire = Wire()
    wire.feed(*[PingReq()] * 20_000)
    assert not wire.transport.is_reading_now
    wire.connection.abort()
    assert not len(wire.door.shares)


async def test_lost_socket_whose_input_waits_leaves_the_door_at_a_takeover() -> None:
    wire = Wire()
    wire.feed(*[PingReq()] * 20_000)
    lost = wire.connection
    lost.connection_lost(ConnectionResetError())
    wire.reconnect()
    await until(lambda: not len(wire.door.shares), "input still waits")
    assert wire.door.connections == {wire.connection}


async def test_connect_of_a_busy_turn_is_read_once() -> None:
    wire = Wire()
    # Each look at the clock is a whole share later, so that every read ends after its share.
    wire.door.shares = TurnShares(wire.door.loop, partial(next, count(0.0, SHARE_S)))
    wire.reconnect()
    await until(lambda: wire.transport.written, "no CONNACK")
    for _ in range(3):
        await asyncio.sleep(0)
    assert [type(packet) for packet in wire.take()] == [ConnAck]
    assert wire.transport.is_reading_now


async def test_publish_behind_a_long_subscribe_reaches_its_last_filter() -> None:
    wire = Wire()
    message = Publish("t/39", b"")
    for _ in range(2):  # a name that is seen twice is read by the hot loop
        wire.feed(message)
    wire.feed(Subscribe(1, tuple(Request(f"t/{number}") for number in range(40))), message)
    received: list[Packet] = []

    def has_arrived() -> bool:
        received.extend(wire.take())
        return message in received

    await until(has_arrived, "the message was lost")
