"""Whole packets to values, by the catalogue: what is good is understood, what is bad is refused."""

import re
from collections import Counter

import pytest

from penstock.wire.mqtt import (
    AckRun,
    InvalidTopicAlias,
    InvalidTopicName,
    MalformedPacket,
    MqttWireError,
    PacketTooLarge,
    PacketType,
    ProtocolViolation,
    Publish,
    ReasonCode,
    UnsupportedVersion,
    Version,
)
from tests.wire.mqtt.case import LIMIT_BYTES, Case, reading, separate, serving
from tests.wire.mqtt.catalogue import BAD, DERIVED, GOOD, REASONS, SERVER

EVERY = GOOD + BAD + SERVER + DERIVED


@pytest.mark.parametrize("case", GOOD, ids=str)
def test_good_bytes_are_the_packet_they_say(case: Case) -> None:
    reader = reading(case.version)
    assert reader.feed(case.data) == [case.packet]
    assert reader.error is None


@pytest.mark.parametrize("case", [case for case in GOOD if type(case.packet) is not Publish], ids=str)
def test_a_server_reads_all_but_publishes_as_packets(case: Case) -> None:
    reader = serving(case.version)
    (item,) = reader.feed(case.data)
    assert (separate(item) if isinstance(item, AckRun) else [item]) == [case.packet]
    assert reader.error is None


@pytest.mark.parametrize("case", BAD + DERIVED, ids=str)
def test_bad_bytes_are_refused_with_their_reason(case: Case) -> None:
    reader = reading(case.version)
    assert reader.feed(case.data) == []
    assert type(reader.error) is case.error


@pytest.mark.parametrize("case", BAD + DERIVED, ids=str)
def test_a_server_refuses_bad_bytes_with_the_same_reason(case: Case) -> None:
    reader = serving(case.version)
    assert reader.feed(case.data) == []
    assert type(reader.error) is case.error


@pytest.mark.parametrize("case", SERVER, ids=str)
def test_a_server_refuses_what_only_a_server_may_send_or_no_server_agreed_to(case: Case) -> None:
    reader = serving(case.version)
    reader.feed(case.data)
    assert type(reader.error) is case.error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MalformedPacket, 0x81),
        (ProtocolViolation, 0x82),
        (UnsupportedVersion, 0x84),
        (InvalidTopicName, 0x90),
        (InvalidTopicAlias, 0x94),
        (PacketTooLarge, 0x95),
    ],
)
def test_each_error_carries_the_reason_a_peer_is_told(error: type[MqttWireError], reason: int) -> None:
    assert error.reason is ReasonCode(reason)
    assert error("text").code == "malformed"


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("kind", [kind for kind in PacketType if kind is not PacketType.PUBLISH])
def test_only_the_tabled_header_flags_are_taken(kind: PacketType, version: Version) -> None:
    # MQTT-2.1.3-1 of 5.0, MQTT-2.2.2-2 of 3.1.1
    bodies = [case.data[1:] for case in GOOD if case.version is version and case.data[0] >> 4 == kind]
    tabled = 2 if kind.name in ("PUBREL", "SUBSCRIBE", "UNSUBSCRIBE") else 0
    for body in bodies:
        for flags in range(16):
            reader = reading(version)
            items = reader.feed(bytes((kind << 4 | flags,)) + body)
            assert bool(items) == (flags == tabled)
            assert (type(reader.error) is MalformedPacket) == (flags != tabled)


@pytest.mark.parametrize("version", Version)
def test_publish_flags_are_taken_unless_qos_is_3_or_dup_stands_alone(version: Version) -> None:
    for flags in range(16):
        dup, qos, retain = flags >> 3, flags >> 1 & 3, flags & 1
        is_allowed = qos in (1, 2) or (qos == 0 and not dup)
        for reader in (reading(version), serving(version)):
            items = reader.feed(bytes((0x30 | flags,)) + b"\x07\x00\x01t\x00\x01\x00\x00")
            assert bool(items) == is_allowed
            if items and isinstance(items[0], Publish):
                assert (items[0].dup, items[0].qos, items[0].retain) == (bool(dup), qos, bool(retain))


@pytest.mark.parametrize(("packet", "version"), REASONS)
def test_only_the_tabled_reason_codes_are_taken(packet: str, version: Version) -> None:
    before, after, codes = REASONS[packet, version]
    tabled = {int(code, 16) for code in codes.split()}
    taken = set()
    for code in range(256):
        reader = reading(version)
        if reader.feed(before + bytes((code,)) + after):
            taken.add(code)
        else:
            assert type(reader.error) is ProtocolViolation
    assert taken == tabled


@pytest.mark.parametrize("version", Version)
def test_only_the_tabled_subscription_options_are_taken(version: Version) -> None:
    before = b"\x82\x07\x00\x01\x00" if version is Version.V5 else b"\x82\x06\x00\x01"
    for options in range(256):
        if version is Version.V5:
            is_allowed = options < 0x40 and options & 3 != 3 and options & 0x30 != 0x30
        else:
            is_allowed = options < 3
        assert bool(reading(version).feed(before + b"\x00\x01a" + bytes((options,)))) == is_allowed


def test_every_connect_flag_combination_is_taken_or_refused_by_the_rules() -> None:
    for level, flags in ((level, flags) for level in (4, 5) for flags in range(256)):
        reserved, will, retain = flags & 1, flags >> 2 & 1, flags >> 5 & 1
        qos, password, user = flags >> 3 & 3, flags >> 6 & 1, flags >> 7
        is_allowed = not reserved and qos < 3 and (will or not (qos or retain))
        is_allowed = is_allowed and (level == 5 or user or not password)
        none = b"\x00" * (level == 5)
        body = b"\x00\x04MQTT" + bytes((level, flags)) + b"\x00\x00" + none + b"\x00\x01c"
        body += (none + b"\x00\x01w\x00\x00") * will + b"\x00\x01u" * user + b"\x00\x01p" * password
        reader = reading(Version.V311)
        assert bool(reader.feed(bytes((0x10, len(body))) + body)) == bool(is_allowed)
        assert (type(reader.error) is MalformedPacket) == (not is_allowed)


def test_catalogue_names_are_unique_and_its_statements_look_like_statements() -> None:
    names = Counter(str(case) for case in EVERY)
    assert [name for name, count in names.items() if count > 1] == []
    for case in EVERY:
        assert re.fullmatch(r"(MQTT-\d\.\d{1,2}\.\d-\d{1,2})?", case.statement)


def test_catalogue_is_large_and_has_every_packet_type_good_and_bad() -> None:
    assert len(GOOD + BAD + SERVER) >= 150
    for version in Version:
        kinds = set(PacketType) - ({PacketType.AUTH} if version is Version.V311 else set())
        for cases in (GOOD, BAD):
            assert {case.data[0] >> 4 for case in cases if case.version is version} >= kinds


def test_catalogue_packets_are_within_its_limit() -> None:
    refused = [case for case in EVERY if case.error is PacketTooLarge]
    assert len(refused) == 4
    assert all(len(case.data) <= LIMIT_BYTES for case in EVERY)
