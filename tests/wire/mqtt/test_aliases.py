"""Outgoing topic aliases: whoever resolves them reads the same messages, in fewer bytes."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.model import Properties
from penstock.runs import Run
from penstock.wire.mqtt import (
    Connect,
    Disconnect,
    Packet,
    PacketProperties,
    PacketReader,
    PingResp,
    PubAck,
    Publish,
    RunReader,
    SubAck,
    TopicNameCache,
    Version,
    encode_packet,
)
from penstock.wire.mqtt.aliases import AliasWriter
from tests.wire.mqtt.strategies import encode_all, packets, publishes, thorough

LARGE = 10_000_000
TOPICS = ("a", "a/b", "a/bc", "b/cd", "some/where/else", "ü/ö/ä", "x" * 255, "y" * 256, "z" * 300)
SIZES = (0, 1, 90, 110, *range(112, 130), *range(2_036, 2_046), 16_376, 16_383, 70_000)
"""Payloads around the sizes where a length takes another byte."""


def encode(*packets: Packet) -> bytes:
    return encode_all(packets, Version.V5)


def read(data: bytes) -> list[Packet]:
    """Packets as a client reads them: aliases are properties."""
    reader = PacketReader(LARGE, Version.V5)
    items = reader.feed(data)
    assert reader.error is None
    return [item for item in items if isinstance(item, Packet)]


def resolve(packets: Sequence[Packet]) -> list[Packet]:
    """The packets as they were before they got aliases."""
    topics: dict[int, str] = {}
    resolved: list[Packet] = []
    for packet in packets:
        if isinstance(packet, Publish) and (number := packet.properties.topic_alias) is not None:
            topics[number] = packet.topic or topics[number]
            plain = replace(packet.properties, topic_alias=None)
            resolved.append(replace(packet, topic=topics[number], properties=plain))
        else:
            resolved.append(packet)
    return resolved


def serve(data: bytes, aliases_limit: int) -> list[object]:
    """The messages that a server reads: it resolves aliases itself."""
    reader = RunReader(LARGE, TopicNameCache(), aliases_limit)
    reader.feed(encode_packet(Connect("c", Version.V5), Version.V5))
    runs = [item for item in reader.feed(data) if isinstance(item, Run)]
    assert reader.error is None
    found: list[object] = []
    for run in runs:
        extras = (run.packet_id, run.shape.qos, run.shape.retain, run.ttl, run.properties or Properties())
        found += [(run.topic, run.payload(index), *extras) for index in range(run.count)]
    return found


def written(data: bytes) -> list[tuple[str, int | None]]:
    """Topic and alias of each publish, as they stand on the wire."""
    publishes = [packet for packet in read(data) if isinstance(packet, Publish)]
    return [(packet.topic, packet.properties.topic_alias) for packet in publishes]


@st.composite
def messages(draw: st.DrawFn, *, leave_out: tuple[str, ...] = ("topic_alias",)) -> Publish:
    """A publish to one of a few topics, of a size where something may change."""
    publish = draw(publishes(Version.V5, leave_out=leave_out))
    if draw(st.booleans()):
        publish = replace(publish, properties=PacketProperties())
    if draw(st.integers(0, 9)) == 0:
        long = PacketProperties(
            content_type="t" * draw(st.sampled_from((119, 122, 125, 126, 16_378, 16_400)))
        )
        publish = replace(publish, properties=long)
    payload = bytes(draw(st.sampled_from(SIZES)))
    return replace(publish, topic=draw(st.sampled_from(TOPICS)), payload=payload)


others = packets(Version.V5).filter(lambda packet: not isinstance(packet, Publish))


# What is read is what was meant


@thorough
@given(st.lists(st.lists(messages() | others, max_size=8), max_size=3), st.integers(0, 4))
def test_packets_are_the_same_once_their_aliases_are_resolved(writes: list[list[Packet]], limit: int) -> None:
    writer = AliasWriter(limit, 0)
    data = b"".join(writer.rewrite(encode(*write)) for write in writes)
    assert resolve(read(data)) == [packet for write in writes for packet in write]
    assert {number for _, number in written(data)} <= {None, *range(1, limit + 1)}


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("dressing", [None, 0, 1, 90, 120, 121, 122, 123, 124, 125, 126, 16_377, 16_378])
def test_lengths_are_right_wherever_they_take_another_byte(qos: int, dressing: int | None) -> None:
    extras = PacketProperties() if dressing is None else PacketProperties(content_type="t" * dressing)
    for size in SIZES:
        # Four of a kind: the first names the topic, the others may be taken for a run.
        sent = [
            Publish("some/topic", bytes((number,)) * size, qos, packet_id=7 if qos else 0, properties=extras)
            for number in range(4)
        ]
        data = AliasWriter(1, 0).rewrite(encode(*sent))
        assert resolve(read(data)) == sent
        assert [topic for topic, _ in written(data)] == ["some/topic", "", "", ""]


@thorough
@given(st.lists(messages(leave_out=("topic_alias", "subscription_ids")), max_size=12), st.integers(1, 4))
def test_a_server_that_resolves_aliases_reads_the_same_messages(sent: list[Publish], limit: int) -> None:
    data = encode(*sent)
    assert serve(AliasWriter(limit, 0).rewrite(data), limit) == serve(data, 0)


@thorough
@given(st.lists(messages(), max_size=12), st.integers(64, 400))
def test_no_packet_grows_beyond_what_the_client_takes(sent: list[Publish], limit_bytes: int) -> None:
    fitting = [packet for packet in sent if len(encode(packet)) <= limit_bytes]
    writer = AliasWriter(2, limit_bytes)
    rewritten = [writer.rewrite(encode(packet)) for packet in fitting]
    assert all(len(data) <= limit_bytes for data in rewritten)
    assert resolve(read(b"".join(rewritten))) == fitting


@pytest.mark.parametrize("topic", TOPICS)
def test_a_known_topic_never_makes_a_packet_larger(topic: str) -> None:
    writer = AliasWriter(1, 0)
    writer.rewrite(encode(Publish(topic)))
    for size in SIZES:
        for extras in (PacketProperties(), PacketProperties(content_type="t" * 122)):
            data = encode(Publish(topic, bytes(size), properties=extras))
            assert len(writer.rewrite(data)) <= len(data)


# What is written


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_topic_is_written_once_and_then_only_its_alias(qos: int) -> None:
    packet = Publish("some/topic", b"x", qos, packet_id=7 if qos else 0)
    writer = AliasWriter(5, 0)
    data = writer.rewrite(encode(packet, packet, packet)) + writer.rewrite(encode(packet))
    assert written(data) == [("some/topic", 1), ("", 1), ("", 1), ("", 1)]


def test_each_topic_has_an_alias_of_its_own() -> None:
    sent = [Publish(topic, b"x") for topic in ("first", "second", "first", "second", "third")]
    data = AliasWriter(5, 0).rewrite(encode(*sent))
    assert written(data) == [("first", 1), ("second", 2), ("", 1), ("", 2), ("third", 3)]


def test_many_messages_of_one_topic_are_each_as_they_were() -> None:
    sent = [Publish("some/topic", b"%03d" % number) for number in range(100)]
    sent += [Publish("some/topic", b"%04d" % number) for number in range(3)]
    sent += [Publish("some/topic", b"%04d" % number, retain=True) for number in range(3)]
    data = AliasWriter(1, 0).rewrite(encode(*sent, PingResp()))
    assert resolve(read(data)) == [*sent, PingResp()]
    assert written(data) == [("some/topic", 1)] + [("", 1)] * 105
    assert len(data) == len(encode(*sent, PingResp())) + 3 - 105 * (len("some/topic") - 3)


def test_a_topic_that_was_not_used_for_longest_gives_its_alias_away() -> None:
    writer = AliasWriter(2, 0)
    used = ("first", "second", "first", "third", "first", "second", "third")
    data = b"".join(writer.rewrite(encode(Publish(topic))) for topic in used)
    expected = [("first", 1), ("second", 2), ("", 1), ("third", 2), ("", 1), ("second", 2), ("third", 1)]
    assert written(data) == expected


def test_a_topic_counts_as_used_again_after_another_that_takes_longer() -> None:
    long = "other/" * 50  # is found in another way
    sent = [Publish(topic) for topic in ("first", long, "first", long, "first", "third", "first", long)]
    data = AliasWriter(2, 0).rewrite(encode(*sent))
    start = [("first", 1), (long, 2), ("", 1), ("", 2), ("", 1)]
    assert written(data) == [*start, ("third", 2), ("", 1), (long, 2)]


@pytest.mark.parametrize("long", [bytes(300), bytes(70_000)])
def test_a_use_counts_whatever_the_packet_looks_like(long: bytes) -> None:
    dressed = PacketProperties(content_type="t" * 200)
    writer = AliasWriter(2, 0)
    sent = [Publish("first"), Publish("second"), Publish("first", long, properties=dressed), Publish("third")]
    data = writer.rewrite(encode(*sent))
    assert written(data) == [("first", 1), ("second", 2), ("", 1), ("third", 2)]


@pytest.mark.parametrize(("topic", "is_worth_it"), [("abc", False), ("ü/", False), ("abcd", True)])
def test_a_topic_as_short_as_an_alias_stays(topic: str, is_worth_it: bool) -> None:
    data = AliasWriter(5, 0).rewrite(encode(Publish(topic), Publish(topic)))
    assert written(data) == ([(topic, 1), ("", 1)] if is_worth_it else [(topic, None)] * 2)


def test_packets_without_a_topic_pass_as_they_are() -> None:
    sent = [PingResp(), PubAck(1, 0x10), SubAck(2, (0,) * 200), SubAck(3, (0,) * 20_000), Disconnect(0x8B)]
    data = encode(*sent)
    assert AliasWriter(5, 0).rewrite(data) is data
    publish = Publish("some/topic", b"x")
    mixed = AliasWriter(5, 0).rewrite(data + encode(publish) + data + encode(publish) + data)
    assert resolve(read(mixed)) == [*sent, publish, *sent, publish, *sent]


def test_nothing_is_changed_for_who_allows_no_alias() -> None:
    data = encode(Publish("some/topic"), Publish("some/topic"))
    assert AliasWriter(0, 0).rewrite(data) is data
    assert AliasWriter(5, 0).rewrite(b"") == b""


def test_a_packet_that_would_grow_too_large_stays_and_costs_no_alias() -> None:
    exact = Publish("some/topic", bytes(50))
    limit_bytes = len(encode(exact)) + 2
    writer = AliasWriter(1, limit_bytes)
    smaller = Publish("some/topic", bytes(49))
    data = b"".join(writer.rewrite(encode(packet)) for packet in (exact, smaller, exact))
    assert written(data) == [("some/topic", None), ("some/topic", 1), ("", 1)]
    other = writer.rewrite(encode(Publish("else/where", bytes(50)), exact))
    assert written(other) == [("else/where", None), ("", 1)]


def test_another_byte_of_the_length_counts_for_the_limit() -> None:
    # Two bytes of header and 125 of body; with an alias there would be three and 128.
    packet = Publish("some/topic", bytes(125 - 2 - len("some/topic") - 1))
    assert len(encode(packet)) == 127
    assert AliasWriter(1, 130).rewrite(encode(packet)) == encode(packet)
    assert len(AliasWriter(1, 131).rewrite(encode(packet))) == 131
