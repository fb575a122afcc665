"""Brokers of a bench: choice, targets, start and stop, and those that meet in a contest."""

import socket
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from bench.errors import BenchError, WrongOption
from bench.load.build import find_program, require_program
from bench.peers.broker import Broker
from bench.peers.contenders import Contenders
from bench.peers.recipes import PEERS, PENSTOCK, PENSTOCK_HTTP, choose_peers
from bench.peers.target import Target, accepts, free_port, parse_target

needs_mosquitto = pytest.mark.skipif(find_program("mosquitto") is None, reason="mosquitto is not installed")


def test_unknown_peers_are_refused_and_none_means_none() -> None:
    assert choose_peers("none") == []
    with pytest.raises(WrongOption, match="unknown peer kafka"):
        choose_peers("mosquitto,kafka")


def test_target_is_a_name_and_a_loopback_address() -> None:
    assert parse_target("mine=nats://localhost:4222") == Target("mine", "nats", "127.0.0.1", 4222)


@pytest.mark.parametrize(
    "text",
    [
        "mqtt://127.0.0.1:1883",
        "a=mqtt://127.0.0.1",
        "a=amqp://127.0.0.1:5672",
        "a=mqtt://192.0.2.1:1883",
        "a=mqtt://h:x",
    ],
)
def test_targets_without_name_port_or_loopback_are_refused(text: str) -> None:
    with pytest.raises(WrongOption, match="--target"):
        parse_target(text)


@needs_mosquitto
def test_broker_leaves_nothing_running_after_stop(tmp_path: Path) -> None:
    program = find_program("mosquitto")
    assert program is not None
    broker = Broker(PEERS["mosquitto"], program, tmp_path, cpu=0)
    broker.start()
    first = broker.target
    broker.restart()
    second = broker.target
    broker.stop()
    for target in (first, second):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((target.host, target.port), timeout=1)


def test_broker_that_does_not_start_is_reported_with_its_output(tmp_path: Path) -> None:
    broken = msgspec.structs.replace(
        PEERS["mosquitto"],
        command=lambda program, _port, _config: [program, "-c", "raise SystemExit('no such luck')"],
        version=lambda _: "none",
    )
    with pytest.raises(BenchError, match=r"did not start .*no such luck"):
        Broker(broken, sys.executable, tmp_path, cpu=0).start()


def test_stopped_broker_can_be_stopped_again(tmp_path: Path) -> None:
    broker = Broker(PENSTOCK, PENSTOCK.program, tmp_path, cpu=0)
    broker.stop()
    broker.restart()
    assert accepts(broker.target.host, broker.target.port)
    broker.stop()
    broker.stop()
    assert not accepts(broker.target.host, broker.target.port)


def test_only_servers_of_its_protocol_are_started_for_a_contest(tmp_path: Path) -> None:
    given = Target("mine", "http", "127.0.0.1", 1)
    contenders = Contenders(
        [], [], [given, Target("other", "mqtt", "127.0.0.1", 2)], tmp_path, 0, lambda _: None
    )
    assert [contender.target.name for contender in contenders.start_websocket_servers()] == ["mine"]
    assert [contender.target.name for contender in contenders.start_stream_servers()] == ["mine"]
    assert [contender.target.name for contender in contenders.start_brokers()] == ["other"]


def test_penstock_over_http_is_started_anew_for_each_contest_and_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = replace(PENSTOCK_HTTP, first_request=b"")
    monkeypatch.setattr("bench.peers.contenders.PENSTOCK_HTTP", quick)
    contenders = Contenders([PENSTOCK], [], [], tmp_path, 0, lambda _: None)
    try:
        [first] = contenders.start_websocket_servers()
        before = first.target
        [second] = contenders.start_stream_servers()
        assert second is first
        assert accepts(second.target.host, second.target.port)
        assert not accepts(before.host, before.port)
    finally:
        contenders.stop()


def test_server_that_refuses_its_first_request_is_stopped_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setattr("bench.peers.broker.free_port", lambda: port)
    strange = replace(PENSTOCK_HTTP, first_request=b"GET /nowhere HTTP/1.0\r\nHost: localhost\r\n\r\n")
    broker = Broker(strange, strange.program, tmp_path, cpu=0)
    with pytest.raises(BenchError, match=r"penstock-http did not respond with 200 .* 404"):
        broker.start()
    assert not accepts("127.0.0.1", port)


def test_program_without_a_file_that_it_needs_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(BenchError, match=r"^/no/such\.so is missing; install it with: apt-get install some"):
        require_program("gcc", ("some",), lambda _: None, ("/no/such.so",))
