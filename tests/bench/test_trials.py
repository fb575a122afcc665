"""Trials, with small amounts."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.measurement import Measurement
from bench.scenarios import LOG, SCENARIOS
from bench.suite import run_trials
from bench.trials.mqtt_clients import connect, make_offline_sessions, publish, reconnect_all, run
from bench.trials.server import Site
from tests.support.servers import RunningServer

pytest.importorskip("rocksdict", reason="needs the extra `log`")

from bench.trials import log_disk, log_maker, offline_sessions
from bench.trials.log_maker import make_log
from bench.trials.server import Server
from bench.trials.table import TRIALS
from penstock.storage.disk.commit.durable_mark import DurableMark
from penstock.storage.disk.read.reader import Reader
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.recovery.survey import Survey, survey

MakeSite = Callable[[float], Site]


@pytest.fixture
def make_site(tmp_path: Path) -> MakeSite:
    return lambda scale: Site(tmp_path, 0, 0, scale, lambda _: None)


def look(path: Path) -> tuple[Survey, Reader]:
    store, opening = open_store(path, read_only=True)
    assert not opening.notes
    found = survey(store, DurableMark.read(path))
    return found, Reader(store, found.index)


# Logs


def test_made_log_has_every_message_once_sealed_or_in_frames(tmp_path: Path) -> None:
    make_log(tmp_path / "data", 12_000, 1_200)
    found, reader = look(tmp_path / "data")
    assert (found.last_offset, found.rows, found.damage) == (13_200, 1_200, ())
    runs = [run for after in (0, 12_000) for run in reader.runs(after, 13_200, 1 << 30, None).runs]
    assert {run.offset for run in runs} == set(range(1, 13_201))
    assert {len(run.payload()) for run in runs} == {log_maker.PAYLOAD_BYTES}


def test_made_log_has_sequences_without_gaps_and_they_are_found(tmp_path: Path) -> None:
    make_log(tmp_path / "data", 2_000, 500)
    _, reader = look(tmp_path / "data")
    topic = "plant/007/pressure"
    runs = reader.runs(0, 2_500, 1 << 30, lambda name: name == topic).runs
    assert [run.sequence for run in runs] == list(range(1, 26))
    assert reader.find_sequence(topic, 3) == 0
    assert reader.last_sequence(topic) == 20


def test_server_continues_after_the_last_message_of_a_made_log(tmp_path: Path) -> None:
    make_log(tmp_path / "data", 1_000, 500)
    server = Server(tmp_path, 0)
    try:
        server.start()
        run(publish(server.port, [("plant/000/pressure", b"next")]))
    finally:
        server.stop()
    found, reader = look(tmp_path / "data")
    [newest] = reader.runs(1_500, found.last_offset, 1 << 20, lambda topic: topic.startswith("plant")).runs
    assert (newest.payload(), newest.sequence) == (b"next", 16)


# Clients


def test_offline_sessions_are_resumed_and_their_queues_drained(server: RunningServer) -> None:
    names = [f"crowd-{number}" for number in range(20)]
    run(make_offline_sessions(server.port, [(name, "crowd/one") for name in names]))
    run(publish(server.port, [("crowd/one", b"x" * 200)] * 30))
    clients, _ = run(reconnect_all(server.port, names, 30))
    assert [(client.is_known, client.got) for client in clients] == [(True, 30)] * 20
    (again, *_), _ = run(reconnect_all(server.port, names, 0))
    assert (again.is_known, again.got) == (True, 0)


def test_reconnecting_ends_after_the_timeout(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.trials.mqtt_clients.TIMEOUT_S", 0.1)
    run(make_offline_sessions(server.port, [("crowd-late", "crowd/two")]))
    [client], _ = run(reconnect_all(server.port, ["crowd-late"], 1))
    assert client.got == 0


def test_refused_connection_is_an_error(server: RunningServer) -> None:
    with pytest.raises(BenchError, match="CONNACK refused: 2"):
        run(connect(server.port, ""))  # a persistent session needs a client id


# Trials


def test_every_scenario_about_the_log_has_a_trial() -> None:
    assert set(TRIALS) == {name for name, scenario in SCENARIOS.items() if scenario.contest is LOG}


@pytest.mark.parametrize("name", list(TRIALS))
def test_trial_finds_every_figure_of_its_scenario_as_often_as_asked(
    name: str, make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_disk, "START_UNSEALED", 2_000)
    monkeypatch.setattr(offline_sessions, "SETTLE_S", 0)
    found = list(TRIALS[name](make_site(0.001), 2))
    assert len(found) == 2
    for one in found:
        assert one.failure is None
        assert one.size
        for figure in SCENARIOS[name].figures:
            value = getattr(one, figure.metric)
            assert value is not None and value >= 0
    if name in {"owed", "restart"}:
        assert found[-1].lost == 0


def test_trial_that_fails_is_a_failed_run_and_leaves_nothing_behind(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(site: Site, repeat: int) -> Iterator[Measurement]:
        (site.folder / "data").mkdir()
        yield Measurement(start_s=1.0)
        raise BenchError("no more")

    monkeypatch.setitem(TRIALS, "restart", fail)
    site, notes = make_site(1.0), list[str | None]()
    runs = run_trials(
        [SCENARIOS["restart"]], "penstock", site, 3, lambda *measured: notes.append(measured[3].failure)
    )
    assert [found.failure for found in runs["restart"]["penstock"]] == notes == [None, "no more"]
    assert not list(site.folder.iterdir())


def test_server_that_does_not_start_is_reported_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"did not start.*RING__MESSAGES"):
        Server(tmp_path, 0, ring__messages="many").start()


def test_scale_makes_less_of_everything_but_not_nothing(make_site: MakeSite) -> None:
    assert [make_site(scale).count(1_000) for scale in (1.0, 0.1, 0.0001)] == [1_000, 100, 1]
