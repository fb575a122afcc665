"""Packets that were rewritten with topic aliases say to a client what they said before."""

from random import Random

from penstock.wire.mqtt import Packet, PacketProperties, PacketReader, PingResp, PubAck, Publish, Version
from penstock.wire.mqtt import encode_packet as encode
from penstock.wire.mqtt.aliases import AliasWriter
from tests.fuzz.verdict import judge

LARGE = 1_000_000
TOPICS = ("t", "abc", "abcd", "a/long/topic", "another/long/topic", "é" * 60, "x" * 127, "y" * 128, "z" * 300)


def packet(dice: Random) -> Packet:
    """Anything that a server sends; most are messages."""
    if dice.random() < 0.15:
        return dice.choice((PingResp(), PubAck(7)))
    user = tuple(("key", "v" * dice.choice((1, 30, 110, 200))) for _ in range(dice.choice((0, 0, 0, 1, 2))))
    expiry = dice.choice((None, None, 60))
    qos = dice.choice((0, 0, 1, 2))
    payload = bytes(dice.choice((0, 1, 5, 100, 120, 127, 128, 1_000, 17_000)))
    return Publish(
        dice.choice(TOPICS),
        payload,
        qos,
        dice.random() < 0.2,
        bool(qos) and dice.random() < 0.2,
        dice.randrange(1, 0xFFFF) if qos else 0,
        PacketProperties(message_expiry=expiry, user=user),
    )


def understood(data: bytes, aliases: dict[int, str], limit: int) -> list[Packet]:
    """What a client makes of it, with the aliases that it was given."""
    reader = PacketReader(LARGE, Version.V5)
    found: list[Packet] = []
    for item in reader.feed(data):
        if isinstance(item, Publish):
            given = item.properties
            if given.topic_alias is not None:
                assert 0 < given.topic_alias <= limit
                topic = item.topic or aliases[given.topic_alias]
                aliases[given.topic_alias] = topic
                plain = PacketProperties(message_expiry=given.message_expiry, user=given.user)
                item = Publish(  # noqa: PLW2901 - the same with its topic
                    topic, item.payload, item.qos, item.retain, item.dup, item.packet_id, plain
                )
        assert isinstance(item, Packet)
        found.append(item)
    assert reader.error is None
    return found


def test_rewritten_packets_say_the_same(dice: Random, scale: int) -> None:
    writers = {limit: (AliasWriter(limit, 0), dict[int, str]()) for limit in (0, 1, 2, 5, 100)}

    def make(dice: Random) -> list[Packet]:
        packets = [packet(dice) for _ in range(dice.randrange(1, 8))]
        return packets + [packets[-1]] * dice.choice((0, 0, 3))

    def parse(packets: list[Packet]) -> None:
        data = b"".join(encode(each, Version.V5) for each in packets)
        for limit, (writer, aliases) in writers.items():
            rewritten = writer.rewrite(data)
            assert understood(rewritten, aliases, limit) == packets
            assert len(aliases) <= limit
            assert limit or rewritten == data

    tally = judge(parse, make, dice, 2_000 * scale, steps_per_unit=500)
    assert tally.refused == 0


def test_no_packet_becomes_larger_than_the_client_takes(dice: Random, scale: int) -> None:
    for _ in range(1_000 * scale):
        original = encode(packet(dice), Version.V5)
        limit_bytes = len(original) + dice.randrange(6)
        writer = AliasWriter(5, limit_bytes)
        for _ in range(2):  # once to give the alias, once to use it
            assert len(writer.rewrite(original)) <= limit_bytes
