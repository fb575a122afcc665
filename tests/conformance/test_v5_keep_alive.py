"""MQTT 5, sections 3.1.2.10 and 3.2.2.3.14: keep alive."""

import time

import pytest

from penstock.wire.mqtt import PingReq, PingResp, ReasonCode
from tests.conformance.endings import ending_of
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import Peers
from tests.support.servers import RunningServer, StartServer


@pytest.fixture(scope="module")
def strict(start_server: StartServer) -> RunningServer:
    """A server that grants a second of silence to those who ask for more, or for none at all."""
    return start_server({"mqtt": {"max_keep_alive_s": 1}})


@pytest.fixture(scope="module")
def capped(start_server: StartServer) -> RunningServer:
    """A server that grants a minute of silence."""
    return start_server({"mqtt": {"max_keep_alive_s": 60}})


@v5("3.1.2-22", "3.2.2-22")
async def test_v5_mqtt_3_1_2_22_silent_client_is_closed_after_one_and_a_half_times_its_keep_alive(
    peers: Peers,
) -> None:
    began = time.monotonic()
    peer = await peers.connect(keep_alive=1)
    assert peer.connack.properties.server_keep_alive is None
    assert await ending_of(peer) == ReasonCode.KEEP_ALIVE_TIMEOUT
    assert time.monotonic() - began > 1.4


@v5("3.1.2-22")
async def test_v5_mqtt_3_1_2_22_what_the_server_granted_counts(strict: RunningServer, peers: Peers) -> None:
    patient, endless = [await peers.connect(keep_alive=asked, port=strict.port) for asked in (100, 0)]
    for peer in (patient, endless):
        assert peer.connack.properties.server_keep_alive == 1
        assert await ending_of(peer) == ReasonCode.KEEP_ALIVE_TIMEOUT


@v5("3.2.2-22")
@pytest.mark.parametrize("asked", [1, 30, 60])
async def test_v5_mqtt_3_2_2_22_keep_alive_that_is_granted_is_not_told(
    capped: RunningServer, peers: Peers, asked: int
) -> None:
    peer = await peers.connect(keep_alive=asked, port=capped.port)
    assert peer.connack.properties.server_keep_alive is None


@v5("3.2.2-22")
@pytest.mark.parametrize("asked", [0, 61, 65_535])
async def test_v5_mqtt_3_2_2_22_keep_alive_that_is_not_granted_is_told(
    capped: RunningServer, peers: Peers, asked: int
) -> None:
    peer = await peers.connect(keep_alive=asked, port=capped.port)
    assert peer.connack.properties.server_keep_alive == 60
    await peer.send(PingReq())
    assert await peer.receive(PingResp) == PingResp()
