"""Durable brokers: with a data directory, under a load of acknowledged publishes."""

import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest
from msgspec.structs import replace

from bench.load.build import find_program
from bench.load.generator import LoadGenerator
from bench.measurement import Measurement
from bench.peers.broker import Broker
from bench.peers.contenders import Contenders
from bench.peers.recipes import (
    DURABLE_PEERS,
    DURABLE_PENSTOCKS,
    PEERS,
    PENSTOCK,
    Recipe,
    data_folder,
)
from bench.peers.target import Target
from bench.scenarios import SCENARIOS, Scenario
from bench.suite import run_rounds

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="the load generator needs gcc")


needs_mosquitto = pytest.mark.skipif(find_program("mosquitto") is None, reason="mosquitto is not installed")


def make(recipe: Recipe, folder: Path) -> Broker:
    program = find_program(recipe.program) or recipe.program
    return Broker(recipe, program, folder, cpu=0)


def data_of(recipe: Recipe, folder: Path) -> Path:
    return data_folder(folder / f"{recipe.name}.conf")


@contextmanager
def running(recipe: Recipe, folder: Path) -> Iterator[Broker]:
    broker = make(recipe, folder)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def test_savers_are_penstock_in_memory_and_on_disk_and_those_peers_that_can_save(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    names = ["mosquitto-debian", "nats-debian"] if find_program("mosquitto") else ["nats-debian"]
    peers = [PEERS[name] for name in names]
    contenders = Contenders([PENSTOCK], peers, [], tmp_path, 0, lambda _: None)
    found = [saver.target.name for saver in contenders.make_durable_brokers()]
    expected = ["penstock", "penstock-fsync", "penstock-os", "mosquitto-debian-saving"]
    assert found == (expected if find_program("mosquitto") else expected[:-1])


@needs_mosquitto
@needs_gcc
def test_saving_mosquitto_saves_while_it_runs(tmp_path: Path, generator: LoadGenerator) -> None:
    recipe = DURABLE_PEERS["mosquitto-debian"]
    with running(recipe, tmp_path) as broker:
        found = generator.measure(SCENARIOS["durable_one"], broker.target)
        assert found.failure is None
        saved = (data_of(recipe, tmp_path) / "mosquitto.db").read_bytes()
    assert re.search(rb"b[0-9a-f]{8}s0", saved)  # the subscriber, whose session stays


@needs_gcc
@pytest.mark.parametrize(("name", "which"), [("durable", 0), ("durable_alone", 0), ("durable_one", 1)])
def test_penstock_with_a_data_directory_acknowledges_every_publish(
    tmp_path: Path, generator: LoadGenerator, name: str, which: int
) -> None:
    pytest.importorskip("rocksdict")
    recipe = DURABLE_PENSTOCKS[which]
    with running(recipe, tmp_path) as broker:
        found = generator.measure(SCENARIOS[name], broker.target)
    assert found.failure is None
    assert found.acked_per_s is not None and found.acked_per_s > 100
    assert found.delivered == (0 if name == "durable_alone" else found.sent)
    assert (data_of(recipe, tmp_path) / "penstock.json").exists()


def test_broker_starts_with_nothing_stored(tmp_path: Path) -> None:
    recipe = replace(PENSTOCK, command=DURABLE_PENSTOCKS[0].command)
    leftover = data_of(recipe, tmp_path) / "leftover"
    leftover.parent.mkdir()
    leftover.touch()
    pytest.importorskip("rocksdict")
    with running(recipe, tmp_path):
        assert not leftover.exists()


class Listener:
    """A contender that only notes what is done with it."""

    version = "none"
    target = Target("listener", "mqtt", "127.0.0.1", 1)

    def __init__(self) -> None:
        self.calls: list[str] = []

    def restart(self) -> None:
        self.calls.append("restart")

    def stop(self) -> None:
        self.calls.append("stop")


@needs_gcc
def test_saver_runs_only_while_it_is_measured(generator: LoadGenerator) -> None:
    saver, notes = Listener(), list[str]()

    def on_measured(scenario: Scenario, number: int, name: str, found: Measurement) -> None:
        notes.append(found.failure or "")

    run_rounds([SCENARIOS["durable"]], [saver], generator, 2, on_measured)
    assert saver.calls == ["restart", "stop"] * 2
    assert notes == ["connect: Connection refused"] * 2


CONNACK = bytes([0x20, 2, 0, 0])


@contextmanager
def acknowledging_broker(order: list[int]) -> Iterator[int]:
    """A broker for publishers that acknowledges the first publishes in this order, and then nothing more."""

    def serve() -> None:
        for _ in range(50):
            with suppress(OSError):
                client, _ = server.accept()
                clients.append(client)
                client.recv(1024)
                client.sendall(CONNACK)
        with suppress(OSError):
            clients[0].sendall(b"".join(bytes([0x40, 2, 0, number]) for number in order))

    clients: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)
        for client in clients:
            client.close()


@needs_gcc
@pytest.mark.parametrize(("order", "order_errors"), [([1, 2, 3], 0), ([1, 3, 2], 2)])
def test_generator_notices_what_was_not_acknowledged_and_what_was_in_another_order(
    generator: LoadGenerator, order: list[int], order_errors: int
) -> None:
    with acknowledging_broker(order) as port:
        found = generator.measure(SCENARIOS["durable_alone"], Target("bad", "mqtt", "127.0.0.1", port))
    assert found.error is None
    assert found.sent == 5_003
    assert found.lost == 5_000
    assert found.order_errors == order_errors
