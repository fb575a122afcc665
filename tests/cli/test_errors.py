"""What commands say when they cannot do their work: real servers, at the right port and at wrong ones."""

import shutil
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli import build
from tests.cli.listeners import running, saying
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.servers import RunningServer, StartServer

SECRET = "correct horse"


class Ports:
    """A server with every kind of port, and what to trust there."""

    def __init__(self, server: RunningServer, ca_file: str) -> None:
        self.mqtt = server.port_of("mqtt")
        self.mqtts = server.port_of("mqtts")
        self.http = server.port_of("http")
        self.https = server.port_of("https")
        self.grpc = server.port_of("grpc")
        self.ca_file = ca_file


@pytest.fixture(scope="module")
def ports(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Ports:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority()
    files = authority.issue(folder, "server")
    tls = {"certificate_file": files.certificate, "key_file": files.key}
    server = start_server({"tls": tls, "mqtt": {"tls_port": 0}, "http": {"port": 0, "tls_port": 0}})
    return Ports(server, authority.write(folder / "ca.crt"))


def run(*words: str) -> Result:
    return CliRunner().invoke(build(["pub", "topics"]), words)


def publish(*words: str) -> Result:
    return run("pub", "trouble/topic", "x", *words)


def told(result: Result) -> str:
    """What a command says that failed: one line, and nothing else."""
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert result.stderr.count("\n") == 1
    return result.stderr


def at(port: int) -> tuple[str, str]:
    return "--port", str(port)


# The right port


def test_pub_reaches_every_port_it_can_speak_to(ports: Ports) -> None:
    trusting = ("--tls", "--ca-file", ports.ca_file)
    for words in (
        at(ports.mqtt),
        (*at(ports.mqtts), *trusting),
        (*at(ports.http), "--websocket"),
        (*at(ports.https), "--websocket", *trusting),
        ("--address", f"mqtts://127.0.0.1:{ports.mqtts}", "--ca-file", ports.ca_file),
        ("--address", f"ws://127.0.0.1:{ports.http}"),
    ):
        result = publish(*words, "-q", "1")
        assert result.exit_code == 0, result.output


def test_topics_reaches_http_with_tls_and_without(ports: Ports) -> None:
    for words in (
        at(ports.http),
        ("--address", f"https://127.0.0.1:{ports.https}", "--ca-file", ports.ca_file),
    ):
        result = run("topics", *words)
        assert result.exit_code == 0, result.output


# The wrong port


def test_pub_at_the_http_port_is_told_of_websocket_and_of_the_mqtt_port(ports: Ports) -> None:
    text = told(publish(*at(ports.http)))
    assert f"127.0.0.1:{ports.http} is the HTTP port of a Penstock server." in text
    assert "--port: 1883" in text
    assert "with --websocket." in text


def test_pub_at_the_https_port_is_told_of_both_flags(ports: Ports) -> None:
    assert "with --websocket --tls." in told(publish(*at(ports.https)))


def test_pub_at_the_grpc_port_is_told(ports: Ports) -> None:
    assert f"127.0.0.1:{ports.grpc} is a gRPC port. Give the MQTT port" in told(publish(*at(ports.grpc)))


def test_pub_with_websocket_at_the_mqtt_port_is_told(ports: Ports) -> None:
    assert "is an MQTT port without WebSocket. Leave --websocket out" in told(
        publish(*at(ports.mqtt), "--websocket")
    )


def test_pub_with_websocket_at_the_grpc_port_is_told(ports: Ports) -> None:
    assert "is a gRPC port. Give the HTTP port" in told(publish(*at(ports.grpc), "--websocket"))


def test_topics_at_the_mqtt_port_is_told(ports: Ports) -> None:
    text = told(run("topics", *at(ports.mqtt)))
    assert f"127.0.0.1:{ports.mqtt} is an MQTT port. Give the HTTP port with --port: 8080" in text


def test_topics_at_the_grpc_port_is_told(ports: Ports) -> None:
    assert "is a gRPC port. Give the HTTP port" in told(run("topics", *at(ports.grpc)))


# TLS where there is none, and none where there is


def test_no_tls_where_there_is_some_is_told(ports: Ports) -> None:
    assert "speaks TLS. Add --tls, or write the address with mqtts://." in told(publish(*at(ports.mqtts)))
    assert "speaks TLS. Add --tls, or write the address with https://." in told(
        run("topics", *at(ports.https))
    )


def test_tls_where_there_is_none_is_told(ports: Ports) -> None:
    assert "speaks MQTT without TLS. Leave --tls out" in told(publish(*at(ports.mqtt), "--tls"))
    assert "speaks HTTP without TLS. Leave --tls out" in told(run("topics", *at(ports.http), "--tls"))


@pytest.mark.parametrize("words", [("pub", "a", "b"), ("topics",)])
def test_a_certificate_that_nobody_trusts_is_told(words: tuple[str, ...], ports: Ports) -> None:
    port = ports.mqtts if words[0] == "pub" else ports.https
    text = told(run(*words, *at(port), "--tls"))
    assert "its certificate is not trusted" in text
    assert "--ca-file takes the certificate of the CA that signed it." in text


# Nobody, or somebody else


@pytest.mark.parametrize("words", [("pub", "a", "b"), ("topics",)])
def test_nobody_there_is_told(words: tuple[str, ...]) -> None:
    text = told(run(*words, *at(free_port())))
    assert "Connection refused" in text
    assert "`penstock serve` starts one." in text


@pytest.mark.parametrize("words", [("pub", "a", "b"), ("topics",)])
def test_a_host_that_is_not_known_is_told(words: tuple[str, ...]) -> None:
    assert "there is no host of that name. Check how it is written." in told(
        run(*words, "--host", "no-such-host.invalid")
    )


@pytest.mark.parametrize("words", [("pub", "a", "b"), ("topics",)])
def test_a_server_that_does_not_answer_is_given_up(words: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        text = told(run(*words, *at(port), "--connect-timeout", "0.2"))
    assert "within 0.2 s. Check host and port; a firewall may be between." in text


def test_a_port_that_speaks_something_else_is_told() -> None:
    with saying(b"SSH-2.0-OpenSSH_9.2\r\n") as port:
        assert f"Port {port} speaks neither HTTP nor MQTT" in told(publish(*at(port)))
        assert f"Port {port} speaks neither HTTP nor MQTT" in told(run("topics", *at(port)))


@pytest.mark.system
@pytest.mark.skipif(shutil.which("mosquitto") is None, reason="needs mosquitto")
def test_topics_of_another_mqtt_broker_is_told(tmp_path: Path) -> None:
    port = free_port()
    with running(["mosquitto", "-p", str(port)], port, tmp_path):
        assert publish(*at(port), "-q", "1").exit_code == 0
        assert f"127.0.0.1:{port} is an MQTT port." in told(run("topics", *at(port)))


@pytest.mark.system
@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")
def test_a_web_server_that_is_not_penstock_is_told(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error; events {{}} http {{ access_log off; "
        f"client_body_temp_path {tmp_path}/body; proxy_temp_path {tmp_path}/proxy; "
        f"fastcgi_temp_path {tmp_path}/f; uwsgi_temp_path {tmp_path}/u; scgi_temp_path {tmp_path}/s; "
        f"server {{ listen 127.0.0.1:{port}; root {tmp_path}; }} }}",
        encoding="utf-8",
    )
    with running(["nginx", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")], port, tmp_path):
        assert "is the port of a web server that is not Penstock." in told(run("topics", *at(port)))
        assert "is the HTTP port of a web server." in told(publish(*at(port)))
        assert "is the port of a web server that is not Penstock." in told(publish(*at(port), "--websocket"))


# Who may not


@pytest.fixture(scope="module")
def strict(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """A server that wants to know who comes, and lets ann do little."""
    folder = tmp_path_factory.mktemp("strict")
    passwords, rights = folder / "passwords", folder / "rights"
    made = CliRunner().invoke(
        build(["passwd", "topics"]), ["passwd", str(passwords), "ann", "--stdin"], SECRET
    )
    assert made.exit_code == 0, made.output
    rights.write_text("user ann\nsubscribe open/#\n", encoding="utf-8")
    access = {"password_file": str(passwords), "acl_file": str(rights)}
    return start_server({"access": access, "http": {"port": 0}})


def test_a_wrong_password_is_told(strict: RunningServer) -> None:
    words = ("--user", "ann", "--password", "wrong")
    assert "does not let user 'ann' in" in told(publish(*at(strict.port_of("mqtt")), *words))
    text = told(run("topics", *at(strict.port_of("http")), *words))
    assert "does not let user 'ann' in" in text
    assert "Check --user and --password." in text


def test_nobody_in_particular_is_told_to_say_who(strict: RunningServer) -> None:
    for text in (
        told(publish(*at(strict.port_of("mqtt")))),
        told(run("topics", *at(strict.port_of("http")))),
    ):
        assert "does not let a client without --user in" in text
        assert "Give --user and --password-file." in text


def test_who_has_no_right_is_told(strict: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET, encoding="utf-8")
    words = ("--user", "ann", "--password-file", str(tmp_path / "secret"))
    text = told(publish(*at(strict.port_of("mqtt")), *words, "-q", "1"))
    assert "user 'ann' has no right to do this: see the server's access list." in text
