"""The properties of MQTT 5, row by row of the standard's table."""

import pytest

from penstock.wire.mqtt import Connect, PacketProperties, Version
from penstock.wire.mqtt.properties import NO_PROPERTIES, TABLE
from tests.wire.mqtt.case import reading
from tests.wire.mqtt.catalogue import HOLDERS, PROPERTIES, Property, holding

PLACES = [(row, holder) for row in PROPERTIES for holder in row.holders.split()]


def properties_of(data: bytes, holder: str) -> PacketProperties:
    """What the one packet in `data` carries."""
    reader = reading(Version.V5)
    (packet,) = reader.feed(data)
    if holder == "WILL":
        assert isinstance(packet, Connect)
        assert packet.will is not None
        return packet.will.properties
    properties = packet.properties  # type: ignore[union-attr]
    assert isinstance(properties, PacketProperties)
    return properties


@pytest.mark.parametrize(("row", "holder"), PLACES, ids=lambda part: getattr(part, "name", part))
def test_each_property_is_read_where_it_may_stand(row: Property, holder: str) -> None:
    content = bytes((row.number,)) + row.raw
    found = properties_of(holding(holder, content), holder)
    assert getattr(found, row.name) == row.value
    others = {name for name in found.__struct_fields__ if getattr(found, name) not in (None, ())}
    assert others <= {row.name, "authentication_method"}


def test_the_table_has_exactly_the_properties_of_the_standard() -> None:
    assert {number: kind.field for number, kind in TABLE.items()} == {
        row.number: row.name for row in PROPERTIES
    }
    assert set(PacketProperties.__struct_fields__) == {row.name for row in PROPERTIES}


@pytest.mark.parametrize("holder", HOLDERS)
def test_user_properties_may_repeat_everywhere_and_keep_their_order(holder: str) -> None:
    content = b"\x26\x00\x01b\x00\x01x\x26\x00\x01a\x00\x01y\x26\x00\x01b\x00\x01x"
    assert properties_of(holding(holder, content), holder).user == (("b", "x"), ("a", "y"), ("b", "x"))


def test_a_message_may_name_many_subscriptions_in_any_order() -> None:
    content = b"\x0b\x02\x0b\xff\xff\xff\x7f\x0b\x01\x0b\x02"
    assert properties_of(holding("PUBLISH", content), "PUBLISH").subscription_ids == (2, 268_435_455, 1, 2)


def test_packets_without_properties_share_one_empty_value() -> None:
    for holder in HOLDERS.keys() - {"AUTH"}:
        assert properties_of(holding(holder, b""), holder) is NO_PROPERTIES


def test_zero_is_a_value_and_not_an_absence() -> None:
    found = properties_of(holding("CONNACK", b"\x11\x00\x00\x00\x00\x13\x00\x00\x24\x00"), "CONNACK")
    assert (found.session_expiry, found.server_keep_alive, found.maximum_qos) == (0, 0, 0)
    assert found.receive_maximum is None
