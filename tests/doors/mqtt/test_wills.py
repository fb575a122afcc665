"""What a client wanted said when it is gone: said once, at the right time, or not at all."""

import asyncio
import time

import pytest

from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketProperties,
    Publish,
    ReasonCode,
    ReturnCode,
    Version,
    Will,
)
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, both_versions, every_qos, payloads
from tests.support.servers import RunningServer, StartServer


@pytest.fixture(scope="module")
def prompt(start_server: StartServer) -> RunningServer:
    """A server that looks for wills that are due ten times a second."""
    return start_server({"reaper_interval_ms": 100})


async def watching(peers: Peers, name: str, port: int | None = None) -> Peer:
    watcher = await peers.connect(port=port)
    await watcher.subscribe(f"{name}/#", qos=2)
    return watcher


def will_of(name: str, qos: int = 0, retain: bool = False, delay: int | None = None) -> Will:
    properties = PacketProperties(will_delay=delay)
    return Will(f"{name}/will", b"gone", qos, retain, properties)


@both_versions
@every_qos
async def test_will_is_published_when_the_link_breaks(
    peers: Peers, name: str, version: Version, qos: int
) -> None:
    watcher = await watching(peers, name)
    peer = await peers.connect(name, version, will=will_of(name, qos))
    await peer.cut()
    message = await watcher.receive(Publish)
    assert (message.topic, message.payload, message.qos, message.retain) == (
        f"{name}/will",
        b"gone",
        qos,
        False,
    )
    assert await watcher.fence() == []


@both_versions
@pytest.mark.parametrize("is_retained", [True, False])
async def test_retained_will_is_kept_and_another_is_not(
    peers: Peers, name: str, version: Version, is_retained: bool
) -> None:
    watcher = await watching(peers, name)
    peer = await peers.connect(name, version, will=will_of(name, retain=is_retained))
    await peer.cut()
    assert not (await watcher.receive(Publish)).retain
    late = await watching(peers, name)
    assert len(await late.fence()) == is_retained  # MQTT-3.1.2-14, -15


@both_versions
async def test_goodbye_takes_the_will_with_it(peers: Peers, name: str, version: Version) -> None:
    watcher = await watching(peers, name)
    peer = await peers.connect(name, version, will=will_of(name))
    await peer.leave()
    assert await watcher.fence() == []  # MQTT-3.14.4-3


@pytest.mark.parametrize(
    "reason", [ReasonCode.DISCONNECT_WITH_WILL, ReasonCode.UNSPECIFIED_ERROR, ReasonCode.MALFORMED_PACKET]
)
async def test_goodbye_with_a_reason_leaves_the_will(peers: Peers, name: str, reason: ReasonCode) -> None:
    watcher = await watching(peers, name)
    peer = await peers.connect(name, will=will_of(name))
    await peer.leave(Disconnect(reason))
    assert payloads(await watcher.fence()) == [b"gone"]


@both_versions
async def test_will_is_published_when_the_client_breaks_the_protocol(
    peers: Peers, name: str, version: Version
) -> None:
    watcher = await watching(peers, name)
    peer = await peers.connect(name, version, will=will_of(name))
    await peer.send_bytes(b"\x00\x00")
    await peer.last_words()
    assert payloads(await watcher.fence()) == [b"gone"]


@both_versions
async def test_will_is_published_when_the_client_is_taken_over(
    peers: Peers, name: str, version: Version
) -> None:
    watcher = await watching(peers, name)
    await peers.connect(name, version, will=will_of(name))
    heir = await peers.connect(name, version)
    assert await heir.fence() == []
    assert payloads(await watcher.fence()) == [b"gone"]
    await heir.leave()
    assert await watcher.fence() == []  # the heir had none


async def test_will_brings_its_properties_in_their_order(peers: Peers, name: str) -> None:
    watcher = await watching(peers, name)
    given = PacketProperties(
        payload_format=1,
        content_type="text/plain",
        response_topic="r",
        correlation_data=b"c",
        user=(("b", "1"), ("a", "2"), ("b", "0")),
    )
    peer = await peers.connect(name, will=Will(f"{name}/will", b"gone", 1, properties=given))
    await peer.cut()
    assert (await watcher.receive(Publish)).properties == given  # MQTT-3.1.3-10


async def test_will_expires_like_any_message(peers: Peers, name: str) -> None:
    away = await peers.connect(f"{name}-away", expiry=FOR_EVER)
    await away.subscribe(f"{name}/#", qos=1)
    await away.leave()
    watcher = await watching(peers, name)
    for lifetime in (0, 100):
        will = Will(f"{name}/{lifetime}", b"", 1, properties=PacketProperties(message_expiry=lifetime))
        peer = await peers.connect(name, will=will)
        await peer.cut()
        await watcher.receive(Publish)
    away = await peers.connect(f"{name}-away", expiry=FOR_EVER, clean=False)
    assert [packet.topic for packet in await away.fence() if isinstance(packet, Publish)] == [f"{name}/100"]


# Delay


async def test_late_will_comes_after_its_delay(prompt: RunningServer, peers: Peers, name: str) -> None:
    watcher = await watching(peers, name, prompt.port)
    peer = await peers.connect(name, will=will_of(name, delay=1), expiry=FOR_EVER, port=prompt.port)
    await peer.cut()
    began = time.monotonic()
    assert (await watcher.receive(Publish)).payload == b"gone"
    assert time.monotonic() - began > 0.9


async def test_coming_back_in_time_suppresses_a_late_will(
    prompt: RunningServer, peers: Peers, name: str
) -> None:
    watcher = await watching(peers, name, prompt.port)
    peer = await peers.connect(name, will=will_of(name, delay=1), expiry=FOR_EVER, port=prompt.port)
    await peer.cut()
    peer = await peers.connect(name, clean=False, expiry=FOR_EVER, port=prompt.port)
    assert peer.connack.session_present
    await asyncio.sleep(1.5)
    assert await watcher.fence() == []  # MQTT-3.1.3-9


async def test_end_of_the_session_is_the_latest_time_for_a_will(
    prompt: RunningServer, peers: Peers, name: str
) -> None:
    watcher = await watching(peers, name, prompt.port)
    peer = await peers.connect(name, will=will_of(name, delay=100), expiry=1, port=prompt.port)
    await peer.cut()
    assert (await watcher.receive(Publish)).payload == b"gone"
    peer = await peers.connect(name, will=will_of(name, delay=100), port=prompt.port)
    await peer.cut()
    assert (await watcher.receive(Publish)).payload == b"gone"  # it ended with its connection


async def test_clean_start_ends_the_session_and_so_brings_its_late_will(peers: Peers, name: str) -> None:
    watcher = await watching(peers, name)
    await peers.connect(name, will=will_of(name, delay=100), expiry=FOR_EVER)
    heir = await peers.connect(name, clean=True)
    assert await heir.fence() == []
    assert payloads(await watcher.fence()) == [b"gone"]


# Refused


@both_versions
@pytest.mark.parametrize("topic", ["$SYS/mine", "x" * 5000])
async def test_will_that_could_not_be_published_is_refused_at_once(
    peers: Peers, name: str, version: Version, topic: str
) -> None:
    words: list[Packet] = await peers.refused(Connect(name, version, will=Will(topic, b"")))
    if topic.startswith("$"):
        code: int = ReasonCode.NOT_AUTHORIZED if version is Version.V5 else ReturnCode.NOT_AUTHORIZED
    elif version is Version.V5:
        code = ReasonCode.TOPIC_NAME_INVALID
    else:
        assert words == []  # 3.1.1 has no word for it
        return
    assert words == [ConnAck(False, code)]
