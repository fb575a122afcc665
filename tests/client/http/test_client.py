"""HTTP client against a real server: every method."""

import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from penstock.client import (
    ConnectionLost,
    ConnectionRefused,
    HttpClient,
    HttpRefused,
    MqttClient,
    NewMessage,
    PacketProperties,
)
from penstock.testing import server
from tests.support.certificates import Authority
from tests.support.servers import RunningServer, StartServer

FREE = {"http": {"port": 0}}
LASTING = PacketProperties(session_expiry=600)


@pytest.fixture(scope="module")
def stored(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """A server with a data directory."""
    return start_server({**FREE, "data_dir": str(tmp_path_factory.mktemp("http") / "data")})


@pytest.fixture
def client(stored: RunningServer) -> Iterator[HttpClient]:
    with HttpClient(address_of(stored)) as client:
        yield client


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"test/{uuid4().hex}"


def address_of(server: RunningServer) -> str:
    return f"http://127.0.0.1:{server.port_of('http')}"


# Publishing


async def test_what_is_published_here_arrives_over_mqtt(
    stored: RunningServer, client: HttpClient, topic: str
) -> None:
    async with MqttClient.connect(port=stored.port) as subscriber:
        await subscriber.subscribe(topic, qos=1)
        receipt = client.publish(
            topic,
            {"a": [1, "ü"]},
            content_type="application/x-own",
            correlation_id="c-1",
            response_topic="answers/here",
            properties={"k": ["1", "2"]},
            ttl_ms=60_000,
        )
        message = await subscriber.messages.receive(5)
    assert (receipt.topic, receipt.sequence, receipt.subscribers, receipt.stored) == (topic, 1, 1, True)
    assert (message.topic, message.payload, message.qos) == (topic, '{"a":[1,"ü"]}'.encode(), 1)
    properties = message.properties
    assert (properties.content_type, properties.correlation_data) == ("application/x-own", b"c-1")
    assert (properties.response_topic, properties.user) == ("answers/here", (("k", "1"), ("k", "2")))
    assert properties.message_expiry == 60


@pytest.mark.parametrize("payload", [b"\xff\x00\n", b"text", b"", "text ü", '{"$bytes":"AA=="}', "1\n2"])
def test_any_payload_comes_back_as_it_was(client: HttpClient, topic: str, payload: bytes | str) -> None:
    client.publish(topic, payload=payload, retain=bool(payload))
    [message] = client.messages(topic, last=1).messages
    expected = payload.encode() if isinstance(payload, str) else payload
    assert message.payload == expected
    if payload:
        assert client.retained_value(topic) == expected


def test_a_message_with_an_id_is_published_once(client: HttpClient, topic: str) -> None:
    first = client.publish(topic, 1, message_id="m-1")
    again = client.publish(topic, 1, message_id="m-1")
    assert (first.duplicate, again.duplicate) == (False, True)
    assert (first.sequence, first.cursor) == (again.sequence, again.cursor)
    assert [message.data for message in client.messages(topic, last=10).messages] == [1]


def test_many_messages_are_published_in_order(client: HttpClient, topic: str) -> None:
    receipts = client.publish_many([NewMessage(topic=topic, data=number) for number in range(50)])
    assert [receipt.sequence for receipt in receipts] == list(range(1, 51))


def test_one_bad_message_among_many_keeps_all_of_them_back(client: HttpClient, topic: str) -> None:
    with pytest.raises(HttpRefused) as caught:
        client.publish_many([{"topic": topic, "data": 1}, {"topic": "a/#", "data": 2}])
    assert caught.value.status == 400
    assert [(each["index"], each["code"]) for each in caught.value.errors] == [(1, "invalid-topic")]
    with pytest.raises(HttpRefused):
        client.messages(topic, last=1)


@pytest.mark.parametrize(
    ("topic", "data", "code"),
    [("a/+", 1, "invalid-topic"), ("$SYS/x", 1, "not-authorized"), ("", 1, "invalid-topic")],
)
def test_a_publish_that_is_refused_says_why(client: HttpClient, topic: str, data: object, code: str) -> None:
    with pytest.raises(HttpRefused) as caught:
        client.publish(topic, data)
    assert caught.value.code == code


# Looking around


@pytest.mark.parametrize("level", ["..", ".", "\x01", "ü?%"])
def test_topics_that_no_path_can_name_are_read_like_others(
    client: HttpClient, topic: str, level: str
) -> None:
    client.publish(name := f"{topic}/{level}/x", 1, retain=True)
    assert [message.topic for message in client.messages(name).messages] == [name]
    assert client.retained_value(name) == b"1"


def test_topics_are_found_across_pages(client: HttpClient, topic: str) -> None:
    names = [f"{topic}/{number:04}" for number in range(1_200)]
    client.publish_many({"topic": name, "data": 1} for name in names)
    found = list(client.topics(filter=f"{topic}/+"))
    assert [each["name"] for each in found] == names
    assert {each["sequence"] for each in found} == {1}
    assert [each["name"] for each in client.topics(search=f"{topic}/000")] == names[:10]


def test_history_is_read_from_where_one_likes(client: HttpClient, topic: str) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    receipts = client.publish_many([{"topic": topic, "data": number} for number in range(1, 6)])

    def data(**where: object) -> list[object]:
        return [message.data for message in client.messages(topic, **where).messages]  # type: ignore[arg-type]

    assert data(last=2) == [4, 5]
    assert data(after_sequence=3) == [4, 5]
    assert data(after=receipts[2].cursor) == [4, 5]
    assert data(start=before, limit=2) == [1, 2]
    history = client.messages(topic, after_sequence=0, limit=2)
    assert (history.statement.served, history.statement.is_complete) == (2, True)
    following = client.messages(topic, after=history.statement.next)
    assert [message.sequence for message in following.messages] == [3, 4, 5]
    assert following.statement.is_at_head


def test_a_message_has_all_that_was_published_with_it(client: HttpClient, topic: str) -> None:
    client.publish(
        topic,
        {"x": 1},
        correlation_id="c",
        message_id="m",
        properties={"a": "1", "b": ["2", "3"]},
        ttl_ms=60_000,
    )
    [message] = client.messages(topic, last=1).messages
    assert (message.topic, message.sequence, message.qos, message.retain, message.door) == (
        topic,
        1,
        1,
        False,
        "web",
    )
    assert (message.correlation_id, message.message_id, message.content_type) == (
        "c",
        "m",
        "application/json",
    )
    assert message.properties == {"a": "1", "b": ["2", "3"]}
    assert message.expires_at is not None
    assert abs(message.expires_at - message.published_at - timedelta(seconds=60)) < timedelta(seconds=1)


def test_last_values_are_listed(client: HttpClient, topic: str) -> None:
    client.publish_many([{"topic": f"{topic}/{name}", "data": name, "retain": True} for name in "ab"])
    assert [(each.topic, each.data) for each in client.retained(f"{topic}/#")] == [
        (f"{topic}/a", "a"),
        (f"{topic}/b", "b"),
    ]


async def test_clients_are_seen(stored: RunningServer, client: HttpClient) -> None:
    name = f"seen/{uuid4().hex}"
    async with MqttClient.connect(port=stored.port, client_id=name) as subscriber:
        await subscriber.subscribe("a/+", qos=1)
        [row] = client.clients(search=name, connected=True)
        assert (row["client_id"], row["connected"], row["subscriptions"]) == (name, True, 1)
        assert client.client(name)["filters"][0]["filter"] == "a/+"
    with pytest.raises(HttpRefused) as caught:
        client.client("nobody at all")
    assert (caught.value.status, caught.value.code) == (404, "unknown-client")


def test_topics_are_read_level_by_level(client: HttpClient, topic: str) -> None:
    client.publish_many([{"topic": f"{topic}/{number}/x", "data": number} for number in range(3)])
    levels = list(client.tree(topic))
    assert [(level["name"], level["topics"]) for level in levels] == [("0", 1), ("1", 1), ("2", 1)]
    assert topic.partition("/")[0] in [level["name"] for level in client.tree()]


def test_a_retained_message_is_removed(client: HttpClient, topic: str) -> None:
    client.publish(f"{topic}/..", 1, retain=True)
    client.remove_retained(f"{topic}/..")
    with pytest.raises(HttpRefused) as caught:
        client.remove_retained(f"{topic}/..")
    assert caught.value.code == "unknown-topic"


def test_a_client_knows_its_rights_and_the_rates_of_the_server(client: HttpClient) -> None:
    assert client.me()["rights"]["publish"] is True
    assert len(client.history()["series"]["connections"]) == 360


def test_nobody_is_slow(client: HttpClient) -> None:
    assert client.slow() == []


def test_why_says_what_became_of_a_message(client: HttpClient, topic: str) -> None:
    client.publish(topic, 1)
    assert client.why(topic, 1)["code"] == "published"
    assert client.why(topic, 1, "nobody")["code"] == "no-session"
    assert client.why(topic, 2, "nobody")["code"] == "not-published"


async def test_a_client_is_disconnected_and_its_session_stays(
    stored: RunningServer, client: HttpClient
) -> None:
    name = f"kicked/{uuid4().hex}"
    async with MqttClient.connect(port=stored.port, client_id=name, properties=LASTING) as subscriber:
        assert client.disconnect(name) is True
        with pytest.raises(ConnectionLost):
            await subscriber.messages.receive(20)
    assert client.client(name)["connected"] is False
    assert client.disconnect(name) is False
    with pytest.raises(HttpRefused) as caught:
        client.disconnect("nobody at all")
    assert caught.value.code == "unknown-client"
    assert client.disconnect(name, end_session=True) is False  # it was away
    with pytest.raises(HttpRefused):
        client.client(name)


async def test_drops_are_found_across_pages_by_topic_client_and_reason(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.http.client._PAGE", 2)
    with server() as own, own.http() as client:  # what was lost would go into the log of the others
        async with MqttClient.connect(port=own.mqtt_port, client_id="away", properties=LASTING) as subscriber:
            await subscriber.subscribe(f"{topic}/#", qos=1)
        for number in range(5):
            client.publish(f"{topic}/{number}", number, qos=0)
        found = list(client.drops(client="away"))
        assert [row["topic"] for row in found] == [f"{topic}/{number}" for number in (4, 3, 2, 1, 0)]
        assert {row["reason"] for row in found} == {"not-connected"}
        assert [row["client_id"] for row in client.drops(topic=f"{topic}/3")] == ["away"]
        assert list(client.drops(client="away", reason="expired")) == []
        assert client.metrics()["not_delivered"] == {"not-connected": 5}


def test_figures_of_named_topics(client: HttpClient, topic: str) -> None:
    client.publish(topic, 1)
    assert list(client.metrics([topic, "nobody knows this"])["topics"]) == [topic]


def test_settings_in_effect_are_told(client: HttpClient) -> None:
    told = client.config()
    assert told["settings"]["http"]["port"] == [0]
    assert told["origins"]["outbox.messages"] == "default"


def test_health_readiness_and_figures(client: HttpClient) -> None:
    assert client.health()["status"] == "healthy"
    assert client.ready() is True
    assert client.metrics()["uptime_seconds"] >= 0
    assert client.get("/api/v1")["name"] == "penstock"


def test_a_path_that_is_not_there_is_refused(client: HttpClient) -> None:
    with pytest.raises(HttpRefused) as caught:
        client.get("/api/v1/nothing")
    assert caught.value.status == 404


# The log


def test_the_log_is_read_and_read_on(client: HttpClient, topic: str) -> None:
    start = client.position().cursor
    client.publish_many([{"topic": topic, "data": number} for number in range(1_000)])
    log = client.read_log(after=start, filters=[topic], columns=["topic", "sequence", "payload"])
    table = log.table()
    assert table.column_names == ["topic", "sequence", "payload"]
    assert table.column("sequence").to_pylist() == list(range(1, 1_001))
    assert set(table.column("topic").to_pylist()) == {topic}
    assert (log.statement.served, log.statement.is_complete) == (1_000, True)
    client.publish(topic, "more")
    more = client.read_log(after=log.statement.next, filters=[topic])
    assert [row["payload"] for row in more.table().to_pylist()] == [b'"more"']


def test_a_limit_ends_the_read_and_the_statement_says_where_to_go_on(client: HttpClient, topic: str) -> None:
    client.publish_many([{"topic": topic, "data": number} for number in range(10)])
    seen, after = [], None
    while True:
        log = client.read_log(after=after, filters=[topic], limit_rows=4)
        seen.append(log.table().column("sequence").to_pylist())
        after = log.statement.next
        if log.statement.is_at_head:
            break
    assert [sequence for part in seen for sequence in part] == list(range(1, 11))
    assert max(len(part) for part in seen) == 4


def test_the_bytes_of_the_log_are_an_arrow_stream(client: HttpClient, topic: str) -> None:
    client.publish(topic, 1)
    stream = b"".join(client.read_log(filters=[topic]).chunks())
    assert pa.ipc.open_stream(stream).read_all().num_rows == 1


def test_ranges_together_are_the_whole(client: HttpClient, topic: str) -> None:
    start = client.position().cursor
    client.publish_many([{"topic": topic, "data": number} for number in range(5_000)])
    end = client.position().cursor
    found = client.ranges(4, after=start, until=end, filters=[topic])
    ranges = found.ranges
    rows = [client.read_log(after=each.after, until=each.until, filters=[topic]).table() for each in ranges]
    assert 1 <= len(ranges) <= 4
    assert [sequence for part in rows for sequence in part.column("sequence").to_pylist()] == list(
        range(1, 5_001)
    )
    assert (ranges[0].after, ranges[-1].until) == (found.after, found.until) == (start, end)
    assert (found.rows >= 5_000, found.gaps) == (True, [])


def test_a_portion_of_the_log_is_limited_by_rows_and_by_bytes(client: HttpClient, topic: str) -> None:
    start = client.position().cursor
    for _ in range(2):
        client.publish_many([{"topic": topic, "data": number} for number in range(10)])
    few = client.ranges(1, after=start, limit_rows=3)
    assert client.read_log(after=start, until=few.until).table().num_rows == few.rows == 3
    one = client.ranges(1, after=start, limit_bytes=1)
    assert client.read_log(after=start, until=one.until).table().num_rows == one.rows == 10


def test_a_position_tells_how_far_behind_a_cursor_is(client: HttpClient, topic: str) -> None:
    start = client.position()
    client.publish_many([{"topic": topic, "data": number} for number in range(10)])
    here = client.position(after=start.cursor, filters=[topic])
    assert here.lag_rows == 10
    assert here.offset >= start.offset + 10
    assert client.position("earliest").offset <= start.offset
    when = datetime.now(UTC) - timedelta(hours=1)
    assert client.position(when).time == when


def test_a_hold_is_made_moved_renewed_and_released(client: HttpClient, topic: str) -> None:
    first, second = client.publish(topic, 1), client.publish(topic, 2)
    name = f"reader/{uuid4().hex}"
    hold = client.hold(name, first.cursor, 60)
    assert (hold.name, hold.cursor, hold.lapse_s) == (name, first.cursor, 60)
    assert hold.lapses_at > datetime.now(UTC)
    assert client.commit(name, second.cursor).cursor == second.cursor
    assert client.renew(name).cursor == second.cursor
    assert name in [each.name for each in client.holds()]
    client.release(name)
    assert name not in [each.name for each in client.holds()]
    with pytest.raises(HttpRefused) as caught:
        client.renew(name)
    assert caught.value.code == "unknown-hold"


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"after": "nonsense"}, "invalid-cursor"),
        ({"filters": ["a/#/b"]}, "invalid-filter"),
        ({"columns": ["nothing"]}, "invalid-request"),
        ({"start": "yesterday"}, "invalid-request"),
    ],
)
def test_a_read_that_makes_no_sense_is_refused(
    client: HttpClient, asked: dict[str, object], code: str
) -> None:
    with pytest.raises(HttpRefused) as caught:
        client.read_log(**asked)  # type: ignore[arg-type]
    assert caught.value.code == code


# Stages


@pytest.mark.parametrize("kind", ["rows", "batches", "data"])
def test_staged_rows_are_published_by_their_commit_and_once(
    client: HttpClient, topic: str, kind: str
) -> None:
    batch = pa.record_batch({"topic": [topic, topic], "payload": [b"1", b"2"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    given = {
        "rows": [NewMessage(topic=topic, data=1), {"topic": topic, "payload": "2"}],
        "batches": [batch],
        "data": sink.getvalue().to_pybytes(),
    }[kind]
    id, key = uuid4().hex, uuid4().hex
    assert client.stage(id, **{kind: given}).rows == 2
    assert client.stage(id, **{kind: given}).rows == 2
    assert client.staged(id)["rows"] == 2
    assert not list(client.topics(filter=topic))
    commit = client.commit_stages(key, [id])
    again = client.commit_stages(key, [id])
    assert (commit.rows, commit.duplicate, again.rows, again.duplicate) == (2, False, 2, True)
    assert [message.payload for message in client.messages(topic, last=10).messages] == [b"1", b"2"]


def test_a_commit_of_other_stages_is_recognised_by_its_key(client: HttpClient, topic: str) -> None:
    run, key = uuid4().hex, uuid4().hex
    ids = [f"{run}:{number}" for number in range(3)]
    for id in ids:
        client.stage(id, rows=[{"topic": topic, "data": id}])
    assert list(client.stages(f"{run}:")) == ids
    first = client.commit_stages(key, ids[:1])
    with pytest.raises(HttpRefused, match="other stages"):
        client.commit_stages(key, ids[1:])
    again = client.commit_stages(key, ids[1:], any_ids=True)
    assert (again.duplicate, again.first, again.last) == (True, first.first, first.last)
    assert list(client.stages(f"{run}:")) == ids[1:]


def test_a_commit_may_say_how_many_rows_its_stages_have(client: HttpClient, topic: str) -> None:
    key, ids = uuid4().hex, [uuid4().hex, uuid4().hex]
    for id in ids:
        client.stage(id, rows=[{"topic": topic, "data": id}])
    with pytest.raises(HttpRefused, match="has 1 rows in place of 2") as caught:
        client.commit_stages(key, ids, rows=[1, 2])
    assert caught.value.code == "conflict"
    assert client.commit_stages(key, ids, rows=[1, 1]).rows == 2


def test_stages_tell_when_they_lapse_and_a_part_moves_that_on(client: HttpClient) -> None:
    id = uuid4().hex
    client.stage(id, rows=[{"topic": "a", "data": 1}])
    before = client.stages_lapse_at(id)
    client.stage(id, rows=[{"topic": "a", "data": 1}], part=1)
    after = client.stages_lapse_at(id)
    assert list(before) == list(after) == [id]
    assert after[id] > before[id]
    client.drop_stage(id)


def test_the_names_of_many_stages_come_in_pages(client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.http.stages._PAGE", 2)
    run = uuid4().hex
    for number in range(5):
        client.stage(f"{run}:{number}", rows=[{"topic": "a", "data": number}])
    assert list(client.stages(run)) == [f"{run}:{number}" for number in range(5)]


def test_a_stage_is_not_called_commit(client: HttpClient) -> None:
    with pytest.raises(ValueError, match="not a valid stage id"):
        client.stage("commit", rows=[])


def test_a_stage_that_was_dropped_is_not_there(client: HttpClient, topic: str) -> None:
    id = uuid4().hex
    client.stage(id, rows=[{"topic": topic, "data": 1}], part=3)
    client.drop_stage(id)
    with pytest.raises(HttpRefused) as caught:
        client.commit_stages(uuid4().hex, [id])
    assert (caught.value.status, caught.value.code) == (404, "unknown-stage")


# Other servers


def test_a_server_without_a_log_says_so(start_server: StartServer) -> None:
    with HttpClient(address_of(start_server({**FREE, "data_dir": None}))) as client:
        with pytest.raises(HttpRefused) as caught:
            client.read_log()
        assert (caught.value.status, caught.value.code) == (404, "no-log")
        assert client.publish("a", 1).stored is False


def test_the_mqtt_port_is_not_taken_for_the_http_port(stored: RunningServer) -> None:
    with pytest.raises((ConnectionLost, ConnectionRefused)):
        HttpClient(f"http://127.0.0.1:{stored.port}").metrics()


def test_a_server_with_tls_is_trusted_if_its_authority_is(start_server: StartServer, tmp_path: Path) -> None:
    authority = Authority()
    files = authority.issue(tmp_path, "server")
    ca_file = authority.write(tmp_path / "ca.pem")
    server = start_server(
        {
            "http": {"port": 0, "tls_port": 0},
            "tls": {"certificate_file": files.certificate, "key_file": files.key},
        }
    )
    address = f"https://127.0.0.1:{server.port_of('https')}"
    with HttpClient(address, tls=ssl.create_default_context(cafile=ca_file)) as client:
        assert [client.ready(), client.ready()] == [True, True]
    with pytest.raises(ConnectionRefused, match="certificate is not trusted"):
        HttpClient(address).ready()


def test_a_request_after_a_restart_finds_the_new_server(start_server: StartServer) -> None:
    first = start_server(FREE)
    port = first.port_of("http")
    with HttpClient(address_of(first)) as client:
        client.publish("a", 1)
        first.stop()
        second = start_server({"http": {"port": port}})
        assert second.port_of("http") == port
        assert client.publish("a", 1).sequence == 1


def test_threads_may_publish_at_the_same_time(client: HttpClient, topic: str) -> None:
    def publish() -> None:
        for _ in range(20):
            client.publish(topic, 1)

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.messages(topic, last=1).messages[0].sequence == 80
