"""Why a client did not get a message, over HTTP, and who may ask."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher

from penstock.app import Server
from penstock.core.settings import AccessSettings, OutboxSettings
from tests.doors.serving import EVERYTHING, Start, client_of, mqtt_of
from tests.doors.web.admin.test_clients import lasting


async def ask(http: httpx.AsyncClient, **asked: Any) -> dict[str, Any]:
    answer = await http.get("/api/v1/why", params=asked)
    assert answer.status_code == 200, answer.text
    said: dict[str, Any] = answer.json()
    return said


async def test_a_dropped_message_has_its_reason_and_a_sentence(start: Start) -> None:
    server = await start(outbox=OutboxSettings(messages=1))
    async with client_of(server) as http, mqtt_of(server, "reader") as reader, mqtt_of(server, "other"):
        await reader.subscribe("a")
        server.broker.pause(server.broker.sessions["reader"])
        for payload in (b"1", b"2"):
            server.broker.publish_server("a", payload)
        said = await ask(http, topic="a", sequence=2, client="reader")
        assert (said["code"], said["client_id"], said["newest"]) == ("not-delivered", "reader", 2)
        assert said["text"].endswith(".")
        (row,) = said["rows"]
        assert row.pop("first_at") <= row.pop("last_at")
        assert row == {
            "client_id": "reader",
            "reason": "outbox-full",
            "policy": "drop-newest",
            "setting": "outbox",
            "first": 2,
            "last": 2,
            "count": 1,
        }
        assert (said["message"]["qos"], said["message"]["door"]) == (0, "server")
        assert (await ask(http, topic="a", sequence=1, client="reader"))["code"] == "waiting"
        assert (await ask(http, topic="a", sequence=3, client="reader"))["code"] == "not-published"
        assert (await ask(http, topic="a", sequence=2, client="other"))["code"] == "no-subscription"
        assert (await ask(http, topic="a", sequence=2, client="nobody"))["code"] == "no-session"
        everyone = await ask(http, topic="a", sequence=2)
        assert (everyone["code"], everyone["client_id"]) == ("published", None)
        assert [row["client_id"] for row in everyone["rows"]] == ["reader"]


@pytest.mark.parametrize("kind", ["memory", "disk"])
async def test_a_message_that_waits_for_an_absent_client_is_found(
    start: Start, tmp_path: Path, kind: str
) -> None:
    stored: dict[str, Any] = {"data_dir": str(tmp_path / "data"), "log": EVERYTHING} if kind == "disk" else {}
    server = await start(**stored)
    async with mqtt_of(server, "reader", **lasting()) as reader:
        await reader.subscribe("a/#", qos=1)
    async with mqtt_of(server, "sender") as sender:
        for topic in ("a", "a/b", "a"):
            await sender.publish(topic, b"x", qos=1)
    async with client_of(server) as http:
        said = await ask(http, topic="a", sequence=2, client="reader")
    assert said["code"] == "waiting"
    assert said["waiting"] == [{"client_id": "reader", "place": "owed", "ahead": 2, "connected": False}]


async def test_a_message_that_was_delivered_has_no_record(server: Server, http: httpx.AsyncClient) -> None:
    async with mqtt_of(server, "reader") as reader:
        await reader.subscribe("a", qos=1)
        async with mqtt_of(server, "sender") as sender:
            await sender.publish("a", b"x", qos=1)
        await anext(aiter(reader.messages))
        while (said := await ask(http, topic="a", sequence=1, client="reader"))["code"] == "in-flight":
            pass  # its acknowledgement is on the way
    assert (said["code"], said["filters"]) == ("no-record", ["a"])
    assert (said["message"]["client_id"], said["message"]["door"]) == ("sender", "mqtt")


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"topic": "a/#", "sequence": "1"}, "invalid-topic"),
        ({"topic": "a"}, "invalid-request"),
        ({"sequence": "1"}, "invalid-request"),
        ({"topic": "a", "sequence": "first"}, "invalid-request"),
        ({"topic": "a", "sequence": "-1"}, "invalid-request"),
        ({"topic": "a", "sequence": "1", "client": ""}, "invalid-request"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(
    http: httpx.AsyncClient, asked: dict[str, str], code: str
) -> None:
    answer = await http.get("/api/v1/why", params=asked)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


async def test_users_may_ask_about_their_own_sessions_and_no_others(start: Start, tmp_path: Path) -> None:
    passwords, rules = tmp_path / "passwords", tmp_path / "acl"
    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    lines = [f"{user}:{quick.hash(user)}\n" for user in ("ann", "bob", "root")]
    passwords.write_text("".join(lines))
    rules.write_text("user ann\nboth a\nuser bob\nboth a\nuser root\nsubscribe $SYS/#\n")
    access = AccessSettings(password_file=str(passwords), acl_file=str(rules))
    server = await start(access=access)
    mine = {"topic": "a", "sequence": "1", "client": "ann-1"}

    async def status(user: str, **asked: str) -> int:
        async with client_of(server, auth=(user, user)) as http:
            return (await http.get("/api/v1/why", params=asked)).status_code

    async with mqtt_of(server, "ann-1", username="ann", password="ann") as client:
        await client.publish("a", b"x", qos=1)
        assert await status("ann", **mine) == 200
        assert await status("bob", **mine) == 403
        assert await status("ann", topic="a", sequence="1") == 403
        assert await status("ann", topic="a", sequence="1", client="nobody") == 403
        assert await status("ann", topic="b", sequence="1", client="ann-1") == 403
        assert await status("root", **mine) == 200
        assert await status("root", topic="b", sequence="1") == 200
