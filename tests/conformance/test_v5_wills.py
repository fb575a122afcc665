"""MQTT 5, sections 3.1.2.5 to 3.1.2.7 and 3.1.3.2: the will message."""

import asyncio

import pytest

from penstock.wire.mqtt import Disconnect, PacketProperties, Publish, ReasonCode, Will
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, payloads
from tests.support.servers import RunningServer, StartServer


@pytest.fixture(scope="module")
def prompt(start_server: StartServer) -> RunningServer:
    """A server that looks for wills that are due twenty times a second."""
    return start_server({"reaper_interval_ms": 50})


async def watching(peers: Peers, name: str, port: int | None = None) -> Peer:
    watcher = await peers.connect(port=port)
    await watcher.subscribe(f"{name}/#", qos=2)
    return watcher


def will_of(name: str, delay: int | None = None, *, retain: bool = False) -> Will:
    return Will(f"{name}/will", b"gone", 1, retain, PacketProperties(will_delay=delay))


@v5("3.1.2-7")
async def test_v5_mqtt_3_1_2_7_will_is_kept_until_the_connection_is_closed(peers: Peers, name: str) -> None:
    watcher = await watching(peers, name)
    peer = await peers.connect(name, will=will_of(name))
    assert await watcher.fence() == []
    await peer.cut()
    message = await watcher.receive(Publish)
    assert (message.topic, message.payload, message.qos) == (f"{name}/will", b"gone", 1)


@v5("3.1.2-7")
async def test_v5_mqtt_3_1_2_7_new_connection_brings_the_will_that_counts(peers: Peers, name: str) -> None:
    watcher = await watching(peers, name)
    first = await peers.connect(name, will=will_of(name, 100), expiry=FOR_EVER)
    await first.cut()
    second = await peers.connect(name, will=Will(f"{name}/will", b"new"), clean=False, expiry=FOR_EVER)
    await second.cut()
    assert (await watcher.receive(Publish)).payload == b"new"
    assert await watcher.fence() == []


# When it is published


@v5("3.1.2-8")
async def test_v5_mqtt_3_1_2_8_will_is_published_when_the_client_breaks_the_protocol(
    peers: Peers, name: str
) -> None:
    watcher = await watching(peers, name)
    peer = await peers.connect(name, will=will_of(name))
    await peer.send_bytes(b"\x00\x00")
    await peer.last_words()
    assert payloads(await watcher.fence()) == [b"gone"]


@v5("3.1.2-8")
async def test_v5_mqtt_3_1_2_8_will_is_published_when_the_client_falls_silent(
    peers: Peers, name: str
) -> None:
    watcher = await watching(peers, name)
    peer = await peers.connect(name, keep_alive=1, will=will_of(name))
    assert (await watcher.receive(Publish)).payload == b"gone"
    await peer.last_words()


@v5("3.1.2-8")
async def test_v5_mqtt_3_1_2_8_will_is_published_when_the_client_is_taken_over(
    peers: Peers, name: str
) -> None:
    watcher = await watching(peers, name)
    await peers.connect(name, will=will_of(name))
    await peers.connect(name)
    assert (await watcher.receive(Publish)).payload == b"gone"


@v5("3.1.2-8")
@pytest.mark.parametrize(
    "reason",
    [ReasonCode.DISCONNECT_WITH_WILL, ReasonCode.UNSPECIFIED_ERROR, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR],
)
async def test_v5_mqtt_3_1_2_8_goodbye_with_a_reason_leaves_the_will(
    peers: Peers, name: str, reason: ReasonCode
) -> None:
    watcher = await watching(peers, name)
    peer = await peers.connect(name, will=will_of(name))
    await peer.leave(Disconnect(reason))
    assert payloads(await watcher.fence()) == [b"gone"]


@v5("3.1.2-8")
async def test_v5_mqtt_3_1_2_8_plain_goodbye_takes_the_will_with_it(peers: Peers, name: str) -> None:
    watcher = await watching(peers, name)
    peer = await peers.connect(name, will=will_of(name))
    await peer.leave(Disconnect())
    assert await watcher.fence() == []


@v5("3.1.2-8")
async def test_v5_mqtt_3_1_2_8_late_will_comes_when_its_delay_is_over(
    prompt: RunningServer, peers: Peers, name: str
) -> None:
    watcher = await watching(peers, name, prompt.port)
    peer = await peers.connect(name, will=will_of(name, 1), expiry=FOR_EVER, port=prompt.port)
    await peer.cut()
    assert await watcher.fence() == []
    assert (await watcher.receive(Publish)).payload == b"gone"


@v5("3.1.2-8")
async def test_v5_mqtt_3_1_2_8_late_will_comes_at_the_latest_when_the_session_ends(
    prompt: RunningServer, peers: Peers, name: str
) -> None:
    watcher = await watching(peers, name, prompt.port)
    peer = await peers.connect(name, will=will_of(name, 1000), expiry=1, port=prompt.port)
    await peer.cut()
    assert await watcher.fence() == []
    assert (await watcher.receive(Publish)).payload == b"gone"


@v5("3.1.2-8")
async def test_v5_mqtt_3_1_2_8_late_will_comes_at_once_where_the_session_ends_with_the_connection(
    peers: Peers, name: str
) -> None:
    watcher = await watching(peers, name)
    peer = await peers.connect(name, will=will_of(name, 1000))
    await peer.cut()
    assert (await watcher.receive(Publish)).payload == b"gone"


@v5("3.1.2-8")
async def test_v5_mqtt_3_1_2_8_late_will_comes_when_a_clean_start_ends_the_session(
    peers: Peers, name: str
) -> None:
    watcher = await watching(peers, name)
    peer = await peers.connect(name, will=will_of(name, 1000), expiry=FOR_EVER)
    await peer.cut()
    await peers.connect(name, clean=True)
    assert (await watcher.receive(Publish)).payload == b"gone"


@v5("3.1.3-9")
async def test_v5_mqtt_3_1_3_9_coming_back_within_the_delay_suppresses_the_will(
    prompt: RunningServer, peers: Peers, name: str
) -> None:
    watcher = await watching(peers, name, prompt.port)
    peer = await peers.connect(name, will=will_of(name, 1), expiry=FOR_EVER, port=prompt.port)
    await peer.cut()
    peer = await peers.connect(name, clean=False, expiry=FOR_EVER, port=prompt.port)
    await asyncio.sleep(1.2)
    assert await watcher.fence() == []


@v5("3.1.3-9")
async def test_v5_mqtt_3_1_3_9_take_over_within_the_delay_suppresses_the_will(
    prompt: RunningServer, peers: Peers, name: str
) -> None:
    watcher = await watching(peers, name, prompt.port)
    await peers.connect(name, will=will_of(name, 1), expiry=FOR_EVER, port=prompt.port)
    await peers.connect(name, clean=False, expiry=FOR_EVER, port=prompt.port)
    await asyncio.sleep(1.2)
    assert await watcher.fence() == []


# When it is forgotten


@v5("3.1.2-10")
@pytest.mark.parametrize("is_plain", [True, False], ids=["after a goodbye", "after it was published"])
async def test_v5_mqtt_3_1_2_10_will_is_forgotten(peers: Peers, name: str, is_plain: bool) -> None:
    watcher = await watching(peers, name)
    peer = await peers.connect(name, will=will_of(name), expiry=FOR_EVER)
    await peer.leave(Disconnect(ReasonCode.SUCCESS if is_plain else ReasonCode.DISCONNECT_WITH_WILL))
    assert len(await watcher.fence()) == (not is_plain)
    peer = await peers.connect(name, clean=False, expiry=0)
    assert peer.connack.session_present
    await peer.leave(Disconnect(ReasonCode.DISCONNECT_WITH_WILL))
    assert await watcher.fence() == []


# How it is published


@v5("3.1.2-14", "3.1.2-15")
@pytest.mark.parametrize("is_retained", [False, True])
async def test_v5_mqtt_3_1_2_15_will_is_kept_if_it_is_to_be_retained(
    peers: Peers, name: str, is_retained: bool
) -> None:
    watcher = await watching(peers, name)
    peer = await peers.connect(name, will=will_of(name, retain=is_retained))
    await peer.cut()
    assert (await watcher.receive(Publish)).payload == b"gone"
    late = await watching(peers, name)
    assert payloads(await late.fence()) == [b"gone"] * is_retained


@v5("3.1.2-14")
async def test_v5_mqtt_3_1_2_14_will_that_is_not_retained_leaves_what_is(peers: Peers, name: str) -> None:
    publisher = await peers.connect()
    await publisher.publish(f"{name}/will", b"kept", retain=True)
    peer = await peers.connect(name, will=will_of(name))
    await peer.leave(Disconnect(ReasonCode.DISCONNECT_WITH_WILL))
    late = await watching(peers, name)
    assert payloads(await late.fence()) == [b"kept"]


@v5("3.1.3-10")
async def test_v5_mqtt_3_1_3_10_user_properties_of_a_will_keep_their_order(peers: Peers, name: str) -> None:
    watcher = await watching(peers, name)
    pairs = (("b", "2"), ("a", "1"), ("b", "1"), ("", ""), ("b", "2"))
    peer = await peers.connect(name, will=Will(f"{name}/will", b"", properties=PacketProperties(user=pairs)))
    await peer.cut()
    assert (await watcher.receive(Publish)).properties.user == pairs


@v5("3.3.2-4", "3.3.2-15", "3.3.2-16", "3.3.2-20")
async def test_v5_properties_of_a_will_are_published_with_it(peers: Peers, name: str) -> None:
    watcher = await watching(peers, name)
    given = PacketProperties(1, None, "text/plain", f"{name}/answer", b"\x00\xff")
    peer = await peers.connect(name, will=Will(f"{name}/will", b"gone", properties=given))
    await peer.cut()
    assert (await watcher.receive(Publish)).properties == given
