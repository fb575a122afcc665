"""Load on streams: against a real Penstock, and servers that misbehave."""

import shutil
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from bench.load.generator import LoadGenerator
from bench.peers.broker import Broker
from bench.peers.recipes import PENSTOCK_HTTP
from bench.peers.target import Target
from bench.scenarios import SCENARIOS, STREAMS
from tests.bench.conftest import Compiled
from tests.bench.stream_server import stream_server

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the load generator needs gcc")

NAMES = [name for name, scenario in SCENARIOS.items() if scenario.contest is STREAMS]
ONE_PAIR = replace(SCENARIOS["streams_pairs"], load=("--pairs", "1"))


@pytest.fixture(scope="module")
def streams(compiled: Compiled) -> LoadGenerator:
    return LoadGenerator(compiled("streams.c"), cpu=None, duration_s=0.2, warm_s=0.05)


@pytest.fixture(scope="module")
def penstock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(PENSTOCK_HTTP, PENSTOCK_HTTP.program, tmp_path_factory.mktemp("penstock"), cpu=0)
    broker.start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("name", NAMES)
def test_penstock_is_measured_with_streams(name: str, streams: LoadGenerator, penstock: Broker) -> None:
    found = streams.measure(SCENARIOS[name], penstock.target)
    assert found.failure is None
    value = getattr(found, SCENARIOS[name].figures[0].metric)
    assert value is not None and value > 0


@pytest.mark.parametrize(
    ("order", "lost", "order_errors"),
    [
        ("012", 0, 0),
        ("021", 0, 3),  # 2 comes early, 1 late, and 3 not after 2
        ("02", 1, 1),
        ("0112", None, 1),  # whether the run ends before the last message or after it is a race
    ],
)
def test_generator_notices_what_a_server_does_to_the_first_three_messages(
    streams: LoadGenerator, order: str, lost: int | None, order_errors: int
) -> None:
    with stream_server(order) as port:
        found = streams.measure(ONE_PAIR, Target("bad", "http", "127.0.0.1", port))
    assert found.error is None
    assert found.order_errors == order_errors
    assert lost is None or found.lost == lost


def test_send_that_is_refused_is_a_failed_run_with_the_response(streams: LoadGenerator) -> None:
    with stream_server("012", status=424) as port:
        found = streams.measure(SCENARIOS["streams_send"], Target("bad", "http", "127.0.0.1", port))
    assert found.failure is not None
    assert found.failure.startswith("send: HTTP/1.1 424")
