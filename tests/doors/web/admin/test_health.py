"""Whether the server lives and works, as those ask who watch over it."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock import __version__
from penstock.app import Server
from penstock.build import build_name
from penstock.common.cursor import Cursor
from penstock.core.settings import AccessSettings
from penstock.errors import StorageUnavailable
from tests.doors.serving import Start, client_of, mqtt_of


async def test_health_has_the_figures_of_a_server_that_works(server: Server, http: httpx.AsyncClient) -> None:
    async with mqtt_of(server) as client:
        await client.subscribe("a")
        await client.subscribe("b")
        await client.publish("a", b"x", qos=1)
        answer = await http.get("/health")
    told = answer.json()
    assert answer.status_code == 200
    assert told.pop("uptime_seconds") >= 0
    assert told == {
        "status": "healthy",
        "topic_count": 1,
        "active_subscriber_count": 2,
        "version": __version__,
        "build": build_name(),
        "node_id": server.node_id,
        "log": {"status": "ok", "durable": False, "epoch": 1},
    }


async def test_health_says_what_the_log_has_if_there_is_one(
    stored_server: Server, stored_http: httpx.AsyncClient
) -> None:
    receipt = (await stored_http.post("/api/v1/publish", json={"topic": "a", "data": 1})).json()
    last_offset = Cursor.decode(receipt["cursor"]).positions[0].offset
    assert (await stored_http.get("/health")).json()["log"] == {
        "status": "ok",
        "durable": True,
        "epoch": 1,
        "first_offset": 1,
        "last_offset": last_offset,
    }


async def test_topics_of_the_server_are_not_counted(server: Server, http: httpx.AsyncClient) -> None:
    assert len(server.broker.topics) > 0
    async with mqtt_of(server) as listener:
        await listener.subscribe("$penstock/drops")
        server.broker.publish_server("$penstock/drops", b"[]")
        assert (await http.get("/health")).json()["topic_count"] == 0


async def test_a_server_that_works_is_ready_and_alive(server: Server, http: httpx.AsyncClient) -> None:
    answer = await http.get("/ready")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready"})
    answer = await http.get("/livez")
    assert (answer.status_code, answer.json()) == (
        200,
        {"status": "alive", "components": {"broker": "ok", "log": "ok"}},
    )


async def test_a_log_that_fails_makes_the_server_degraded_and_not_ready(
    stored_server: Server, stored_http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = StorageUnavailable("the disk at /somewhere/secret is full")
    monkeypatch.setattr(type(stored_server.broker.log), "failure", failure)
    answer = await stored_http.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["log"]["status"] == "failing"
    answer = await stored_http.get("/ready")
    assert (answer.status_code, answer.json()["status"]) == (503, "not_ready")
    live = await stored_http.get("/livez")
    assert (live.status_code, live.json()["components"]["log"]) == (200, "failing")
    for open_answer in (answer, live, await stored_http.get("/health")):
        assert "secret" not in open_answer.text
    assert "secret" in (await stored_http.get("/cluster/status")).json()["details"]
    monkeypatch.undo()
    assert (await stored_http.get("/ready")).status_code == 200


async def test_a_log_whose_files_are_gone_makes_the_server_unhealthy(
    stored_server: Server, stored_http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(stored_server.broker.log), "has_ended", True)
    answer = await stored_http.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (503, "unhealthy")
    words = "nothing can be stored until a restart"
    assert (answer.json()["log"]["status"], answer.json()["log"]["details"]) == ("ended", words)
    answer = await stored_http.get("/ready")
    assert (answer.status_code, answer.json()) == (503, {"status": "not_ready", "details": words})
    live = await stored_http.get("/livez")
    assert (live.status_code, live.json()["components"]["log"]) == (200, "ended")
    cluster = await stored_http.get("/cluster/status")
    assert (cluster.status_code, cluster.json()["status"]) == (200, "unhealthy")


async def test_a_log_that_is_behind_makes_the_server_degraded_and_keeps_it_ready(
    stored_server: Server, stored_http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(stored_server.broker.log), "is_behind", True)
    health = (await stored_http.get("/health")).json()
    words = "the disk does not keep up, publishers wait"
    assert (health["status"], health["log"]["status"], health["log"]["details"]) == (
        "degraded",
        "behind",
        words,
    )
    assert (await stored_http.get("/ready")).status_code == 200
    assert (await stored_http.get("/livez")).json()["components"]["log"] == "behind"
    cluster = (await stored_http.get("/cluster/status")).json()
    assert (cluster["status"], cluster["details"]) == ("degraded", words)
    monkeypatch.undo()
    assert "details" not in (await stored_http.get("/health")).json()["log"]


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/ready", 503, {"status": "not_ready", "details": "the server is about to stop"}),
        ("/livez", 200, {"status": "alive", "components": {"broker": "draining", "log": "ok"}}),
    ],
)
async def test_a_server_that_is_about_to_stop_says_so(
    server: Server, http: httpx.AsyncClient, path: str, status: int, told: dict[str, Any]
) -> None:
    assert (await http.get(path)).status_code == 200
    server.http.is_draining = True  # nobody new comes in, and who is here has one more answer
    answer = await http.get(path)
    assert (answer.status_code, answer.json()) == (status, told)


async def test_health_needs_no_credentials_and_the_cluster_does(start: Start, tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("")
    server = await start(access=AccessSettings(password_file=str(tmp_path / "passwords")))
    async with client_of(server) as http:
        for path in ("/health", "/ready", "/livez"):
            assert (await http.get(path)).status_code == 200
        for path in ("/cluster/status", "/", "/api/v1", "/docs", "/openapi.json", "/api/v1/topics"):
            answer = await http.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"].startswith("Basic")


@pytest.mark.parametrize(
    ("passwords", "rules"), [("", None), (None, "anonymous\nsubscribe #\n"), ("", "anonymous\nsubscribe a\n")]
)
async def test_a_stranger_learns_no_more_of_a_guarded_server_than_that_it_works(
    start: Start, tmp_path: Path, passwords: str | None, rules: str | None
) -> None:
    files: dict[str, Any] = {}
    for key, text in (("password_file", passwords), ("acl_file", rules)):
        if text is not None:
            (tmp_path / key).write_text(text)
            files[key] = str(tmp_path / key)
    server = await start(access=AccessSettings(**files))
    async with client_of(server) as http:
        told = (await http.get("/health")).json()
    is_open = passwords is None  # without a user nobody connects
    counts = {"topic_count", "active_subscriber_count"} if is_open else set()
    assert set(told) == {"status", "uptime_seconds"} | counts


async def test_where_strangers_may_see_everything_health_tells_it(start: Start, tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("anonymous\nsubscribe $SYS/#\n")
    server = await start(access=AccessSettings(acl_file=str(tmp_path / "acl")))
    async with client_of(server) as http:
        assert (await http.get("/health")).json()["node_id"] == server.node_id


@pytest.mark.parametrize("path", ["/health", "/ready", "/livez", "/cluster/status"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_there_is_nothing_but_to_ask(http: httpx.AsyncClient, path: str, method: str) -> None:
    answer = await http.request(method, path)
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]


async def test_a_lone_server_is_a_cluster_of_one(server: Server, http: httpx.AsyncClient) -> None:
    async with mqtt_of(server) as client:
        await client.subscribe("a")
        await client.publish("a", b"x", qos=1, retain=True)
        told = (await http.get("/cluster/status")).json()
    assert told == {
        "status": "healthy",
        "node_id": server.node_id,
        "is_leader": True,
        "cluster_mode": False,
        "node_count": 1,
        "sessions": 1,
        "connections": 1,
        "subscriptions": 1,
        "retained_messages": 1,
        "topics": 1,
        "details": "",
        "cluster": {"node_id": server.node_id, "leader": server.node_id, "nodes": 1},
    }
