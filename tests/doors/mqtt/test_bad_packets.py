"""Bytes that break the protocol end the connection they came on, with their reason, and harm no other."""

import asyncio
import contextlib
import os
import random

import pytest

from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    InvalidClientId,
    MqttWireError,
    Packet,
    PacketTooLarge,
    Publish,
    ReasonCode,
    ReturnCode,
    UnsupportedVersion,
    Version,
    encode_packet,
)
from tests.doors.mqtt.peers import Peers, both_versions, payloads
from tests.support.servers import RunningServer, StartServer
from tests.wire.mqtt.case import ALIASES, Case
from tests.wire.mqtt.catalogue import BAD, DERIVED, GOOD, SERVER

CONNECT = 1
AT_ONCE = 16
MIB = 1024 * 1024
BRIDGE_BIT = 0x80
"""In a protocol level: a bridge of mosquitto, which knows the responses of MQTT 3.1.1."""
CASES = [case for case in (*BAD, *SERVER, *DERIVED) if case.error is not PacketTooLarge]


@pytest.fixture(scope="module")
def victim(start_server: StartServer) -> RunningServer:
    return start_server({"mqtt": {"topic_alias_maximum": ALIASES, "connect_timeout_s": 2}})


async def last_words_after(peers: Peers, data: bytes, version: Version, port: int) -> list[Packet]:
    """What the server says to these bytes: as the first ones if they are a CONNECT, else after one."""
    if data[0] >> 4 == CONNECT:
        peer = await peers.open(version, port)
    else:
        peer = await peers.connect("", version, port=port)
    await peer.send_bytes(data)
    words = await peer.last_words()
    await peer.stream.close()
    return words


def version_in(case: Case) -> Version:
    """The version that a server can see in a case: that of the connection, unless it is a CONNECT."""
    if case.data[0] >> 4 != CONNECT:
        return case.version
    is_named = case.data[2:8] == b"\x00\x04MQTT" and len(case.data) > 8
    return Version.V5 if is_named and Version.V5 <= case.data[8] < BRIDGE_BIT else Version.V311


def expected(case: Case) -> list[Packet]:
    """The one right answer to a case."""
    assert case.error is not None
    reason, version = case.error.reason, version_in(case)
    if case.data[0] >> 4 != CONNECT:
        return [Disconnect(reason)] if version is Version.V5 else []
    if case.data[0] == CONNECT << 4 and version is Version.V5:
        return [ConnAck(False, reason)]
    if case.error is UnsupportedVersion:
        return [ConnAck(False, ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION)]
    if case.error is InvalidClientId:
        return [ConnAck(False, ReturnCode.IDENTIFIER_REJECTED)]
    return []  # MQTT-3.1.4-1


@both_versions
async def test_every_bad_case_of_the_catalogue_gets_its_reason(
    victim: RunningServer, peers: Peers, version: Version
) -> None:
    cases = [case for case in CASES if case.version is version]
    assert len(cases) > 50
    limit = asyncio.Semaphore(AT_ONCE)

    async def complaint(case: Case) -> str | None:
        async with limit:
            words = await last_words_after(peers, case.data, version_in(case), victim.port)
        return None if words == expected(case) else f"{case}: {words} instead of {expected(case)}"

    complaints = await asyncio.gather(*map(complaint, cases))
    assert list(filter(None, complaints)) == []


@both_versions
async def test_what_came_before_the_bad_bytes_is_still_taken(
    peers: Peers, name: str, version: Version
) -> None:
    watcher, peer = await peers.connect(), await peers.connect("", version)
    await watcher.subscribe(name)
    good = b"".join(encode_packet(Publish(name, b"%d" % number), version) for number in range(3))
    await peer.send_bytes(good + b"\x00\x00" + good)
    words = [Disconnect(ReasonCode.MALFORMED_PACKET)] if version is Version.V5 else []
    assert await peer.last_words() == words
    assert payloads(await watcher.fence()) == [b"0", b"1", b"2"]


@both_versions
async def test_reason_is_heard_although_the_client_goes_on_sending(
    peers: Peers, name: str, version: Version
) -> None:
    peer = await peers.connect("", version)
    for _ in range(50):
        peer.stream.write_bytes(b"\x00\x00" + bytes(20_000))
    words = [Disconnect(ReasonCode.MALFORMED_PACKET)] if version is Version.V5 else []
    assert await peer.last_words() == words


async def test_random_damage_is_survived(victim: RunningServer, peers: Peers, name: str, scale: int) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    print(f"SEED={seed}")
    dice = random.Random(seed)
    witness = await peers.connect(f"{name}-witness", port=victim.port)
    await witness.subscribe(name, qos=1)
    files, memory = victim.open_files, victim.memory_bytes
    for _ in range(60 * scale):
        await asyncio.gather(*(damage(peers, dice, victim.port) for _ in range(AT_ONCE)))
        assert await witness.publish(name, b"alive", 0) == 0
        assert await witness.take() == Publish(name, b"alive")
    for _ in range(50):
        if victim.open_files <= files:
            break
        await asyncio.sleep(0.1)
    assert victim.open_files <= files
    assert victim.memory_bytes - memory < 30 * MIB * scale


async def damage(peers: Peers, dice: random.Random, port: int) -> None:
    """Say good things with some bytes changed, lost or added, and leave."""
    case = dice.choice(GOOD)
    data = bytearray()
    if dice.random() < 0.8:
        data += encode_packet(Connect("", case.version), case.version)
    else:
        data += encode_packet(Connect("c" * dice.randrange(100), case.version), case.version)
        for _ in range(dice.randrange(4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
    for _ in range(dice.randrange(1, 5)):
        packet = bytearray(dice.choice(GOOD).data)
        for _ in range(dice.randrange(3)):
            place = dice.randrange(len(packet))
            change = dice.choice(["set", "cut", "add"])
            if change == "set":
                packet[place] = dice.randrange(256)
            elif change == "cut" and len(packet) > 1:
                del packet[place]
            else:
                packet.insert(place, dice.randrange(256))
        data += packet
    peer = await peers.open(case.version, port)
    peer.stream.write_bytes(bytes(data))
    # The version may not be what we think, or the server waits for more.
    with contextlib.suppress(MqttWireError, TimeoutError):
        await peer.last_words(0.02)
    peer.stream.abort()
