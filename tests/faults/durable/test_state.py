"""What is kept beside messages, across kills: subscriptions, retained values, wills, and who is owed what."""

from random import Random
from uuid import uuid4

from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    Packet,
    PacketProperties,
    PubAck,
    Publish,
    PubRec,
    PubRel,
    ReasonCode,
    Request,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, both_versions, payloads
from tests.faults.durable.crashing import Load, kill_with
from tests.faults.durable.homes import Home, MakeHome
from tests.support.waiting import until

SEALING_S = 40.0
"""How long a server that was just started may take to seal what is there, on a busy machine."""


async def come(peers: Peers, home: Home, client_id: str, version: Version, will: Will | None = None) -> Peer:
    """Come (back) to a session that stays."""
    return await peers.connect(client_id, version, clean=False, expiry=FOR_EVER, will=will, port=home.port)


async def rest(peers: Peers, home: Home, subscriber: Peer, topic: str) -> list[Packet]:
    """Everything that comes before a message that is published now; what is owed comes from the disk."""
    publisher = await peers.connect(port=home.port)
    marker = uuid4().bytes
    await publisher.publish(topic, marker)
    packets: list[Packet] = []
    while True:
        packet = await subscriber.take()
        if isinstance(packet, Publish) and packet.payload == marker:
            await subscriber.send(PubAck(packet.packet_id))
            return packets
        packets.append(packet)


# Sessions and subscriptions


@both_versions
async def test_sessions_are_there_as_soon_as_they_are_confirmed(
    make_home: MakeHome, peers: Peers, version: Version
) -> None:
    home = make_home()
    await home.open()
    peer = await peers.open(version, home.port)
    stays = PacketProperties(session_expiry=FOR_EVER)
    await peer.send(Connect("new", version, False, properties=stays))
    assert isinstance(await peer.take(), ConnAck)
    await home.killed_and_back()
    assert (await come(peers, home, "new", version)).connack.session_present


@both_versions
async def test_sessions_that_were_not_to_stay_are_gone(
    make_home: MakeHome, peers: Peers, version: Version
) -> None:
    home = make_home()
    await home.open()
    fleeting = await peers.connect("fleeting", version, port=home.port)
    await fleeting.subscribe("a", qos=1)
    ended = await come(peers, home, "ended", version)
    await ended.leave()
    ended = await peers.connect("ended", version, port=home.port)  # clean: what was there is forgotten
    assert not ended.connack.session_present
    await home.killed_and_back()
    for client_id in ("fleeting", "ended"):
        assert not (await come(peers, home, client_id, version)).connack.session_present, client_id


@both_versions
async def test_subscriptions_are_as_they_were_confirmed_last(
    make_home: MakeHome, peers: Peers, version: Version
) -> None:
    """They change until the kill, which comes right after the confirmation."""
    home = make_home()
    await home.open()
    publisher = await come(peers, home, "publisher", version)
    subscriber = await come(peers, home, "subscriber", version)
    assert await subscriber.subscribe("stays", "raised", qos=1) == (1, 1)
    assert await subscriber.subscribe("given up", "+/wild", "#", qos=2) == (2, 2, 2)
    await subscriber.unsubscribe("#")
    await subscriber.send(Subscribe(90, (Request("raised", 2), Request("new", 1))))
    await subscriber.send(Unsubscribe(91, ("given up",)))
    assert isinstance(await subscriber.take(), SubAck)
    assert isinstance(await subscriber.take(), UnsubAck)
    home.kill()
    await home.open()
    publisher = await come(peers, home, "publisher", version)
    for topic in ("stays", "raised", "new", "given up", "a/wild", "anything"):
        assert await publisher.publish(topic, topic.encode(), 2) in {0, ReasonCode.NO_MATCHING_SUBSCRIBERS}
    subscriber = await come(peers, home, "subscriber", version)
    assert subscriber.connack.session_present
    got = [packet for packet in await rest(peers, home, subscriber, "stays") if isinstance(packet, Publish)]
    assert [(message.topic, message.qos) for message in got] == [
        ("stays", 1),
        ("raised", 2),
        ("new", 1),
        ("a/wild", 2),
    ]
    home.was_well()


@both_versions
async def test_half_done_deliveries_go_on_where_they_were(
    make_home: MakeHome, peers: Peers, version: Version
) -> None:
    """The same packet identifiers, in the same order: first what was sent, then what waited."""
    home = make_home()
    await home.open()
    subscriber = await come(peers, home, "subscriber", version)
    await subscriber.subscribe("a/#", qos=2)
    publisher = await come(peers, home, "publisher", version)
    for number in range(6):
        await publisher.publish(f"a/{number}", b"%d" % number, qos=1 + number % 2)
    sent = [await subscriber.receive(Publish) for _ in range(6)]
    await subscriber.send(PubAck(sent[0].packet_id))  # done
    await subscriber.send(PubRec(sent[1].packet_id))  # half done
    released = await subscriber.receive(PubRel)
    await home.killed_and_back()
    subscriber = await come(peers, home, "subscriber", version)
    again = [await subscriber.take() for _ in range(5)]
    assert released in again
    repeated = [packet for packet in again if isinstance(packet, Publish)]
    assert [(each.packet_id, each.payload, each.dup) for each in repeated] == [
        (each.packet_id, each.payload, True) for each in sent[2:]
    ]
    assert await rest(peers, home, subscriber, "a/9") == []
    home.was_well()


@both_versions
async def test_half_done_publishes_go_on_where_they_were(
    make_home: MakeHome, peers: Peers, version: Version
) -> None:
    """A QoS 2 message that is repeated after the kill is not taken for another one."""
    home = make_home()
    await home.open()
    subscriber = await come(peers, home, "subscriber", version)
    await subscriber.subscribe("a", qos=1)
    publisher = await come(peers, home, "publisher", version)
    await publisher.send(Publish("a", b"once", 2, packet_id=7))
    assert (await publisher.receive(PubRec)).packet_id == 7
    for _ in range(2):
        await home.killed_and_back()
        publisher = await come(peers, home, "publisher", version)
        await publisher.send(Publish("a", b"once", 2, dup=True, packet_id=7))
        assert (await publisher.receive(PubRec)).packet_id == 7
    await publisher.send(PubRel(7))
    await publisher.take()
    subscriber = await come(peers, home, "subscriber", version)
    assert payloads(await rest(peers, home, subscriber, "a")) == [b"once"]
    await home.killed_and_back()
    publisher = await come(peers, home, "publisher", version)
    await publisher.send(Publish("a", b"another", 2, packet_id=7))  # the identifier is free again
    assert (await publisher.receive(PubRec)).packet_id == 7
    subscriber = await come(peers, home, "subscriber", version)
    got = payloads(await rest(peers, home, subscriber, "a"))
    assert [got.count(each) for each in (b"once", b"another")] == [1, 1]
    home.was_well()


# Retained values


@both_versions
async def test_retained_values_are_the_last_that_were_confirmed(
    make_home: MakeHome, peers: Peers, version: Version, dice: Random, scale: int
) -> None:
    home = make_home()
    await home.open()
    values: dict[str, bytes] = {}
    for _ in range(2 * scale):
        publisher = await peers.connect("", version, port=home.port)
        for number in range(60):
            topic = f"kept/{dice.randrange(20)}"
            value = b"" if dice.random() < 0.2 else b"%d" % number
            await publisher.publish(topic, value, qos=dice.choice((1, 2)), retain=True)
            values[topic] = value
        await home.killed_and_back()
        subscriber = await peers.connect("", version, port=home.port)
        await subscriber.subscribe("kept/#")
        got = [packet for packet in await subscriber.fence() if isinstance(packet, Publish)]
        assert {each.topic: each.payload for each in got} == {t: v for t, v in values.items() if v}
        assert len(got) == len({each.topic for each in got})
        assert all(each.retain for each in got)
    home.was_well()


# Wills


@both_versions
async def test_wills_of_those_who_were_there_are_published_after_the_kill(
    make_home: MakeHome, peers: Peers, version: Version
) -> None:
    """Nobody speaks for those who had left in good order, and only the last of two wills is published."""
    home = make_home()
    await home.open()
    heir = await come(peers, home, "heir", version)
    await heir.subscribe("will/#", qos=2)
    for client_id, qos in (("one", 1), ("two", 2)):
        await come(peers, home, client_id, version, Will(f"will/{client_id}", b"gone", qos))
    polite = await come(peers, home, "polite", version, Will("will/polite", b"never", 1))
    await polite.leave()
    changed = await come(peers, home, "changed", version, Will("will/changed", b"old", 1))
    await changed.leave()
    await come(peers, home, "changed", version, Will("will/changed", b"new", 1))
    await peers.connect("clean", version, will=Will("will/clean", b"gone", 1, True), port=home.port)
    await home.killed_and_back()
    heir = await come(peers, home, "heir", version)
    assert heir.connack.session_present
    got: set[tuple[str, bytes]] = set()
    while len(got) < 4:
        message = await heir.receive(Publish)
        got.add((message.topic, message.payload))
    wanted = {("will/one", b"gone"), ("will/two", b"gone"), ("will/clean", b"gone"), ("will/changed", b"new")}
    assert got == wanted
    assert await rest(peers, home, heir, "will/x") == []
    late = await peers.connect("", version, port=home.port)
    await late.subscribe("will/#")
    assert await late.receive(Publish) == Publish("will/clean", b"gone", retain=True)
    assert await late.fence() == []
    await peers.close()
    await home.stopped_and_back()  # and that was it: no will is published twice
    await home.killed_and_back()
    heir = await come(peers, home, "heir", version)
    again = await rest(peers, home, heir, "will/x")
    assert [packet for packet in again if isinstance(packet, Publish) and not packet.dup] == []
    home.was_well()


async def test_delayed_will_is_not_published_if_its_client_is_back_in_time(
    make_home: MakeHome, peers: Peers
) -> None:
    home = make_home()
    await home.open()
    heir = await come(peers, home, "heir", Version.V5)
    await heir.subscribe("will/#", qos=1)
    hour = PacketProperties(will_delay=3600)
    await come(peers, home, "back", Version.V5, Will("will/back", b"never", 1, False, hour))
    await come(peers, home, "away", Version.V5, Will("will/away", b"later", 1, False, hour))
    await come(
        peers, home, "soon", Version.V5, Will("will/soon", b"soon", 1, False, PacketProperties(will_delay=1))
    )
    await home.killed_and_back()
    back = await come(peers, home, "back", Version.V5)
    assert back.connack.session_present
    heir = await come(peers, home, "heir", Version.V5)
    assert payloads([await heir.receive(Publish)]) == [b"soon"]
    await back.leave()
    assert await rest(peers, home, heir, "will/x") == []
    home.was_well()


# Everything at once


@both_versions
async def test_kills_while_the_log_is_sealed_lose_nothing(
    make_home: MakeHome, dice: Random, scale: int, version: Version
) -> None:
    """So many messages that batches of them are sealed while servers end."""
    home = make_home()
    await home.open()
    load = Load(home, version, 1, window=300, pace_s=0)
    await load.run([kill_with(dice)] * 2 * scale, dice, least=5_000, most=8_000)
    await until(home.has_sealed, "nothing was sealed", timeout_s=SEALING_S, every_s=0.05)
    home.was_well()
