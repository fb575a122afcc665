"""Bridges of mosquitto, with the settings that they have by default: both ways, without an echo."""

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from shutil import which

import pytest

from penstock.wire.mqtt import ConnAck, Connect, PubAck, Publish, ReturnCode, Version, Will, encode_packet
from tests.doors.mqtt.peers import TIMEOUT_S, Peer, Peers, payloads
from tests.support.ports import HOST, free_port
from tests.support.servers import RunningServer, StartServer
from tests.support.waiting import until

MOSQUITTO = which("mosquitto") or which("mosquitto", path="/usr/sbin")
STATE = "$SYS/broker/connection/{}/state"


def connect_bytes(head: bytes) -> bytes:
    """A CONNECT of this protocol name and level, with a clean session and the client identifier `b`."""
    body = head + b"\x02\x00\x3c\x00\x01b"
    return bytes((0x10, len(body))) + body


async def exchange(port: int, data: bytes, size: int) -> bytes:
    """Send bytes, and read so many."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.readexactly(size), TIMEOUT_S)
    finally:
        writer.close()


async def bridge(peers: Peers, name: str, *, will: Will | None = None, port: int | None = None) -> Peer:
    """A bridge that mosquitto would start: version 3.1.1 with the high bit."""
    peer = await peers.open(Version.V311, port)
    await peer.send(Connect(name, Version.V311, False, 60, will=will, is_bridge=True))
    assert await peer.receive(ConnAck) == ConnAck()
    return peer


@pytest.mark.parametrize("head", [b"\x00\x04MQTT\x84", b"\x00\x06MQIsdp\x83"], ids=["3.1.1", "3.1"])
async def test_level_with_the_high_bit_is_accepted(peers: Peers, head: bytes) -> None:
    assert await exchange(peers.port, connect_bytes(head), 4) == b"\x20\x02\x00\x00"


@pytest.mark.parametrize("level", [0, 2, 3, 0x80, 0x83, 0x85, 0xFF])
async def test_unknown_level_of_version_3_gets_return_code_1(peers: Peers, level: int) -> None:
    """MQTT-3.1.2-2: a client that knows another version tries again with that."""
    connect = connect_bytes(b"\x00\x04MQTT" + bytes((level,)))
    assert await exchange(peers.port, connect, 4) == b"\x20\x02\x00\x01"


async def test_connack_of_version_3_1_has_no_session_flag(peers: Peers, name: str) -> None:
    connect = encode_packet(Connect(name, Version.V311, False, is_v31=True), Version.V311)
    assert connect[4:11] == b"MQIsdp\x03"
    for _ in range(2):
        assert await exchange(peers.port, connect, 4) == b"\x20\x02\x00\x00"
    peer = await peers.connect(name, Version.V311, clean=False)
    assert peer.connack.session_present  # there was one


async def test_bridge_gets_no_message_back_and_the_flag_of_retained_ones(peers: Peers, name: str) -> None:
    bridged, other = await bridge(peers, name), await peers.connect()
    assert await bridged.subscribe(f"{name}/#", qos=1) == (1,)
    await bridged.publish(f"{name}/own", b"1")
    await other.publish(f"{name}/set", b"2", retain=True)
    await other.publish(f"{name}/live", b"3")
    messages = await bridged.receive_all(2)
    assert [(each.payload, each.retain) for each in messages] == [(b"2", True), (b"3", False)]
    assert await bridged.fence() == []


async def test_member_of_a_shared_group_gets_its_own_messages(peers: Peers, name: str) -> None:
    """No Local is an error with shared filters (MQTT-3.8.3-4), so that the bit does not mean it there."""
    bridged = await bridge(peers, name)
    await bridged.subscribe(f"$share/all/{name}", qos=0)
    await bridged.publish(name, b"1", qos=0)
    assert payloads(await bridged.fence()) == [b"1"]


async def test_bridge_announces_its_state(peers: Peers, name: str) -> None:
    topic = STATE.format(name)
    watcher = await peers.connect()
    await watcher.subscribe(topic, qos=1)
    bridged = await bridge(peers, name, will=Will(topic, b"0", 1, True))
    await bridged.publish(topic, b"1", retain=True)
    assert payloads(await watcher.receive_all(1)) == [b"1"]
    await bridged.cut()
    assert payloads(await watcher.receive_all(1)) == [b"0"]
    late = await peers.connect()
    await late.subscribe(topic)
    assert [(each.payload, each.retain) for each in await late.receive_all(1)] == [(b"0", True)]


@pytest.fixture(scope="module")
def strict(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    acl = tmp_path_factory.mktemp("acl") / "acl"
    acl.write_text("anonymous\nboth #\n", encoding="utf-8")
    return start_server({"access": {"acl_file": str(acl)}})


async def test_bridge_without_the_right_connects_without_its_will(
    peers: Peers, name: str, strict: RunningServer
) -> None:
    topic = STATE.format(name)
    bridged = await bridge(peers, name, will=Will(topic, b"0", 1, True), port=strict.port)
    await bridged.publish(topic, b"1", retain=True)  # refused, which 3.1.1 cannot say
    await bridged.publish(name, b"2", retain=True)
    assert f"not allowed to publish to {topic}" in strict.logged
    other = Will("$SYS/broker/uptime", b"0")
    refusal = await peers.refused(Connect("other", Version.V311, will=other), port=strict.port)
    assert refusal == [ConnAck(False, ReturnCode.NOT_AUTHORIZED)]


# mosquitto itself


class Bridged:
    """A mosquitto with a bridge to the server."""

    def __init__(self, folder: Path, remote: int, extra: str) -> None:
        self.port = free_port()
        file = folder / "mosquitto.conf"
        file.write_text(
            f"listener {self.port} {HOST}\nallow_anonymous true\n"
            f"connection penstock\naddress {HOST}:{remote}\ntopic # both 1\nrestart_timeout 1\n{extra}",
            encoding="utf-8",
        )
        assert MOSQUITTO is not None
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([MOSQUITTO, "-v", "-c", str(file)], stderr=log, stdout=log)

    @property
    def logged(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def is_listening(self) -> bool:
        assert self._process.poll() is None, self.logged
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(TIMEOUT_S)


@pytest.fixture(params=["", "bridge_protocol_version mqttv31\n", "bridge_protocol_version mqttv50\n"])
def mosquitto(
    request: pytest.FixtureRequest, start_server: StartServer, tmp_path: Path
) -> Iterator[tuple[Bridged, RunningServer]]:
    server = start_server()
    bridged = Bridged(tmp_path, server.port, request.param)
    yield bridged, server
    bridged.stop()
    server.stop()


@pytest.fixture
async def both(mosquitto: tuple[Bridged, RunningServer]) -> AsyncIterator[tuple[Peer, Peer]]:
    """A client of each side, which has subscribed to everything, once the bridge has."""
    bridged, server = mosquitto
    await until(bridged.is_listening, "mosquitto does not listen")
    here, there = Peers(server.port), Peers(bridged.port)
    peer, other = await here.connect("here"), await there.connect("there", Version.V311)
    await peer.subscribe("#", qos=1)
    await other.subscribe("#", qos=1)
    await until(lambda: "Received SUBACK" in bridged.logged, "the bridge has not subscribed")
    yield peer, other
    await here.close()
    await there.close()


async def gather(peer: Peer, *last: str) -> list[str]:
    """The topics of all messages until these have come, one after the other."""
    topics: list[str] = []
    awaited = set(last)
    while awaited:
        packet = await peer.take()
        if isinstance(packet, Publish):
            topics.append(packet.topic)
            awaited.discard(packet.topic)
            if packet.qos:
                await peer.send(PubAck(packet.packet_id))
    return topics


@pytest.mark.system
@pytest.mark.skipif(MOSQUITTO is None, reason="needs mosquitto")
async def test_mosquitto_bridges_both_ways_without_an_echo(both: tuple[Peer, Peer]) -> None:
    seen: dict[Peer, list[str]] = {peer: [] for peer in both}
    for turn in range(3):  # what comes back by the bridge is there before the next turn is over
        for peer, place in zip(both, ("here", "there"), strict=True):
            await peer.send(
                Publish(f"from/{place}", b"set", 1, retain=True, packet_id=peer.next_id()),
                Publish(f"turn/{turn}/{place}", b"live", 1, packet_id=peer.next_id()),
            )
        for peer in both:
            seen[peer] += await gather(peer, f"turn/{turn}/here", f"turn/{turn}/there")
    for topics in seen.values():
        assert sorted(topics) == sorted(
            topic
            for turn in range(3)
            for place in ("here", "there")
            for topic in (f"from/{place}", f"turn/{turn}/{place}")
        )
