"""Load over WebSocket: against a real Penstock, a real nchan, and servers that misbehave."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.load import generator
from bench.load.build import find_program
from bench.load.generator import LoadGenerator
from bench.peers.broker import Broker
from bench.peers.recipes import (
    NCHAN_MODULE,
    PEERS,
    PENSTOCK_HTTP,
)
from bench.peers.target import Target
from bench.scenarios import SCENARIOS, WEBSOCKETS
from tests.bench.conftest import Compiled
from tests.bench.websocket_server import CLOSING, frame, websocket_server

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the load generator needs gcc")


needs_nchan = pytest.mark.skipif(
    find_program("nginx") is None or not Path(NCHAN_MODULE).exists(), reason="nchan is not installed"
)


FEW_TOPICS = ("--idle", "20", "--hold", "1")


LOADS = {
    name: replace(scenario, load=FEW_TOPICS) if scenario.is_resting else scenario
    for name, scenario in SCENARIOS.items()
    if scenario.contest is WEBSOCKETS
}


@pytest.fixture(scope="module")
def websockets(compiled: Compiled) -> Iterator[LoadGenerator]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator, "REST_S", 0.2)
        patch.setattr(generator, "SETTLE_S", 0.0)
        yield LoadGenerator(compiled("websockets.c"), cpu=None, duration_s=0.2, warm_s=0.05)


@pytest.fixture(scope="module")
def penstock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(PENSTOCK_HTTP, PENSTOCK_HTTP.program, tmp_path_factory.mktemp("penstock"), cpu=0)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def nchan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(PEERS["nchan"], find_program("nginx") or "", tmp_path_factory.mktemp("nchan"), cpu=0)
    broker.start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("name", LOADS)
def test_penstock_is_measured_over_web_sockets(
    name: str, websockets: LoadGenerator, penstock: Broker
) -> None:
    found = websockets.measure(LOADS[name], penstock.target)
    assert found.failure is None
    assert getattr(found, LOADS[name].figures[0].metric) is not None


@needs_nchan
@pytest.mark.parametrize("name", [name for name, scenario in LOADS.items() if "nchan" in scenario.schemes])
def test_nchan_is_measured_with_the_same_load(name: str, websockets: LoadGenerator, nchan: Broker) -> None:
    found = websockets.measure(LOADS[name], nchan.target)
    assert found.failure is None
    assert getattr(found, LOADS[name].figures[0].metric) is not None
    assert nchan.version.startswith("nginx version")


@pytest.mark.parametrize(
    ("order", "lost", "order_errors", "failure"),
    [
        ("012", 0, 0, None),
        ("021", 0, 3, "3 out of order"),  # 2 comes early, 1 late, and 3 not after 2
        ("02", 1, 1, "lost 1"),
    ],
)
def test_generator_notices_what_a_server_does_to_the_first_three_messages(
    websockets: LoadGenerator, order: str, lost: int, order_errors: int, failure: str | None
) -> None:
    with websocket_server(order) as port:
        found = websockets.measure(SCENARIOS["ws_one2one"], Target("bad", "http", "127.0.0.1", port))
    assert found.error is None
    assert (found.lost, found.order_errors, found.failure) == (lost, order_errors, failure)


@pytest.mark.parametrize(
    ("last_words", "error"),
    [
        (frame(b'{"type":"error","code":"SLOW"}'), "a subscriber got: {'type':'error','code':'SLOW'}"),
        (CLOSING, "the server closed a subscriber: slow"),
    ],
)
def test_run_fails_with_what_the_server_said_to_a_subscriber(
    websockets: LoadGenerator, last_words: bytes, error: str
) -> None:
    with websocket_server("012", last_words=last_words) as port:
        found = websockets.measure(SCENARIOS["ws_one2one"], Target("bad", "http", "127.0.0.1", port))
    assert found.failure == error


def test_messages_that_cannot_be_read_are_a_failed_run(websockets: LoadGenerator) -> None:
    with websocket_server("012", last_words=frame(b'{"type":"event","data":7}')) as port:
        found = websockets.measure(SCENARIOS["ws_one2one"], Target("bad", "http", "127.0.0.1", port))
    assert found.failure == "1 malformed"
