"""SIGHUP as an operator uses it: what the log says, what counts from then on, and what a manager is told."""

import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.client import HttpClient
from tests.support.servers import RunningServer, StartServer, is_on_disk, start

WAIT_S = 20.0


def reload(server: RunningServer, settings: dict[str, Any] | str) -> str:
    """Put other settings into the file of a server, and answer the line that it writes of it."""
    file = server._folder / "penstock.yaml"
    ports = {"mqtt": {"port": 0}, "http": {"port": 0}, "sidecar": {"port": 0}}
    if isinstance(settings, dict):
        if is_on_disk():
            settings["data_dir"] = str(server._folder / "data")
        for section, values in ports.items():
            values.update(settings.pop(section, {}))
        settings = yaml.safe_dump({**settings, **ports})
    file.write_text(settings, encoding="utf-8")
    before = len(server.logged)
    server.process.send_signal(signal.SIGHUP)
    return wait_for(server, before)


def wait_for(server: RunningServer, start: int) -> str:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for line in server.logged[start:].splitlines(keepends=True):
            if "reloaded" in line and line.endswith("\n"):
                return line.rstrip("\n")
        time.sleep(0.01)
    raise AssertionError(server.logged[start:])


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> RunningServer:
    """One for all: every reload brings all of its settings, so what the last test has changed is gone."""
    return start_server({"http": {"port": 0}})


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that may complain."""
    running = start(
        tmp_path_factory.mktemp("faulty"), {"http": {"port": 0}, "max_payload_bytes": 500}, (), {}
    )
    yield running
    running.process.terminate()
    assert running.process.wait(WAIT_S) == 0
    assert "Traceback" not in running.logged


def http(server: RunningServer) -> HttpClient:
    return HttpClient(f"http://127.0.0.1:{server.port_of('http')}")


def test_the_log_says_what_was_applied_and_what_waits(server: RunningServer) -> None:
    reload(server, {})
    line = reload(server, {"mqtt": {"port": 1, "max_inflight": 5}, "outbox": {"messages": 9}})
    assert "info    settings reloaded" in line
    assert "applied=\"['mqtt.max_inflight: 1000 -> 5', 'outbox.messages: 1000000 -> 9']\"" in line
    assert "needs_restart=\"['mqtt.port']\"" in line


def test_the_same_settings_again_change_nothing(server: RunningServer) -> None:
    reload(server, {})
    assert reload(server, {}).endswith("settings reloaded applied=[] needs_restart=[]")


def test_level_and_format_of_the_log_change_with_the_event_itself(server: RunningServer) -> None:
    reload(server, {})
    event = json.loads(reload(server, {"logging": {"format": "json"}}))
    assert event["event"] == "settings reloaded"
    assert event["applied"] == ["logging.format: text -> json"]
    assert event["needs_restart"] == []
    assert " info    settings reloaded" in reload(server, {"logging": {"level": "debug"}})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("outbox: {messages: none at all}", "outbox.messages: expected a whole number of at least 1"),
        ("outboxes: {messages: 1}", "outboxes: unknown key; did you mean outbox?"),
        ("outbox: [", "not valid YAML"),
        ("host: 0.0.0.0", "host: 0.0.0.0 is not loopback"),
        ("access: {password_file: absent}", "absent"),
        ("mqtt: {proxies: [nowhere]}", "mqtt.proxies"),
        ("tls: {key_file: absent}", "tls.certificate_file: is not set"),
        ("tls: {certificate_file: absent}", "tls.certificate_file: absent"),
    ],
)
def test_after_a_mistake_everything_stays_as_it_was(
    faulty: RunningServer, settings: str, reason: str
) -> None:
    line = reload(faulty, f"max_payload_bytes: 1\n{settings}\n")
    assert " error   settings not reloaded reason=" in line
    assert reason in line
    with http(faulty) as client:
        assert client.publish("a/b", payload=b"more than one byte").topic == "a/b"
        assert client.config()["settings"]["max_payload_bytes"] == 500


def test_a_file_that_is_gone_is_a_mistake_too(faulty: RunningServer) -> None:
    (faulty._folder / "penstock.yaml").unlink()
    before = len(faulty.logged)
    faulty.process.send_signal(signal.SIGHUP)
    assert "settings not reloaded" in wait_for(faulty, before)
    with http(faulty) as client:
        assert client.config()["settings"]["max_payload_bytes"] == 500


def test_flags_and_environment_count_again_and_win(start_server: StartServer) -> None:
    environment = {"PENSTOCK_OUTBOX__BYTES": "7000"}
    server = start_server({"http": {"port": 0}}, "--subscriber-queue-limit", "70", environment=environment)
    line = reload(server, {"outbox": {"messages": 1, "bytes": 1, "block_timeout_ms": 1}})
    assert "applied=\"['outbox.block_timeout_ms: 5000 -> 1']\"" in line


def test_rules_are_told_with_what_they_set(server: RunningServer) -> None:
    reload(server, {"topics": [{"filter": "a/#", "ttl_ms": 5}]})
    line = reload(server, {"topics": [{"filter": "a/#", "ttl_ms": 6, "policy": "block"}]})
    assert "topics: [filter=a/# ttl_ms=5] -> [filter=a/# ttl_ms=6 policy=block]" in line


def test_the_server_tells_its_settings_and_what_waits(server: RunningServer) -> None:
    with http(server) as client:
        reload(server, {})
        assert client.config()["needs_restart"] == []
        reload(server, {"node_id": "later", "slow": {"after_ms": 77}})
        told = client.config()
    assert told["needs_restart"] == ["node_id"]
    assert told["settings"]["node_id"] == ""
    assert told["settings"]["slow"]["after_ms"] == 77
    assert "penstock.yaml:" in told["origins"]["slow.after_ms"]
    assert told["origins"]["node_id"] == "default"


def test_a_value_that_is_given_and_not_new_has_another_origin(server: RunningServer) -> None:
    with http(server) as client:
        reload(server, {})
        assert client.config()["origins"]["outbox.messages"] == "default"
        reload(server, {"outbox": {"messages": 10_000}})
        assert "penstock.yaml:" in client.config()["origins"]["outbox.messages"]


# A service manager


def test_a_manager_is_told_of_start_reload_and_end(start_server: StartServer, tmp_path: Path) -> None:
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        manager.settimeout(WAIT_S)
        server = start_server(
            {"http": {"port": 0}}, environment={"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "300000"}
        )
        ready = manager.recv(4096).decode().split("\n")
        assert ready[0] == "READY=1"
        assert ready[1].startswith(f"STATUS=serving mqtt://127.0.0.1:{server.port} ")
        assert [manager.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        server.process.send_signal(signal.SIGHUP)
        assert next_of(manager)[0] == "RELOADING=1"
        assert next_of(manager) == ready
        server.terminate()
        assert next_of(manager) == ["STOPPING=1", "STATUS=stopping"]
        server.stop()


def test_a_manager_is_told_that_a_reload_was_refused(tmp_path: Path) -> None:
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        manager.settimeout(WAIT_S)
        server = start(tmp_path, {}, (), {"NOTIFY_SOCKET": name})
        try:
            ready, status = next_of(manager)
            reload(server, "outbox: {messages: none at all}")
            assert next_of(manager)[0] == "RELOADING=1"
            refused = next_of(manager)
        finally:
            server.process.terminate()
            assert server.process.wait(WAIT_S) == 0
    assert refused == [ready, f"{status} (settings not reloaded: the log has the reason)"]


def next_of(manager: socket.socket) -> list[str]:
    """What comes next beside signs of life."""
    while (told := manager.recv(4096)) == b"WATCHDOG=1":
        pass
    return told.decode().split("\n")
