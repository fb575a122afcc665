"""Both MQTT readers against bytes that nobody should send, however they are cut."""

from collections.abc import Callable
from random import Random

import pytest

from penstock.runs import Run
from penstock.wire.mqtt import (
    AckRun,
    InvalidTopicAlias,
    MqttWireError,
    Packet,
    PacketReader,
    PacketTooLarge,
    ProtocolViolation,
    Publish,
    RunReader,
    TopicNameCache,
    Version,
    encode_packet,
)
from penstock.wire.mqtt.primitives import Body
from penstock.wire.mqtt.properties import In, PacketProperties, encode_properties, take_properties
from penstock.wire.mqtt.reader import Item
from penstock.wire.mqtt.reasons import InvalidPayloadFormat
from tests.fuzz.damage import damaged, pieces
from tests.fuzz.verdict import judge, peak_bytes
from tests.wire.mqtt.case import ALIASES, connect, separate
from tests.wire.mqtt.catalogue import BAD, DERIVED, GOOD, HOLDERS, PROPERTIES

NARROW, WIDE = 300, 20_000
"""Limits below and above which a server's reader takes its quick path."""
SAMPLES = {version: [case.data for case in GOOD if case.version is version] for version in Version}
ALL_SAMPLES = [case.data for case in (*GOOD, *BAD, *DERIVED)]
HELLO = {
    Version.V311: connect(4, b"\x02\x00\x00\x00\x01c"),
    Version.V5: connect(5, b"\x02\x00\x00\x00\x00\x01c"),
}
NAMES = TopicNameCache()
"""As in a server, it outlives the connections, so that most topics are known to the quick path."""
SERVERS_OWN = {
    kind.__name__ for kind in (InvalidTopicAlias, ProtocolViolation, InvalidPayloadFormat, PacketTooLarge)
}
"""What only a server has reasons to refuse."""

Outcome = tuple[list[object], str | None, Version | None]


def stream(dice: Random, version: Version) -> bytes:
    """A few packets in a row, of which some are not what they were."""
    packets = [dice.choice(SAMPLES[version]) for _ in range(dice.randrange(1, 5))]
    if dice.random() < 0.3:
        packets += [packets[-1]] * dice.randrange(1, 4)  # what a server reads as one run
    spoilt = dice.randrange(len(packets) + 1)  # it may be none of them
    return b"".join(
        damaged(packet, dice, ALL_SAMPLES) if number >= spoilt and dice.random() < 0.6 else packet
        for number, packet in enumerate(packets)
    )


def outcome(reader: PacketReader, chunks: list[bytes]) -> Outcome:
    """Everything that a reader makes of these chunks, and how it ended."""
    found: list[object] = []
    for chunk in chunks:
        if reader.error is not None:
            assert reader.feed(chunk) == [], "it reads on after bad bytes"
            continue
        for item in reader.feed(chunk):
            found += messages(item)
    error = reader.error
    if error is None or isinstance(error, PacketTooLarge):
        # Which version a CONNECT is of, if it is not whole, depends on how much of it has come.
        return found, None if error is None else PacketTooLarge.__name__, None
    assert isinstance(error, MqttWireError)
    return found, f"{type(error).__name__}: {error}", reader.version


def messages(item: Item) -> list[object]:
    """A run of three is the same as three runs of one."""
    if isinstance(item, AckRun):
        return [*separate(item)]
    if not isinstance(item, Run):
        return [item]
    assert item.count * item.stride == len(item.slab)
    extras = (item.packet_id, item.properties, item.ttl, item.shape)
    return [(item.topic, item.payload(index), extras) for index in range(item.count)]


def serve(version: Version, limit_bytes: int, control_limit_bytes: int | None = None) -> RunReader:
    """A server's reader whose client has just come in."""
    reader = RunReader(limit_bytes, NAMES, ALIASES, control_limit_bytes)
    assert reader.feed(HELLO[version])
    return reader


def read(version: Version, limit_bytes: int) -> PacketReader:
    return PacketReader(limit_bytes, version)


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("limit_bytes", [NARROW, WIDE])
@pytest.mark.parametrize("make", [read, serve])
def test_damaged_packets_end_alike_in_one_piece_and_in_many(
    make: Callable[[Version, int], PacketReader],
    limit_bytes: int,
    version: Version,
    dice: Random,
    many: int,
) -> None:
    endings = set()

    def parse(data: bytes) -> None:
        whole = outcome(make(version, limit_bytes), [data])
        assert outcome(make(version, limit_bytes), pieces(data, dice)) == whole
        endings.add(whole[1])

    tally = judge(parse, lambda dice: stream(dice, version), dice, many // 4, steps_per_unit=60)
    print(tally, len(endings))
    assert None in endings and len(endings) > 20


@pytest.mark.parametrize("version", Version)
def test_first_packets_end_alike_in_one_piece_and_in_many(version: Version, dice: Random, many: int) -> None:
    hellos = [data for data in SAMPLES[version] if data[0] == 0x10]
    endings = set()

    def make(dice: Random) -> bytes:
        hello = dice.choice(hellos)
        return (damaged(hello, dice, ALL_SAMPLES) if dice.random() < 0.8 else hello) + stream(dice, version)

    def parse(data: bytes) -> None:
        whole = outcome(RunReader(WIDE, NAMES, ALIASES, 1024), [data])
        assert outcome(RunReader(WIDE, NAMES, ALIASES, 1024), pieces(data, dice)) == whole
        endings.add(whole[1])

    judge(parse, make, dice, many // 4, steps_per_unit=60)
    assert None in endings and len(endings) > 20


@pytest.mark.parametrize("version", Version)
def test_server_and_client_read_the_same_messages(version: Version, dice: Random, many: int) -> None:
    """What the quick path takes without decoding is what decoding would give, and nothing more."""
    agreed = 0

    def parse(data: bytes) -> None:
        nonlocal agreed
        runs, run_error, _ = outcome(serve(version, WIDE), [data])
        packets, packet_error, _ = outcome(PacketReader(WIDE, version), [data])
        if run_error is None:
            assert packet_error is None
        elif packet_error is None or kind_of(run_error) != kind_of(packet_error):
            assert kind_of(run_error) in SERVERS_OWN
        assert [facts(run) for run in runs] == [facts(packet) for packet in packets[: len(runs)]]
        agreed += run_error is None

    judge(parse, lambda dice: without_aliases(dice, version), dice, many // 4, steps_per_unit=60)
    assert agreed > many // 40


def kind_of(ending: str) -> str:
    """Texts may differ, because the two look at fields in another order."""
    return ending.partition(":")[0]


def without_aliases(dice: Random, version: Version) -> bytes:
    """Aliases are resolved by a server alone, so they would look different."""
    while b"\x23" in (data := stream(dice, version)):
        pass
    return data


def facts(item: object) -> object:
    """What a message says, whoever read it."""
    if isinstance(item, tuple):
        topic, payload, (packet_id, properties, _, shape) = item
        user = () if properties is None else properties.user
        return topic, payload, shape.qos, shape.retain, packet_id, user
    if isinstance(item, Publish):
        return item.topic, item.payload, item.qos, item.retain, item.packet_id, item.properties.user
    return item


def test_property_sections_are_read_or_refused(dice: Random, many: int) -> None:
    rows = [bytes((row.number,)) + row.raw for row in PROPERTIES]
    places = list(In)

    def make(dice: Random) -> bytes:
        content = b"".join(dice.sample(rows, dice.randrange(4)))
        section = bytes((len(content),)) + content
        return damaged(section, dice, rows) if dice.random() < 0.7 else section

    def parse(data: bytes) -> None:
        where = dice.choice(places)
        body = Body(data)
        properties = take_properties(body, where)
        again = take_properties(Body(encode_properties(properties, where)), where)
        assert again == properties

    tally = judge(parse, make, dice, many, steps_per_unit=60, error=MqttWireError)
    assert tally.taken > many // 100 and tally.refused > many // 10


def test_whatever_is_read_can_be_written_and_read_again(dice: Random, many: int) -> None:
    def parse(case: bytes) -> None:
        for version in Version:
            for packet in PacketReader(WIDE, version).feed(case):
                assert isinstance(packet, Packet)
                again = PacketReader(WIDE, version).feed(encode_packet(packet, version))
                assert again == [packet]

    tally = judge(parse, lambda dice: damaged(dice.choice(ALL_SAMPLES), dice), dice, many, steps_per_unit=200)
    assert tally.refused == 0


def test_packets_that_are_announced_and_never_come_cost_nothing(dice: Random) -> None:
    lengths = (b"\xff\xff\xff\x7f", b"\x80\x80\x80\x01", b"\xff\x7f", b"\x80\x80\x01")

    def announce() -> None:
        for _ in range(200):
            for make in (read, serve):
                reader = make(dice.choice(list(Version)), WIDE)
                first = bytes((dice.choice((0x30, 0x32, 0x82, 0x20, 0x40)),))
                reader.feed(first + dice.choice(lengths) + bytes(dice.randrange(64)))
                readers.append(reader)

    readers: list[PacketReader] = []
    announce()  # what is made once is made now
    assert peak_bytes(announce) < 400 * 4 * 1024


def test_reader_keeps_no_more_than_its_limit_and_a_chunk(dice: Random) -> None:
    """Byte by byte is the worst that can be done: one piece for each."""

    def trickle() -> None:
        reader = serve(Version.V5, WIDE)
        data = b"\x30\x80\x80\x01\x00\x01t\x00" + bytes(0x4000 - 5)
        for at in range(len(data)):
            reader.feed(data[at : at + 1])

    trickle()
    assert peak_bytes(trickle) < 20 * WIDE


@pytest.mark.parametrize("holder", HOLDERS)
def test_large_property_sections_take_steps_in_proportion(holder: str) -> None:
    first, before, after = HOLDERS[holder]
    where = {"PUBREC": "PUBACK", "PUBREL": "PUBACK", "PUBCOMP": "PUBACK"}.get(holder, holder)
    user = tuple((f"key {number}", "value") for number in range(3_000))
    method = "m" if holder == "AUTH" else None
    section = encode_properties(PacketProperties(user=user, authentication_method=method), In[where])
    body = before + section + after
    size = len(body)
    length = bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14))
    packet = bytes((first,)) + length + body

    def parse(data: bytes) -> None:
        reader = PacketReader(100_000, Version.V5)
        assert len(reader.feed(data)) == 1, reader.error

    judge(parse, lambda dice: packet, Random(0), 1, steps_per_unit=10)
