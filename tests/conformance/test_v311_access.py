"""MQTT 3.1.1 on a server with passwords and rules: what is refused, and how."""

from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher

from penstock.wire.mqtt import ConnAck, Connect, PingReq, Publish, Request, Subscribe, Version, Will
from tests.conformance.statements import v311
from tests.conformance.v311_bytes import connect, text
from tests.doors.mqtt.peers import Peers, every_qos, payloads
from tests.support.servers import RunningServer, StartServer

ALICE: dict[str, Any] = {"user": "alice", "password": b"alice!"}
BOB: dict[str, Any] = {"user": "bob", "password": b"bob!"}
EVERY_FIELD = 0xC6
"""The flags of a CONNECT with a will, a user name and a password, and a clean session."""
ACL = """
user alice
both open/#

user bob
subscribe #
"""


@pytest.fixture(scope="module")
def guarded(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """Only alice, who may use what is below `open`, and bob, who may read everything, come in."""
    folder: Path = tmp_path_factory.mktemp("access")
    hasher = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
    lines = [f"{user}:{hasher.hash(user + '!')}" for user in ("alice", "bob")]
    (folder / "passwords").write_text("\n".join(lines), encoding="utf-8")
    (folder / "acl").write_text(ACL, encoding="utf-8")
    access = {"password_file": str(folder / "passwords"), "acl_file": str(folder / "acl")}
    return start_server({"access": access})


@v311("3.1.3-1", "3.1.2-9", "3.1.2-19", "3.1.2-21")
async def test_v311_mqtt_3_1_3_1_fields_of_the_payload_are_read_in_their_order(
    guarded: RunningServer, peers_311: Peers, name: str
) -> None:
    watcher = await peers_311.connect(port=guarded.port, **ALICE)
    await watcher.subscribe("open/#")
    fields = [text(name), text("open/will"), text(b"gone"), text("alice"), text("alice!")]
    peer = await peers_311.open(port=guarded.port)
    await peer.send_bytes(connect(EVERY_FIELD, *fields))
    assert await peer.receive(ConnAck) == ConnAck(False, 0)
    heir = await peers_311.connect(name, port=guarded.port, **ALICE)  # the first field was the client id
    assert await peer.last_words() == []
    assert await heir.fence() == []
    got = [packet for packet in await watcher.fence() if isinstance(packet, Publish)]
    assert [(message.topic, message.payload) for message in got] == [("open/will", b"gone")]


@v311("3.1.3-1")
async def test_v311_mqtt_3_1_3_1_fields_in_another_order_do_not_let_in(
    guarded: RunningServer, peers_311: Peers, name: str
) -> None:
    fields = [text(name), text("open/will"), text(b"gone"), text("alice!"), text("alice")]
    peer = await peers_311.open(port=guarded.port)
    await peer.send_bytes(connect(EVERY_FIELD, *fields))
    assert await peer.last_words() == [ConnAck(False, 4)]


@pytest.mark.parametrize(
    "packet",
    [
        Connect("", Version.V311),
        Connect("", Version.V311, user_name="alice"),
        Connect("", Version.V311, user_name="alice", password=b"alice"),
        Connect("", Version.V311, user_name="carol", password=b"alice!"),
    ],
    ids=["nobody", "no password", "another password", "another user"],
)
@v311("3.2.2-5")
async def test_v311_mqtt_3_2_2_5_refusing_connack_is_followed_by_the_end(
    guarded: RunningServer, peers_311: Peers, packet: Connect
) -> None:
    (connack,) = await peers_311.refused(packet, guarded.port)
    assert connack == ConnAck(False, 4)  # the standard also allows code 5


@v311("3.2.2-4")
async def test_v311_mqtt_3_2_2_4_refusing_connack_tells_of_no_session(
    guarded: RunningServer, peers_311: Peers, name: str
) -> None:
    peer = await peers_311.connect(name, clean=False, port=guarded.port, **ALICE)
    await peer.leave()
    stranger = Connect(name, Version.V311, False, user_name="alice", password=b"wrong")
    assert await peers_311.refused(stranger, guarded.port) == [ConnAck(False, 4)]
    peer = await peers_311.connect(name, clean=False, port=guarded.port, **ALICE)
    assert peer.connack.session_present  # although there is one


@v311("3.1.4-5")
async def test_v311_mqtt_3_1_4_5_what_follows_a_refused_connect_is_ignored(
    guarded: RunningServer, peers_311: Peers, name: str
) -> None:
    watcher = await peers_311.connect(port=guarded.port, **ALICE)
    await watcher.subscribe("open/#")
    peer = await peers_311.open(port=guarded.port)
    await peer.send(
        Connect(name, Version.V311, user_name="alice", password=b"wrong", will=Will("open/x", b"will")),
        Publish("open/x", b"0"),
        Publish("open/x", b"1", 1, packet_id=1),
        Subscribe(2, (Request("open/#"),)),
        PingReq(),
        Connect(name, Version.V311, user_name="alice", password=b"alice!"),
    )
    assert await peer.last_words() == [ConnAck(False, 4)]
    assert await watcher.fence() == []


@every_qos
@v311("3.3.5-2")
async def test_v311_mqtt_3_3_5_2_message_that_is_not_allowed_is_acknowledged_and_reaches_nobody(
    guarded: RunningServer, peers_311: Peers, qos: int
) -> None:
    watcher, peer = [await peers_311.connect(port=guarded.port, **who) for who in (BOB, ALICE)]
    await watcher.subscribe("#")
    assert await peer.publish("closed/x", b"not allowed", qos) == 0
    assert await peer.publish("open/x", b"allowed", qos) == 0
    assert await peer.fence() == []
    assert payloads(await watcher.fence()) == [b"allowed"]


@v311("3.8.4-5", "3.9.3-1", "3.9.3-2")
async def test_v311_mqtt_3_9_3_1_suback_tells_what_was_granted_filter_by_filter(
    guarded: RunningServer, peers_311: Peers
) -> None:
    peer = await peers_311.connect(port=guarded.port, **ALICE)
    asked = [
        Request("open/2", 2),
        Request("closed/2", 2),
        Request("open/0", 0),
        Request("#", 1),
        Request("open/1", 1),
        Request("open/#/x", 1),
        Request("open/0", 1),
    ]
    granted = await peer.subscribe(*asked)
    assert granted == (2, 0x80, 0, 0x80, 1, 0x80, 1)
