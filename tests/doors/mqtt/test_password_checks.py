"""Passwords that wait for their check: clients that leave meanwhile, limits, and what refusals say."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event

import pytest
from argon2 import PasswordHasher
from structlog.testing import capture_logs

from penstock.app import Server
from penstock.client import PacketStream
from penstock.common.scram import FEWEST_ITERATIONS, METHOD, ScramClient, make_keys
from penstock.core.access.file_access import FileAccess
from penstock.core.access.passwords import encode_keys
from penstock.core.settings import AccessSettings
from penstock.doors.mqtt import door
from penstock.doors.mqtt.connection import EARLY_LIMIT_BYTES
from penstock.doors.mqtt.settings import MqttSettings
from penstock.net.address_limits import AddressLimitSettings
from penstock.net.password_checks import PER_ADDRESS_AT_ONCE, TooManyWaiting
from penstock.wire.mqtt import (
    Auth,
    ConnAck,
    Connect,
    PacketProperties,
    PingReq,
    PingResp,
    Publish,
    ReasonCode,
    ReturnCode,
    Version,
    Will,
)
from tests.doors.mqtt.peers import Peer, Peers, both_versions
from tests.doors.serving import Start, client_of
from tests.support.waiting import until

QUICK = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)


class Gate:
    """Holds all password checks until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_end = Event()
        self.checked: list[str | None] = []
        check = FileAccess.verify

        def verify(access: FileAccess, user: str | None, password: bytes | None) -> bool:
            self.checked.append(user)
            assert self.may_end.wait(60)
            return check(access, user, password)

        monkeypatch.setattr(FileAccess, "verify", verify)


@pytest.fixture
def access(tmp_path: Path) -> AccessSettings:
    """Users u0 to u9, whose passwords are their names, and guests."""
    keys = encode_keys(make_keys("u0", FEWEST_ITERATIONS))
    lines = [
        f"u0:{QUICK.hash('u0')}:{keys}",
        *(f"u{number}:{QUICK.hash(f'u{number}')}" for number in range(1, 10)),
    ]
    (tmp_path / "passwords").write_text("\n".join(lines), encoding="utf-8")
    return AccessSettings(password_file=str(tmp_path / "passwords"), allow_anonymous=True)


@pytest.fixture
async def gate(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.may_end.set()


@pytest.fixture
async def server(start: Start, access: AccessSettings) -> Server:
    mqtt = MqttSettings(port=0, connect_timeout_s=0.2)
    limits = AddressLimitSettings(failures_per_address=0.001, failure_burst_per_address=12)
    return await start(access=access, mqtt=mqtt, connections=limits)


@pytest.fixture
async def peers(server: Server) -> AsyncIterator[Peers]:
    peers = Peers(server.mqtt.port or 0, hears_words=False)
    yield peers
    await peers.close()


def login(
    number: int, version: Version = Version.V5, password: bytes = b"", will: Will | None = None
) -> Connect:
    user = f"u{number}"
    return Connect("", version, user_name=user, password=password or user.encode(), will=will)


async def asking(peers: Peers, count: int, *, first: int = 0) -> list[Peer]:
    """Peers that have sent a CONNECT each."""
    asked = []
    for number in range(first, first + count):
        peer = await peers.open()
        await peer.send(login(number))
        asked.append(peer)
    return asked


async def test_a_client_that_leaves_while_its_check_waits_is_not_checked(
    server: Server, peers: Peers, gate: Gate
) -> None:
    await asking(peers, PER_ADDRESS_AT_ONCE)
    await until(lambda: len(gate.checked) == PER_ADDRESS_AT_ONCE, "not all threads are busy")
    gone, cut = await asking(peers, 2, first=PER_ADDRESS_AT_ONCE)
    await until(lambda: server._password_checks.waiting == 2, "not all checks wait")
    await gone.stream.close()
    await cut.cut()
    await until(lambda: len(server.mqtt.connections) == PER_ADDRESS_AT_ONCE, "a connection is still open")
    assert server._password_checks.waiting == 0
    gate.may_end.set()
    await until(lambda: not server._password_checks.running, "a check still runs")
    assert len(gate.checked) == PER_ADDRESS_AT_ONCE


async def test_a_client_that_leaves_during_its_check_is_closed_at_once_and_never_let_in(
    server: Server, peers: Peers, gate: Gate
) -> None:
    watcher = await peers.connect()
    await watcher.subscribe("gone")
    peer = await peers.open()
    await peer.send(login(1, will=Will("gone", b"")), Publish("gone", b"early"))
    await until(lambda: gate.checked == ["u1"], "the check has not begun")
    await peer.stream.close()
    await until(lambda: len(server.mqtt.connections) == 1, "the connection is still open")
    gate.may_end.set()
    await until(lambda: not server._password_checks.running, "the check still runs")
    assert await watcher.fence() == []
    assert set(server.broker.sessions) == {watcher.connack.properties.assigned_client_id}


async def test_little_is_read_while_a_check_waits_and_nothing_of_it_is_lost(
    server: Server, peers: Peers, gate: Gate
) -> None:
    peer = await peers.open()
    await peer.send(login(1))
    await until(lambda: gate.checked == ["u1"], "the check has not begun")
    payload, count = bytes(16 * 1024), 512
    before = server.broker.counters.bytes_received
    sending = asyncio.create_task(peer.send(*[Publish("early", payload)] * count, PingReq()))
    await until(
        lambda: server.broker.counters.bytes_received - before > EARLY_LIMIT_BYTES, "it is not read from"
    )
    for _ in range(100):
        await asyncio.sleep(0)
    assert server.broker.counters.bytes_received - before < 8 * EARLY_LIMIT_BYTES
    gate.may_end.set()
    assert (await peer.receive(ConnAck)).reason == 0
    await peer.receive(PingResp)
    await sending
    assert server.broker.counters.published == count


async def test_waiting_for_a_check_is_not_held_against_the_client(peers: Peers, gate: Gate) -> None:
    asked = await asking(peers, PER_ADDRESS_AT_ONCE + 2)
    await asyncio.sleep(0.5)  # longer than the time for CONNECT
    gate.may_end.set()
    assert [(await peer.receive(ConnAck)).reason for peer in asked] == [0] * len(asked)


@both_versions
async def test_one_too_many_is_told_that_the_server_is_busy(
    server: Server, peers: Peers, gate: Gate, version: Version
) -> None:
    server._password_checks._limit = 2
    asked = await asking(peers, PER_ADDRESS_AT_ONCE + 2)
    await until(lambda: server._password_checks.waiting == 2, "not all checks wait")
    code: int = ReasonCode.SERVER_BUSY if version is Version.V5 else ReturnCode.SERVER_UNAVAILABLE
    assert await peers.refused(login(9, version)) == [ConnAck(False, code)]
    gate.may_end.set()
    assert [(await peer.receive(ConnAck)).reason for peer in asked] == [0] * len(asked)
    with capture_logs() as lines:
        server._housekeeping._reap()
    (line,) = [line for line in lines if line["event"] == "password checks refused"]
    assert (line["busy"], line["late"], line["failures"], line["worst"]) == (1, 0, 0, "127.0.0.1")


async def test_a_client_whose_turn_does_not_come_is_told_that_the_server_is_busy(
    server: Server, peers: Peers, gate: Gate
) -> None:
    await asking(peers, PER_ADDRESS_AT_ONCE)
    await until(lambda: len(gate.checked) == PER_ADDRESS_AT_ONCE, "not all threads are busy")
    server._password_checks._timeout_s = 0.01
    assert await peers.refused(login(9)) == [ConnAck(False, ReasonCode.SERVER_BUSY)]


@both_versions
async def test_an_address_that_was_wrong_too_often_has_to_wait(
    server: Server, peers: Peers, version: Version
) -> None:
    known = await peers.connect("", version, user="u1", password=b"u1")
    for number in range(12):
        (answer,) = await peers.refused(login(2, password=b"wrong %d" % number))
        assert answer == ConnAck(False, ReasonCode.BAD_USER_NAME_OR_PASSWORD)
    code: int = (
        ReasonCode.CONNECTION_RATE_EXCEEDED if version is Version.V5 else ReturnCode.SERVER_UNAVAILABLE
    )
    assert await peers.refused(login(2, version)) == [ConnAck(False, code)]
    await peers.connect("", version, user="u1", password=b"u1")  # remembered
    await peers.connect("", version)  # a guest costs nothing
    assert await known.fence() == []
    async with client_of(server, auth=("u4", "u4")) as http:
        assert (await http.get("/api/v1/topics")).status_code == 429  # at every door
    elsewhere = await from_elsewhere(peers)
    await elsewhere.send(login(3, version))
    assert (await elsewhere.receive(ConnAck)).reason == 0
    assert server.broker.counters.authentications_failed == 12


async def from_elsewhere(peers: Peers, host: str = "127.0.0.2") -> Peer:
    """A connection from another address."""
    streams = await asyncio.open_connection("127.0.0.1", peers.port, local_addr=(host, 0))
    peer = Peer(PacketStream(*streams), hears_words=False)
    peers._all.append(peer)
    return peer


async def test_wrong_proofs_count_as_wrong_passwords(server: Server, peers: Peers) -> None:
    async def prove(password: str) -> int:
        peer, scram = await peers.open(), ScramClient("u0", password)
        properties = PacketProperties(authentication_method=METHOD, authentication_data=scram.begin())
        await peer.send(Connect("", Version.V5, properties=properties))
        answer = await peer.take()
        if isinstance(answer, Auth):
            data = answer.properties.authentication_data or b""
            properties = PacketProperties(authentication_method=METHOD, authentication_data=scram.prove(data))
            await peer.send(Auth(ReasonCode.CONTINUE_AUTHENTICATION, properties))
            answer = await peer.take()
        assert isinstance(answer, ConnAck)
        return answer.reason

    assert [await prove("u0") for _ in range(15)] == [0] * 15  # what is right never counts
    assert [await prove("wrong") for _ in range(12)] == [ReasonCode.BAD_USER_NAME_OR_PASSWORD] * 12
    assert await prove("u0") == ReasonCode.CONNECTION_RATE_EXCEEDED
    assert await peers.refused(login(1)) == [ConnAck(False, ReasonCode.CONNECTION_RATE_EXCEEDED)]
    assert server.broker.counters.authentications_failed == 12


async def test_many_that_are_put_off_are_cut(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "REFUSED_AT_ONCE", 3)
    for number in range(12):
        await peers.refused(login(2, password=b"wrong %d" % number))
    asked = await asking(peers, 5)
    answers = [await peer.last_words() for peer in asked]
    assert answers == [[ConnAck(False, ReasonCode.CONNECTION_RATE_EXCEEDED)]] * 3 + [[]] * 2
    for peer in asked:
        await peer.stream.close()


async def test_a_door_that_has_finished_leaves_the_checks_of_other_doors(server: Server, gate: Gate) -> None:
    async with client_of(server, auth=("u1", "u1")) as http:
        asked = asyncio.create_task(http.get("/api/v1/topics"))
        await until(lambda: gate.checked == ["u1"], "the password is not checked")
        await server.mqtt.close()
        await server.mqtt.finish(0.0)
        gate.may_end.set()
        assert (await asked).status_code == 200
    await server.stop()
    with pytest.raises(TooManyWaiting):
        await server._password_checks.verify("u2", b"u2", "127.0.0.1")
