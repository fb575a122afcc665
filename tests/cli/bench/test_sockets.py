"""The load over WebSockets: against a real Penstock, a real nchan, and servers that do something wrong."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.cli.bench import load
from penstock.cli.bench.brokers import Broker
from penstock.cli.bench.building import build_program
from penstock.cli.bench.crew import Crew
from penstock.cli.bench.load import LoadGenerator
from penstock.cli.bench.packages import find, require
from penstock.cli.bench.peers import NCHAN_MODULE, PEERS, PENSTOCK, PENSTOCK_HTTP
from penstock.cli.bench.problems import BenchError
from penstock.cli.bench.scenarios import SCENARIOS, SOCKETS
from penstock.cli.bench.targets import Target, accepts, free_port
from tests.cli.bench.socket_server import CLOSING, frame, socket_server

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the load generator needs gcc")
needs_nchan = pytest.mark.skipif(
    find("nginx") is None or not Path(NCHAN_MODULE).exists(), reason="nchan is not installed"
)

FEW_TOPICS = ("--idle", "20", "--hold", "1")
LOADS = {
    name: replace(scenario, load=FEW_TOPICS) if scenario.is_resting else scenario
    for name, scenario in SCENARIOS.items()
    if scenario.contest is SOCKETS
}


@pytest.fixture(scope="module")
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadGenerator]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(load, "REST_S", 0.2)
        patch.setattr(load, "SETTLE_S", 0.0)
        program = build_program(lambda _: None, "sockets")
        yield LoadGenerator(program, cpu=None, duration_s=0.2, warm_s=0.05)


@pytest.fixture(scope="module")
def penstock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(PENSTOCK_HTTP, PENSTOCK_HTTP.program, tmp_path_factory.mktemp("penstock"), cpu=0)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def nchan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(PEERS["nchan"], find("nginx") or "", tmp_path_factory.mktemp("nchan"), cpu=0)
    broker.start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("name", LOADS)
def test_penstock_is_measured_over_web_sockets(name: str, sockets: LoadGenerator, penstock: Broker) -> None:
    found = sockets.measure(LOADS[name], penstock.target)
    assert found.failure is None
    assert getattr(found, LOADS[name].figures[0].metric) is not None


@needs_nchan
@pytest.mark.parametrize("name", [name for name, scenario in LOADS.items() if "nchan" in scenario.schemes])
def test_nchan_is_measured_with_the_same_load(name: str, sockets: LoadGenerator, nchan: Broker) -> None:
    found = sockets.measure(LOADS[name], nchan.target)
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
    sockets: LoadGenerator, order: str, lost: int, order_errors: int, failure: str | None
) -> None:
    with socket_server(order) as port:
        found = sockets.measure(SCENARIOS["ws_one2one"], Target("bad", "http", "127.0.0.1", port))
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
    sockets: LoadGenerator, last_words: bytes, error: str
) -> None:
    with socket_server("012", last_words=last_words) as port:
        found = sockets.measure(SCENARIOS["ws_one2one"], Target("bad", "http", "127.0.0.1", port))
    assert found.failure == error


def test_messages_that_cannot_be_read_are_a_failed_run(sockets: LoadGenerator) -> None:
    with socket_server("012", last_words=frame(b'{"type":"event","data":7}')) as port:
        found = sockets.measure(SCENARIOS["ws_one2one"], Target("bad", "http", "127.0.0.1", port))
    assert found.failure == "1 malformed"


# Who takes part


def test_only_those_who_speak_it_are_started_for_a_contest(tmp_path: Path) -> None:
    standing = Target("mine", "http", "127.0.0.1", 1)
    crew = Crew([], [], [standing, Target("other", "mqtt", "127.0.0.1", 2)], tmp_path, 0, lambda _: None)
    assert [contender.target.name for contender in crew.socket_servers()] == ["mine"]
    assert [contender.target.name for contender in crew.stream_servers()] == ["mine"]
    assert [contender.target.name for contender in crew.peers()] == ["other"]


def test_penstock_over_http_is_started_anew_for_each_contest_and_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = replace(PENSTOCK_HTTP, first_request=b"")
    monkeypatch.setattr("penstock.cli.bench.crew.PENSTOCK_HTTP", quick)
    crew = Crew([PENSTOCK], [], [], tmp_path, 0, lambda _: None)
    try:
        [first] = crew.socket_servers()
        before = first.target
        [second] = crew.stream_servers()
        assert second is first
        assert accepts(second.target.host, second.target.port)
        assert not accepts(before.host, before.port)
    finally:
        crew.dismiss()


def test_server_that_does_not_answer_as_it_should_is_stopped_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setattr("penstock.cli.bench.brokers.free_port", lambda: port)
    strange = replace(PENSTOCK_HTTP, first_request=b"GET /nowhere HTTP/1.0\r\nHost: localhost\r\n\r\n")
    broker = Broker(strange, strange.program, tmp_path, cpu=0)
    with pytest.raises(BenchError, match=r"penstock-http does not answer as it should: .* 404"):
        broker.start()
    assert not accepts("127.0.0.1", port)


def test_program_without_a_file_that_it_needs_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(BenchError, match=r"^/no/such\.so is missing; install it with: apt-get install some"):
        require("gcc", ("some",), lambda _: None, ("/no/such.so",))
