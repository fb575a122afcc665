"""SCRAM authentication of the client, against a scripted and a running server."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from penstock.client import (
    ConnectionLost,
    ConnectionRefused,
    MqttClient,
    PacketProperties,
    PacketStream,
    ReasonCode,
    Version,
)
from penstock.common.scram import FEWEST_ITERATIONS, ScramServer, make_keys
from penstock.core.access.passwords import encode_keys
from penstock.errors import BadCredentials
from penstock.wire.mqtt.packets import Auth, ConnAck, Connect, Disconnect, PubAck, Publish
from tests.client.mqtt.scripts import PATIENCE_S, Script, farewell, scripted, welcome
from tests.support.servers import RunningServer, StartServer
from tests.support.waiting import until

METHOD = "SCRAM-SHA-256"
KEYS = make_keys("secret", FEWEST_ITERATIONS)


def connecting(
    port: int, password: str | bytes = "secret", messages_limit: int = 1_000, timeout: float = 10.0
) -> "contextlib.AbstractAsyncContextManager[MqttClient]":
    return MqttClient.connect(
        port=port,
        user="alice",
        password=password,
        authentication="scram-sha-256",
        messages_limit=messages_limit,
        timeout=timeout,
    )


def said(data: bytes | None, method: str = METHOD) -> PacketProperties:
    return PacketProperties(authentication_method=method, authentication_data=data)


def question(data: bytes) -> Auth:
    return Auth(ReasonCode.CONTINUE_AUTHENTICATION, said(data))


async def receive_auth(stream: PacketStream, reason: ReasonCode) -> bytes:
    packet = await stream.receive(PATIENCE_S)
    assert isinstance(packet, Auth)
    assert packet.reason == reason
    assert packet.properties.authentication_method == METHOD
    return packet.properties.authentication_data or b""


async def receive_connect(stream: PacketStream) -> bytes:
    """Take a CONNECT that has a method and neither name nor password."""
    packet = await stream.receive(PATIENCE_S)
    assert isinstance(packet, Connect)
    assert (packet.user_name, packet.password) == (None, None)
    assert packet.properties.authentication_method == METHOD
    return packet.properties.authentication_data or b""


async def let_in(stream: PacketStream) -> ScramServer:
    """Do what a good server does."""
    exchange = ScramServer(lambda user: KEYS)
    await stream.send(question(exchange.respond(await receive_connect(stream))))
    proof = await receive_auth(stream, ReasonCode.CONTINUE_AUTHENTICATION)
    await stream.send(ConnAck(properties=said(exchange.respond(proof))))
    return exchange


async def let_in_again(stream: PacketStream) -> None:
    exchange = ScramServer(lambda user: KEYS)
    await stream.send(question(exchange.respond(await receive_auth(stream, ReasonCode.RE_AUTHENTICATE))))
    proof = await receive_auth(stream, ReasonCode.CONTINUE_AUTHENTICATION)
    await stream.send(Auth(ReasonCode.SUCCESS, said(exchange.respond(proof))))
    assert exchange.user == "alice"


# Connecting


@pytest.mark.parametrize("password", ["secret", b"secret"])
async def test_a_client_proves_its_password_without_sending_it(password: str | bytes) -> None:
    async def script(stream: PacketStream) -> None:
        assert (await let_in(stream)).user == "alice"
        await farewell(stream)

    async with scripted(script) as port, connecting(port, password) as client:
        assert client.is_connected


async def test_properties_of_the_application_are_kept() -> None:
    async def script(stream: PacketStream) -> None:
        connect = await welcome(stream, ConnAck(reason=ReasonCode.BAD_AUTHENTICATION_METHOD))
        assert connect.properties.session_expiry == 60
        assert connect.properties.authentication_method == METHOD

    async with scripted(script) as port:
        with pytest.raises(ConnectionRefused, match="bad authentication method") as caught:
            await MqttClient.connect(
                port=port,
                user="alice",
                password="secret",
                authentication=METHOD,
                properties=PacketProperties(session_expiry=60),
            )
        assert caught.value.reason == ReasonCode.BAD_AUTHENTICATION_METHOD


async def test_a_wrong_password_is_refused_with_the_servers_reason() -> None:
    async def script(stream: PacketStream) -> None:
        exchange = ScramServer(lambda user: KEYS)
        await stream.send(question(exchange.respond(await receive_connect(stream))))
        with pytest.raises(BadCredentials):
            exchange.respond(await receive_auth(stream, ReasonCode.CONTINUE_AUTHENTICATION))
        await stream.send(ConnAck(reason=ReasonCode.BAD_USER_NAME_OR_PASSWORD))

    async with scripted(script) as port:
        with pytest.raises(ConnectionRefused, match="bad user name or password") as caught:
            async with connecting(port, "wrong"):
                pass
        assert caught.value.reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD


async def accept_without_asking(stream: PacketStream) -> None:
    await receive_connect(stream)
    await stream.send(ConnAck(properties=said(b"v=AAAA")))


async def accept_without_a_proof(stream: PacketStream) -> None:
    exchange = ScramServer(lambda user: KEYS)
    await stream.send(question(exchange.respond(await receive_connect(stream))))
    await receive_auth(stream, ReasonCode.CONTINUE_AUTHENTICATION)
    await stream.send(ConnAck())


async def accept_with_a_wrong_proof(stream: PacketStream) -> None:
    exchange = ScramServer(lambda user: KEYS)
    await stream.send(question(exchange.respond(await receive_connect(stream))))
    await receive_auth(stream, ReasonCode.CONTINUE_AUTHENTICATION)
    await stream.send(ConnAck(properties=said(b"v=" + b"A" * 43 + b"=")))


async def accept_by_another_method(stream: PacketStream) -> None:
    exchange = ScramServer(lambda user: KEYS)
    await stream.send(question(exchange.respond(await receive_connect(stream))))
    answer = exchange.respond(await receive_auth(stream, ReasonCode.CONTINUE_AUTHENTICATION))
    await stream.send(ConnAck(properties=said(answer, "PLAIN")))


async def ask_for_too_little(stream: PacketStream) -> None:
    exchange = ScramServer(lambda user: make_keys("secret", 1))
    await stream.send(question(exchange.respond(await receive_connect(stream))))


async def ask_nonsense(stream: PacketStream) -> None:
    await receive_connect(stream)
    await stream.send(question(b"nonsense"))


async def be_content(stream: PacketStream) -> None:
    exchange = ScramServer(lambda user: KEYS)
    answer = exchange.respond(await receive_connect(stream))
    await stream.send(Auth(ReasonCode.SUCCESS, said(answer)))


@pytest.mark.parametrize(
    "script",
    [
        accept_without_asking,
        accept_without_a_proof,
        accept_with_a_wrong_proof,
        accept_by_another_method,
        ask_for_too_little,
        ask_nonsense,
        be_content,
    ],
    ids=lambda script: script.__name__,
)
async def test_a_server_that_does_not_prove_itself_is_left(script: Script) -> None:
    async def until_left(stream: PacketStream) -> None:
        await script(stream)
        await stream.wait_closed(PATIENCE_S)

    async with scripted(until_left) as port:
        with pytest.raises(ConnectionRefused, match="authentication failed") as caught:
            async with connecting(port):
                pass
        assert caught.value.reason is None


async def test_a_server_that_asks_twice_is_left() -> None:
    async def script(stream: PacketStream) -> None:
        exchange = ScramServer(lambda user: KEYS)
        asked = question(exchange.respond(await receive_connect(stream)))
        await stream.send(asked, asked)
        await receive_auth(stream, ReasonCode.CONTINUE_AUTHENTICATION)
        await stream.wait_closed(PATIENCE_S)

    async with scripted(script) as port:
        with pytest.raises(ConnectionRefused, match="Auth"):
            async with connecting(port):
                pass


async def test_a_server_that_falls_silent_is_given_up() -> None:
    async def script(stream: PacketStream) -> None:
        await receive_connect(stream)
        await stream.wait_closed(PATIENCE_S)

    async with scripted(script) as port:
        with pytest.raises(ConnectionRefused, match=r"within 0\.1 s"):
            async with connecting(port, timeout=0.1):
                pass


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"user": None}, "needs a user"),
        ({"password": None}, "a password"),
        ({"password": ""}, "a password"),
        ({"password": b"\xff"}, "UTF-8"),
        ({"password": "bell\x07"}, "not allowed"),
        ({"user": "bell\x07"}, "not allowed"),
        ({"authentication": "PLAIN"}, "SCRAM-SHA-256"),
        ({"version": Version.V311}, "MQTT 5"),
        ({"properties": PacketProperties(authentication_method="x")}, "already"),
    ],
)
def test_what_cannot_be_proven_is_refused_before_anything_is_sent(
    options: dict[str, object], text: str
) -> None:
    good = {"user": "alice", "password": "secret", "authentication": METHOD}
    with pytest.raises(ValueError, match=text):
        MqttClient.connect(**{**good, **options})  # type: ignore[arg-type]


# Once more


async def test_a_client_proves_its_password_again_and_goes_on() -> None:
    async def script(stream: PacketStream) -> None:
        await let_in(stream)
        for _ in range(2):
            await let_in_again(stream)
        publish = await stream.receive(PATIENCE_S)
        assert isinstance(publish, Publish)
        await stream.send(PubAck(publish.packet_id))
        await farewell(stream)

    async with scripted(script) as port, connecting(port) as client, asyncio.timeout(PATIENCE_S):
        await asyncio.gather(client.reauthenticate(), client.reauthenticate())  # one after the other
        assert await client.publish("still/here", qos=1) == 0


async def test_a_client_that_takes_no_messages_can_still_prove_its_password() -> None:
    async def script(stream: PacketStream) -> None:
        await let_in(stream)
        await stream.send(*(Publish("a", b"x") for _ in range(3)))
        await let_in_again(stream)
        await farewell(stream)

    async with (
        scripted(script) as port,
        connecting(port, messages_limit=1) as client,
        asyncio.timeout(PATIENCE_S),
    ):
        await until(lambda: client.messages.is_full, "the queue of messages is not full", every_s=0)
        await client.reauthenticate()


@pytest.mark.parametrize("is_honest", [True, False], ids=["asks on", "lies"])
async def test_a_server_that_does_not_prove_itself_again_is_told_so_and_left(is_honest: bool) -> None:
    left = asyncio.Event()

    async def script(stream: PacketStream) -> None:
        await let_in(stream)
        exchange = ScramServer(lambda user: KEYS)
        await stream.send(question(exchange.respond(await receive_auth(stream, ReasonCode.RE_AUTHENTICATE))))
        proof = exchange.respond(await receive_auth(stream, ReasonCode.CONTINUE_AUTHENTICATION))
        lie = Auth(ReasonCode.SUCCESS, said(b"v=" + b"A" * 43 + b"="))
        await stream.send(question(proof) if is_honest else lie)
        assert await stream.receive(PATIENCE_S) == Disconnect(ReasonCode.NOT_AUTHORIZED)
        await stream.wait_closed(PATIENCE_S)
        left.set()

    async with scripted(script) as port, connecting(port) as client, asyncio.timeout(PATIENCE_S):
        with pytest.raises(ConnectionLost, match="authentication failed"):
            await client.reauthenticate()
        assert not client.is_connected
        with pytest.raises(ConnectionLost, match="authentication failed"):
            await client.messages.receive(PATIENCE_S)
        await left.wait()


async def test_a_server_that_says_no_again_is_told_with_its_reason() -> None:
    async def script(stream: PacketStream) -> None:
        await let_in(stream)
        await receive_auth(stream, ReasonCode.RE_AUTHENTICATE)
        await stream.send(Disconnect(ReasonCode.NOT_AUTHORIZED))

    async with scripted(script) as port, connecting(port) as client:
        with pytest.raises(ConnectionLost, match="the server disconnected: not authorized"):
            await client.reauthenticate()


async def test_who_gives_up_in_the_middle_of_it_ends_the_connection() -> None:
    async def script(stream: PacketStream) -> None:
        await let_in(stream)
        await receive_auth(stream, ReasonCode.RE_AUTHENTICATE)
        assert await stream.receive(PATIENCE_S) == Disconnect(ReasonCode.NOT_AUTHORIZED)

    async with scripted(script) as port, connecting(port) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.reauthenticate()
        with pytest.raises(ConnectionLost, match="cancelled"):
            await client.reauthenticate()


async def test_an_own_goodbye_ends_the_waiting_for_a_proof() -> None:
    async def script(stream: PacketStream) -> None:
        await let_in(stream)
        await receive_auth(stream, ReasonCode.RE_AUTHENTICATE)
        await farewell(stream)

    async with scripted(script) as port, connecting(port) as client, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(expect_the_end(client))
        await asyncio.sleep(0.05)
        await client.disconnect()
        assert await waiting == "disconnected"


async def expect_the_end(client: MqttClient) -> str:
    with pytest.raises(ConnectionLost) as caught:
        await client.reauthenticate()
    return str(caught.value)


async def test_who_came_in_otherwise_cannot_do_it_again() -> None:
    async def script(stream: PacketStream) -> None:
        await welcome(stream)
        await farewell(stream)

    async with scripted(script) as port, MqttClient.connect(port=port) as client:
        with pytest.raises(ValueError, match="authentication"):
            await client.reauthenticate()
        assert client.is_connected


async def test_an_auth_that_nobody_asked_for_breaks_the_protocol() -> None:
    async def script(stream: PacketStream) -> None:
        await let_in(stream)
        await stream.send(question(b""))
        assert await stream.receive(PATIENCE_S) == Disconnect(ReasonCode.PROTOCOL_ERROR)

    async with scripted(script) as port, connecting(port) as client:
        with pytest.raises(ConnectionLost, match="unexpected AUTH"):
            await client.messages.receive(PATIENCE_S)


# A real server


@pytest.fixture(scope="module")
def strict(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """Alice has keys, bob has a password alone; each may publish to topics of their own."""
    folder: Path = tmp_path_factory.mktemp("access")
    stored = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash("secret")
    (folder / "passwords").write_text(f"alice:{stored}:{encode_keys(KEYS)}\nbob:{stored}\n")
    (folder / "acl").write_text("user *\nboth own/%u\n")
    files = {"password_file": str(folder / "passwords"), "acl_file": str(folder / "acl")}
    return start_server({"access": files})


async def test_who_proved_a_password_has_the_rights_of_its_user(strict: RunningServer) -> None:
    async with connecting(strict.port) as client:
        for _ in range(2):
            assert await client.subscribe("own/alice", "own/bob", qos=1) == (1, ReasonCode.NOT_AUTHORIZED)
            await client.publish("own/alice", "hello", qos=1)
            assert (await client.messages.receive(PATIENCE_S)).payload == b"hello"
            await client.reauthenticate()


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("bob", "secret"), ("nobody", "secret"), ("Alice", "secret")]
)
async def test_who_cannot_prove_it_is_refused_by_the_server(
    strict: RunningServer, user: str, password: str
) -> None:
    with pytest.raises(ConnectionRefused) as caught:
        await MqttClient.connect(port=strict.port, user=user, password=password, authentication=METHOD)
    assert caught.value.reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD


async def test_a_server_without_passwords_does_not_know_the_method(server: RunningServer) -> None:
    with pytest.raises(ConnectionRefused) as caught:
        async with connecting(server.port):
            pass
    assert caught.value.reason == ReasonCode.BAD_AUTHENTICATION_METHOD
