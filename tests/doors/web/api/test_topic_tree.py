"""Topics level by level: pages, the last message of each, and only what a caller may read."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher

from penstock.app import Server
from penstock.core.settings import AccessSettings
from penstock.doors.web.api import topic_tree
from tests.doors.serving import EVERYTHING, Start, client_of

TREE = "/api/v1/topics/tree"
QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def publish(server: Server, *topics: str) -> None:
    """Let topics have a message."""
    for topic in topics:
        server.broker.publish_server(topic, b"x")


async def tree(http: httpx.AsyncClient, **asked: Any) -> dict[str, Any]:
    answer = await http.get(TREE, params=asked)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def counts(http: httpx.AsyncClient, **asked: Any) -> dict[str, int]:
    """The levels that begin without `$`, and the topics of each."""
    levels = (await tree(http, **asked))["levels"]
    return {level["name"]: level["topics"] for level in levels if not level["name"].startswith("$")}


async def test_levels_have_the_topics_below_them(server: Server, http: httpx.AsyncClient) -> None:
    publish(server, "a", "a/b/c", "a/b/d", "a/b-e", "b//x", "/x", "/")
    assert await counts(http) == {"": 2, "a": 4, "b": 1}
    page = await tree(http, under="a")
    assert [
        (level["name"], level["topic"], level["is_topic"], level["topics"]) for level in page["levels"]
    ] == [
        ("b", "a/b", False, 2),
        ("b-e", "a/b-e", True, 1),
    ]
    assert (page["under"], page["next"], page["total"]) == ("a", None, 3)
    assert await counts(http, under="") == {"": 1, "x": 1}
    assert await counts(http, under="b") == {"": 1}
    assert await counts(http, under="b/") == {"x": 1}
    assert await counts(http, under="none") == {}
    assert (await tree(http))["under"] is None


async def test_the_servers_own_topics_are_levels_too(server: Server, http: httpx.AsyncClient) -> None:
    page = await tree(http)
    (system,) = [level for level in page["levels"] if level["name"] == "$SYS"]
    assert system["topics"] == page["total"] > 5
    assert (await tree(http, under="$SYS"))["levels"][0]["topic"] == "$SYS/broker"


async def test_levels_come_a_page_at_a_time(server: Server, http: httpx.AsyncClient) -> None:
    publish(server, *(f"a/{number:03}/x" for number in range(130)))
    names: list[list[str]] = []
    after: dict[str, str] = {}
    while True:
        page = await tree(http, under="a", limit=60, **after)
        names.append([level["name"] for level in page["levels"]])
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert [len(some) for some in names] == [60, 60, 10]
    assert [name for some in names for name in some] == [f"{number:03}" for number in range(130)]
    assert (await tree(http, under="a", limit=130))["next"] is None
    assert await counts(http, under="a", after="128") == {"129": 1}
    assert await counts(http, under="a", after="128x") == {"129": 1}


async def test_a_topic_has_its_last_message_and_its_rate(server: Server, http: httpx.AsyncClient) -> None:
    for number in range(20):
        await http.post("/api/v1/publish", json={"topic": "a/value", "data": {"n": number}})
    await http.post("/api/v1/publish", json={"topic": "a/kept", "data": "v", "retain": True})
    await http.post("/api/v1/publish", params={"topic": "a/bytes"}, content=b"\xff")
    await http.post("/api/v1/publish", json={"topic": "a/large", "payload": "x" * 2_000})
    levels = {level["name"]: level for level in (await tree(http, under="a"))["levels"]}
    value = levels["value"]
    assert (value["published"], value["last"]["sequence"], value["last"]["data"]) == (20, 20, {"n": 19})
    assert (value["last"]["size"], value["last"]["is_cut"]) == (len(b'{"n":19}'), False)
    assert 0 < value["rate"] <= 2
    assert levels["kept"]["last"]["data"] == "v"
    assert levels["bytes"]["last"]["data"] == {"$bytes": "/w=="}
    large = levels["large"]["last"]
    assert (large["data"], large["size"], large["is_cut"]) == (None, 2_000, True)
    (level,) = [each for each in (await tree(http))["levels"] if each["name"] == "a"]
    assert (level["is_topic"], level["published"], level["rate"], level["last"]) == (False, 0, None, None)


async def test_topics_that_only_the_log_knows_are_there_after_a_restart(start: Start, tmp_path: Path) -> None:
    kept: dict[str, Any] = {"data_dir": str(tmp_path / "data"), "log": EVERYTHING}
    server = await start(**kept)
    async with client_of(server) as http:
        await http.post("/api/v1/publish", json={"topic": "a/b", "data": 1})
    await start.stop(server)
    server = await start(**kept)
    async with client_of(server) as http:
        (level,) = (await tree(http, under="a"))["levels"]
        assert (level["topic"], level["is_topic"], level["last"], level["rate"]) == ("a/b", True, None, None)
        assert (await http.delete("/topics/a%2Fb")).status_code == 204
        assert await counts(http, under="a") == {}


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"under": "a/+"}, "invalid-topic"),
        ({"under": "a\0"}, "invalid-topic"),
        ({"limit": 0}, "invalid-request"),
        ({"limit": 1001}, "invalid-request"),
        ({"filter": "a"}, "invalid-request"),
        ({"under": ["a", "b"]}, "invalid-request"),
    ],
)
async def test_what_makes_no_sense_is_refused(http: httpx.AsyncClient, asked: Any, code: str) -> None:
    answer = await http.get(TREE, params=asked)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


# Rights


@pytest.fixture
async def limited(start: Start, tmp_path: Path) -> Server:
    """A server whose users may read different parts of the tree."""
    users = ("all", "part", "wild", "none")
    (tmp_path / "passwords").write_text("".join(f"{user}:{QUICK.hash(user)}\n" for user in users))
    (tmp_path / "acl").write_text(
        "user all\nsubscribe #\nsubscribe $SYS/#\nsubscribe $penstock/#\n"
        "user part\nsubscribe plant/1/#\nsubscribe office\n"
        "user wild\nsubscribe plant/+/temp\nuser none\npublish #\n"
    )
    access = AccessSettings(password_file=str(tmp_path / "passwords"), acl_file=str(tmp_path / "acl"))
    server = await start(access=access)
    topics = (
        "plant/1/temp",
        "plant/1/rpm",
        "plant/2/temp",
        "plant/3/rpm",
        "office",
        "office/door",
        "secret/x",
    )
    publish(server, *topics)
    return server


@pytest.mark.parametrize(
    ("user", "under", "expected"),
    [
        ("all", None, {"office": 2, "plant": 4, "secret": 1}),
        ("part", None, {"office": 1, "plant": 2}),
        ("part", "plant", {"1": 2}),
        ("part", "plant/1", {"rpm": 1, "temp": 1}),
        ("part", "office", {}),
        ("part", "secret", {}),
        ("wild", None, {"plant": 2}),
        ("wild", "plant", {"1": 1, "2": 1}),
        ("wild", "plant/3", {}),
        ("none", None, {}),
        ("none", "plant", {}),
    ],
)
async def test_only_levels_with_topics_that_may_be_read_are_listed(
    limited: Server, user: str, under: str | None, expected: dict[str, int]
) -> None:
    async with client_of(limited, auth=(user, user)) as http:
        asked = {} if under is None else {"under": under}
        assert await counts(http, **asked) == expected
        total = (await tree(http, **asked))["total"]
        assert (total is not None) is (user == "all" or under == "plant/1")


async def test_a_topic_that_may_not_be_read_is_only_a_level(limited: Server) -> None:
    publish(limited, "plant")
    async with client_of(limited, auth=("part", "part")) as http:
        levels = {level["name"]: level for level in (await tree(http))["levels"]}
        assert (levels["plant"]["is_topic"], levels["plant"]["last"], levels["plant"]["topics"]) == (
            False,
            None,
            2,
        )
        assert (levels["office"]["last"]["data"], levels["office"]["last"]["encoding"]) == ("x", "text")


async def test_very_many_topics_are_not_counted_one_by_one(
    limited: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_tree, "MOST_COUNTED", 10)
    monkeypatch.setattr(topic_tree, "NAMES_A_SLICE", 4)
    publish(limited, *(f"plant/{number}/temp" for number in range(100, 150)))
    async with client_of(limited, auth=("wild", "wild")) as http:
        (level,) = (await tree(http))["levels"]
        assert (level["topics"] >= 10, level["topics"] < 20, level["more"]) == (True, True, True)
        page = await tree(http, under="plant", limit=20)
        assert (len(page["levels"]), page["levels"][0]["more"]) == (20, False)
