"""Which topics there are: by name, in pages, for those who may know."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.app import Server
from penstock.core.settings import AccessSettings
from tests.doors.serving import EVERYTHING, Start, client_of, mqtt_of


def publish(server: Server, *topics: str) -> None:
    """Let topics have a message."""
    for topic in topics:
        server.broker.publish_server(topic, b"x")


async def names(http: httpx.AsyncClient, **asked: Any) -> list[str]:
    answer = await http.get("/api/v1/topics", params=asked)
    assert answer.status_code == 200, answer.text
    return [topic["name"] for topic in answer.json()["topics"]]


async def test_topics_come_by_name_a_page_at_a_time(server: Server, http: httpx.AsyncClient) -> None:
    publish(server, "b", "a/c", "a", "B", "a/b")
    first = (await http.get("/api/v1/topics", params={"limit": 3})).json()
    assert [topic["name"] for topic in first["topics"]] == ["B", "a", "a/b"]
    assert (first["next"], first["matching"]) == ("a/b", 5)
    second = (await http.get("/api/v1/topics", params={"limit": 3, "after": first["next"]})).json()
    assert [topic["name"] for topic in second["topics"]] == ["a/c", "b"]
    assert (second["next"], second["matching"]) == (None, 5)


async def test_a_page_that_is_just_full_is_the_last_one(server: Server, http: httpx.AsyncClient) -> None:
    publish(server, "a", "b")
    page = (await http.get("/api/v1/topics", params={"limit": 2})).json()
    assert page["next"] is None


async def test_topics_are_found_by_a_part_of_their_name_and_by_filter(
    server: Server, http: httpx.AsyncClient
) -> None:
    publish(server, "cellar/temp", "roof/temp", "roof/wind")
    assert await names(http, search="temp") == ["cellar/temp", "roof/temp"]
    assert await names(http, filter="roof/+") == ["roof/temp", "roof/wind"]
    assert await names(http, filter="roof/#", search="temp") == ["roof/temp"]
    assert await names(http, search="+") == []


@pytest.mark.parametrize(
    ("filter", "meant"),
    [
        ("a/#", ["a", "a/", "a/b"]),
        ("a", ["a"]),
        ("a/+", ["a/", "a/b"]),
        ("/#", ["/a"]),
        ("/+", ["/a"]),
        ("+/a", ["/a"]),
        ("#", ["/a", "a", "a/", "a/b", "ab"]),
        ("+", ["a", "ab"]),
    ],
)
async def test_a_filter_means_what_it_means_to_subscribers(
    server: Server, http: httpx.AsyncClient, filter: str, meant: list[str]
) -> None:
    publish(server, "a", "a/", "a/b", "/a", "ab")
    assert await names(http, filter=filter) == meant


async def test_topics_of_the_server_come_only_when_asked_for(server: Server, http: httpx.AsyncClient) -> None:
    publish(server, "plain")
    assert await names(http) == ["plain"]
    assert "$SYS/broker/version" in await names(http, search="$SYS", limit=1000)
    assert "$SYS/broker/version" in await names(http, filter="$SYS/#", limit=1000)


async def test_a_topic_is_told_with_what_is_known_of_it(start: Start) -> None:
    server = await start()
    async with client_of(server) as http, mqtt_of(server) as reader, mqtt_of(server) as sender:
        await reader.subscribe("a/+", qos=1)
        await sender.publish("a/b", b"1", qos=1)
        await sender.publish("a/b", b"2", qos=1, retain=True)
        (topic,) = (await http.get("/api/v1/topics")).json()["topics"]
    assert topic == {
        "name": "a/b",
        "sequence": 2,
        "published": 2,
        "subscribers": 1,
        "retained": True,
        "ring_messages": 2,
        "kept": False,
    }


async def test_a_topic_whose_only_message_is_its_value_has_that_in_memory(
    server: Server, http: httpx.AsyncClient
) -> None:
    server.broker.publish_server("value", b"x", retain=True)
    (topic,) = (await http.get("/api/v1/topics")).json()["topics"]
    assert (topic["retained"], topic["ring_messages"]) == (True, 1)


async def test_topics_of_a_server_with_a_log_are_kept(
    stored_server: Server, stored_http: httpx.AsyncClient
) -> None:
    publish(stored_server, "a")
    (topic,) = (await stored_http.get("/api/v1/topics")).json()["topics"]
    assert topic["kept"] is True


@pytest.mark.parametrize("filter", ["a/#/b", "a+", "$share/group/a"])
async def test_what_is_no_filter_is_refused(http: httpx.AsyncClient, filter: str) -> None:
    answer = await http.get("/api/v1/topics", params={"filter": filter})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-filter")


async def test_only_topics_that_may_be_read_are_named_and_counted(start: Start, tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\nsubscribe mine/#\n")
    server = await start(access=AccessSettings(acl_file=str(rules)))
    publish(server, "mine/a", "theirs/a", "mine/b")
    async with client_of(server) as http:
        page = (await http.get("/api/v1/topics")).json()
        assert [topic["name"] for topic in page["topics"]] == ["mine/a", "mine/b"]
        assert (page["matching"], page["total"]) == (2, None)
        assert await names(http, filter="theirs/#") == []
        assert await names(http, filter="$SYS/#") == []


async def test_who_may_see_everything_is_told_how_many_topics_there_are(
    server: Server, http: httpx.AsyncClient
) -> None:
    publish(server, "a")
    page = (await http.get("/api/v1/topics")).json()
    assert page["total"] == len(server.broker.topics)


async def test_very_many_topics_are_looked_through(
    server: Server, http: httpx.AsyncClient, scale: int
) -> None:
    count = 10_000 * scale
    publish(server, *(f"many/{number:07}" for number in range(count)))
    page = (await http.get("/api/v1/topics", params={"search": "9", "after": "many/0000010"})).json()
    assert page["topics"][0]["name"] == "many/0000019"
    assert page["matching"] == sum("9" in f"{number:07}" for number in range(count))


async def test_a_parameter_that_there_is_not_is_refused_by_its_name(http: httpx.AsyncClient) -> None:
    answer = await http.get("/api/v1/topics", params={"serach": "a"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-request")
    assert "serach" in answer.json()["detail"]


async def test_a_parameter_given_twice_is_refused(http: httpx.AsyncClient) -> None:
    answer = await http.get("/api/v1/topics?limit=1&limit=2")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-request")


@pytest.mark.parametrize("limit", ["0", "10001", "many", ""])
async def test_a_limit_out_of_bounds_is_refused_with_its_place(http: httpx.AsyncClient, limit: str) -> None:
    answer = await http.get("/api/v1/topics", params={"limit": limit})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == "invalid-request"
    assert [error["where"] for error in problem["errors"]] == ["query.limit"]


async def test_topics_from_before_a_restart_are_listed_though_nobody_has_used_them_since(
    start: Start, tmp_path: Path
) -> None:
    stored: dict[str, Any] = {"data_dir": str(tmp_path / "data"), "log": EVERYTHING}
    server = await start(**stored)
    async with client_of(server) as http:
        for name in ("old/1", "old/1", "old/2", "old/3", "old/gone"):
            assert (await http.post("/api/v1/publish", json={"topic": name, "data": 1})).status_code == 200
        assert (await http.delete("/topics/old%2Fgone")).status_code == 204
    await start.stop(server)
    server = await start(**stored)
    async with client_of(server) as http, mqtt_of(server) as reader:
        await reader.subscribe("old/2")
        await http.post("/api/v1/publish", json={"topic": "old/3", "data": 2})
        page = (await http.get("/api/v1/topics", params={"filter": "old/#"})).json()
        rows = {row["name"]: row for row in page["topics"]}
        assert list(rows) == ["old/1", "old/2", "old/3"]
        assert [row["sequence"] for row in rows.values()] == [2, 1, 2]
        assert [row["published"] for row in rows.values()] == [0, 0, 1]
        assert [row["subscribers"] for row in rows.values()] == [0, 1, 0]
        assert all(row["kept"] for row in rows.values())
        assert page["matching"] == 3
        assert await names(http, search="1") == ["old/1"]
        assert len(server.broker.topics) < page["total"], "asking does not load them"
        assert (await http.delete("/topics/old%2F1")).status_code == 204
        assert await names(http, filter="old/#") == ["old/2", "old/3"]
