"""Load over gRPC: against a real Penstock, the daemon on grpc++, and servers that misbehave."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from msgspec.structs import replace

from bench.load.build import GRPC_FILES
from bench.load.generator import LoadGenerator
from bench.peers.broker import SOURCES, Broker
from bench.peers.recipes import PEERS, PENSTOCK_GRPC
from bench.peers.target import Target, free_port
from bench.scenarios import GRPC, SCENARIOS, Scenario
from penstock.wire.sidecar.messages import nexusd
from tests.bench.conftest import Compiled
from tests.bench.grpc_server import grpc_server

needed = (shutil.which("g++"), shutil.which("grpc_cpp_plugin"), *(Path(file).exists() for file in GRPC_FILES))
pytestmark = [
    pytest.mark.skipif(not all(needed), reason="the load generator needs grpc++"),
    pytest.mark.timeout(240),  # the first one waits for the compiler
]

LOADS = {name: scenario for name, scenario in SCENARIOS.items() if scenario.contest is GRPC}
ONE_CALLER = replace(LOADS["grpc_one2one"], load=("--callers", "1", "--subs", "1"))
SMALL_BATCHES = replace(LOADS["grpc_v1_one2one"], load=("--batch", "3", "--subs", "1"))


@pytest.fixture(scope="module")
def programs(compiled: Compiled) -> dict[str, Path]:
    """Generator and daemon, compiled at the same time, because that takes longest."""
    sources = {"generator": Path("grpc.cc"), "daemon": SOURCES / "grpc_daemon.cc"}
    with ThreadPoolExecutor() as pool:
        return dict(zip(sources, pool.map(compiled, sources.values()), strict=True))


@pytest.fixture(scope="module")
def generator(programs: dict[str, Path]) -> LoadGenerator:
    return LoadGenerator(programs["generator"], cpu=None, duration_s=0.2, warm_s=0.05)


@pytest.fixture(scope="module")
def penstock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(PENSTOCK_GRPC, PENSTOCK_GRPC.program, tmp_path_factory.mktemp("penstock"), cpu=0)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, programs: dict[str, Path]) -> Iterator[Broker]:
    program = str(programs["daemon"])
    broker = Broker(PEERS["grpcpp"], program, tmp_path_factory.mktemp("daemon"), cpu=0)
    broker.start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("name", LOADS)
def test_penstock_is_measured_over_grpc(name: str, generator: LoadGenerator, penstock: Broker) -> None:
    found = generator.measure(LOADS[name], penstock.target)
    assert found.failure is None
    value = getattr(found, LOADS[name].figures[0].metric)
    assert value is not None and value > 0


@pytest.mark.parametrize("name", [name for name, scenario in LOADS.items() if "nexusd" in scenario.schemes])
def test_the_daemon_on_grpcpp_is_measured_with_the_same_load(
    name: str, generator: LoadGenerator, daemon: Broker
) -> None:
    found = generator.measure(LOADS[name], daemon.target)
    assert found.failure is None
    assert found.sent is not None and found.sent > 0
    assert daemon.version.startswith("a daemon on grpc++ 1.")


def test_the_daemon_keeps_the_newest_messages_of_a_slow_subscriber_and_a_retained_value(
    daemon: Broker,
) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{daemon.target.port}") as channel:
        publish = channel.unary_unary(
            "/nexusd.sidecar.SidecarService/Publish",
            nexusd.PublishRequest.SerializeToString,
            nexusd.PublishResponse.FromString,
        )
        subscribe = channel.unary_stream(
            "/nexusd.sidecar.SidecarService/Subscribe",
            nexusd.SubscribeRequest.SerializeToString,
            nexusd.MessageEvent.FromString,
        )
        publish(nexusd.PublishRequest(topic="a", payload=b"kept", retain=True))
        request = nexusd.SubscribeRequest(topics=["a"], receive_retained=True, max_buffer_size=2)
        events = subscribe(request, timeout=20)
        assert next(events).HasField("subscription_info")
        assert next(events).retained_message.payload == b"kept"
        large = b"x" * 1_000_000  # buffers on the way are soon full, because nothing is read
        responses = [publish(nexusd.PublishRequest(topic="a", payload=large)) for _ in range(20)]
        assert {response.subscriber_count for response in responses} == {1}
        dropped = sum(response.subscribers_dropped for response in responses)
        sequences = [next(events).message.sequence_number for _ in range(20 - dropped)]
        assert 0 < dropped < 18
        assert sequences == sorted(sequences)
        assert sequences[-2:] == [20, 21]
        events.cancel()


@pytest.mark.parametrize("scenario", [ONE_CALLER, SMALL_BATCHES], ids=["calls", "batches"])
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
    generator: LoadGenerator, scenario: Scenario, order: str, lost: int | None, order_errors: int
) -> None:
    with grpc_server(order) as port:
        found = generator.measure(scenario, Target("bad", "grpc", "127.0.0.1", port))
    assert found.error is None
    assert found.order_errors == order_errors
    assert lost is None or found.lost == lost


@pytest.mark.parametrize("scenario", [ONE_CALLER, SMALL_BATCHES], ids=["calls", "batches"])
def test_publish_that_is_refused_is_a_failed_run_with_the_status(
    generator: LoadGenerator, scenario: Scenario
) -> None:
    with grpc_server("012", status=grpc.StatusCode.RESOURCE_EXHAUSTED) as port:
        found = generator.measure(scenario, Target("bad", "grpc", "127.0.0.1", port))
    assert found.failure is not None
    assert found.failure.endswith("status 8, not today")


def test_run_without_a_server_is_a_failed_run(generator: LoadGenerator) -> None:
    found = generator.measure(ONE_CALLER, Target("missing", "grpc", "127.0.0.1", free_port()))
    assert found.failure == "connect: Connection refused"
