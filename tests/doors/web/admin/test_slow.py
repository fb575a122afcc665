"""Who cannot keep up, over HTTP."""

import httpx

from penstock.app import Server
from penstock.core.settings import OutboxSettings, SlowSettings
from tests.doors.serving import Start, client_of, mqtt_of


async def test_nobody_is_slow_at_first(server: Server, http: httpx.AsyncClient) -> None:
    async with mqtt_of(server, "reader"):
        assert (await http.get("/api/v1/slow")).json() == {"slow": [], "count": 0, "total": 0, "left_out": 0}


async def test_a_client_is_slow_until_it_has_caught_up_and_is_remembered_after_that(start: Start) -> None:
    server = await start(outbox=OutboxSettings(messages=1))
    broker = server.broker
    async with client_of(server) as http, mqtt_of(server, "reader") as reader:
        await reader.subscribe("a")
        session = broker.sessions["reader"]
        broker.pause(session)
        for payload in (b"1", b"2", b"3"):
            broker.publish_server("a", payload)
        told = (await http.get("/api/v1/slow")).json()
        assert (told["count"], told["total"]) == (1, 1)
        (row,) = told["slow"]
        assert (row["client_id"], row["door"], row["connected"]) == ("reader", "mqtt", True)
        assert (row["is_slow"], row["recovered"], row["dropped"]) == (True, False, 2)
        assert (row["waiting_messages"], row["policy"]) == (1, "drop-newest")
        assert row["since"] <= row["last_slow_at"]
        assert (await http.get("/api/v1/clients/reader")).json()["is_slow"]
        broker.unpause(session)
        broker.reap()
        assert not (await http.get("/api/v1/clients/reader")).json()["is_slow"]
        told = (await http.get("/api/v1/slow")).json()
        assert told["count"] == 0
        assert [(row["is_slow"], row["recovered"]) for row in told["slow"]] == [(False, True)]


async def test_who_waits_for_a_moment_is_not_slow_wherever_one_asks(start: Start) -> None:
    server = await start(slow=SlowSettings(after_ms=600_000))  # a moment may be long on a busy machine
    async with client_of(server) as http, mqtt_of(server, "reader") as reader:
        await reader.subscribe("a")
        server.broker.pause(server.broker.sessions["reader"])
        server.broker.publish_server("a", b"1")
        told = (await http.get("/api/v1/clients/reader")).json()
        assert (told["waiting_messages"], told["is_slow"]) == (1, False)
        assert (await http.get("/api/v1/slow")).json()["count"] == 0


async def test_who_was_slow_is_forgotten_after_a_while(start: Start) -> None:
    server = await start(outbox=OutboxSettings(messages=1), slow=SlowSettings(keep_s=0.0))
    broker = server.broker
    async with client_of(server) as http, mqtt_of(server, "reader") as reader:
        await reader.subscribe("a")
        session = broker.sessions["reader"]
        broker.pause(session)
        for payload in (b"1", b"2"):
            broker.publish_server("a", payload)
        assert len((await http.get("/api/v1/slow")).json()["slow"]) == 1
        broker.unpause(session)
        broker.reap()
        assert (await http.get("/api/v1/slow")).json()["slow"] == []
