"""MQTT 5.0, sections 3.15 and 4.12: AUTH and enhanced authentication."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from penstock.common.scram import FEWEST_ITERATIONS, METHOD, ScramClient, make_keys
from penstock.core.access.passwords import encode_keys
from penstock.wire.mqtt import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketProperties,
    Publish,
    ReasonCode,
    Version,
)
from tests.conformance.endings import SMALLEST_BYTES, ending_after, ending_of, raw
from tests.conformance.statements import v5
from tests.doors.mqtt.peers import Peer, Peers, payloads
from tests.support.servers import RunningServer, StartServer

QUICK = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
CONTINUE, AGAIN = ReasonCode.CONTINUE_AUTHENTICATION, ReasonCode.RE_AUTHENTICATE
TABLE = {0x00, 0x18, 0x19}
"""The codes of AUTH."""

other_flags = pytest.mark.parametrize("flags", [1, 2, 8, 15])


@pytest.fixture(scope="module")
def proving(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """A server where alice and bob can prove their passwords instead of sending them."""
    file: Path = tmp_path_factory.mktemp("access") / "passwords"
    lines = [
        f"{user}:{QUICK.hash(user + '!')}:{encode_keys(make_keys(user + '!', FEWEST_ITERATIONS))}"
        for user in ("alice", "bob")
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    return start_server({"access": {"password_file": str(file)}})


@pytest.fixture
async def peers(server: RunningServer) -> AsyncIterator[Peers]:
    """Clients that hear whatever the server says, also reasons in words."""
    peers = Peers(server.port)
    yield peers
    await peers.close()


def alice() -> ScramClient:
    return ScramClient("alice", "alice!")


def step(reason: int, data: bytes, method: str = METHOD) -> Auth:
    """An AUTH with data of a method."""
    return Auth(reason, PacketProperties(authentication_method=method, authentication_data=data))


def data_of(packet: Auth | ConnAck) -> bytes:
    """What a packet carries for the method."""
    assert packet.properties.authentication_data is not None
    return packet.properties.authentication_data


async def begin(peers: Peers, proving: RunningServer, scram: ScramClient, method: str = METHOD) -> Peer:
    """A connection on which CONNECT was sent, with the first data of a method."""
    peer = await peers.open(port=proving.port)
    given = PacketProperties(authentication_method=method, authentication_data=scram.begin())
    await peer.send(Connect("", Version.V5, properties=given))
    return peer


async def enter(peers: Peers, proving: RunningServer) -> Peer:
    """A client that has proven to be alice."""
    scram = alice()
    peer = await begin(peers, proving, scram)
    await peer.send(step(CONTINUE, scram.prove(data_of(await peer.receive(Auth)))))
    peer.connack = await peer.receive(ConnAck)
    assert peer.connack.reason == 0
    scram.check(data_of(peer.connack))
    return peer


def only_refusal(words: list[Packet]) -> int:
    """The reason of the CONNACK that was the last word to a client that was not let in."""
    (word,) = words
    assert isinstance(word, ConnAck), word
    assert word.reason >= 0x80
    return word.reason


# The packet


@other_flags
@v5("3.15.1-1")
async def test_v5_mqtt_3_15_1_1_auth_with_reserved_flags_is_malformed(
    proving: RunningServer, peers: Peers, flags: int
) -> None:
    peer = await enter(peers, proving)
    data = raw(0xF0 | flags, b"\x19\x00")
    assert await ending_after(peer, data) == ReasonCode.MALFORMED_PACKET


@other_flags
@v5("3.15.1-1", "3.14.0-1")
async def test_v5_mqtt_3_15_1_1_auth_with_reserved_flags_lets_nobody_in(
    proving: RunningServer, peers: Peers, flags: int
) -> None:
    peer = await begin(peers, proving, alice())
    await peer.receive(Auth)
    await peer.send_bytes(raw(0xF0 | flags, b"\x18\x00"))
    assert only_refusal(await peer.last_words()) == ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize("code", [0x01, 0x04, 0x10, 0x80, 0x87, 0xFF], ids=hex)
@v5("3.15.2-1")
async def test_v5_mqtt_3_15_2_1_code_from_another_table_is_a_protocol_error(
    proving: RunningServer, peers: Peers, code: int
) -> None:
    peer = await enter(peers, proving)
    assert await ending_after(peer, raw(0xF0, bytes((code, 0)))) == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize("code", [ReasonCode.SUCCESS, AGAIN], ids=hex)
@v5("3.15.2-1")
async def test_v5_mqtt_3_15_2_1_only_continuing_is_expected_of_a_client_that_was_not_let_in(
    proving: RunningServer, peers: Peers, code: int
) -> None:
    scram = alice()
    peer = await begin(peers, proving, scram)
    await peer.send(step(code, scram.prove(data_of(await peer.receive(Auth)))))
    assert only_refusal(await peer.last_words()) == ReasonCode.PROTOCOL_ERROR


@v5("3.15.2-1", "3.15.2-2", "3.15.2-3", "4.12.0-2")
async def test_v5_mqtt_3_15_2_1_server_asks_with_one_code_and_ends_with_the_other(
    proving: RunningServer, peers: Peers
) -> None:
    peer, scram = await enter(peers, proving), alice()
    await peer.send(step(AGAIN, scram.begin()))
    question = await peer.receive(Auth)
    await peer.send(step(CONTINUE, scram.prove(data_of(question))))
    answer = await peer.receive(Auth)
    assert [question.reason, answer.reason] == [CONTINUE, ReasonCode.SUCCESS]
    assert {question.reason, answer.reason} <= TABLE
    for packet in (question, answer):
        assert (packet.properties.reason_string, packet.properties.user) == (None, ())


@v5("3.14.0-1")
async def test_v5_mqtt_3_14_0_1_auth_too_large_for_a_client_that_was_not_let_in_is_a_refusal(
    proving: RunningServer, peers: Peers
) -> None:
    given = PacketProperties(
        authentication_method=METHOD,
        authentication_data=alice().begin(),
        maximum_packet_size=SMALLEST_BYTES,
    )
    words = await peers.refused(Connect("", Version.V5, properties=given), proving.port)
    assert only_refusal(words) == ReasonCode.PACKET_TOO_LARGE


# The first time


@pytest.mark.parametrize("method", ["GS2-KRB5", "SCRAM-SHA-1", "scram-sha-256", ""])
@v5("4.12.0-1")
async def test_v5_mqtt_4_12_0_1_unknown_method_is_refused(
    proving: RunningServer, peers: Peers, method: str
) -> None:
    peer = await begin(peers, proving, alice(), method)
    assert only_refusal(await peer.last_words()) == ReasonCode.BAD_AUTHENTICATION_METHOD


@v5("4.12.0-1")
async def test_v5_mqtt_4_12_0_1_right_password_does_not_make_up_for_an_unknown_method(
    proving: RunningServer, peers: Peers
) -> None:
    given = PacketProperties(authentication_method="OTHER")
    packet = Connect("", Version.V5, user_name="alice", password=b"alice!", properties=given)
    words = await peers.refused(packet, proving.port)
    assert only_refusal(words) == ReasonCode.BAD_AUTHENTICATION_METHOD


@v5("4.12.0-1")
async def test_v5_mqtt_4_12_0_1_server_without_passwords_knows_no_method(peers: Peers) -> None:
    given = PacketProperties(authentication_method=METHOD, authentication_data=alice().begin())
    words = await peers.refused(Connect("", Version.V5, properties=given))
    assert only_refusal(words) == ReasonCode.BAD_AUTHENTICATION_METHOD


@v5("4.12.0-2", "4.12.0-5")
async def test_v5_mqtt_4_12_0_2_server_asks_for_more_and_names_the_method(
    proving: RunningServer, peers: Peers
) -> None:
    peer = await begin(peers, proving, alice())
    question = await peer.receive(Auth)
    assert question.reason == CONTINUE
    assert question.properties.authentication_method == METHOD


@v5("4.12.0-5")
async def test_v5_mqtt_4_12_0_5_connack_names_the_method(proving: RunningServer, peers: Peers) -> None:
    peer = await enter(peers, proving)
    assert peer.connack.properties.authentication_method == METHOD
    await peer.subscribe("anything")


@v5("4.12.0-5")
async def test_v5_mqtt_4_12_0_5_client_that_changes_the_method_is_refused(
    proving: RunningServer, peers: Peers
) -> None:
    scram = alice()
    peer = await begin(peers, proving, scram)
    proof = scram.prove(data_of(await peer.receive(Auth)))
    await peer.send(step(CONTINUE, proof, "SCRAM-SHA-1"))
    assert only_refusal(await peer.last_words()) == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    "scram", [ScramClient("alice", "bob!"), ScramClient("mallory", "alice!")], ids=["password", "user"]
)
@v5("4.12.0-4")
async def test_v5_mqtt_4_12_0_4_wrong_proof_is_refused(
    proving: RunningServer, peers: Peers, scram: ScramClient
) -> None:
    peer = await begin(peers, proving, scram)
    await peer.send(step(CONTINUE, scram.prove(data_of(await peer.receive(Auth)))))
    refusal = only_refusal(await peer.last_words())
    assert refusal == ReasonCode.BAD_USER_NAME_OR_PASSWORD


@v5("4.12.0-4")
async def test_v5_mqtt_4_12_0_4_data_that_means_nothing_is_refused(
    proving: RunningServer, peers: Peers
) -> None:
    given = PacketProperties(authentication_method=METHOD, authentication_data=b"let me in")
    words = await peers.refused(Connect("", Version.V5, properties=given), proving.port)
    assert only_refusal(words) == ReasonCode.BAD_USER_NAME_OR_PASSWORD


@v5("4.12.0-6")
async def test_v5_mqtt_4_12_0_6_without_a_method_the_server_asks_nothing_and_names_none(
    proving: RunningServer, peers: Peers
) -> None:
    peer = await peers.connect(user="alice", password=b"alice!", port=proving.port)  # CONNACK comes first
    assert peer.connack.properties.authentication_method is None
    assert peer.connack.properties.authentication_data is None
    assert await peer.fence() == []


@v5("4.12.0-6")
async def test_v5_mqtt_4_12_0_6_without_a_method_a_refusal_names_none_either(
    proving: RunningServer, peers: Peers
) -> None:
    packet = Connect("", Version.V5, user_name="alice", password=b"wrong")
    (word,) = await peers.refused(packet, proving.port)
    assert isinstance(word, ConnAck)
    assert word.properties.authentication_method is None


@pytest.mark.parametrize(
    "packet",
    [step(AGAIN, alice().begin()), step(CONTINUE, b""), Auth()],
    ids=["again", "continue", "success"],
)
@v5("4.12.0-7")
async def test_v5_mqtt_4_12_0_7_auth_of_a_client_without_a_method_is_a_protocol_error(
    proving: RunningServer, peers: Peers, packet: Auth
) -> None:
    peer = await peers.connect(user="alice", password=b"alice!", port=proving.port)
    await peer.send(packet)
    assert await ending_of(peer) == ReasonCode.PROTOCOL_ERROR


# Once more


@v5("4.12.0-5")
async def test_v5_mqtt_4_12_0_5_proving_again_succeeds_under_the_same_method(
    proving: RunningServer, peers: Peers
) -> None:
    peer = await enter(peers, proving)
    for _ in range(2):
        scram = alice()
        await peer.send(step(AGAIN, scram.begin()))
        question = await peer.receive(Auth)
        await peer.send(step(CONTINUE, scram.prove(data_of(question))))
        answer = await peer.receive(Auth)
        scram.check(data_of(answer))
        methods = {packet.properties.authentication_method for packet in (question, answer)}
        assert methods == {METHOD}


@v5("4.12.0-5")
async def test_v5_mqtt_4_12_0_5_everything_else_goes_on_while_a_client_proves_itself_again(
    proving: RunningServer, peers: Peers, name: str
) -> None:
    peer, scram = await enter(peers, proving), alice()
    await peer.send(step(AGAIN, scram.begin()))
    question = await peer.receive(Auth)
    await peer.subscribe(name)
    await peer.send(Publish(name, b"meanwhile"))
    assert payloads(await peer.fence()) == [b"meanwhile"]
    await peer.send(step(CONTINUE, scram.prove(data_of(question))))
    assert (await peer.receive(Auth)).reason == ReasonCode.SUCCESS


@pytest.mark.parametrize("method", ["SCRAM-SHA-1", "OTHER"])
@v5("4.12.1-1")
async def test_v5_mqtt_4_12_1_1_proving_again_under_another_method_is_a_protocol_error(
    proving: RunningServer, peers: Peers, method: str
) -> None:
    peer = await enter(peers, proving)
    await peer.send(step(AGAIN, alice().begin(), method))
    assert await ending_of(peer) == ReasonCode.PROTOCOL_ERROR


@v5("4.12.1-1")
async def test_v5_mqtt_4_12_1_1_auth_without_a_method_is_a_protocol_error(
    proving: RunningServer, peers: Peers
) -> None:
    peer = await enter(peers, proving)
    assert await ending_after(peer, raw(0xF0, b"\x19\x00")) == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    "scram",
    [ScramClient("alice", "wrong"), ScramClient("mallory", "alice!"), ScramClient("bob", "bob!")],
    ids=["password", "unknown", "somebody-else"],
)
@v5("4.12.1-2")
async def test_v5_mqtt_4_12_1_2_client_that_fails_to_prove_itself_again_is_disconnected(
    proving: RunningServer, peers: Peers, scram: ScramClient
) -> None:
    peer = await enter(peers, proving)
    await peer.send(step(AGAIN, scram.begin()))
    await peer.send(step(CONTINUE, scram.prove(data_of(await peer.receive(Auth)))))
    (word,) = await peer.last_words()
    assert isinstance(word, Disconnect)
    assert word.reason == ReasonCode.NOT_AUTHORIZED


@v5("4.12.1-2")
async def test_v5_mqtt_4_12_1_2_going_on_with_nothing_under_way_is_a_protocol_error(
    proving: RunningServer, peers: Peers
) -> None:
    peer = await enter(peers, proving)
    await peer.send(step(CONTINUE, alice().begin()))
    assert await ending_of(peer) == ReasonCode.PROTOCOL_ERROR
