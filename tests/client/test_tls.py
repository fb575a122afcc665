"""`Tls` means the same over HTTP and MQTT; over gRPC see `grpc/test_connection.py`."""

import ssl
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.client import ConnectionRefused, HttpClient, MqttClient, Tls
from penstock.client.tls import TlsOption, make_ssl_context, make_tls
from tests.support.certificates import HOST, Authority
from tests.support.servers import StartServer


class Secured(NamedTuple):
    """Ports of a server with TLS, and the file of its authority."""

    https_port: int
    mqtts_port: int
    ca_file: str


@pytest.fixture(scope="module")
def secured(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Secured:
    """A server whose certificate is valid for 127.0.0.1 only."""
    folder, authority = tmp_path_factory.mktemp("tls"), Authority()
    files = authority.issue(folder, "server")
    server = start_server(
        {
            "mqtt": {"tls_port": 0},
            "http": {"port": 0, "tls_port": 0},
            "tls": {"certificate_file": files.certificate, "key_file": files.key},
        }
    )
    return Secured(server.port_of("https"), server.port_of("mqtts"), authority.write(folder / "ca.pem"))


def options(ca_file: str) -> list[TlsOption]:
    return [ca_file, Path(ca_file), Tls(ca_file=ca_file)]


async def test_a_file_of_authorities_is_enough(secured: Secured) -> None:
    for tls in options(secured.ca_file):
        with HttpClient(f"https://{HOST}:{secured.https_port}", tls=tls) as client:
            assert client.ready()
        async with MqttClient.connect(HOST, secured.mqtts_port, tls=tls) as mqtt:
            assert mqtt.is_connected


async def test_true_trusts_the_authorities_of_the_system(secured: Secured) -> None:
    with pytest.raises(ConnectionRefused, match="certificate is not trusted"):
        HttpClient(f"https://{HOST}:{secured.https_port}", tls=True).ready()
    with pytest.raises(ConnectionRefused, match="certificate is not trusted"):
        await MqttClient.connect(HOST, secured.mqtts_port, tls=True)


@pytest.mark.parametrize("server_name", [None, HOST])
async def test_the_certificate_has_to_contain_the_server_name(
    secured: Secured, server_name: str | None
) -> None:
    tls = Tls(ca_file=secured.ca_file, server_name=server_name)
    client = HttpClient(f"https://localhost:{secured.https_port}", tls=tls)
    connection = MqttClient.connect("localhost", secured.mqtts_port, tls=tls)
    if server_name is None:
        with pytest.raises(ConnectionRefused, match="certificate is not trusted"):
            client.ready()
        with pytest.raises(ConnectionRefused, match="certificate is not trusted"):
            await connection
    else:
        with client:
            assert client.ready()
        async with connection as mqtt:
            assert mqtt.is_connected


def test_a_client_certificate_is_loaded_with_its_key(tmp_path: Path) -> None:
    authority = Authority()
    files = authority.issue(tmp_path, "client")
    ca_file = authority.write(tmp_path / "ca.pem")
    Tls(ca_file=ca_file, certificate_file=files.certificate, key_file=files.key).ssl_context()
    other = authority.issue(tmp_path, "other")
    with pytest.raises(ssl.SSLError):
        Tls(ca_file=ca_file, certificate_file=files.certificate, key_file=other.key).ssl_context()


def test_arguments_are_settings_a_file_or_a_flag() -> None:
    settings = Tls(server_name="a")
    assert [make_tls(option) for option in (None, False, True, "a.pem", settings)] == [
        None,
        None,
        Tls(),
        Tls(ca_file="a.pem"),
        settings,
    ]
    context = ssl.create_default_context()
    assert make_ssl_context(context) is context
    assert make_ssl_context(False) is None
