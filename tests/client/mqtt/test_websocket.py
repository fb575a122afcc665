"""MQTT over WebSocket and TLS, against a real server and peers that refuse."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import pytest

from penstock.client import ConnectionLost, ConnectionRefused, MqttClient
from tests.support.certificates import Authority
from tests.support.servers import RunningServer, StartServer

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
BIG = bytes(range(256)) * 1_200
"""More than a frame whose length fits into two bytes, and than a read takes."""


class Secured:
    """A server with TLS, and whom to trust."""

    def __init__(self, server: RunningServer, tls: ssl.SSLContext) -> None:
        self.server = server
        self.tls = tls


@pytest.fixture(scope="module")
def secured(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Secured:
    authority = Authority()
    files = authority.issue(tmp_path_factory.mktemp("tls"), "server")
    tls = {"certificate_file": files.certificate, "key_file": files.key}
    server = start_server({"tls": tls, "mqtt": {"tls_port": 0}, "http": {"port": 0, "tls_port": 0}})
    return Secured(server, authority.client_context())


@contextlib.asynccontextmanager
async def listening(peer: Peer) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("scheme", "is_secure", "path"),
    [("mqtts", True, None), ("http", False, "/mqtt"), ("https", True, "/mqtt")],
)
async def test_messages_of_every_size_go_there_and_back(
    secured: Secured, scheme: str, is_secure: bool, path: str | None
) -> None:
    topic, port = f"sockets/{uuid4().hex}", secured.server.port_of(scheme)
    connecting = MqttClient.connect(port=port, tls=secured.tls if is_secure else None, websocket_path=path)
    async with asyncio.timeout(30), connecting as client:
        await client.subscribe(topic, qos=1)
        for payload in (b"", b"small", BIG):
            await client.publish(topic, payload, qos=1)
        got = [(await anext(client.messages)).payload for _ in range(3)]
    assert got == [b"", b"small", BIG]


async def test_a_burst_that_fills_the_buffers_arrives_in_order(secured: Secured) -> None:
    topic, port = f"sockets/{uuid4().hex}", secured.server.port_of("http")
    async with asyncio.timeout(30), MqttClient.connect(port=port, websocket_path="/mqtt") as client:
        await client.subscribe(topic)
        for number in range(300):
            await client.publish(topic, number.to_bytes(2, "big") * 2_000)
        got = [int.from_bytes((await anext(client.messages)).payload[:2], "big") for _ in range(300)]
    assert got == list(range(300))


async def test_a_path_without_a_websocket_is_refused_with_the_status(secured: Secured) -> None:
    port = secured.server.port_of("http")
    with pytest.raises(ConnectionRefused, match="no WebSocket: the server responded with status 404"):
        await MqttClient.connect(port=port, websocket_path="/health/no")


async def test_a_certificate_that_nobody_trusts_is_refused(secured: Secured) -> None:
    port = secured.server.port_of("mqtts")
    with pytest.raises(ConnectionRefused, match="its certificate is not trusted"):
        await MqttClient.connect(port=port, tls=ssl.create_default_context())


async def test_tls_where_there_is_none_is_refused(secured: Secured) -> None:
    port = secured.server.port_of("mqtt")
    with pytest.raises(ConnectionRefused, match="TLS failed"):
        await MqttClient.connect(port=port, tls=secured.tls)


async def test_who_hangs_up_without_an_answer_has_refused() -> None:
    async def hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    async with listening(hang_up) as port:
        with pytest.raises(ConnectionRefused, match=r"without a response|no WebSocket"):
            await MqttClient.connect(port=port, websocket_path="/mqtt")


async def test_who_answers_something_else_has_refused() -> None:
    async def chat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")

    async with listening(chat) as port:
        with pytest.raises(ConnectionRefused, match="no WebSocket"):
            await MqttClient.connect(port=port, websocket_path="/mqtt")


async def test_a_server_that_ends_is_noticed(secured: Secured, start_server: StartServer) -> None:
    server = start_server({"http": {"port": 0}})
    client = await MqttClient.connect(port=server.port_of("http"), websocket_path="/mqtt")
    server.stop()
    with pytest.raises(ConnectionLost):
        async with asyncio.timeout(20):
            await anext(client.messages)
    await client.disconnect()
