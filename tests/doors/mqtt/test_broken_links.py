"""The link breaks between any two packets of a flow, twice: QoS 1 arrives at least once, QoS 2 exactly once.

`Sender` and `Receiver` are what a client must remember of one flow, cut into single steps: send a packet or
take one. A story lets them go so many steps, breaks the link, comes back, and at last lets them finish.
"""

from collections.abc import Iterator
from itertools import product
from typing import Protocol

import pytest

from penstock.wire.mqtt import Packet, PubAck, PubComp, Publish, PubRec, PubRel, Version
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, both_versions, payloads

STEPS = {1: 2, 2: 4}
"""Packets of a flow by its QoS."""

every_break = pytest.mark.parametrize("is_reset", [True, False], ids=["reset", "closed"])
acknowledged = pytest.mark.parametrize("qos", [1, 2])


class Flow(Protocol):
    """One side of an exchange."""

    @property
    def is_done(self) -> bool: ...

    async def step(self, peer: Peer) -> None: ...

    def on_reconnected(self) -> None: ...


class Sender:
    """A client that publishes one message and remembers how far it got."""

    def __init__(self, topic: str, qos: int) -> None:
        self._message = Publish(topic, b"x", qos, packet_id=7)
        self._again = Publish(topic, b"x", qos, dup=True, packet_id=7)
        self._is_first = True
        self.state = "unsent"

    @property
    def is_done(self) -> bool:
        return self.state == "done"

    async def step(self, peer: Peer) -> None:
        match self.state:
            case "unsent":
                await peer.send(self._message if self._is_first else self._again)
                self._is_first = False
                self.state = "sent"
            case "sent" if self._message.qos == 1:
                assert await peer.receive(PubAck) == PubAck(7)
                self.state = "done"
            case "sent":
                assert await peer.receive(PubRec) == PubRec(7)
                self.state = "received"
            case "received":
                await peer.send(PubRel(7))
                self.state = "released"
            case "released":
                assert (await peer.receive(PubComp)).packet_id == 7  # it may not be known any more
                self.state = "done"

    def on_reconnected(self) -> None:
        self.state = {"sent": "unsent", "released": "received"}.get(self.state, self.state)


class Receiver:
    """A client that takes messages and remembers which of them it must not take twice."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self._unreleased: set[int] = set()
        self.reply: Packet | None = None
        self.is_done = False

    async def step(self, peer: Peer) -> None:
        if self.reply is not None:
            await peer.send(self.reply)
            self.is_done = isinstance(self.reply, PubAck | PubComp)
            self.reply = None
        else:
            self.take(await peer.take())

    def take(self, packet: Packet) -> None:
        match packet:
            case Publish(qos=1):
                self.taken.append(packet.payload)
                self.reply = PubAck(packet.packet_id)
            case Publish():
                if packet.packet_id not in self._unreleased:
                    self.taken.append(packet.payload)
                    self._unreleased.add(packet.packet_id)
                self.reply = PubRec(packet.packet_id)
            case PubRel():
                self._unreleased.discard(packet.packet_id)
                self.reply = PubComp(packet.packet_id)
            case _:
                pytest.fail(f"{packet}")

    def on_reconnected(self) -> None:
        self.reply = None  # whoever wants it asks again
        self.is_done = False


async def break_link(peer: Peer, is_reset: bool) -> None:
    if is_reset:
        await peer.cut()
    else:
        await peer.stream.close()


async def break_after(
    peers: Peers, name: str, version: Version, flow: Flow, steps: int, is_reset: bool
) -> None:
    """Come back, go so many steps, and break the link."""
    peer = await peers.connect(name, version, clean=False, expiry=FOR_EVER)
    flow.on_reconnected()
    for _ in range(steps):
        if not flow.is_done:
            await flow.step(peer)
    await break_link(peer, is_reset)


def all_breaks(qos: int) -> Iterator[tuple[int, int]]:
    steps = range(STEPS[qos] + 1)
    return product(steps, steps)


@both_versions
@acknowledged
@every_break
async def test_published_message_survives_a_link_that_breaks_anywhere(
    peers: Peers, name: str, version: Version, qos: int, is_reset: bool
) -> None:
    watcher = await peers.connect()
    await watcher.subscribe(f"{name}/#", qos=qos)
    for first, second in all_breaks(qos):
        story = f"{name}/{first}-{second}"
        sender = Sender(story, qos)
        for steps in (first, second):
            await break_after(peers, f"{story}-sender", version, sender, steps, is_reset)
        peer = await peers.connect(f"{story}-sender", version, clean=False, expiry=FOR_EVER)
        sender.on_reconnected()
        while not sender.is_done:
            await sender.step(peer)
        assert await peer.fence() == []
        got = payloads(await watcher.fence())
        assert got == [b"x"] if qos == 2 else b"x" in got, story
        await peer.leave()


@both_versions
@acknowledged
@every_break
async def test_delivery_survives_a_link_that_breaks_anywhere(
    peers: Peers, name: str, version: Version, qos: int, is_reset: bool
) -> None:
    publisher = await peers.connect()
    for first, second in all_breaks(qos):
        story = f"{name}/{first}-{second}"
        receiver = Receiver()
        peer = await peers.connect(f"{story}-receiver", version, clean=False, expiry=FOR_EVER)
        await peer.subscribe(story, qos=qos)
        await publisher.publish(story, b"x", qos)
        for _ in range(first):
            await receiver.step(peer)
        await break_link(peer, is_reset)
        again = second if first < STEPS[qos] else 0  # there may be nothing left to receive
        await break_after(peers, f"{story}-receiver", version, receiver, again, is_reset)
        peer = await peers.connect(f"{story}-receiver", version, clean=False, expiry=FOR_EVER)
        receiver.on_reconnected()
        for packet in await peer.fence():
            receiver.take(packet)
            while receiver.reply is not None:
                await receiver.step(peer)
                for answer in await peer.fence():
                    receiver.take(answer)
        assert receiver.taken == [b"x"] if qos == 2 else b"x" in receiver.taken, story
        await peer.leave()
        peer = await peers.connect(f"{story}-receiver", version, clean=False, expiry=FOR_EVER)
        assert await peer.fence() == []  # it is over on both sides
        await peer.leave()


@both_versions
async def test_message_cut_in_the_middle_of_its_bytes_is_not_published(
    peers: Peers, name: str, version: Version
) -> None:
    watcher = await peers.connect()
    await watcher.subscribe(name)
    peer = await peers.connect(name, version)
    await peer.send_bytes(b"\x30\x7f\x00\x20" + name.encode() + b"half of it")
    await peer.stream.close()
    heir = await peers.connect(name, version)
    assert await heir.fence() == []
    assert await watcher.fence() == []
