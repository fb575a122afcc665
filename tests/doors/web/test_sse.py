"""GET /api/v1/events: messages as Server-Sent Events: live, resumed, refused, and ended."""

import asyncio
import base64
import gc
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from argon2 import PasswordHasher
from hypothesis import given
from hypothesis import strategies as st

from penstock.app import Server
from penstock.common.cursor import Cursor, Position
from penstock.core.settings import AccessSettings, OutboxSettings, RingSettings, TopicRule
from penstock.doors.web.context import Web
from penstock.doors.web.sse import BEAT_S, MAX_LAST, Events, EventStream
from penstock.errors import PenstockError
from penstock.model import Policy, Reason
from penstock.net.door import Peer
from penstock.net.http.request import Request
from penstock.net.http.settings import HttpSettings
from tests.doors.serving import EVERYTHING, Start, client_of, mqtt_of, port_of
from tests.doors.web.following import PATH, Event, follow
from tests.support.broker import Stage
from tests.support.waiting import until

QUICK = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
KIB = 1024
MANY_BYTES = 256 * KIB * KIB


def publish(server: Server, topic: str, *values: Any) -> None:
    for value in values:
        server.broker.publish_server(topic, json.dumps(value).encode())


def values_of(events: list[Event]) -> list[Any]:
    assert {event.name for event in events} <= {"message"}
    return [event.data["data"] for event in events]


def streams_of(server: Server) -> list[EventStream]:
    sinks = (session.connection for session in server.broker.sessions.values())
    return [sink for sink in sinks if isinstance(sink, EventStream)]


def events_of(server: Server) -> Events:
    return streams_of(server)[0].service


async def until_gone(server: Server) -> None:
    await until(lambda: not streams_of(server), "a stream is still open", timeout_s=20, every_s=0)


# Live


async def test_messages_come_as_they_are_published_with_their_cursors_as_ids(server: Server) -> None:
    async with follow(server, "plant/#") as follower:
        assert follower.response.headers["content-type"] == "text/event-stream"
        assert follower.response.headers["cache-control"] == "no-store"
        assert follower.retry_ms == 1_000
        publish(server, "plant/a", {"speed": 1})
        publish(server, "elsewhere", "not this")
        publish(server, "plant/b", "text\nwith lines")
        first, second = await follower.take(2)
    assert first.name == "message"
    assert first.data == {
        "type": "event",
        "topic": "plant/a",
        "data": {"speed": 1},
        "message_id": first.data["message_id"],
        "sequence": 1,
        "cursor": first.id,
    }
    assert (second.data["topic"], second.data["data"]) == ("plant/b", "text\nwith lines")
    assert Cursor.decode(second.id) == server.broker.history.cursor()


async def test_what_is_no_json_comes_as_base64(server: Server) -> None:
    async with follow(server, "a") as follower:
        server.broker.publish_server("a", b"\xff\n\r\x00")
        server.broker.publish_server("a", b'{"spread":\n\r\n  "out"}')
        first, second = await follower.take(2)
    assert first.data["data"] == {"$bytes": base64.b64encode(b"\xff\n\r\x00").decode()}
    assert second.data["data"] == {"spread": "out"}


async def test_what_mqtt_clients_publish_comes_here_with_the_same_sequence(server: Server) -> None:
    async with follow(server, "a/+") as follower, mqtt_of(server) as mqtt:
        for number in range(3):
            await mqtt.publish("a/b", json.dumps(number), qos=1)
        events = await follower.take(3)
    assert [(event.data["data"], event.data["sequence"]) for event in events] == [(0, 1), (1, 2), (2, 3)]


async def test_a_message_that_several_filters_match_comes_once(server: Server) -> None:
    async with follow(server, "a/#", "a/b", "+/b", "c") as follower:
        publish(server, "a/b", 1)
        publish(server, "c", 2)
        publish(server, "a/x", 3)
        assert values_of(await follower.take(3)) == [1, 2, 3]


async def test_all_who_follow_get_the_same_bytes_encoded_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with follow(server, "a") as one, follow(server, "a") as other:
        texts, encoded = events_of(server).encoding._texts, []
        real = type(texts).of
        monkeypatch.setattr(
            type(texts), "of", lambda self, run: encoded.append(run.offset) or real(self, run)
        )
        publish(server, "a", 1)
        assert await one.next() == await other.next()
        assert len(encoded) == 1


async def test_who_goes_leaves_nothing_behind(server: Server) -> None:
    async with follow(server, "a"):
        assert len(streams_of(server)) == 1
        service = events_of(server)
    await until_gone(server)
    assert server.broker.sessions == {}
    assert service._streams == {}
    assert service._timer is None


async def test_nobody_follows_behind_an_answer_that_has_not_come(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server, "http"))
    polled = b"GET /api/v1/streams/receive?streamId=s&timeoutSeconds=30 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    followed = f"GET {PATH}?filter=a HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    writer.write(polled + followed)
    async with asyncio.timeout(20):
        await until(
            lambda: server.broker.counters.bytes_received >= len(polled + followed),
            "not all bytes were received",
            every_s=0,
        )
        assert streams_of(server) == []
        publish(server, "s", 1)
        await reader.readuntil(b"retry: ")
    assert len(streams_of(server)) == 1
    writer.close()


async def test_the_head_alone_subscribes_to_nothing(server: Server, http: httpx.AsyncClient) -> None:
    answer = await http.head(PATH, params={"filter": "a"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
    assert streams_of(server) == []
    assert (await http.head(PATH)).status_code == 400


async def test_the_head_alone_of_the_past_delivers_nothing(server: Server, http: httpx.AsyncClient) -> None:
    publish(server, "a", 1, 2, 3)
    start = server.broker.history.cursor(0).encode()
    for past in ({"last": "3"}, {"after": start}):
        answer = await http.head(PATH, params={"filter": "a", **past})
        assert answer.status_code == 200
    assert streams_of(server) == []
    assert server.broker.counters.delivered == 0
    assert (await http.head(PATH, params={"filter": "a", "after": "none"})).status_code == 400


async def test_nothing_is_left_of_who_has_gone_and_nobody_has_to_look_for_it(server: Server) -> None:
    gc.collect()
    gc.disable()
    try:
        async with follow(server, "a", last=1):
            assert len(streams_of(server)) == 1
        await until(
            lambda: not any(isinstance(each, EventStream) for each in gc.get_objects()),
            "an event stream is still referenced",
            timeout_s=20,
        )
    finally:
        gc.enable()


# Signs of life


async def test_a_quiet_stream_gets_a_sign_of_life_that_moves_its_place(server: Server) -> None:
    assert BEAT_S == 15
    async with follow(server, "quiet") as follower:
        before = follower.last_id
        assert Cursor.decode(before) == server.broker.history.cursor()
        publish(server, "busy", 1, 2, 3)
        events_of(server).beat()
        assert await follower.block() is None
        assert follower.last_id != before
        assert Cursor.decode(follower.last_id) == server.broker.history.cursor()


async def test_no_place_overtakes_the_message_that_leads_to_it(server: Server) -> None:
    async with follow(server, "a") as follower:
        service = events_of(server)
        publish(server, "a", 1)
        service.beat()
        event = await follower.block()
        assert event is not None
        assert event.data["data"] == 1


async def test_signs_of_life_come_by_themselves_and_end_with_the_last_stream(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.doors.web.sse.BEAT_S", 0.01)
    async with follow(server, "quiet") as follower:
        for _ in range(3):
            assert await follower.block() is None
        service = events_of(server)
    await until_gone(server)
    assert service._timer is None


async def test_who_is_still_being_told_the_past_keeps_its_place(stored_server: Server) -> None:
    server = stored_server
    async with follow(server, "a") as follower:
        [stream] = streams_of(server)
        stream._is_live = False
        before = follower.last_id
        publish(server, "busy", 1)
        events_of(server).beat()
        assert await follower.block() is None
        assert (follower.comments, follower.last_id) == (1, before)


async def test_who_got_something_since_the_last_sign_of_life_needs_none(server: Server) -> None:
    async with follow(server, "a") as busy, follow(server, "quiet") as quiet:
        publish(server, "a", 1)
        service = events_of(server)
        for _ in range(2):
            service.beat()
        assert values_of(await busy.take(1)) == [1]
        publish(server, "a", 2)
        for follower in (busy, quiet):
            assert await follower.block() is None  # one for the busy one, two for the other
        assert values_of(await busy.take(1)) == [2]
        assert await quiet.block() is None


async def test_signs_of_life_for_many_leave_in_several_turns(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.doors.web.sse.BEAT_STREAMS", 2)
    beaten: list[EventStream] = []
    monkeypatch.setattr(EventStream, "beat", lambda stream, place: beaten.append(stream))
    async with follow(server, "a"), follow(server, "a"), follow(server, "a"):
        events_of(server).beat()
        assert len(beaten) == 2
        await asyncio.sleep(0)
        assert beaten == streams_of(server)


async def test_who_follows_nothing_has_no_place(server: Server) -> None:
    async with follow(server, "a") as follower:
        [session] = server.broker.sessions.values()
        server.broker.unsubscribe(session, "a")
        before = follower.last_id
        publish(server, "a", 1)
        events_of(server).beat()
        assert await follower.block() is None
        assert (follower.comments, follower.last_id) == (1, before)


# Coming back


@pytest.mark.parametrize("is_stored", [False, True])
async def test_who_comes_back_gets_what_it_missed_then_a_statement_then_live(
    server: Server, stored_server: Server, is_stored: bool
) -> None:
    server = stored_server if is_stored else server
    async with follow(server, "a") as follower:
        publish(server, "a", 0)
        [first] = await follower.take(1)
    publish(server, "a", 1, 2)
    publish(server, "b", "not this")
    async with follow(server, "a", last_id=first.id) as follower:
        assert values_of(await follower.take(2)) == [1, 2]
        statement = await follower.next()
        publish(server, "a", 3)
        assert values_of(await follower.take(1)) == [3]
    assert statement.name == "statement"
    assert statement.data["served"] == 2
    assert statement.data["is_complete"] is statement.data["is_at_head"] is True
    assert (statement.data["after"], statement.data["next"]) == (first.id, statement.id)


async def test_who_had_no_message_yet_comes_back_to_where_it_began(server: Server) -> None:
    async with follow(server, "a") as follower:
        began = follower.last_id
    publish(server, "a", 1)
    async with follow(server, "a", last_id=began) as follower:
        assert values_of(await follower.take(1)) == [1]


async def test_the_last_id_wins_over_the_query(server: Server) -> None:
    publish(server, "a", 1, 2, 3)
    async with follow(server, "a", last=3) as follower:
        second = (await follower.take(2))[1]
    start = server.broker.history.cursor(0).encode()
    for parameters in ({"after": start}, {"last": 3}):
        async with follow(server, "a", last_id=second.id, **parameters) as follower:
            assert values_of(await follower.take(1)) == [3]


async def test_after_a_cursor_of_the_log_everything_behind_it_comes(stored_server: Server) -> None:
    publish(stored_server, "a", 1, 2)
    async with client_of(stored_server) as http:
        page = (await http.get("/api/v1/topics/a/messages")).json()
    async with follow(stored_server, "a", after=page["messages"][0]["cursor"]) as follower:
        assert values_of(await follower.take(1)) == [2]
        assert (await follower.next()).name == "statement"


async def test_the_last_messages_come_first_if_they_are_asked_for(server: Server) -> None:
    publish(server, "a", 1, 2, 3)
    async with follow(server, "a", last=2) as follower:
        assert values_of(await follower.take(2)) == [2, 3]
        assert (await follower.next()).data["served"] == 2
    async with follow(server, "a", last=0) as follower:
        publish(server, "a", 4)
        assert values_of(await follower.take(1)) == [4]


async def test_several_filters_are_told_their_past_in_one_order(stored_server: Server) -> None:
    server = stored_server
    start = server.broker.history.cursor().encode()
    for number in range(20):
        publish(server, f"a/{number % 3}", number)
        publish(server, "b", number + 100)
    async with follow(server, "a/0", "a/#", "b", after=start) as follower:
        events = await follower.take(40)
        statement = await follower.next()
    wanted = [value for number in range(20) for value in (number, number + 100)]
    assert values_of(events) == wanted
    assert statement.data["served"] == 40
    half = events[19].id
    async with follow(server, "a/0", "a/#", "b", last_id=half) as follower:
        assert values_of(await follower.take(20)) == wanted[20:]


async def test_what_is_gone_is_told_as_a_gap(start: Start) -> None:
    server = await start(ring=RingSettings(messages=2))
    began = server.broker.history.cursor().encode()
    publish(server, "a", 1, 2, 3, 4)
    async with follow(server, "a", last_id=began) as follower:
        assert values_of(await follower.take(2)) == [3, 4]
        gap, statement = await follower.take(2)
    assert (gap.name, statement.name) == ("gap", "statement")
    assert gap.data == statement.data
    assert gap.data["missing"] == [{"topic": "a", "first": None, "last": 2, "reason": "evicted"}]


async def test_after_a_restart_without_a_data_directory_all_that_is_here_comes_behind_a_gap(
    start: Start,
) -> None:
    server = await start()
    async with follow(server, "a") as follower:
        publish(server, "a", 1)
        [first] = await follower.take(1)
    await start.stop(server)
    server = await start()
    publish(server, "a", 2)
    async with follow(server, "a", last_id=first.id) as follower:
        gap = await follower.next()
        assert values_of(await follower.take(1)) == [2]
        assert (await follower.next()).name == "statement"
        publish(server, "a", 3)
        assert values_of(await follower.take(1)) == [3]
    assert (gap.name, gap.data["reason"], gap.data["after"]) == ("gap", "epoch-changed", first.id)
    assert gap.data["is_complete"] is False


async def test_the_place_of_another_log_is_told_as_a_gap_and_what_is_live_follows(
    stored_server: Server,
) -> None:
    server = stored_server
    publish(server, "a", 1)
    foreign = Cursor((Position("0123456789abcdef", 1, 7),)).encode()
    async with follow(server, "a", last_id=foreign) as follower:
        gap = await follower.next()
        publish(server, "a", 2)
        assert values_of(await follower.take(1)) == [2]
    assert (gap.name, gap.data["reason"]) == ("gap", "epoch-changed")
    assert Cursor.decode(gap.id).positions[0].log_id == server.broker.log.log_id


async def test_across_a_restart_with_a_data_directory_nothing_is_missed(start: Start, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data_dir": str(tmp_path / "data"), "log": EVERYTHING}
    server = await start(**settings)
    async with follow(server, "a") as follower:
        publish(server, "a", 1)
        [first] = await follower.take(1)
    publish(server, "a", 2)
    await start.stop(server)
    server = await start(**settings)
    publish(server, "a", 3)
    async with follow(server, "a", last_id=first.id) as follower:
        assert values_of(await follower.take(2)) == [2, 3]
        assert (await follower.next()).data["is_complete"] is True


async def test_a_topic_that_is_gathered_is_not_overtaken_by_the_ids_of_others(start: Start) -> None:
    rule = TopicRule(filter="slow/#", batch_size=10, batch_timeout_ms=60_000)
    server = await start(topics=(rule,))
    async with follow(server, "#") as follower:
        publish(server, "slow/a", 1)
        publish(server, "quick", 2)
        events = await follower.take(2)
    assert values_of(events) == [1, 2]
    assert Cursor.decode(events[-1].id) == server.broker.history.cursor()


async def test_the_last_messages_are_none_of_before_a_deletion_and_an_id_reaches_them(
    stored_server: Server,
) -> None:
    server = stored_server
    start = server.broker.history.cursor().encode()
    publish(server, "a", 1, 2)
    server.broker.delete_topic("a")
    publish(server, "a", 3)
    async with follow(server, "a", last=10) as follower:
        assert values_of(await follower.take(1)) == [3]
        assert (await follower.next()).data["is_complete"]
    async with follow(server, "a", last_id=start) as follower:
        assert values_of(await follower.take(3)) == [1, 2, 3]


async def test_many_who_come_back_at_once_get_all_that_they_have_missed(server: Server) -> None:
    for number in range(2_000):
        publish(server, f"dev/{number}", number)
    place = server.broker.history.cursor().encode()
    publish(server, "dev/7", 1, 2)

    async def come_back() -> None:
        async with follow(server, "dev/#", last_id=place) as follower:
            assert values_of(await follower.take(2)) == [1, 2]
            assert (await follower.next()).data["served"] == 2

    await asyncio.gather(*(come_back() for _ in range(30)))


# What is refused


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "invalid-request"),
        ("filter=", 400, "invalid-filter"),
        ("filter=a/%23/b", 400, "invalid-filter"),
        ("filter=$share/g/a", 400, "invalid-filter"),
        ("filter=a&topic=b", 400, "invalid-request"),
        ("filter=a&last=1&last=2", 400, "invalid-request"),
        ("filter=a&last=1&after=x", 400, "invalid-request"),
        ("filter=a&last=-1", 400, "invalid-request"),
        ("filter=a&last=x", 400, "invalid-request"),
        ("filter=a&last=%C2%B2", 400, "invalid-request"),
        (f"filter=a&last={MAX_LAST + 1}", 400, "invalid-request"),
        ("filter=a&last=" + 5_000 * "9", 400, "invalid-request"),
        ("filter=a&after=x", 400, "invalid-cursor"),
        ("filter=a&after=", 400, "invalid-cursor"),
        ("filter=%ff", 400, "invalid-request"),
    ],
)
async def test_what_cannot_be_followed_is_refused_with_a_code(
    server: Server, http: httpx.AsyncClient, query: str, status: int, code: str
) -> None:
    answer = await http.get(f"{PATH}?{query}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert server.broker.sessions == {}


@pytest.mark.parametrize("last_id", ["nonsense", "\xff"])
async def test_an_id_that_is_none_of_ours_is_refused(
    server: Server, http: httpx.AsyncClient, last_id: str
) -> None:
    headers = {b"Last-Event-ID": last_id.encode("latin-1")}
    answer = await http.get(PATH, params={"filter": "a"}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-cursor")


async def test_a_cursor_of_a_log_that_is_gone_is_refused_in_the_query(
    server: Server, http: httpx.AsyncClient
) -> None:
    foreign = Cursor((Position("0123456789abcdef", 1, 7),)).encode()
    answer = await http.get(PATH, params={"filter": "a", "after": foreign})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-cursor")
    assert server.broker.sessions == {}


WORDS = st.sampled_from(
    [
        "filter",
        "after",
        "last",
        "access_token",
        "=",
        "&",
        "a",
        "%23",
        "%2B",
        "$share/g/",
        "%ff",
        "%00",
        "9",
        "+",
    ]
)


@given(
    query=st.lists(WORDS, max_size=12).map("".join) | st.text(st.characters(codec="ascii"), max_size=40),
    last_id=st.none() | st.binary(max_size=40),
)
async def test_whatever_is_asked_is_understood_or_refused_with_a_code(
    query: str, last_id: bytes | None
) -> None:
    stage = Stage()
    headers = [] if last_id is None else [(b"last-event-id", last_id)]
    request = Request(None, Peer("127.0.0.1", 1), "GET", PATH, b"", query.encode(), headers)
    events = Events(cast("Web", SimpleNamespace(broker=stage.broker)))
    try:
        wish = events._read(request)
    except PenstockError as error:
        assert error.code in ("invalid-request", "invalid-filter", "invalid-cursor")
    else:
        assert wish.filters


async def test_who_reads_no_events_is_told_so(http: httpx.AsyncClient) -> None:
    answer = await http.get(PATH, params={"filter": "a"}, headers={"Accept": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (406, "not-acceptable")


async def test_another_method_is_not_offered(http: httpx.AsyncClient) -> None:
    answer = await http.post(PATH, params={"filter": "a"})
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


# Who may


@pytest.mark.parametrize(
    "query", ["filter=a", "filter=a&last=5", "filter=%23/a", "filter=a&after=x", "", "filter=$share/g/a"]
)
async def test_head_is_answered_as_get_would_be(server: Server, query: str) -> None:
    async with client_of(server) as http:
        head = await http.head(f"{PATH}?{query}")
        async with http.stream("GET", f"{PATH}?{query}") as answer:
            assert head.status_code == answer.status_code
            own = {"date", "content-length"}
            heads = [
                {name: value for name, value in each.headers.items() if name not in own}
                for each in (head, answer)
            ]
            assert heads[0] == heads[1]
    await until_gone(server)


async def test_head_asks_for_the_same_rights(guarded: Server) -> None:
    async with client_of(guarded, auth=("alice", "secret")) as http:
        assert (await http.head(PATH, params={"filter": "yours"})).status_code == 403
        assert (await http.head(PATH, params={"filter": "mine/#"})).status_code == 200
    assert guarded.broker.sessions == {}


@pytest.fixture
async def guarded(start: Start, tmp_path: Path) -> Server:
    (tmp_path / "passwords").write_text(f"alice:{QUICK.hash('secret')}\n")
    (tmp_path / "acl").write_text("user alice\nsubscribe mine/#\n")
    access = AccessSettings(password_file=str(tmp_path / "passwords"), acl_file=str(tmp_path / "acl"))
    return await start(access=access)


async def test_a_stranger_is_asked_who_it_is(guarded: Server) -> None:
    async with client_of(guarded) as http:
        answer = await http.get(PATH, params={"filter": "mine/#"})
        assert (answer.status_code, answer.json()["code"]) == (401, "bad-credentials")


async def test_who_may_not_read_something_is_told_so_before_anything_else(guarded: Server) -> None:
    async with client_of(guarded, auth=("alice", "secret")) as http:
        for filters in (["other"], ["mine/#", "other"], ["#"]):
            answer = await http.get(PATH, params={"filter": filters})
            assert (answer.status_code, answer.json()["code"]) == (403, "not-authorized")
    assert guarded.broker.sessions == {}
    assert guarded.broker.counters.actions_forbidden == 3


async def test_rules_for_a_client_id_count_as_for_every_request(start: Start, tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("user *\nsubscribe own/%c\nuser alice\n")
    (tmp_path / "passwords").write_text(f"alice:{QUICK.hash('secret')}\n")
    access = AccessSettings(password_file=str(tmp_path / "passwords"), acl_file=str(tmp_path / "acl"))
    server = await start(access=access)
    headers = {"X-Client-Id": "pump"}
    async with client_of(server, auth=("alice", "secret"), headers=headers) as http:
        assert (await http.get(PATH, params={"filter": "own/other"})).status_code == 403
        async with http.stream("GET", PATH, params={"filter": "own/pump"}) as response:
            assert response.status_code == 200
            [session] = server.broker.sessions.values()
            assert session.client_id != "pump"  # so that nobody's session is taken over


async def test_a_browser_may_bring_its_token_in_the_query(guarded: Server) -> None:
    token = base64.b64encode(b"alice:secret").decode()
    async with follow(guarded, "mine/#", access_token=token) as follower:
        publish(guarded, "mine/a", 1)
        assert values_of(await follower.take(1)) == [1]


async def test_a_page_of_elsewhere_may_not_follow(server: Server, http: httpx.AsyncClient) -> None:
    answer = await http.get(PATH, params={"filter": "a"}, headers={"Origin": "https://elsewhere.example"})
    assert answer.status_code == 403


async def test_a_page_that_may_read_here_may_follow(start: Start) -> None:
    server = await start(http=HttpSettings(port=(0,), cors_origins=("https://example.org",)))
    headers = {"Origin": "https://example.org"}
    async with (
        client_of(server) as http,
        http.stream("GET", PATH, params={"filter": "a"}, headers=headers) as response,
    ):
        assert response.headers["access-control-allow-origin"] == "https://example.org"


# How it ends


async def slow_follower(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection with little room that follows `a`, of which only the first block has been read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * KIB)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port_of(server, "http")))
    reader, writer = await asyncio.open_connection(sock=connection, limit=8 * KIB)
    writer.write(f"GET {PATH}?filter=a HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"\n\n")
    return reader, writer


async def test_who_reads_on_in_time_gets_everything(start: Start) -> None:
    server = await start(http=HttpSettings(port=(0,), write_buffer_bytes=16 * KIB))
    reader, writer = await slow_follower(server)
    [session] = server.broker.sessions.values()
    sent, received = 0, b""
    async with asyncio.timeout(20):
        while not session.outbox:
            publish(server, "a", "x" * 10 * KIB)
            sent += 1
            await asyncio.sleep(0)
        while received.count(b'data: {"type":"event"') < sent:
            received += await reader.read(KIB * KIB)
    assert server.broker.ledger.total == 0
    writer.close()


async def test_who_does_not_read_is_cut_and_comes_back_for_the_rest(start: Start) -> None:
    server = await start(
        http=HttpSettings(port=(0,), write_buffer_bytes=16 * KIB),
        outbox=OutboxSettings(messages=10),
        ring=RingSettings(messages=10_000, topic_bytes=MANY_BYTES, total_bytes=MANY_BYTES, partitions=1),
    )
    reader, writer = await slow_follower(server)
    sent = 0
    async with asyncio.timeout(20):
        while streams_of(server):
            publish(server, "a", "x" * 10 * KIB)
            sent += 1
            await asyncio.sleep(0)
    received = b""
    async with asyncio.timeout(20):
        while not received.endswith(b"\r\n0\r\n\r\n"):
            received += await reader.read(KIB * KIB)
    writer.close()
    [end] = [line for line in received.split(b"\n") if line.startswith(b'data: {"code"')]
    told = json.loads(end.removeprefix(b"data: "))
    assert (told["code"], told["retryable"]) == ("quota-exceeded", True)
    rows = list(server.broker.ledger.rows(client_id=told["client_id"]))
    cut = {(Reason.OUTBOX_FULL, Policy.DISCONNECT)}  # and perhaps one that came when it had gone
    assert cut <= {(row.reason, row.policy) for row in rows} <= {*cut, (Reason.NOT_CONNECTED, None)}
    got = received.count(b'data: {"type":"event"')
    assert 0 < got < sent
    lost = server.broker.ledger.total
    assert got + lost == sent
    last_id = [line for line in received.split(b"\n") if line.startswith(b"id: ")][-1].removeprefix(b"id: ")
    async with follow(server, "a", last_id=last_id.decode().strip()) as follower:
        assert [event.data["sequence"] for event in await follower.take(sent - got)] == [
            *range(got + 1, sent + 1)
        ]


async def test_a_topic_that_is_deleted_is_told_and_nothing_left_to_follow_ends_the_stream(
    server: Server,
) -> None:
    for topic in ("a", "b"):
        server.broker.declare_topic(topic)
    async with follow(server, "a", "b") as follower:
        server.broker.delete_topic("a")
        assert (await follower.next())[:2] == ("deleted", {"topic": "a"})
        publish(server, "b", 1)
        assert values_of(await follower.take(1)) == [1]
        server.broker.delete_topic("b")
        assert (await follower.next())[:2] == ("deleted", {"topic": "b"})
        end = await follower.next()
        assert (end.name, end.data["code"]) == ("end", "unknown-topic")
        assert await follower.is_over()
    await until_gone(server)


async def test_when_the_server_stops_everything_comes_and_then_a_last_word(start: Start) -> None:
    server = await start()
    async with follow(server, "a") as follower:
        publish(server, "a", 1)
        await start.stop(server)
        assert values_of(await follower.take(1)) == [1]
        end = await follower.next()
        assert (end.name, end.data["code"], end.data["retryable"]) == ("end", "shutting-down", True)
        assert await follower.is_over()


async def test_while_the_server_stops_nobody_begins_to_follow(server: Server) -> None:
    await server.http.close()
    async with client_of(server) as http:
        answer = await http.get(PATH, params={"filter": "a"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


async def test_who_is_not_known_any_more_is_sent_away(guarded: Server, tmp_path: Path) -> None:
    token = base64.b64encode(b"alice:secret").decode()
    async with follow(guarded, "mine/#", access_token=token) as follower:
        (tmp_path / "passwords").write_text("")
        guarded.reload()
        end = await follower.next()
        assert (end.name, end.data["code"]) == ("end", "bad-credentials")
        assert await follower.is_over()
    await until_gone(guarded)


@pytest.mark.parametrize("start_of", [{}, {"last": 10}])
async def test_who_may_not_follow_any_more_is_told_so(
    guarded: Server, tmp_path: Path, start_of: dict[str, Any]
) -> None:
    async with follow(guarded, "mine/#", "mine", auth=("alice", "secret"), **start_of) as follower:
        if start_of:
            assert (await follower.next()).name == "statement"
        (tmp_path / "acl").write_text("user alice\nsubscribe mine/a\n")
        guarded.reload()
        end = await follower.next()
        assert (end.name, end.data["code"], end.data["retryable"]) == ("end", "not-authorized", False)
        assert await follower.is_over()
    await until_gone(guarded)


async def test_a_past_that_cannot_be_read_ends_the_stream_with_its_reason(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start(data_dir=str(tmp_path / "data"), log=EVERYTHING, ring=RingSettings(messages=1))
    began = server.broker.history.cursor().encode()
    publish(server, "a", 1, 2, 3)
    await until(
        lambda: server.broker.log.last_offset >= server.broker.history.head,
        "the log did not reach the head",
        timeout_s=20,
        every_s=0,
    )

    async def fail(*_: object, **__: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(type(server.broker.log), "read", fail)
    async with follow(server, "a", last_id=began) as follower:
        end = await follower.next()
        assert (end.name, end.data["code"], end.data["retryable"]) == ("end", "storage-unavailable", True)
        assert await follower.is_over()
    await until_gone(server)
