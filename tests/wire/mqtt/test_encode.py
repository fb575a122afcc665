"""Values to bytes: the shortest form that the standard allows, and back again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.mqtt import (
    PINGREQ,
    PINGRESP,
    Auth,
    Connect,
    Disconnect,
    Packet,
    PacketReader,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    PubRel,
    Request,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
    encode_packet,
)
from penstock.wire.mqtt import PacketProperties as Props
from tests.wire.mqtt.case import Case
from tests.wire.mqtt.catalogue import GOOD
from tests.wire.mqtt.strategies import KINDS, packets_of, thorough


@pytest.mark.parametrize("case", [case for case in GOOD if case.is_shortest], ids=str)
def test_packets_become_the_bytes_of_the_catalogue(case: Case) -> None:
    assert case.packet is not None
    assert encode_packet(case.packet, case.version) == case.data


@pytest.mark.parametrize("case", [case for case in GOOD if not case.is_shortest], ids=str)
def test_what_may_be_left_out_is_left_out(case: Case) -> None:
    assert case.packet is not None
    encoded = encode_packet(case.packet, case.version)
    assert encoded != case.data
    assert len(encoded) <= len(case.data)
    assert PacketReader(1000, case.version).feed(encoded) == [case.packet]


@pytest.mark.parametrize(
    ("kind", "version"), [(kind, version) for version, kinds in KINDS.items() for kind in kinds]
)
def test_packets_of_every_type_survive_the_round_trip(kind: type[Packet], version: Version) -> None:
    @thorough
    @given(packets_of(kind, version))
    def round_trip(packet: Packet) -> None:
        reader = PacketReader(100_000, version)
        assert reader.feed(encode_packet(packet, version)) == [packet]
        assert reader.error is None
        assert type(packet) is kind

    round_trip()


@thorough
@given(st.integers(0, 70_000))
def test_a_payload_of_any_size_gets_a_length_that_fits(size: int) -> None:
    encoded = encode_packet(Publish("t", bytes(size)), Version.V311)
    assert PacketReader(100_000).feed(encoded) == [Publish("t", bytes(size))]


def test_pings_are_ready_made() -> None:
    for version in Version:
        assert encode_packet(PingReq(), version) == PINGREQ
        assert encode_packet(PingResp(), version) == PINGRESP


def test_what_311_has_no_field_for_is_left_out_of_its_packets() -> None:
    why = Props(reason_string="why")
    for packet, data in (
        (PubAck(1, 0x97, why), b"\x40\x02\x00\x01"),
        (PubRel(1, 0x92, why), b"\x62\x02\x00\x01"),
        (SubAck(1, (0x80,), why), b"\x90\x03\x00\x01\x80"),
        (UnsubAck(1, (0x11,), why), b"\xb0\x02\x00\x01"),
        (Disconnect(0x8B, why), b"\xe0\x00"),
        (Subscribe(1, (Request("a", 1, True, True, 2),)), b"\x82\x06\x00\x01\x00\x01a\x01"),
        (Publish("t", b"x", properties=Props(message_expiry=1)), b"\x30\x04\x00\x01tx"),
    ):
        assert encode_packet(packet, Version.V311) == data


def test_a_connect_is_written_in_its_own_version() -> None:
    for version in Version:
        assert encode_packet(Connect("c", Version.V5), version)[8] == 5
        assert encode_packet(Connect("c", Version.V311), version)[8] == 4


MISTAKES: dict[str, Packet] = {
    "QoS 3": Publish("t", qos=3, packet_id=1),
    "QoS below 0": Publish("t", qos=-1),
    "no packet id": Publish("t", qos=1),
    "packet id too large": Publish("t", qos=1, packet_id=65_536),
    "topic with U+0000": Publish("a\0b"),
    "topic with a surrogate": Publish("a\ud800"),
    "topic too long": Publish("t" * 65_536),
    "property of a will": Publish("t", properties=Props(will_delay=1)),
    "payload format 2": Publish("t", properties=Props(payload_format=2)),
    "expiry too long": Publish("t", properties=Props(message_expiry=2**32)),
    "topic alias 0": Publish("t", properties=Props(topic_alias=0)),
    "topic alias too large": Publish("t", properties=Props(topic_alias=65_536)),
    "identifier 0": Publish("t", properties=Props(subscription_ids=(1, 0))),
    "identifier too large": Publish("t", properties=Props(subscription_ids=(268_435_456,))),
    "user property with U+0000": Publish("t", properties=Props(user=(("a", "\0"),))),
    "puback of nothing": PubAck(0),
    "property of a message": PubAck(1, 0x80, Props(content_type="x")),
    "subscribe to nothing": Subscribe(1, ()),
    "subscribe without packet id": Subscribe(0, (Request("a"),)),
    "subscribe at QoS 3": Subscribe(1, (Request("a", 3),)),
    "retain handling 3": Subscribe(1, (Request("a", retain_handling=3),)),
    "two identifiers": Subscribe(1, (Request("a"),), Props(subscription_ids=(1, 2))),
    "unsubscribe from nothing": Unsubscribe(1, ()),
    "will at QoS 3": Connect("c", Version.V5, will=Will("w", b"", 3)),
    "will too large": Connect("c", Version.V5, will=Will("w", bytes(65_536))),
    "keep alive too long": Connect("c", Version.V5, keep_alive=65_536),
    "receive maximum 0": Connect("c", Version.V5, properties=Props(receive_maximum=0)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_no_packet_can_carry_is_the_callers_mistake(name: str) -> None:
    with pytest.raises(ValueError):
        encode_packet(MISTAKES[name], Version.V5)


def test_311_has_no_auth() -> None:
    with pytest.raises(ValueError, match="AUTH"):
        encode_packet(Auth(), Version.V311)
