"""What is told to subscribers: the newest windows, and the rows that matter most."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.client import HttpRefused
from penstock.spark.connection import Connection
from penstock.spark.jobs.insights.job import MAX_WINDOWS, messages_of, publish
from penstock.spark.jobs.insights.state import Batch, Settings, State, process_batch
from tests.spark.jobs.insights.samples import BEGIN, Sample, cells_of, drops
from tests.spark.servers import LogServer
from tests.support.servers import StartServer


def told(samples: list[Sample], most_rows: int = 20) -> dict[str, list[Any]]:
    """What is published of some messages, by topic."""
    tables = process_batch(State(), cells_of(samples), Settings(hot_topics=3)).tables
    found: dict[str, list[Any]] = {}
    for message in messages_of(tables, most_rows):
        assert message.retain
        found.setdefault(message.topic, []).append(message.data)
    return found


def test_a_window_is_one_message_for_each_table_and_grain() -> None:
    samples = [
        Sample(at_s=1.0, topic="plant/a", size=10),
        Sample(at_s=2.0, topic="plant/b", sequence=4, size=20),
        Sample(at_s=3.0, topic="plant/b", sequence=6, size=20),
        drops(4.0, expired=3),
        Sample(at_s=50.0, sequence=9),
    ]
    found = told(samples)
    tables = ("topics", "prefixes", "hot", "clients", "drops", "balance")
    assert set(found) == {f"$penstock/insights/{name}/{grain}" for name in tables for grain in ("10s", "1m")}
    (window,) = found["$penstock/insights/topics/10s"]
    assert (window["window_start"], window["window_end"]) == ("2026-03-01T11:58:30Z", "2026-03-01T11:58:40Z")
    assert window["rows_in_all"] == 2
    first = window["rows"][0]
    assert (first["topic"], first["messages"], first["bytes"], first["missing"]) == ("plant/b", 2, 40, 1)
    assert (first["bytes_p99"], first["latency_p50_ms"]) == (20, 2.0)
    assert "size_histogram" not in first
    (news,) = found["$penstock/insights/drops/1m"]
    assert news["rows"] == [{"reason": "expired", "messages": 3, "messages_per_s": 0.05}]


def test_only_so_many_rows_are_told_and_these_have_most_messages() -> None:
    samples = [
        Sample(at_s=1.0, topic=f"t{number % 10 if number < 30 else 7}", sequence=number)
        for number in range(40)
    ]
    (window,) = told([*samples, Sample(at_s=30.0)], most_rows=2)["$penstock/insights/topics/10s"]
    assert (window["rows_in_all"], len(window["rows"]), window["rows"][0]["topic"]) == (10, 2, "t7")


def test_what_is_long_over_is_not_told() -> None:
    samples = [Sample(at_s=10.0 * number, sequence=number) for number in range(100)]
    starts = [window["window_start"] for window in told(samples)["$penstock/insights/hot/10s"]]
    newest = BEGIN + timedelta(seconds=10 * 97)
    assert len(starts) == MAX_WINDOWS
    assert starts == sorted(starts)
    assert starts[-1] == newest.isoformat().replace("+00:00", "Z")


def test_a_batch_that_is_told_twice_is_there_once(lake_server: LogServer) -> None:
    tables = process_batch(State(), cells_of([Sample(at_s=1.0), Sample(at_s=30.0)]), Settings()).tables
    connection = Connection(address=lake_server.address)
    for number in (0, 0, 1):
        assert publish(connection, Batch("the-query", number), tables, 20) == 5
    assert publish(connection, Batch("the-query", 2), {}, 20) == 0
    with lake_server.client() as client:
        assert len(client.messages("$penstock/insights/topics/10s", last=10).messages) == 2
        assert list(client.stages()) == []


def test_who_may_not_publish_insights_is_told_so(start_server: StartServer, tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\nboth #\n")
    running = start_server({"http": {"port": 0}, "access": {"acl_file": str(rules)}})
    tables = process_batch(State(), cells_of([Sample(at_s=1.0), Sample(at_s=30.0)]), Settings()).tables
    connection = Connection(address=LogServer(running).address)
    with pytest.raises(HttpRefused, match=r"not allowed to publish to \$penstock/insights/topics/10s"):
        publish(connection, Batch("the-query", 0), tables, 20)
