"""Finding packets in a stream: any cut gives the same, bad bytes end it, and nothing else escapes."""

import sys
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.model import Door, Properties
from penstock.net.turn_shares import MOST_WORK
from penstock.runs import NEVER, Run, Train
from penstock.wire.mqtt import (
    NO_PROPERTIES,
    AckRun,
    Auth,
    Connect,
    InvalidTopicName,
    MalformedPacket,
    MqttWireError,
    Packet,
    PacketProperties,
    PacketReader,
    PacketTooLarge,
    PingReq,
    ProtocolViolation,
    PubAck,
    Publish,
    ReasonCode,
    RunReader,
    TopicNameCache,
    Version,
    encode_packet,
)
from penstock.wire.mqtt.abilities import DRESSED, LAYOUTS, Abilities
from penstock.wire.mqtt.reader import Item
from penstock.wire.mqtt.run_reader import SOON
from tests.wire.mqtt.case import ALIASES, Case, reading, separate, serving
from tests.wire.mqtt.catalogue import BAD, GOOD
from tests.wire.mqtt.strategies import conversations, cuts, encode_all, packets, publishes, thorough, versions

LARGE = 1_000_000
CHUNK = 64 * 1024
PING = b"\xc0\x00"
PROOF = Auth(ReasonCode.CONTINUE_AUTHENTICATION, PacketProperties(authentication_method="SCRAM-SHA-256"))


def messages(items: list[Item]) -> list[object]:
    """What was read, with each message and acknowledgement on its own, so that runs of any length compare."""
    found: list[object] = []
    for item in items:
        if isinstance(item, AckRun):
            found += separate(item)
            continue
        if isinstance(item, Train):
            found += messages([*item.runs(0)])
            continue
        if not isinstance(item, Run):
            found.append(item)
            continue
        assert item.count == 1 or not item.packet_id
        extras = (item.packet_id, item.properties, item.ttl, item.shape)
        found += [(item.topic, item.payload(index), extras) for index in range(item.count)]
    return found


def outcome(reader: PacketReader, pieces: list[bytes]) -> tuple[list[object], type[MqttWireError] | None]:
    """Everything a reader makes of these pieces, and how it ended."""
    found: list[object] = []
    for piece in pieces:
        found += messages(reader.feed(piece))
    assert reader.error is None or isinstance(reader.error, MqttWireError)
    return found, None if reader.error is None else type(reader.error)


def serve(limit_bytes: int) -> RunReader:
    """A server's reader, before its client has said anything; it does not look into payloads."""
    return RunReader(limit_bytes, TopicNameCache(), abilities=Abilities(checks_payload_format=False))


READERS: list[Callable[[int], PacketReader]] = [PacketReader, serve]


def payload_of(item: Item) -> bytes:
    if isinstance(item, Run):
        return item.payload()
    assert isinstance(item, Publish)
    return item.payload


def pieces_of(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


# However the bytes are cut


@pytest.mark.parametrize("case", GOOD + BAD, ids=str)
def test_cases_fed_byte_by_byte_end_as_they_do_in_one_piece(case: Case) -> None:
    for make in (reading, serving):
        whole = outcome(make(case.version), [case.data + PING])
        assert outcome(make(case.version), pieces_of(case.data + PING, 1)) == whole


@thorough
@given(st.data(), versions)
def test_packets_are_the_same_however_the_stream_is_cut(data: st.DataObject, version: Version) -> None:
    sent = data.draw(st.lists(packets(version), max_size=6))
    reader = PacketReader(LARGE, version)
    pieces = data.draw(cuts(encode_all(sent, version)))
    assert [packet for piece in pieces for packet in reader.feed(piece)] == sent
    assert reader.error is None


@thorough
@given(st.data(), conversations())
def test_runs_are_the_same_however_the_stream_is_cut(
    data: st.DataObject, conversation: tuple[Version, list[Packet]]
) -> None:
    version, sent = conversation
    stream = encode_all(sent, version)
    whole = outcome(serve(LARGE), [stream])
    assert outcome(serve(LARGE), data.draw(cuts(stream))) == whole
    assert len(whole[0]) == len(sent)
    assert whole[1] is None


def in_trains(limit_bytes: int) -> RunReader:
    reader = serve(limit_bytes)
    reader.makes_trains = True
    return reader


@thorough
@given(st.data(), conversations())
def test_trains_have_the_same_messages_as_runs(
    data: st.DataObject, conversation: tuple[Version, list[Packet]]
) -> None:
    version, sent = conversation
    stream = encode_all(sent, version)
    whole = outcome(serve(LARGE), [stream])
    assert outcome(in_trains(LARGE), [stream]) == whole
    assert outcome(in_trains(LARGE), data.draw(cuts(stream))) == whole


@pytest.mark.parametrize("version", list(Version))
def test_neighbours_of_different_topics_and_lengths_are_one_train(version: Version) -> None:
    reader = in_trains(LARGE)
    reader.feed(encode_packet(Connect("c", version), version))
    sent = [Publish(f"topic/{number % 3}", b"x" * (40 * number % 300)) for number in range(9)]
    stream = encode_all([*sent, Publish("topic/0", b"", 1, packet_id=1), *sent, PingReq()], version)
    reader.feed(stream)  # after this the names are known
    first, acknowledged, second, ping = reader.feed(stream)
    for train in (first, second):
        assert isinstance(train, Train)
        assert train.slab == encode_all(sent, version)
        assert train.ends[-1] == len(train.slab)
        runs = train.runs(0)
        assert [(run.topic, run.payload()) for run in runs] == [(each.topic, each.payload) for each in sent]
        assert b"".join(run.slab for run in runs) == train.slab
    assert isinstance(acknowledged, Run)
    assert ping == PingReq()


def test_equal_neighbours_are_a_run_and_a_single_message_is_no_train() -> None:
    reader = in_trains(LARGE)
    reader.feed(encode_packet(Connect("c", Version.V311), Version.V311))
    sent = [Publish("a", b"1"), Publish("b", b"2"), *[Publish("c", b"3")] * 5, Publish("a", b"4")]
    for _ in range(2):  # after this the names are known
        reader.feed(encode_all(sent, Version.V311))
    train, run, single = reader.feed(encode_all(sent, Version.V311))
    assert isinstance(train, Train)
    assert train.names == ["a", "b", "c"]
    assert isinstance(run, Run)
    assert (run.topic, run.count) == ("c", 4)
    assert isinstance(single, Run)
    assert (single.topic, single.count) == ("a", 1)


def test_a_train_is_as_much_work_as_its_messages() -> None:
    reader = in_trains(LARGE)
    reader.feed(encode_packet(Connect("c", Version.V311), Version.V311))
    stream = encode_all([Publish(f"topic/{number % 50}", b"x" * 100) for number in range(500)], Version.V311)
    reader.feed(stream)
    reader.work_limit = 64
    train, *rest = reader.feed(stream)
    assert isinstance(train, Train)
    assert rest == []
    assert 64 <= train.count < 100
    assert reader.position == len(train.slab)


@pytest.mark.parametrize("rest", [PING, b"\x00", b"\xff" * 9, encode_packet(Publish("t", b"x"), Version.V5)])
@pytest.mark.parametrize("greeting", [Connect("c", Version.V5), PROOF])
def test_nothing_behind_a_handshake_is_read_in_the_same_step(greeting: Packet, rest: bytes) -> None:
    """A door decides about CONNECT and AUTH before it acts on anything behind them."""
    first = encode_packet(greeting, Version.V5)
    for cut in range(len(first)):
        reader = RunReader(LARGE, TopicNameCache())
        reader.version, reader.work_limit = Version.V5, MOST_WORK
        before = reader.feed(first[:cut])
        assert before == []
        assert [type(item) for item in reader.feed(first[cut:] + rest)] == [type(greeting)]
        assert reader.position == len(first) - cut
        assert reader.error is None


def test_packets_arrive_as_soon_as_their_last_byte_does() -> None:
    reader = PacketReader(LARGE)
    assert reader.feed(b"\xc0") == []
    assert reader.feed(b"\x00\x40\x02\x00") == [PingReq()]
    assert reader.feed(b"") == []
    assert reader.feed(b"\x01\x30\x80") == [PubAck(1)]
    assert reader.feed(b"\x01\x00\x01t" + bytes(124)) == []
    assert reader.feed(b"\x00\xc0\x00") == [Publish("t", bytes(125)), PingReq()]


# Runs are what the packets say


def expected_properties(given: PacketProperties) -> Properties | None:
    if given == NO_PROPERTIES:
        return None
    return Properties(
        content_type=given.content_type,
        correlation_id=given.correlation_data,
        response_topic=given.response_topic,
        payload_format=given.payload_format,
        user=given.user,
    )


def check_same_message(run: object, publish: Packet, version: Version) -> None:
    assert isinstance(publish, Publish)
    assert isinstance(run, tuple)
    topic, payload, (packet_id, properties, ttl, shape) = run
    assert (topic, payload, packet_id) == (publish.topic, publish.payload, publish.packet_id)
    assert (shape.qos, shape.retain, shape.door) == (publish.qos, publish.retain, Door.MQTT)
    assert shape.layout == (LAYOUTS[version] if publish.properties == NO_PROPERTIES else DRESSED)
    assert properties == expected_properties(publish.properties)
    expiry = publish.properties.message_expiry
    assert ttl == (NEVER if expiry is None else expiry or SOON)


@thorough
@given(conversations())
def test_runs_carry_what_the_decoded_publishes_carry(conversation: tuple[Version, list[Packet]]) -> None:
    version, sent = conversation
    stream = encode_all(sent, version)
    as_packets = PacketReader(LARGE).feed(stream)
    as_runs = messages(serve(LARGE).feed(stream))
    assert len(as_runs) == len(as_packets)
    for run, packet in zip(as_runs, as_packets, strict=True):
        assert isinstance(packet, Packet)
        if type(packet) is Publish:
            check_same_message(run, packet, version)
        else:
            assert run == packet


@thorough
@given(st.data(), versions)
def test_undressed_runs_keep_the_frames_they_came_in(data: st.DataObject, version: Version) -> None:
    publish = data.draw(publishes(version).filter(lambda packet: packet.properties == NO_PROPERTIES))
    frame = encode_packet(publish, version)
    (run,) = serving(version).feed(PING + frame + PING)[1:-1]
    assert isinstance(run, Run)
    assert (run.slab, run.stride, run.count) == (frame, len(frame), 1)


def test_shapes_of_equal_flags_are_one_object_whether_or_not_the_message_is_a_repeat() -> None:
    first, again = serving(Version.V5).feed(b"\x32\x06\x00\x01t\x00\x01\x00\x3a\x06\x00\x01t\x00\x01\x00")
    assert isinstance(first, Run)
    assert isinstance(again, Run)
    assert first.shape is again.shape


def test_a_client_that_says_5_is_read_by_the_rules_of_5() -> None:
    for reader in (PacketReader(LARGE), serve(LARGE)):
        hello = encode_packet(Connect("c", Version.V5), Version.V5)
        items = reader.feed(hello + b"\x40\x03\x00\x01\x10")
        assert items == [Connect("c", Version.V5), PubAck(1, 0x10)]
        assert reader.version is Version.V5
    silent = serve(LARGE)
    assert silent.feed(b"\x40\x03\x00\x01\x10") == []
    assert type(silent.error) is MalformedPacket


# Topic aliases


def alias(topic: bytes, number: int, payload: bytes = b"") -> bytes:
    body = bytes((0, len(topic))) + topic + b"\x03\x23" + number.to_bytes(2, "big") + payload
    return bytes((0x30, len(body))) + body


def topics(items: list[Item]) -> list[str]:
    return [item.topic for item in items if isinstance(item, Run)]


def test_an_alias_stands_for_its_topic_until_it_is_given_another() -> None:
    reader = serving(Version.V5)
    stream = alias(b"a", 1) + alias(b"", 1) + alias(b"b", 1) + alias(b"", 1) + alias(b"", 1, b"x")
    assert topics(reader.feed(stream)) == ["a", "a", "b", "b", "b"]
    assert reader.error is None


def test_every_alias_up_to_the_maximum_is_taken() -> None:  # MQTT-3.3.2-12
    reader = serving(Version.V5)
    numbers = range(1, ALIASES + 1)
    defined = b"".join(alias(b"%d" % number, number) for number in numbers)
    used = b"".join(alias(b"", number) for number in numbers)
    assert topics(reader.feed(defined + used)) == [str(number) for number in numbers] * 2


def test_aliases_end_with_their_connection() -> None:  # MQTT-3.3.2-7
    names = TopicNameCache()
    hello = encode_packet(Connect("c", Version.V5), Version.V5)
    first = RunReader(LARGE, names, ALIASES)
    assert topics(first.feed(hello + alias(b"a", 1) + alias(b"", 1))) == ["a", "a"]
    second = RunReader(LARGE, names, ALIASES)
    assert topics(second.feed(hello + alias(b"", 1))) == []
    assert type(second.error) is ProtocolViolation


def test_no_alias_is_taken_where_none_was_offered() -> None:  # MQTT-3.2.2-18
    reader = serve(LARGE)
    assert topics(reader.feed(encode_packet(Connect("c", Version.V5), Version.V5) + alias(b"a", 1))) == []
    assert reader.error is not None
    assert reader.error.reason == 0x94


def test_a_client_reads_aliases_as_they_are() -> None:
    items = PacketReader(LARGE, Version.V5).feed(alias(b"", 70))
    assert items == [Publish("", properties=PacketProperties(topic_alias=70))]


# Names


def test_a_name_that_comes_again_is_remembered() -> None:
    names = TopicNameCache()
    assert names["é".encode()] == "é"
    assert not names  # it may have been the only time
    first, second = names["é".encode()], names["é".encode()]
    assert first == "é"
    assert first is second


@pytest.mark.parametrize("raw", [b"a/+", b"#", b"a\x00", b"\xff"])
def test_bad_names_are_never_remembered(raw: bytes) -> None:
    names = TopicNameCache()
    for _ in range(2):
        with pytest.raises((InvalidTopicName, MalformedPacket)):
            names[raw]
    assert not names


def test_strangers_cannot_fill_the_memory_with_names() -> None:
    names = TopicNameCache()
    for number in range(70_000):
        for _ in range(2):
            assert names[b"%d" % number] == str(number)
    assert 0 < len(names) <= 65_536
    before = len(names)
    for _ in range(2):
        assert names[b"x" * 60_000] == "x" * 60_000
    assert len(names) == before


def test_a_flood_of_new_names_leaves_those_in_use_alone() -> None:
    names = TopicNameCache()
    for _ in range(2):
        names[b"in use"]
    for number in range(200_000):
        names[b"%d" % number]
    assert b"in use" in names
    assert len(names) < 60_000  # a few are taken for known


# What is bad


@thorough
@given(st.data(), conversations(), st.sampled_from(BAD))
def test_what_was_valid_before_bad_bytes_is_still_returned(
    data: st.DataObject, conversation: tuple[Version, list[Packet]], case: Case
) -> None:
    version, sent = conversation
    stream = encode_all(sent, version)
    wrong = b"\x30\xff\xff\xff\xff"  # in every version
    for reader in (PacketReader(LARGE), serve(LARGE)):
        found, error = outcome(reader, data.draw(cuts(stream + wrong + PING)))
        assert len(found) == len(sent)
        assert error is MalformedPacket
    reader = reading(case.version)
    assert reader.feed(PING + case.data + PING) == [PingReq()]
    assert type(reader.error) is case.error


@pytest.mark.parametrize("make", [reading, serving])
def test_nothing_is_read_or_kept_after_bad_bytes(make: Callable[[Version], PacketReader]) -> None:
    reader = make(Version.V311)
    reader.feed(b"\x00\x00")
    error = reader.error
    assert error is not None
    chunk = bytes(bytearray(PING * 1000))
    before = sys.getrefcount(chunk)
    for _ in range(3):
        assert reader.feed(chunk) == []
    assert sys.getrefcount(chunk) == before
    assert reader.error is error


@thorough
@given(st.data(), st.binary(max_size=200), versions)
@example(None, b"\x82\x00", Version.V311)
def test_random_bytes_only_ever_set_the_error(
    data: st.DataObject | None, noise: bytes, version: Version
) -> None:
    pieces = pieces_of(noise, 1) if data is None else data.draw(cuts(noise))
    for make in (reading, serving):
        assert outcome(make(version), pieces) == outcome(make(version), [noise])


@st.composite
def mutations(draw: st.DrawFn, stream: bytes) -> bytes:
    """A valid stream with some bytes changed, left out, put in or said twice."""
    changed = bytearray(stream)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(changed)))
        kind = draw(st.sampled_from(("set", "bit", "cut", "insert", "repeat")))
        if kind == "set":
            changed[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
        elif kind == "bit" and place < len(changed):
            changed[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del changed[place : place + draw(st.integers(1, 8))]
        elif kind == "insert":
            changed[place:place] = draw(st.binary(min_size=1, max_size=6))
        elif kind == "repeat":
            changed[place:place] = changed[place : place + draw(st.integers(1, 16))]
    return bytes(changed)


@thorough
@given(st.data(), conversations())
def test_damaged_streams_only_ever_set_the_error(
    data: st.DataObject, conversation: tuple[Version, list[Packet]]
) -> None:
    version, sent = conversation
    stream = data.draw(mutations(encode_all(sent, version)))
    pieces = data.draw(cuts(stream))
    as_packets = outcome(PacketReader(LARGE), pieces)
    assert as_packets == outcome(PacketReader(LARGE), [stream])
    as_runs = outcome(RunReader(LARGE, TopicNameCache(), 9), pieces)
    assert as_runs == outcome(RunReader(LARGE, TopicNameCache(), 9), [stream])
    # A server is at least as strict, and what both take is the same.
    if as_runs[1] is None:
        assert as_packets[1] is None
        assert len(as_runs[0]) == len(as_packets[0])
    assert len(as_runs[0]) <= len(as_packets[0])
    for run, packet in zip(*(found[0] for found in (as_runs, as_packets)), strict=False):
        if type(packet) is not Publish:
            assert run == packet
        else:
            assert isinstance(run, tuple)
            assert run[1] == packet.payload


# What is large


@pytest.mark.parametrize("make", READERS, ids=["packets", "runs"])
def test_a_packet_above_the_limit_is_refused_before_its_body_arrives(
    make: Callable[[int], PacketReader],
) -> None:
    # 127 bytes and two of header make 129.
    for header, limit, is_taken in (
        (b"\x30\x7f", 129, True),
        (b"\x30\x7f", 128, False),
        (b"\x30\x80\x80\x01", 16_388, True),
        (b"\x30\x80\x80\x01", 16_387, False),
        (b"\x10\xff\xff\xff\x7f", LARGE, False),
    ):
        reader = make(limit)
        assert [item for byte in header[:-1] for item in reader.feed(bytes((byte,)))] == []
        assert outcome(reader, []) == ([], None)
        assert outcome(reader, [header[-1:]]) == ([], None if is_taken else PacketTooLarge)


def test_packets_before_one_that_is_too_large_are_returned() -> None:
    reader = PacketReader(100)
    assert reader.feed(PING + b"\x30\x64") == [PingReq()]
    assert type(reader.error) is PacketTooLarge


@pytest.mark.parametrize("size", [1_000_000, 4_000_000])
@pytest.mark.parametrize("make", READERS, ids=["packets", "runs"])
def test_a_large_packet_is_put_together_once(make: Callable[[int], PacketReader], size: int) -> None:
    payload = bytes(range(256)) * (size // 256)
    chunks = pieces_of(encode_packet(Publish("t", payload), Version.V311), CHUNK)
    middle = range(1, len(chunks) - 1)
    untouched = [sys.getrefcount(chunks[index]) for index in middle]
    reader = make(2 * size)
    for index in range(len(chunks) - 1):
        assert reader.feed(chunks[index]) == []
    # The reader holds these very chunks: none was copied, nor joined to what came before it.
    assert [sys.getrefcount(chunks[index]) for index in middle] == [count + 1 for count in untouched]
    item, ping = reader.feed(chunks[-1] + PING)
    assert payload_of(item) == payload
    assert ping == PingReq()
    # And it has let all of them go.
    assert [sys.getrefcount(chunks[index]) for index in middle] == untouched
