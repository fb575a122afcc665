"""Stages of a write: their parts and names, a server without room or away, and commits that are made once."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.client import HttpClient, HttpRefused, StageCommit
from penstock.client.http.transport import ResponseTimeout
from penstock.errors import Conflict, TooLarge
from penstock.spark.connection import Connection
from penstock.spark.options import WriteOptions
from penstock.spark.sink import staging
from penstock.spark.sink.staging import (
    StageWriter,
    commit,
    drop_matching,
    drop_stages,
    stage_prefix,
    stage_prefix_under,
)
from penstock.spark.sink.writer import BatchWriter, Staged, discard, publish
from tests.spark.servers import LogServer
from tests.support.servers import StartServer


def rows(topic: str, numbers: range, size: int = 0) -> pa.RecordBatch:
    payloads = [f"{number}".encode().ljust(size, b".") for number in numbers]
    return pa.record_batch({"topic": [topic] * len(numbers), "payload": payloads})


def published(server: LogServer, topic: str) -> list[int]:
    with server.client() as client, client.read_log(filters=[topic], columns=["payload"]) as log:
        return [int(payload.rstrip(b".")) for payload in log.table().column("payload").to_pylist()]


@pytest.fixture
def connection(log_server: LogServer) -> Connection:
    return Connection(address=log_server.address, retry_for_s=5)


@pytest.fixture(scope="module")
def narrow_server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> LogServer:
    """A server with little room for stages."""
    folder = tmp_path_factory.mktemp("narrow")
    limits = {"max_part_bytes": 20_000, "max_part_rows": 60, "max_bytes": 90_000}
    return LogServer(start_server({"http": {"port": 0}, "data_dir": str(folder / "data"), "stage": limits}))


def stage_all(
    connection: Connection, key: str, batch: pa.RecordBatch, run: str = "r1", label: str = "0"
) -> str:
    writer = StageWriter(connection, key, label, run, "1")
    assert writer.write([batch]) == batch.num_rows
    return writer.id


# Names


KEYS = ["n", "n9", "n9:", "n9:sub", "n9:sub:0", ":n9", "n9~", "n9~.sub", "n9~~.sub", "n9/", "n" * 121, "~"]


@pytest.mark.parametrize("key", KEYS)
def test_stages_of_a_key_begin_as_those_of_no_other_key_do(key: str) -> None:
    others = [stage_prefix(other) + "0:r1.1" for other in KEYS if other != key]
    assert not [other for other in others if other.startswith(stage_prefix(key))]


def test_stages_of_the_keys_under_one_are_found_together() -> None:
    assert stage_prefix("replay-1:7").startswith(stage_prefix_under("replay-1"))
    for key in ("replay-1", "replay-12:7", "replay-1.7"):
        assert not stage_prefix(key).startswith(stage_prefix_under("replay-1"))


@pytest.mark.parametrize("key", ["night 17", "k" * 121, "a/b", "?"])
def test_a_key_that_is_no_name_of_a_stage_has_one_all_the_same(
    connection: Connection, log_server: LogServer, name: str, key: str
) -> None:
    key = (key + name)[:200]
    assert stage_prefix(key) == stage_prefix(key) != stage_prefix(key[:-1])
    stage_id = stage_all(connection, key, rows(name, range(3)))
    assert commit(connection, key, {stage_id: 3}).rows == 3
    assert published(log_server, name) == [0, 1, 2]


# Parts


def test_rows_are_published_in_their_order_however_they_are_cut(
    connection: Connection, log_server: LogServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "PART_BYTES", 2_000)
    monkeypatch.setattr(staging, "PART_ROWS", 30)
    writer = StageWriter(connection, name, "0", "r1", "1")
    batches = [rows(name, range(0, 5)), rows(name, range(5, 100)), rows(name, range(100, 103), 5_000)]
    assert writer.write(batches) == 103
    with log_server.client() as client:
        parts = client.staged(writer.id)["parts"]
    assert [part["part"] for part in parts] == list(range(len(parts)))
    assert max(part["rows"] for part in parts) <= 30
    assert len(parts) > 6
    commit(connection, name, {writer.id: writer.rows})
    assert published(log_server, name) == list(range(103))


def test_no_rows_leave_no_stage(connection: Connection, log_server: LogServer, name: str) -> None:
    writer = StageWriter(connection, name, "0", "r1", "1")
    assert writer.write([]) == writer.write([rows(name, range(0))]) == 0
    with log_server.client() as client:
        assert not list(client.stages(name))


def test_parts_become_as_small_as_the_server_wants_them(narrow_server: LogServer, name: str) -> None:
    connection = Connection(address=narrow_server.address, retry_for_s=5)
    writer = StageWriter(connection, name, "0", "r1", "1")
    batches = [rows(name, range(0, 200)), rows(name, range(200, 203), 15_000), rows(name, range(203, 240))]
    assert writer.write(batches) == 240
    commit(connection, name, {writer.id: writer.rows})
    assert published(narrow_server, name) == list(range(240))


def test_a_row_that_is_too_large_by_itself_is_an_error_and_leaves_nothing(
    narrow_server: LogServer, name: str
) -> None:
    connection = Connection(address=narrow_server.address, retry_for_s=5)
    batches = [rows(name, range(50)), rows(name, range(50, 51), 30_000)]
    with pytest.raises(HttpRefused) as caught:
        StageWriter(connection, name, "0", "r1", "1").write(batches)
    assert caught.value.code == TooLarge.code
    with narrow_server.client() as client:
        assert not list(client.stages(name))


def test_a_bad_row_is_named_and_leaves_nothing(
    connection: Connection, log_server: LogServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "PART_ROWS", 10)
    batches = [rows(name, range(10)), rows(name, range(3)), rows("no/#/topic", range(1))]
    with pytest.raises(HttpRefused, match="of the topic no/#/topic was refused: a topic holds no"):
        StageWriter(connection, name, "0", "r1", "1").write(batches)
    with log_server.client() as client:
        assert not list(client.stages(name))


def test_what_breaks_off_on_the_way_leaves_nothing(
    connection: Connection, log_server: LogServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "PART_ROWS", 10)

    def breaking() -> Iterator[pa.RecordBatch]:
        for start in range(0, 50, 10):
            yield rows(name, range(start, start + 10))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        StageWriter(connection, name, "0", "r1", "1").write(breaking())
    with log_server.client() as client:
        assert not list(client.stages(name))


# Room


def test_what_a_dead_run_has_left_makes_room_for_the_next(
    narrow_server: LogServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "QUIET_S", 0.3)
    connection = Connection(address=narrow_server.address, retry_for_s=30)
    batch = rows(name, range(50), 1_000)
    stage_all(connection, name, batch, run="killed")
    kept = stage_all(connection, f"{name}-other", rows(name, range(1)), run="killed")
    stage_id = stage_all(connection, name, batch, run="next")
    with narrow_server.client() as client:
        assert list(client.stages(name)) == sorted([kept, stage_id])
    assert commit(connection, name, {stage_id: 50}).rows == 50
    drop_stages(connection, [kept])


def test_a_run_that_is_still_sending_is_left_alone_by_one_that_has_no_room(
    narrow_server: LogServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = [0.0]
    monkeypatch.setattr(staging, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    connection = Connection(address=narrow_server.address)
    live, dead = (stage_all(connection, name, rows(name, range(9)), run=run) for run in ("live", "dead"))
    others = staging._OtherRuns(connection, stage_prefix(name), "next")
    assert not others.drop_dead(), "nobody knows yet who is quiet"
    with narrow_server.client() as client:
        client.stage(live, batches=[rows(name, range(9, 12))], part=1)
        moment[0] = staging.QUIET_S + 1
        assert others.drop_dead()
        assert list(client.stages(name)) == [live]
        assert dead != live
        assert not others.drop_dead()
    assert commit(connection, name, {live: 12}).rows == 12


def test_a_write_waits_until_others_have_left_room(narrow_server: LogServer, name: str) -> None:
    connection = Connection(address=narrow_server.address, retry_for_s=60)
    other = stage_all(connection, f"{name}-other", rows(name, range(50), 1_000))
    refused = threading.Event()
    client = connection.client()
    stage = client.stage

    def listen(*args: object, **named: object) -> object:
        try:
            return stage(*args, **named)  # type: ignore[arg-type]
        except HttpRefused:
            refused.set()
            raise

    client.stage = listen  # type: ignore[method-assign,assignment]
    done: list[str] = []
    writer = threading.Thread(
        target=lambda: done.append(stage_all(connection, name, rows(name, range(50), 1_000)))
    )
    writer.start()
    assert refused.wait(30)
    assert not done
    with closing(HttpClient(narrow_server.address)) as another:
        another.drop_stage(other)
    writer.join(30)
    assert commit(connection, name, {done[0]: 50}).rows == 50


# Commits


def interrupted(topic: str, then: Callable[[], object]) -> Iterator[pa.RecordBatch]:
    """Rows for five parts, and something that happens when some of them are staged."""
    for part in range(5):
        if part == 3:
            then()
        yield rows(topic, range(part * 10, part * 10 + 10))


def test_a_write_that_fails_takes_nothing_from_another_that_has_the_same_key(
    connection: Connection, log_server: LogServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "PART_ROWS", 10)
    options = WriteOptions(connection=connection, key=name)
    failed = stage_all(connection, name, rows(name, range(5)), run="failed")
    left = stage_all(connection, name, rows(name, range(5)), run="failed", label="1")
    writer = StageWriter(connection, name, "0", "live", "1")
    staged = writer.write(
        interrupted(name, lambda: discard(options, [Staged(name, "failed", 0, failed, 5), None]))
    )
    with log_server.client() as client:
        assert list(client.stages(name)) == [writer.id]
        assert left != writer.id
    publish(options, [Staged(name, "live", 0, writer.id, staged)])
    assert published(log_server, name) == list(range(50))


def test_a_frame_that_fails_drops_what_its_own_tasks_have_left_and_no_more(
    connection: Connection, log_server: LogServer, name: str
) -> None:
    failing = BatchWriter(WriteOptions(connection=connection, key=name))
    live = stage_all(connection, name, rows(name, range(5)), run="live")
    stage_all(connection, name, rows(name, range(5)), run=failing._run)  # of a task that was killed
    failing.abort([None])
    with log_server.client() as client:
        assert list(client.stages(name)) == [live]
    drop_stages(connection, [live])


def test_a_commit_takes_nothing_from_a_write_whose_key_begins_like_its_own(
    connection: Connection, log_server: LogServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "PART_ROWS", 10)

    def commit_other() -> None:
        commit(connection, name, {stage_all(connection, name, rows(f"{name}/other", range(3))): 3})

    writer = StageWriter(connection, f"{name}:sub", "0", "r1", "1")
    staged = writer.write(interrupted(name, commit_other))
    assert commit(connection, f"{name}:sub", {writer.id: staged}).rows == 50
    assert published(log_server, name) == list(range(50))


def test_a_stage_that_has_lost_parts_while_it_was_written_is_not_published(
    connection: Connection, log_server: LogServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "PART_ROWS", 10)
    writer = StageWriter(connection, name, "0", "r1", "1")
    staged = writer.write(interrupted(name, lambda: drop_stages(connection, [writer.id])))  # or it lapses
    options = WriteOptions(connection=connection)
    with pytest.raises(HttpRefused, match="has 30 rows in place of 50") as caught:
        publish(options, [Staged(name, "r1", 0, writer.id, staged)])
    assert caught.value.code == Conflict.code
    assert published(log_server, name) == []
    again = stage_all(connection, name, rows(name, range(50)), run="r2")
    assert commit(connection, name, {again: 50}).rows == 50, "the key is free for whoever does it again"


def test_a_server_that_has_published_something_else_is_not_believed(
    connection: Connection, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(client: HttpClient, key: str, ids: list[str], **named: Any) -> StageCommit:
        return StageCommit(key=key, rows=4, duplicate=False)

    monkeypatch.setattr(HttpClient, "commit_stages", lie)
    with pytest.raises(Conflict, match=r"5 rows were staged for the key .*, but 4 were published"):
        commit(connection, name, {"x": 5})


def test_a_commit_is_made_once_for_a_key_whichever_stages_come_with_it(
    connection: Connection, log_server: LogServer, name: str
) -> None:
    first = stage_all(connection, name, rows(name, range(5)), run="r1")
    stage_all(connection, name, rows(name, range(5)), run="r1", label="left")
    assert not commit(connection, name, {first: 5}).duplicate
    again = [
        stage_all(connection, name, rows(name, range(start, start + 1)), run="r2", label=str(start))
        for start in range(5)
    ]
    done = commit(connection, name, dict.fromkeys(again, 1))
    assert (done.duplicate, done.rows) == (True, 5)
    assert published(log_server, name) == list(range(5))
    with log_server.client() as client:
        assert not list(client.stages(name)), "whoever commits leaves nothing behind"


def test_a_commit_that_takes_longer_than_an_answer_may_is_waited_for(
    connection: Connection, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_id = stage_all(connection, name, rows(name, range(5)))
    real, overdue = HttpClient.commit_stages, iter(range(8))

    def slow(client: HttpClient, key: str, ids: list[str], **named: Any) -> object:
        if next(overdue, None) is not None:
            raise ResponseTimeout("no answer")
        return real(client, key, ids, **named)

    monkeypatch.setattr(HttpClient, "commit_stages", slow)
    stop_waiting_on = Connection(address=connection.address, retry_for_s=0.05)
    assert commit(stop_waiting_on, name, {stage_id: 5}).rows == 5


def test_a_server_that_is_away_for_too_long_is_an_error(name: str) -> None:
    nobody = Connection(address="http://127.0.0.1:9", retry_for_s=0.1)
    with pytest.raises(Exception, match="no connection to"):
        StageWriter(nobody, name, "0", "r1", "1").write([rows(name, range(1))])
    with pytest.raises(Exception, match="no connection to"):
        commit(nobody, name, {"x": 1})
    drop_stages(nobody, ["x", "y"])  # what cannot be dropped lapses
    drop_matching(nobody, name)


def test_more_partitions_than_a_commit_takes_are_refused_with_advice(
    connection: Connection, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MAX_STAGES", 2)
    with pytest.raises(TooLarge, match=r"3 partitions .* coalesce\(2\)"):
        commit(connection, name, {"a": 1, "b": 1, "c": 1})


def test_dropping_goes_on_behind_a_stage_that_is_gone(
    connection: Connection, log_server: LogServer, name: str
) -> None:
    stage_id = stage_all(connection, name, rows(name, range(1)))
    drop_stages(connection, [f"{name}:gone", stage_id])
    with log_server.client() as client:
        assert not list(client.stages(name))
