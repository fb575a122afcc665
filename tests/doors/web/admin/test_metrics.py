"""The server's figures over HTTP, and that they are what really happened."""

from collections.abc import Callable
from json import loads
from pathlib import Path
from typing import Any

import aiomqtt
import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics

from penstock.app import Server
from penstock.core.runtime.tick import NOT_READ
from penstock.core.settings import AccessSettings, OutboxSettings
from penstock.telemetry.settings import MetricsSettings
from tests.doors.serving import Start, client_of, mqtt_of
from tests.telemetry.scenes import samples_of

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
"""What Prometheus sends."""
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
JSON = "application/json"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
PINGREQ = b"\xc0\x00"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", JSON),
        ("*/*", JSON),
        (JSON, JSON),
        (BROWSER, JSON),
        ("text/plain", TEXT),
        ("text/plain;version=0.0.4;q=0.5, application/json;q=0.4", TEXT),
        ("application/openmetrics-text", OPENMETRICS),
        (PROMETHEUS, OPENMETRICS),
    ],
)
async def test_the_caller_chooses_the_form(http: httpx.AsyncClient, accept: str, kind: str) -> None:
    answer = await http.get("/metrics", headers={"Accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    parsers: dict[str, Callable[[str], Any]] = {JSON: loads, TEXT: samples_of, OPENMETRICS: read_openmetrics}
    assert list(parsers[kind](answer.text))


async def test_a_form_that_there_is_not_is_refused(http: httpx.AsyncClient) -> None:
    answer = await http.get("/metrics", headers={"Accept": "image/png"})
    assert answer.status_code == 406
    assert "application/openmetrics-text" in answer.json()["detail"]


@pytest.mark.parametrize("accept", ["", "*/*", JSON, "image/png"])
async def test_the_address_for_prometheus_never_answers_with_json(
    http: httpx.AsyncClient, accept: str
) -> None:
    answer = await http.get("/metrics/prometheus", headers={"Accept": accept})
    assert answer.headers["content-type"] == TEXT
    assert samples_of(answer.text)


async def test_prometheus_gets_openmetrics_at_its_own_address_too(http: httpx.AsyncClient) -> None:
    answer = await http.get("/metrics/prometheus", headers={"Accept": PROMETHEUS})
    assert answer.headers["content-type"] == OPENMETRICS


async def take(client: aiomqtt.Client, count: int) -> None:
    """Read as many messages."""
    async for _ in client.messages:
        count -= 1
        if not count:
            return


async def test_figures_agree_with_what_happened_over_mqtt(start: Start) -> None:
    server = await start(outbox=OutboxSettings(messages=4))
    async with (
        client_of(server) as http,
        mqtt_of(server, "quick") as quick,
        mqtt_of(server, "slow") as slow,
        mqtt_of(server, "sender") as sender,
    ):
        await quick.subscribe("a/#", qos=1)
        await slow.subscribe("a/1")
        server.broker.pause(server.broker.sessions["slow"])
        for number in range(30):
            await sender.publish(f"a/{number % 3}", b"x", qos=1)
        await sender.publish("b", b"x", qos=1)
        await take(quick, 30)
        told = (await http.get("/metrics")).json()
        topics = told["topics"]
        assert [topics[name]["messages_published"] for name in ("a/0", "a/1", "a/2", "b")] == [10, 10, 10, 1]
        assert [topics[name]["messages_delivered"] for name in ("a/0", "a/1", "a/2", "b")] == [10, 10, 10, 0]
        assert [topics[name]["messages_dropped"] for name in ("a/0", "a/1")] == [0, 6]
        assert [topics[name]["queue_depth"] for name in ("a/0", "a/1")] == [0, 4]
        assert [topics[name]["subscriber_count"] for name in ("a/0", "a/1", "b")] == [1, 2, 0]
        assert topics["a/0"]["latency_ms"]["avg"] > 0
        total = told["global"]
        assert (total["total_published"], total["total_delivered"], total["total_dropped"]) == (31, 30, 6)
        assert (total["active_topics"], total["active_subscribers"]) == (4, 2)
        server.broker.unpause(server.broker.sessions["slow"])
        await take(slow, 4)
        text = samples_of((await http.get("/metrics/prometheus")).text)
        assert text["penstock_messages_delivered_total", (("topic", "a/1"),)] == 14
        assert text["penstock_messages_published_total", (("topic", "b"),)] == 1
        assert text["penstock_connections", (("door", "mqtt"),)] == 3
        assert text["penstock_connections", (("door", "http"),)] == 1
        assert text["penstock_http_requests_total", ()] >= 1
        assert text["penstock_delivery_latency_seconds_count", ()] >= 1


async def test_a_chunk_without_messages_does_not_begin_the_next_turn(server: Server) -> None:
    async with mqtt_of(server) as client:
        await client.publish("a", b"x", qos=1)
        (connection,) = server.mqtt.connections
        tick = server.broker._node.tick
        tick._last_chunk_at = float("inf")  # as if another chunk had come in the same moment
        connection.data_received(PINGREQ)
        assert (tick.is_open, tick.read_at) == (False, NOT_READ)


async def test_a_server_with_a_data_directory_tells_of_its_log(
    stored_server: Server, stored_http: httpx.AsyncClient
) -> None:
    async with mqtt_of(stored_server) as client:
        await client.publish("a", b"x", qos=1)
    text = samples_of((await stored_http.get("/metrics/prometheus")).text)
    assert text["penstock_log_last_offset", ()] == stored_server.broker.log.last_offset
    assert (text["penstock_log_failing", ()], text["penstock_log_holds", ()]) == (0, 0)
    assert text["penstock_log_stored_bytes", ()] > 0


async def test_settings_are_heeded(start: Start) -> None:
    metrics = MetricsSettings(topics=1, json_topics=1, nexusd_names=True, mqtt_names=True)
    server = await start(metrics=metrics)
    async with client_of(server) as http, mqtt_of(server) as client:
        for name in ("a", "b", "b"):
            await client.publish(name, b"x", qos=1)
        told = (await http.get("/metrics")).json()
        assert (list(told["topics"]), told["topics_left_out"]) == (["b"], 1)
        text = samples_of((await http.get("/metrics/prometheus")).text)
        assert text["nexusd_messages_published_total", (("topic", "other_topics"),)] == 1
        assert text["mqtt_messages_received_total", ()] == 3


async def test_topics_can_be_asked_for(server: Server, http: httpx.AsyncClient) -> None:
    async with mqtt_of(server) as client:
        for name in ("a", "b/c d", "e"):
            await client.publish(name, b"x", qos=1)
        told = (await http.get("/metrics", params={"topic": ["b/c d", "unknown", "a"]})).json()
    assert list(told["topics"]) == ["b/c d", "a"]
    assert (told["topics"]["a"]["messages_published"], told["global"]["total_published"]) == (1, 3)


@pytest.mark.parametrize(
    ("topics", "accept"),
    [(["t"] * 101, JSON), ([""], JSON), (["a"], "text/plain"), (["a"], "application/openmetrics-text")],
)
async def test_what_cannot_be_told_of_topics_is_refused(
    http: httpx.AsyncClient, topics: list[str], accept: str
) -> None:
    answer = await http.get("/metrics", params={"topic": topics}, headers={"Accept": accept})
    assert (answer.status_code, "topic" in answer.json()["detail"]) == (400, True)


async def test_as_many_topics_as_allowed_can_be_asked_for(http: httpx.AsyncClient) -> None:
    answer = await http.get("/metrics", params={"topic": [f"t{number}" for number in range(100)]})
    assert (answer.status_code, answer.json()["topics"]) == (200, {})


async def test_only_the_busiest_topics_are_listed_if_few_are_asked_for(
    server: Server, http: httpx.AsyncClient
) -> None:
    for topic in ("calm", "busy", "busy"):
        await http.post("/api/v1/publish", json={"topic": topic, "data": 1})
    answer = (await http.get("/metrics", params={"limit": 1})).json()
    assert (list(answer["topics"]), answer["topics_left_out"]) == (["busy"], 1)
    answer = (await http.get("/metrics", params={"limit": 0})).json()
    assert (answer["topics"], answer["global"]["total_published"]) == ({}, 3)


@pytest.mark.parametrize("query", ["limit=-1", "limit=x", "limit=100001", "limit=1&topic=a"])
async def test_a_limit_that_makes_no_sense_is_refused(http: httpx.AsyncClient, query: str) -> None:
    assert (await http.get(f"/metrics?{query}")).status_code == 400


async def test_figures_are_not_for_everyone(start: Start, tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\nboth #\n", encoding="utf-8")
    server = await start(access=AccessSettings(acl_file=str(rules), allow_anonymous=True))
    async with client_of(server) as http:
        for path in ("/metrics", "/metrics?topic=a", "/metrics/prometheus"):
            answer = await http.get(path)
            assert answer.status_code == 403
            assert "$SYS/#" in answer.json()["detail"]
