"""Runs of acknowledgements: a chunk of them, cut anywhere, does what they do one at a time."""

import asyncio
from collections.abc import Iterable
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.app import Server
from penstock.config import load
from penstock.doors.mqtt.connection import Connection
from penstock.net.turn_shares import TurnShares
from penstock.wire.mqtt import (
    Connect,
    Disconnect,
    Packet,
    PacketProperties,
    PacketReader,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    ReasonCode,
    Reply,
    Request,
    SubAck,
    Subscribe,
    Version,
    encode_packet,
)
from tests.doors.mqtt.memory_transport import MemoryTransport
from tests.support.examples import examples
from tests.support.waiting import until
from tests.wire.mqtt.strategies import cuts, encode_all, versions

WINDOW = 8
"""Deliveries that may be in flight: packet identifiers 1 to 4 at QoS 1, 5 to 8 at QoS 2."""
PUBLISHED = (1, 2, 3)
"""Packet identifiers of the client's own publishes at QoS 2."""
FENCE = 99
"""Packet identifier of a SUBSCRIBE behind everything else."""
LIKELY: dict[type[Reply], tuple[int, ...]] = {
    PubAck: (1, 2, 3, 4, 9, 10, 300),
    PubRec: (5, 6, 7, 8, 9, 300),
    PubRel: (*PUBLISHED, 4, 300),
    PubComp: (300,),  # and what was received
}
"""Packet identifiers with which no kind of acknowledgement breaks the protocol."""


@st.composite
def acknowledgements(draw: st.DrawFn) -> list[Reply]:
    """Acknowledgements as clients send them, many of one kind together; few break the protocol."""
    acks: list[Reply] = []
    for kind in draw(st.lists(st.sampled_from(tuple(LIKELY)), min_size=1, max_size=6)):
        received = {ack.packet_id for ack in acks if type(ack) is PubRec} if kind is PubComp else set[int]()
        packet_ids = st.sampled_from((*LIKELY[kind], *sorted(received)))
        if draw(st.integers(0, 19)) == 0:
            packet_ids = st.integers(1, WINDOW)
        acks += [kind(packet_id) for packet_id in draw(st.lists(packet_ids, min_size=1, max_size=8))]
    return acks


class Scene:
    """A server and a client with deliveries and publishes in flight, on a transport in memory."""

    def __init__(self, version: Version, flags: dict[str, Any] | None = None) -> None:
        self.version = version
        self.server = Server(load(flags={"mqtt.max_inflight": WINDOW, **(flags or {})}).settings)
        self.door = self.server.mqtt
        self.door.shares = TurnShares(self.door.loop, clock=lambda: 0.0)  # no turn has an end
        self.connect()

    def connect(self, window: int = WINDOW) -> None:
        """Connect, with the session of the last time."""
        self.transport = MemoryTransport()
        self.connection = Connection(self.door)
        self.connection.connection_made(self.transport)
        given = PacketProperties(session_expiry=100, receive_maximum=window)
        is_new = self.version is Version.V5
        hello = Connect(
            "c", self.version, clean_start=False, properties=given if is_new else PacketProperties()
        )
        self.feed(encode_packet(hello, self.version))

    async def prepare(self, *filters: str) -> None:
        """Fill the window at both levels, queue more, and begin publishes at QoS 2."""
        await until(lambda: self.transport.written, "no CONNACK")
        requests = tuple(Request(filter, 2) for filter in filters)
        self.feed(encode_packet(Subscribe(1, requests), self.version))
        await until(lambda: any(isinstance(packet, SubAck) for packet in self.packets), "no SUBACK")
        levels = [1] * 4 + [2] * 4 + [1, 2, 2, 1] * 3
        for number, qos in enumerate(levels, 1):
            self.feed(encode_packet(Publish(f"in/{qos}", b"%d" % number, qos, packet_id=100), self.version))
            self.feed(encode_packet(PubRel(100), self.version) if qos == 2 else b"")
        for number in PUBLISHED:
            self.feed(encode_packet(Publish("out", b"", 2, packet_id=number), self.version))
        await until(lambda: len(self.deliveries) >= WINDOW, "the window is not full")
        self.door.broker.flush()

    def feed(self, data: bytes) -> None:
        """Give bytes to the connection."""
        self.connection.data_received(data)

    async def settle(self) -> None:
        """Wait for the responses to everything so far, and for what follows from it."""
        if not self.transport.has_ended:
            self.feed(encode_packet(Subscribe(FENCE, (Request("none"),)), self.version))
        await until(
            lambda: (
                self.transport.has_ended
                or any(isinstance(each, SubAck) and each.packet_id == FENCE for each in self.packets)
            ),
            "no SUBACK",
        )
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def packets(self) -> list[Packet]:
        """Everything that the client got on its last connection."""
        data = bytes(self.transport.written)
        return cast(list[Packet], PacketReader(1_000_000, self.version).feed(data))

    @property
    def deliveries(self) -> list[Publish]:
        return [packet for packet in self.packets if isinstance(packet, Publish)]

    @property
    def state(self) -> dict[str, object]:
        """Everything that acknowledgements may change, but the bytes that were written."""
        counters = self.door.counters
        in_flight, received = window(self.server)
        return {
            "in flight": in_flight,
            "received": received,
            "packets": (counters.control_packets_received, counters.control_packets_sent),
            "bytes": (counters.bytes_received, counters.bytes_sent),
            "has ended": self.transport.has_ended,
        }


def window(server: Server) -> tuple[list[object], list[int]]:
    """Deliveries to the client in flight, and its own publishes at QoS 2."""
    session = server.broker.sessions["c"]
    entries = session.inflight.entries if session.inflight else {}
    return [
        (number, None if pending is None else (pending.run.payload(), pending.level))
        for number, pending in entries.items()
    ], list(session.received or ())


async def taken(
    version: Version, filters: Iterable[str], pieces: list[bytes], window: int = WINDOW
) -> tuple[bytes, dict[str, object]]:
    """Bytes out and the state after these pieces.

    Args:
        window: if it is smaller, the client reconnects with it first, and gets everything again.
    """
    scene = Scene(version)
    await scene.prepare(*filters)
    if window < WINDOW:
        scene.connection.connection_lost(None)
        scene.connect(window)
        await until(lambda: scene.deliveries, "nothing was sent again")
    for piece in pieces:
        scene.feed(piece)
    await scene.settle()
    return bytes(scene.transport.written), scene.state


@pytest.mark.parametrize(
    ("filters", "window"),
    [(("in/+",), WINDOW), (("in/+",), 3), (("$share/g/in/+",), WINDOW), (("$share/g/in/1", "in/2"), 3)],
    ids=["plain", "redelivery", "shared group", "redelivery and shared group"],
)
@examples(20)
@given(st.data(), versions, acknowledgements())
def test_any_chunk_of_acknowledgements_does_what_they_do_one_at_a_time(
    filters: tuple[str, ...], window: int, data: st.DataObject, version: Version, acks: list[Reply]
) -> None:
    stream = encode_all(acks, version)
    end = data.draw(
        st.sampled_from((b"", b"", b"", b"\x40\x02\x00\x00", b"\x62\x02\x00\x00", b"\x60\x02\x00\x01"))
    )
    pieces = data.draw(cuts(stream + end))

    async def compare() -> None:
        single = [stream[start : start + 4] for start in range(0, len(stream), 4)]
        expected = await taken(version, filters, [*single, end], window)
        assert await taken(version, filters, pieces, window) == expected
        assert await taken(version, filters, [stream + end], window) == expected

    asyncio.run(compare())


@pytest.mark.parametrize(
    ("filters", "window", "numbers"),
    [(("in/+",), 3, (1, 4, 2)), (("$share/g/in/+",), WINDOW, (1, 9, 2))],
    ids=["redelivery", "shared group"],
)
async def test_an_acknowledgement_may_name_what_the_one_before_it_made_room_for(
    filters: tuple[str, ...], window: int, numbers: tuple[int, ...]
) -> None:
    single = [encode_packet(PubAck(number), Version.V5) for number in numbers]
    expected = await taken(Version.V5, filters, single, window)
    assert await taken(Version.V5, filters, [b"".join(single)], window) == expected


@examples(5)
@given(st.data(), versions, acknowledgements())
def test_acknowledgements_of_a_stored_session_are_stored_and_wait_for_the_disk_alike(
    data: st.DataObject, version: Version, acks: list[Reply]
) -> None:
    stream = encode_all(acks, version)
    pieces = data.draw(cuts(stream))

    async def stored(pieces: list[bytes]) -> tuple[object, ...]:
        with TemporaryDirectory() as home:
            scene = Scene(version, {"data_dir": home, "shutdown_timeout_s": 0.1})
            try:
                await scene.prepare("in/+")
                for piece in pieces:
                    scene.feed(piece)
                await scene.settle()
                # A delivery may leave before or after a response, as the disk is slow or fast.
                others = [packet for packet in scene.packets if not isinstance(packet, Publish)]
                state = scene.state
                del state["bytes"]
            finally:
                await scene.server.stop()
            again = Server(load(flags={"data_dir": home, "shutdown_timeout_s": 0.1}).settings)
            try:
                assert window(again) == (state["in flight"], state["received"])
            finally:
                await again.stop()
            return others, state

    async def compare() -> None:
        single = [stream[start : start + 4] for start in range(0, len(stream), 4)]
        assert await stored(pieces) == await stored(single)

    asyncio.run(compare())


@pytest.mark.parametrize("version", list(Version))
async def test_every_unknown_number_of_a_run_gets_its_response_in_its_place(version: Version) -> None:
    scene = Scene(version)
    await scene.prepare("in/+")
    before = len(scene.packets)
    scene.feed(encode_all([PubRec(number) for number in (5, 6, 300, 7, 301, 302)], version))
    scene.feed(encode_all([PubRel(number) for number in (1, 300, 300, 2, 2)], version))
    unknown = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if version is Version.V5 else ReasonCode.SUCCESS
    assert scene.packets[before:] == [
        PubRel(5),
        PubRel(6),
        PubRel(300, unknown),
        PubRel(7),
        PubRel(301, unknown),
        PubRel(302, unknown),
        PubComp(1),
        PubComp(300, unknown),
        PubComp(300, unknown),
        PubComp(2),
        PubComp(2, unknown),
    ]


@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize(
    ("kind", "good", "bad"), [(PubAck, (1, 2, 1), 5), (PubRec, (5, 6, 5), 3), (PubComp, (300, 301), 5)]
)
async def test_what_stands_before_a_wrong_step_takes_effect_and_nothing_behind_it(
    kind: type[Reply], good: tuple[int, ...], bad: int, version: Version
) -> None:
    scene = Scene(version)
    await scene.prepare("in/+")
    before = scene.door.counters.control_packets_received
    acks = [kind(number) for number in (*good, bad, 4, 8)]
    scene.feed(encode_all(acks, version))
    assert scene.transport.has_ended
    assert scene.door.counters.control_packets_received == before + len(good) + 1
    session = scene.door.broker.sessions["c"]
    assert session.inflight is not None
    left = {number: pending is not None for number, pending in session.inflight.entries.items()}
    expected = dict.fromkeys(range(1, WINDOW + 1), True)
    for number in good:
        if kind is PubRec:
            expected[number] = False
        else:
            expected.pop(number, None)
    assert left == expected
    if version is Version.V5:
        assert scene.packets[-1] == Disconnect(ReasonCode.PROTOCOL_ERROR)


async def test_a_chunk_full_of_acknowledgements_is_worked_off_in_steps() -> None:
    scene = Scene(Version.V5)
    await scene.prepare("in/+")
    steps: list[int] = []
    shares = scene.door.shares

    def clock() -> float:
        steps.append(scene.door.counters.control_packets_received)
        return 0.0

    shares.clock = clock
    count = 10_000
    before = scene.door.counters.control_packets_received
    scene.feed(encode_all([PubAck(300)] * count, Version.V5))
    assert scene.door.counters.control_packets_received == before + count
    longest = max(after - earlier for earlier, after in pairwise(steps))
    assert longest < 600
