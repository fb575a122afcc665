"""Replays on real servers: in order, with what messages were, and once, however often they are begun."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.jobs import Report
from penstock.spark.jobs.run import run
from tests.spark.servers import LogServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.jobs.replay import ReplayOptions


class Listener:
    """Hears how far a replay is, and may tell it to stop."""

    def __init__(self, on_show: Callable[[str], None] = lambda text: None) -> None:
        self.notes: list[str] = []
        self._on_show = on_show

    def show(self, text: str) -> None:
        self._on_show(text)

    def note(self, text: str) -> None:
        self.notes.append(text)


class Replayer:
    """Replays what is in the log of a server."""

    def __init__(self, spark: "SparkSession", server: LogServer, state: Path) -> None:
        self._spark, self.server, self._state = spark, server, state
        self.listener = Listener()

    def options(self, **told: Any) -> "ReplayOptions":
        from penstock.spark.jobs.replay import ReplayOptions  # noqa: PLC0415

        return ReplayOptions(**{"server": {"address": self.server.address}, "state": self._state, **told})

    def run(self, stopping: threading.Event | None = None, **told: Any) -> dict[str, Any]:
        from penstock.spark.jobs.replay import replay  # noqa: PLC0415

        report: Report = run(partial(replay, self.options(**told)), self._spark, self.listener, stopping)
        assert report.is_clean
        return report.facts

    def rows(self, *filters: str) -> list[dict[str, Any]]:
        with self.server.client() as client, client.read_log(filters=filters) as log:
            return [dict(row) for row in log.table().to_pylist()]

    @property
    def stages(self) -> list[str]:
        with self.server.client() as client:
            return list(client.stages())


@pytest.fixture
def replayer(spark: "SparkSession", lake_server: LogServer, tmp_path: Path) -> Replayer:
    return Replayer(spark, lake_server, tmp_path / "state")


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of a few messages, three of them in a load."""
    monkeypatch.setattr("penstock.spark.jobs.replay.messages.BLOCK", 5)
    monkeypatch.setattr("penstock.spark.jobs.replay.plan.plan_slices.__defaults__", (10, 8_000_000))
    monkeypatch.setattr("penstock.spark.jobs.replay.plan.LOAD_ROWS", 30)


class Killed(BaseException):
    """The process is gone."""


def test_a_replay_that_is_killed_goes_on_and_publishes_nothing_twice(
    replayer: Replayer, small_slices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.spark.jobs.replay.plan import State  # noqa: PLC0415

    replayer.server.publish_numbers(["a/x", "a/y", "b"], 90)
    rows = [row for row in replayer.rows() if row["topic"] != "b"]
    advance, left = State.advance, iter([True, True])

    def die(state: State) -> None:  # published, and not noted
        if next(left, None) is None:
            raise Killed
        advance(state)

    with monkeypatch.context() as context:
        context.setattr(State, "advance", die)
        with pytest.raises(Killed):
            replayer.run(filters=("a/#",))
    published = replayer.rows("replay/#")
    assert 0 < len(published) < 60
    facts = replayer.run(filters=("a/#",))
    assert facts["is_finished"]
    assert (facts["known_to_be_published"], facts["published_now"]) == (10, 60 - len(published))
    again = replayer.rows("replay/#")
    assert [(row["topic"], row["payload"]) for row in again] == [
        (f"replay/{row['topic']}", row["payload"]) for row in rows
    ], "every message once, in the order of the log"
    properties = dict(again[5]["properties"])
    assert properties["ps-original-sequence"] == str(rows[5]["sequence"])
    assert properties["ps-original-topic"] == rows[5]["topic"]
    with replayer.server.client() as client, client.read_log(after=properties["ps-original-cursor"]) as log:
        assert log.table().column("offset")[0].as_py() == rows[5]["offset"] + 1
    assert not replayer.stages

    assert replayer.run(filters=("a/#",))["published_now"] == 0
    assert "finished" in replayer.listener.notes[-1]
    assert replayer.run(filters=("a/#",), again=True)["published_now"] == 60
    assert len(replayer.rows("replay/#")) == 120


def test_a_replay_of_everything_leaves_out_what_replays_have_published(
    replayer: Replayer, tmp_path: Path
) -> None:
    replayer.server.publish_numbers(["a", "replay/of/old"], 10)
    assert replayer.run()["messages"] == 5
    assert replayer.listener.notes == ["5 messages are skipped: their topics begin with replay/ already"]
    assert replayer.run(state=tmp_path / "next")["messages"] == 5
    assert [row["topic"] for row in replayer.rows("replay/#")] == ["replay/of/old"] * 5 + ["replay/a"] * 10
    assert replayer.run(state=tmp_path / "none", filters=("nowhere",))["messages"] == 0


def test_a_slice_that_has_lost_a_part_of_what_was_staged_is_staged_again(
    replayer: Replayer, small_slices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.spark.jobs.replay import job  # noqa: PLC0415
    from penstock.spark.sink.staging import commit  # noqa: PLC0415

    replayer.server.publish_numbers(["a"], 50)
    numbers = iter(range(100))

    def lose(connection: Any, key: str, stages: dict[str, int]) -> Any:
        if next(numbers) == 1:
            (id,) = stages
            with replayer.server.client() as client:
                client.drop_stage(id)
                client.stage(id, rows=[{"topic": "replay/a", "data": "the last part"}], part=1)
        return commit(connection, key, stages)

    monkeypatch.setattr(job, "commit", lose)
    assert replayer.run(filters=("a",))["published_now"] == 50
    payloads = [row["payload"] for row in replayer.rows("replay/#")]
    assert payloads == [row["payload"] for row in replayer.rows("a")]
    assert replayer.listener.notes == ["staged messages have lapsed, and are staged again"]
    assert not replayer.stages


def test_a_replay_keeps_the_pace_and_stops_while_it_waits(replayer: Replayer) -> None:
    replayer.server.publish_numbers(["a"], 3)
    with replayer.server.client() as client:
        head = client.position().time
        while (last := client.publish("a", 4)) and client.messages("a", last=1).messages[
            0
        ].published_at == head:
            pass
    stopping = threading.Event()
    replayer.listener = Listener(lambda text: stopping.set() if "of 4" in text else None)
    facts = replayer.run(stopping, speed=1e-5)
    assert (facts["is_finished"], facts["published"]) == (False, 3)
    assert not replayer.stages
    assert last.sequence == 4
    stopping.clear()
    facts = replayer.run(stopping, speed=1e-5)
    assert (facts["is_finished"], facts["published_now"]) == (True, 1)


def test_the_lake_and_the_log_behind_it_are_replayed_as_one_and_a_lake_to_another_server(
    replayer: Replayer, spark: "SparkSession", log_server: LogServer, tmp_path: Path, name: str
) -> None:
    from penstock.spark.jobs.archive import ArchiveOptions, archive  # noqa: PLC0415

    lake, server = str(tmp_path / "lake"), replayer.server
    topics = [f"t/{number}" for number in range(7)]
    for _ in range(3):  # each at a time of its own
        server.publish_numbers(topics, 20)
    run(partial(archive, ArchiveOptions(lake=lake, server={"address": server.address}, hold=False)), spark)
    server.publish_numbers(topics, 20)
    rows = replayer.rows()
    facts = replayer.run(lake=lake, state=None)
    assert (facts["published"], Path(facts["state"]).parent) == (80, tmp_path / "lake" / "_replays")
    assert [row["payload"] for row in replayer.rows("replay/#")] == [row["payload"] for row in rows]

    first, last = rows[20]["published_at"], rows[40]["published_at"]
    replayer.server = log_server
    told = {
        "lake": lake,
        "state": None,
        "lake_only": True,
        "prefix": f"{name}/",
        "start": first,
        "until": last,
    }
    wanted = [row for row in rows[:60] if first <= row["published_at"] < last]
    assert replayer.run(**told)["published_now"] == len(wanted) > 0
    copies = replayer.rows(f"{name}/#")
    assert [row["payload"] for row in copies] == [row["payload"] for row in wanted]
    assert dict(copies[0]["properties"])["ps-original-topic"] == wanted[0]["topic"]
