"""Every promise after its sync, as the operating system saw it: nothing leaves before it is on the disk.

What a client may rely on is looked up in the trace: the bytes of its message must have been written to the
store's journal, the journal synced after that, and only then may the answer have been sent.
"""

import asyncio
from collections.abc import Iterator, Sequence

import pytest
from msgspec import Struct

from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    Packet,
    PacketReader,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
)
from tests.doors.mqtt.peers import FOR_EVER, Peers, both_versions
from tests.faults.durable.homes import Home, MakeHome
from tests.faults.durable.load import Publisher, Subscriber
from tests.faults.durable.reckoning import names_of
from tests.faults.durable.stracing import READS, SYNCS, WRITES, Call, tracing

MESSAGES = 20
PUBLISHERS = 3
BODY_BYTES = 60
"""Each payload says several times what it is, so that one of them is whole wherever the journal cuts it."""
LIMIT_BYTES = 1 << 20

ANSWERS: dict[type[Packet], type[Packet]] = {
    ConnAck: Connect,
    SubAck: Subscribe,
    UnsubAck: Unsubscribe,
    PubAck: Publish,
    PubRec: Publish,
    PubComp: PubRel,
    PubRel: PubRec,
}
"""What a server answers to what."""


class Seen(Struct, frozen=True):
    """A packet on its way in or out, and when the last of it arrived or began to leave."""

    at: int
    is_arrival: bool
    connection: str
    packet: Packet


def packets_of(calls: Sequence[Call], version: Version) -> Iterator[Seen]:
    """All packets in a trace that saw their connections from the beginning."""
    readers: dict[tuple[str, bool], PacketReader] = {}
    for call in calls:
        if not call.target.startswith("TCP") or call.name not in READS + WRITES:
            continue
        is_arrival = call.name in READS
        reader = readers.setdefault((call.target, is_arrival), PacketReader(LIMIT_BYTES, version))
        for packet in reader.feed(call.data):
            assert isinstance(packet, Packet)
            yield Seen(call.ended if is_arrival else call.began, is_arrival, call.target, packet)
        assert reader.error is None


class Trace:
    """What a server read, wrote and synced, with questions that a test has."""

    def __init__(self, calls: Sequence[Call], home: Home, version: Version) -> None:
        self.seen = list(packets_of(calls, version))
        journal = [
            call for call in calls if call.target.startswith(f"{home.data}/") and ".log" in call.target
        ]
        self._writes = [call for call in journal if call.name in WRITES]
        self.syncs = [call for call in journal if call.name in SYNCS and call.result == 0]

    def is_synced(self, after: int, before: int) -> bool:
        """Whether the journal was synced between two moments."""
        return any(after < call.began and call.ended < before for call in self.syncs)

    def is_stored(self, payload: bytes, before: int) -> bool:
        """Whether these bytes were written and synced before a moment."""
        word = payload[: payload.index(b":", payload.index(b":") + 1) + 1]
        writes = [call.ended for call in self._writes if word in call.data and call.ended < before]
        return bool(writes) and self.is_synced(writes[0], before)

    def answers(self, *kinds: type[Packet]) -> Iterator[tuple[Seen, Seen]]:
        """Packets of these kinds that left, each with the one that arrived and is answered by it."""
        for place, seen in enumerate(self.seen):
            if not seen.is_arrival and isinstance(seen.packet, kinds):
                yield self._asked(place, seen), seen

    def _asked(self, place: int, answer: Seen) -> Seen:
        kind = ANSWERS[type(answer.packet)]
        wanted = getattr(answer.packet, "packet_id", None)
        for seen in reversed(self.seen[:place]):
            is_same = seen.is_arrival and seen.connection == answer.connection
            if (
                is_same
                and isinstance(seen.packet, kind)
                and getattr(seen.packet, "packet_id", None) == wanted
            ):
                return seen
        raise AssertionError(f"nobody asked for {answer.packet}")

    def deliveries(self) -> Iterator[tuple[Seen, Publish]]:
        """Messages of QoS 2 that left."""
        for seen in self.seen:
            if not seen.is_arrival and isinstance(seen.packet, Publish) and seen.packet.qos == 2:
                yield seen, seen.packet

    def too_early(self) -> list[Seen]:
        """Everything that left before what it promises was safe."""
        early = [
            answer
            for asked, answer in self.answers(PubAck, PubRec)
            if isinstance(asked.packet, Publish) and not self.is_stored(asked.packet.payload, answer.at)
        ]
        early += [
            answer
            for asked, answer in self.answers(PubComp, PubRel, SubAck, UnsubAck)
            if not self.is_synced(asked.at, answer.at)
        ]
        return early + [
            seen for seen, message in self.deliveries() if not self.is_stored(message.payload, seen.at)
        ]


async def traced(home: Home, version: Version) -> Trace:
    """What happens while messages of both levels come and go."""
    server = await home.open()
    subscriber = Subscriber(home, "subscriber", version, 2, size=BODY_BYTES)
    async with tracing(server.process.pid, home.folder) as trace:
        await subscriber.subscribe()
        reading = asyncio.create_task(subscriber.run())
        for qos in (1, 2):
            publishers = [
                Publisher(home, f"{qos}-{n}", version, qos, window=5, count=MESSAGES, size=BODY_BYTES)
                for n in range(PUBLISHERS)
            ]
            await asyncio.gather(*(publisher.run() for publisher in publishers))
            await subscriber.has(names_of(publishers))
        await subscriber.settle()
        reading.cancel()
        await subscriber.leave()
    return Trace(trace.calls(), home, version)


@both_versions
async def test_acknowledgements_and_qos_2_leave_after_their_sync(
    make_home: MakeHome, version: Version
) -> None:
    trace = await traced(make_home(), version)
    assert trace.too_early() == []
    count = MESSAGES * PUBLISHERS
    left = [type(answer.packet) for _, answer in trace.answers(PubAck, PubRec, PubComp, PubRel, SubAck)]
    assert [left.count(kind) for kind in (PubAck, PubRec, PubComp, SubAck)] == [count, count, count, 1]
    assert left.count(PubRel) == count
    assert len(list(trace.deliveries())) == count


@both_versions
async def test_sessions_and_subscriptions_are_synced_before_they_are_confirmed(
    make_home: MakeHome, peers: Peers, version: Version
) -> None:
    home = make_home()
    server = await home.open()
    async with tracing(server.process.pid, home.folder) as trace:
        client = await peers.connect("new", version, clean=False, expiry=FOR_EVER, port=home.port)
        await client.subscribe("a", "b/#", qos=1)
        await client.unsubscribe("a")
        await client.leave()
    trace_of = Trace(trace.calls(), home, version)
    answers = list(trace_of.answers(ConnAck, SubAck, UnsubAck))
    assert [type(answer.packet) for _, answer in answers] == [ConnAck, SubAck, UnsubAck]
    assert [answer for asked, answer in answers if not trace_of.is_synced(asked.at, answer.at)] == []


@pytest.mark.parametrize("durability", ["os", "memory"])
async def test_weaker_promises_do_not_wait_for_the_disk(make_home: MakeHome, durability: str) -> None:
    """And so the tests above see what they look for."""
    trace = await traced(make_home({"durability": durability}), Version.V5)
    assert len(trace.too_early()) > MESSAGES
