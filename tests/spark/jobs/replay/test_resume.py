"""A replay that is begun again: with the same server, and without what a killed life has left."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.client import HttpClient, HttpRefused
from penstock.common.cursor import Position
from penstock.spark.errors import InvalidOption
from penstock.spark.jobs.replay import ReplayOptions
from penstock.spark.jobs.replay.job import _Replay
from penstock.spark.jobs.replay.plan import Slice, State
from tests.spark.servers import LogServer
from tests.support.servers import StartServer

LOG = Position("0102030405060708", 1, 99)
SLICES = [Slice(1, 10, 10, 500, 7), Slice(11, 30, 15, 900, 8)]


class Silent:
    """Hears nothing of a replay."""

    def show(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...


def replay_of(address: str, file: Path) -> _Replay:
    """A replay that is to go on; Spark has nothing to do for that."""
    options = ReplayOptions(server={"address": address}, state=file)
    return _Replay(options, cast("Any", None), Silent(), threading.Event())


def remember(file: Path, target: str) -> State:
    """A replay that was begun."""
    what: Mapping[str, str] = ReplayOptions(server={}, state=file).identity
    return State.begin(file, {**what, "target": target}, LOG, SLICES)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state"


def log_of(server: LogServer) -> str:
    with server.client() as client:
        return client.position().log_id


def test_a_replay_goes_on_with_the_server_whose_log_it_was_begun_with(
    log_server: LogServer, file: Path
) -> None:
    begun = remember(file, f"log {log_of(log_server)}")
    state = replay_of(log_server.address, file).begin()
    assert state is not None
    assert state.plan == begun.plan


def test_a_replay_does_not_go_on_with_another_server(log_server: LogServer, file: Path) -> None:
    remember(file, "log 0102030405060708")
    with pytest.raises(
        InvalidOption, match=f"log 0102030405060708 instead of log {log_of(log_server)}: .*--state"
    ):
        replay_of(log_server.address, file).begin()


def test_a_server_without_a_log_is_known_by_its_address(start_server: StartServer, file: Path) -> None:
    server = LogServer(start_server({"http": {"port": 0}}))
    remember(file, server.address)
    assert replay_of(server.address, file).begin() is not None
    remember(file, "http://other:8080")
    with pytest.raises(InvalidOption, match=f"target http://other:8080 instead of {server.address}"):
        replay_of(server.address, file).begin()


def test_what_a_killed_life_has_staged_is_dropped_by_the_next(log_server: LogServer, file: Path) -> None:
    begun = remember(file, f"log {log_of(log_server)}")
    left = f"{begun.plan.id}~.1:0:killed.1"
    with log_server.client() as client:
        for id in (left, f"{begun.plan.id}0~.1:0:other.1"):
            client.stage(id, rows=[{"topic": "a", "data": 1}])
        replay_of(log_server.address, file).begin()
        assert list(client.stages(begun.plan.id)) == [f"{begun.plan.id}0~.1:0:other.1"]
        client.drop_stage(f"{begun.plan.id}0~.1:0:other.1")


def test_a_replay_that_stops_drops_what_it_has_staged_itself(log_server: LogServer, file: Path) -> None:
    work = replay_of(log_server.address, file)
    state = remember(file, f"log {log_of(log_server)}")
    own, other = (f"{state.plan.id}~.1:0:{run}.1" for run in (work._run, "other"))
    with log_server.client() as client:
        for id in (own, other):
            client.stage(id, rows=[{"topic": "a", "data": 1}])
        work.drop_staged(state)
        assert list(client.stages(state.plan.id)) == [other]
        client.drop_stage(other)


def test_a_server_whose_log_one_may_not_read_is_known_by_its_address(
    log_server: LogServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(client: HttpClient, **named: object) -> None:
        raise HttpRefused("not allowed to read #", status=403, code=code, retryable=False)

    monkeypatch.setattr(HttpClient, "position", refuse)
    remember(file, log_server.address)
    code = "not-authorized"
    assert replay_of(log_server.address, file).begin() is not None
    code = "bad-credentials"
    with pytest.raises(HttpRefused, match="not allowed"):
        replay_of(log_server.address, file).begin()
