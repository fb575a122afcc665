"""Views for people: units, no figure twice, titles in one line on 80 columns."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.cli import views
from penstock.cli.output import Column, Row
from tests.cli.http_commands import answering, port_of
from tests.cli.terminals import on_terminal

NOW = datetime(2026, 1, 31, 12, 5, 0, tzinfo=UTC)
TOPIC = {
    "name": "a/b",
    "sequence": 12_345,
    "published": 300,
    "messages_published": 300,
    "subscribers": 7,
    "subscriber_count": 7,
    "retained": False,
    "ring_messages": 1,
    "kept": True,
    "queue_depth": 99,
    "queue_max_size": 100,
    "messages_delivered": 20,
    "messages_dropped": 180,
    "latency_ms": {"avg": 2.369, "p99": 9.232},
}
SLOW = {
    "client_id": "pump-7",
    "is_slow": True,
    "connected": True,
    "waiting_messages": 10_000,
    "waiting_bytes": 20_001_300,
    "oldest_age_s": 75.4,
    "dropped": 3,
    "policy": "drop-newest",
    "since": "2026-01-31T12:00:00.000001Z",
    "last_slow_at": "2026-01-31T12:00:09.000001Z",
}
VERDICT = {
    "topic": "a",
    "sequence": 3,
    "code": "not-delivered",
    "text": "It was not delivered to c: its outbox was full.",
    "message": {
        "qos": 1,
        "retain": True,
        "door": "sidecar",
        "client_id": "w",
        "published_at": SLOW["since"],
    },
    "rows": [{"client_id": "c", "reason": "outbox-full", "first": 2, "last": 5, "count": 4}],
    "waiting": [{"client_id": "d", "position": 4}],
    "filters": [{"filter": "a/#", "qos": 1}],
    "truncated": True,
}
HEALTH = {
    "status": "healthy",
    "uptime_seconds": 3_725.5,
    "version": "1.2.3",
    "log": {"status": "ok", "durable": True, "first_offset": 1, "last_offset": 5_000, "epoch": 2},
    "ready": True,
    "round_trip_ms": 0.656,
    "topic_count": 9,
    "global": {"active_topics": 9, "total_published": 300, "active_subscribers": 4, "slow_subscribers": 1},
    "connections": {"mqtt": 2, "sidecar": 1},
    "outboxes": {"messages": 5, "bytes": 2_048, "largest_messages": 5, "largest_saturation": 0.5},
    "process": {"memory_bytes": 172_662_784, "cpu_seconds": 3.4, "open_files": 46, "max_files": 20_000},
    "rings": {"topics": 22, "bytes": 286_720, "limit_bytes": 52_428_800},
    "cluster": {"cluster_mode": False, "peers": 0},
}


def shown(columns: tuple[Column, ...], row: Row) -> dict[str, str]:
    return {column.title: column.text(row) for column in columns}


def test_a_topic_has_each_figure_once() -> None:
    facts = dict(views.topic_facts(TOPIC))
    assert [name for name, text in facts.items() if text == "300"] == ["published since start"]
    assert [name for name, text in facts.items() if text == "7"] == ["subscribers"]
    assert facts["last sequence"] == "12,345"
    assert facts["longest queue"] == "99 of 100 messages"
    assert facts["delivered after"] == "avg 2.37 ms, p99 9.23 ms"


def test_a_slow_subscriber_has_sizes_and_times_with_units() -> None:
    row = shown(views.SLOW, SLOW)
    assert (row["waiting"], row["size"], row["oldest"]) == ("10,000", "19.1 MiB", "1 min 15 s")
    assert row["slow since"].endswith(" ago")
    assert shown(views.SLOW, {**SLOW, "is_slow": False})["slow since"].startswith("until ")


def test_losses_have_their_sequences_in_one_column() -> None:
    row = {"first": 121, "last": 300, "count": 180, "topic": "a", "reason": "outbox-full"}
    assert shown(views.LOSSES, row)["sequences"] == "121 to 300"
    assert shown(views.LOSSES, {**row, "first": 300})["sequences"] == "300"


def test_the_facts_of_a_verdict_name_the_message_and_its_readers() -> None:
    facts = dict(views.verdict_facts(VERDICT))
    assert facts["message"] == "a 3"
    assert facts["published"] == "2026-01-31 12:00:00 UTC by w over gRPC"
    assert facts["sent with"] == "QoS 1, retained"
    assert facts["subscribed to"] == "a/# (QoS 1)"
    assert facts["waiting for"] == "d (position 4)"


def test_health_has_units_and_the_names_of_doors_that_people_know() -> None:
    facts = dict(views.health_facts(HEALTH))
    assert facts["running for"] == "1 h 02 min"
    assert facts["memory"] == "164.7 MiB"
    assert facts["log"] == "ok, on disk, offsets 1 to 5,000, epoch 2"
    assert facts["connections"] == "2 MQTT, 1 gRPC"
    assert facts["queued for subscribers"] == "5 messages, 2.0 KiB"
    assert facts["recent messages in memory"] == "280.0 KiB of 50.0 MiB, 22 topics"
    assert list(views.health_facts(HEALTH)).count(("topics", "9")) == 1


def test_a_client_is_shown_with_what_it_is_subscribed_to() -> None:
    client = {
        "client_id": "pump-7",
        "door": "sidecar",
        "connected": True,
        "connected_at": "2026-01-31T12:00:00Z",
        "waiting_messages": 1,
        "waiting_bytes": 2_048,
        "filters": [{"filter": "a/#", "qos": 1, "no_local": True, "policy": "block"}],
        "will": {"topic": "gone"},
    }
    facts = dict(views.client_facts(client))
    assert facts["door"] == "gRPC"
    assert facts["waiting"] == "1 message, 2.0 KiB"
    assert facts["subscribed to"] == "a/# (QoS 1, no local, policy block)"
    assert facts["will"] == "gone"
    away = dict(views.client_facts({**client, "connected": False, "expires_at": None, "left_at": "soon"}))
    assert (away["connected"], away["disconnected"], away["session ends"]) == ("no", "soon", "-")


@pytest.mark.parametrize(
    ("ago", "text"),
    [
        (timedelta(seconds=5), "5 s ago"),
        (timedelta(minutes=2, seconds=5), "2 min 05 s ago"),
        (timedelta(seconds=-3), "0 s ago"),
    ],
)
def test_a_time_is_shown_as_its_age(ago: timedelta, text: str) -> None:
    assert views.age_text((NOW - ago).isoformat(), NOW) == text


@pytest.mark.parametrize("columns", [80, 140])
def test_a_terminal_has_the_sentence_first_and_titles_in_one_line(columns: int) -> None:
    with answering(VERDICT) as address:
        words = ("why", "a", "3", "-p", str(port_of(address)))
        with on_terminal(*words, columns=columns, environment={"NO_COLOR": "1"}) as terminal:
            assert terminal.end() == 0, terminal.written
    lines = [
        line.rstrip() for line in terminal.written.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    ]
    assert lines[0] == VERDICT["text"]
    assert lines[-2].split() == ["when", "sequences", "messages", "client", "reason", "policy"]
    assert lines[-1].split() == ["-", "2", "to", "5", "4", "c", "outbox-full", "-"]


def test_a_server_without_clients_says_so() -> None:
    with (
        answering({"clients": [], "next": None}) as address,
        on_terminal("clients", "-p", str(port_of(address))) as terminal,
    ):
        assert terminal.end() == 0
    assert terminal.written.strip() == "The server has no clients now."
