"""Sessions belong to users: who comes with the client id of another user's session is refused."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher
from structlog.testing import capture_logs

from penstock.app import Server
from penstock.core.settings import AccessSettings, SessionSettings
from penstock.wire.mqtt import ConnAck, Connect, Publish, ReasonCode, ReturnCode, Version, Will
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers, both_versions, payloads
from tests.doors.serving import Start, client_of
from tests.doors.sidecar.calling import Client

QUICK = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
NAMES = ("alice", "mallory")
KEPT: dict[str, Any] = {"clean": False, "expiry": FOR_EVER}


def write_users(folder: Path, *names: str) -> Path:
    """A file of users whose passwords are their names."""
    file = folder / "passwords"
    file.write_text("\n".join(f"{name}:{QUICK.hash(name)}" for name in names), encoding="utf-8")
    return file


@pytest.fixture
def access(tmp_path: Path) -> AccessSettings:
    return AccessSettings(password_file=str(write_users(tmp_path, *NAMES)), allow_anonymous=True)


@pytest.fixture
async def server(start: Start, access: AccessSettings) -> Server:
    return await start(access=access)


@pytest.fixture
async def peers(server: Server) -> AsyncIterator[Peers]:
    peers = peers_of(server)
    yield peers
    await peers.close()


def peers_of(server: Server) -> Peers:
    return Peers(server.mqtt.port or 0, hears_words=False)


async def enter(peers: Peers, user: str | None, client_id: str = "pump", **options: Any) -> Peer:
    password = None if user is None else user.encode()
    return await peers.connect(client_id, user=user, password=password, **{**KEPT, **options})


def connect(
    user: str | None, version: Version = Version.V5, *, clean: bool = True, **options: Any
) -> Connect:
    password = None if user is None else user.encode()
    return Connect("pump", version, clean, user_name=user, password=password, **options)


def refusal(version: Version = Version.V5) -> list[ConnAck]:
    is_new = version is Version.V5
    code: int = ReasonCode.CLIENT_IDENTIFIER_NOT_VALID if is_new else ReturnCode.IDENTIFIER_REJECTED
    return [ConnAck(False, code)]


@both_versions
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("user", ["mallory", None])
async def test_another_user_is_refused_and_nothing_happens_to_the_session(
    peers: Peers, server: Server, version: Version, clean: bool, user: str | None
) -> None:
    alice = await enter(peers, "alice", version=version, will=Will("gone", b""))
    await alice.subscribe("orders", "gone", qos=1)
    packet = connect(user, version, clean=clean, will=Will("gone", b"mallory"))
    with capture_logs() as lines:
        assert await peers.refused(packet) == refusal(version)
    (line,) = [line for line in lines if line["event"] == "connection refused"]
    assert (line["client"], line.get("user")) == ("pump", user)
    await (await enter(peers, "mallory", "other")).publish("orders", b"1")
    assert payloads(await alice.receive_all(1)) == [b"1"]  # it is connected, and no will was published
    await alice.leave()
    assert await peers.refused(packet) == refusal(version)
    await (await enter(peers, "mallory", "other")).publish("orders", b"2")
    alice = await enter(peers, "alice", version=version)
    assert alice.connack.session_present
    assert payloads(await alice.receive_all(1)) == [b"2"]
    assert server.broker.counters.takeovers == 1  # that of `other`


async def test_the_same_user_takes_over_as_ever(peers: Peers) -> None:
    first = await enter(peers, "alice")
    second = await enter(peers, "alice")
    assert second.connack.session_present
    assert len(await first.last_words()) == 1


async def test_a_session_of_nobody_gives_way_to_a_user(peers: Peers) -> None:
    guest = await enter(peers, None)
    await guest.subscribe("secrets", qos=1)
    alice = await enter(peers, "alice")
    assert not alice.connack.session_present
    assert len(await guest.last_words()) == 1
    assert await peers.refused(connect(None)) == refusal()


async def test_refused_clients_are_not_taken_for_a_fight(peers: Peers, server: Server) -> None:
    alice = await enter(peers, "alice")
    with capture_logs() as lines:
        for _ in range(20):
            assert await peers.refused(connect("mallory")) == refusal()
    assert not [line for line in lines if "fight" in line["event"]]
    assert await alice.fence() == []


async def test_a_setting_lets_other_users_take_over(start: Start, access: AccessSettings) -> None:
    server = await start(access=access, sessions=SessionSettings(takeover_by_other_users=True))
    peers = peers_of(server)
    alice = await enter(peers, "alice")
    await alice.subscribe("orders", qos=1)
    mallory = await enter(peers, "mallory")
    assert not mallory.connack.session_present
    assert len(await alice.last_words()) == 1
    await mallory.publish("orders", b"1")
    assert await mallory.fence() == []
    await peers.close()


async def test_the_owner_outlives_a_restart(start: Start, access: AccessSettings, tmp_path: Path) -> None:
    for number in range(3):
        server = await start(access=access, data_dir=str(tmp_path / "data"))
        peers = peers_of(server)
        if number:
            assert await peers.refused(connect("mallory")) == refusal()
        alice = await enter(peers, "alice")
        assert alice.connack.session_present is (number > 0)
        await peers.close()
        await start.stop(server)


async def test_a_client_id_is_free_when_its_user_is_gone(
    peers: Peers, server: Server, tmp_path: Path
) -> None:
    alice = await enter(peers, "alice")
    write_users(tmp_path, "mallory")
    server.reload()
    assert len(await alice.last_words()) == 1
    assert not (await enter(peers, "mallory")).connack.session_present


async def test_sessions_of_guests_end_when_guests_are_no_longer_allowed(
    start: Start,
    access: AccessSettings,
    tmp_path: Path,
) -> None:
    data = str(tmp_path / "data")
    server = await start(data_dir=data)
    peers = peers_of(server)
    await (await enter(peers, None)).leave()
    await peers.close()
    await start.stop(server)
    server = await start(access=AccessSettings(password_file=access.password_file), data_dir=data)
    assert "pump" not in server.broker.sessions
    peers = peers_of(server)
    assert not (await enter(peers, "alice")).connack.session_present
    await peers.close()


async def test_an_administrator_frees_a_client_id(peers: Peers, server: Server) -> None:
    alice = await enter(peers, "alice")
    await alice.subscribe("orders", qos=1)
    async with client_of(server) as http:
        answer = await http.delete("/api/v1/clients/pump")
        assert answer.json() == {"client_id": "pump", "disconnected": True, "session_ended": False}
        assert await peers.refused(connect("mallory")) == refusal()  # the session waits for alice
        answer = await http.delete("/api/v1/clients/pump", params={"end_session": "true"})
        assert answer.json() == {"client_id": "pump", "disconnected": False, "session_ended": True}
        assert (await http.get("/api/v1/clients/pump")).status_code == 404
    mallory = await enter(peers, "mallory")
    assert not mallory.connack.session_present
    await mallory.publish("orders", b"1")
    assert await mallory.fence() == []


async def test_a_grpc_subscription_is_not_ended_by_its_id(peers: Peers, server: Server) -> None:
    metadata = (("username", "alice"), ("password", "alice"))
    async with Client(server, metadata) as client:
        events = await client.subscribe("orders")
        packet = Connect(events.id, Version.V5, True, user_name="mallory", password=b"mallory")
        assert await peers.refused(packet) == refusal()
        assert (await client.publish("orders", b"1")).subscriber_count == 1
        assert await events.payloads(1) == [b"1"]


async def test_a_session_ended_by_an_administrator_publishes_its_will(peers: Peers, server: Server) -> None:
    watcher = await enter(peers, "mallory", "watcher")
    await watcher.subscribe("gone")
    alice = await enter(peers, "alice", will=Will("gone", b"alice"))
    async with client_of(server) as http:
        answer = await http.delete("/api/v1/clients/pump", params={"end_session": "true"})
        assert answer.json()["disconnected"]
    assert len(await alice.last_words()) == 1
    assert (await watcher.receive(Publish)).payload == b"alice"
    assert "pump" not in server.broker.sessions
