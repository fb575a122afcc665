"""`penstock serve` from the outside: what it prints, which settings win, and why it would not start."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from penstock.client import MqttClient
from tests.support.servers import StartServer, bare_environment


def serve(*flags: str) -> "subprocess.CompletedProcess[str]":
    """Run a server that is expected not to start."""
    words = [sys.executable, "-m", "penstock", "serve", *flags]
    return subprocess.run(
        words, env=bare_environment(), capture_output=True, text=True, timeout=50, check=False
    )


def complaint(*flags: str) -> str:
    """The one line with which it says why not."""
    result = serve(*flags)
    assert result.returncode == 1, result
    assert result.stdout == ""
    assert re.fullmatch(r"error: [^\n]+\n", result.stderr), result.stderr
    return result.stderr


def printed_and_logged(*flags: str) -> tuple[str, str]:
    """What a server writes to standard output and to standard error from its start to its end."""
    words = [sys.executable, "-m", "penstock", "serve", "--http-port", "0", "--sidecar-port", "0", *flags]
    with subprocess.Popen(
        words, env=bare_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        first = server.stderr.readline()
        assert "listening" in first
        server.terminate()
        printed, rest = server.communicate(timeout=20)
    assert server.returncode == 0, rest
    return printed, first + rest


# Starting


async def test_banner_names_the_doors_and_what_to_try(start_server: StartServer) -> None:
    server = start_server({"node_id": "alpha", "http": {"port": 0}})
    lines = server.printed.splitlines()
    assert re.fullmatch(r"Penstock \d+\.\d+\.\d+ - node alpha", lines[0])
    assert f"mqtt://127.0.0.1:{server.port}" in lines[1]
    assert f"  grpc       grpc://127.0.0.1:{server.port_of('grpc')}" in lines
    http = server.port_of("http")
    assert f"  web        ws://127.0.0.1:{http}/ws" in lines
    assert f"  streams    http://127.0.0.1:{http}/api/v1/streams" in lines
    tries = re.findall(r"^  (?:\S+ -m )?\S*penstock ((?:sub|pub|top) .*)$", server.printed, re.MULTILINE)
    assert [line.split()[0] for line in tries] == ["sub", "pub", "top"]
    async with MqttClient.connect(port=server.port) as client:
        await client.subscribe("hello/#")
        words = [sys.executable, "-m", "penstock", *re.findall(r"'[^']*'|\S+", tries[1])]
        subprocess.run([word.strip("'") for word in words], check=True, timeout=20)
        message = await client.messages.receive(20)
        assert (message.topic, message.payload) == ("hello/world", b"first light")
    command = [sys.executable, "-m", "penstock", *tries[2].split(), "--count", "1"]
    shown = subprocess.run(command, check=True, timeout=20, capture_output=True, text=True).stdout
    assert "hello/world" in shown


async def test_where_a_password_is_needed_the_banner_says_how_to_give_one(
    start_server: StartServer, tmp_path: Path
) -> None:
    passwords, secret = tmp_path / "passwords", tmp_path / "secret"
    hasher = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
    passwords.write_text(f"ann:{hasher.hash('ann!')}\n", encoding="utf-8")
    secret.write_text("ann!\n", encoding="utf-8")
    server = start_server({"access": {"password_file": str(passwords)}})
    (words,) = re.findall(r"^  .*?penstock (pub .*) hello/world", server.printed, re.MULTILINE)
    filled = words.replace("NAME", "ann").replace("FILE", str(secret)).split()
    async with MqttClient.connect(port=server.port, user="ann", password="ann!") as client:
        await client.subscribe("hello/#")
        command = [sys.executable, "-m", "penstock", *filled, "hello/world", "x"]
        subprocess.run(command, check=True, timeout=20)
        assert (await client.messages.receive(20)).payload == b"x"


def test_the_banner_names_nothing_that_cannot_be_tried() -> None:
    printed, _ = printed_and_logged("--mqtt-port", "off")
    assert re.search(r"^  web +ws://127\.0\.0\.1:\d+/ws$", printed, re.MULTILINE)
    assert re.search(r"^Try:\n  .*penstock top --port \d+$", printed, re.MULTILINE)
    assert "penstock pub" not in printed


def test_beside_a_log_in_json_there_is_no_banner() -> None:
    printed, logged = printed_and_logged("--mqtt-port", "0", "--log-format", "json")
    assert printed == ""
    assert all(line.startswith("{") for line in logged.splitlines())


async def test_clients_are_served_as_soon_as_the_banner_is_printed(start_server: StartServer) -> None:
    for _ in range(3):
        server = start_server()
        async with MqttClient.connect(port=server.port):  # who came too early would be refused
            pass
        server.stop()


def test_flags_win_over_the_environment_and_that_over_the_file(start_server: StartServer) -> None:
    everything = {"node_id": "file", "logging": {"level": "warning"}}
    variable = {"PENSTOCK_NODE_ID": "environment", "PENSTOCK_LOGGING__LEVEL": "info"}
    server = start_server(everything)
    assert "node file" in server.printed
    assert "listening" not in server.logged
    server = start_server(everything, environment=variable)
    assert "node environment" in server.printed
    assert "listening" in server.logged
    server = start_server(everything, "--node-id", "flag", environment=variable)
    assert "node flag" in server.printed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_both_ways_to_ask_end_it_well(start_server: StartServer, number: signal.Signals) -> None:
    server = start_server()
    server.process.send_signal(number)
    assert server.process.wait(20) == 0
    server.stop()
    assert "stopped" in server.logged


async def test_other_hosts_are_let_in_when_that_was_said(start_server: StartServer) -> None:
    server = start_server({"host": "0.0.0.0"}, "--allow-anonymous")
    async with MqttClient.connect(port=server.port) as client:
        assert client.is_connected


# Not starting


def test_nothing_to_serve_is_an_error() -> None:
    off = [word for door in ("mqtt", "http", "sidecar") for word in (f"--{door}-port", "off")]
    assert "nothing to serve" in complaint(*off)


@pytest.mark.parametrize("door", ["mqtt", "http", "sidecar"])
def test_port_in_use_is_an_error(door: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = {"mqtt": "0", "http": "0", "sidecar": "0", door: str(port)}
        text = complaint(*(word for name, each in ports.items() for word in (f"--{name}-port", each)))
    where = f"{door}.port: cannot listen on 127.0.0.1:{port}: Address already in use"
    said = f"error: {where} by process {os.getpid()} "
    assert text.startswith(said)
    assert f"--{'grpc' if door == 'sidecar' else door}-port, or the setting {door}.port" in text


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
@pytest.mark.parametrize("flag", ["--host", "--sidecar-host"])
def test_other_hosts_without_passwords_are_refused(host: str, flag: str) -> None:
    text = complaint(flag, host, "--mqtt-port", "0", "--sidecar-port", "0")
    assert host in text
    assert flag.removeprefix("--").replace("-", ".") in text
    assert "password_file" in text
    assert "--allow-anonymous" in text


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid"])
def test_address_that_is_not_ours_is_an_error(host: str) -> None:
    text = complaint("--host", host, "--allow-anonymous", "--mqtt-port", "0")
    assert text.startswith(f"error: mqtt.port: cannot listen on {host}:0: ")
    assert "None" not in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mqtt:\n  prot: 1\n", ["mqtt.prot", ":2", "mqtt.port"]),
        ("mqtt:\n  port: many\n", ["mqtt.port", "many"]),
        ("access:\n  password_file: nowhere/passwords\n", ["nowhere/passwords"]),
        ("- a\n- b\n", ["expected keys"]),
        ("mqtt: [", ["YAML"]),
    ],
)
def test_settings_that_cannot_be_used_are_named(tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "penstock.yaml"
    file.write_text(text, encoding="utf-8")
    line = complaint("--config", str(file))
    assert [word for word in words if word not in line] == []
