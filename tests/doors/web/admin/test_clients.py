"""Who is known, as those see it who may."""

from datetime import datetime, timedelta
from pathlib import Path
from time import time_ns
from typing import Any

import aiomqtt
import httpx
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.subscribeoptions import SubscribeOptions

import penstock
from penstock.app import Server
from penstock.core.settings import AccessSettings
from penstock.doors.web.support.schemas import microseconds
from tests.doors.serving import Start, client_of, mqtt_of, mqtt_properties, port_of
from tests.doors.web.following import follow
from tests.doors.web.socket.talking import Talker
from tests.support.waiting import until


def lasting(seconds: int = 100) -> dict[str, Any]:
    """For a session that outlives its connection."""
    properties = mqtt_properties(PacketTypes.CONNECT, SessionExpiryInterval=seconds)
    return {"properties": properties, "clean_start": False}


async def listed(http: httpx.AsyncClient, **asked: Any) -> dict[str, Any]:
    answer = await http.get("/api/v1/clients", params=asked)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def ids(page: dict[str, Any]) -> list[str]:
    return [client["client_id"] for client in page["clients"]]


async def test_clients_come_by_id_a_page_at_a_time(server: Server, http: httpx.AsyncClient) -> None:
    async with mqtt_of(server, "c"), mqtt_of(server, "a"), mqtt_of(server, "b"):
        first = await listed(http, limit=2)
        assert (ids(first), first["next"], first["matching"], first["total"]) == (["a", "b"], "b", 3, 3)
        second = await listed(http, limit=2, after="b")
        assert (ids(second), second["next"]) == (["c"], None)


async def test_clients_are_found_by_a_part_of_their_id_and_by_being_there(
    server: Server, http: httpx.AsyncClient
) -> None:
    async with mqtt_of(server, "pump-1", **lasting()):
        pass
    async with mqtt_of(server, "pump-2"), mqtt_of(server, "valve"):
        assert ids(await listed(http, search="pump")) == ["pump-1", "pump-2"]
        assert ids(await listed(http, connected=True)) == ["pump-2", "valve"]
        assert ids(await listed(http, connected=False)) == ["pump-1"]
        assert ids(await listed(http, search="pump", connected=True)) == ["pump-2"]


async def test_a_client_of_grpc_is_called_by_its_own_id(server: Server, http: httpx.AsyncClient) -> None:
    address = f"127.0.0.1:{port_of(server, 'grpc')}"
    async with (
        penstock.connect(address, client_id="worker") as worker,
        penstock.connect(address, client_id="controller") as controller,
        worker.subscribe("a"),
        worker.subscribe("b/#"),
    ):
        await controller.publish("a", b"1")
        page = await listed(http)
        assert (ids(page), page["total"]) == (["controller", "worker"], 2)
        assert [(each["connections"], each["subscriptions"]) for each in page["clients"]] == [(1, 0), (2, 2)]
        assert {each["door"] for each in page["clients"]} == {"sidecar"}
        assert ids(await listed(http, connected=False)) == []
        told = (await http.get("/api/v1/clients/worker")).json()
        assert [each["filter"] for each in told["filters"]] == ["a", "b/#"]
        assert sorted(each["filters"] for each in told["streams"]) == [["a"], ["b/#"]]
        for each in told["streams"]:
            of_stream = (await http.get(f"/api/v1/clients/{each['session_id']}")).json()
            assert (of_stream["client_id"], of_stream["connections"]) == ("worker", 1)
        publisher = (await http.get("/api/v1/clients/controller")).json()
        assert [each["session_id"] for each in publisher["streams"]] == [None]
        assert publisher["address"].startswith("127.0.0.1:")
        asked: dict[str, str | int] = {"topic": "a", "sequence": 1, "client": "worker"}
        said = (await http.get("/api/v1/why", params=asked)).json()
        assert (said["code"], said["client_id"], said["filters"]) == ("no-record", "worker", ["a"])
    await until(lambda: not server.broker.clients.ids(), "a client is still listed")
    said = (await http.get("/api/v1/why", params=asked)).json()
    assert said["code"] == "no-session"


async def test_a_connected_client_is_told_with_what_it_asked_for(
    server: Server, http: httpx.AsyncClient
) -> None:
    will = aiomqtt.Will("last/words", b"bye", qos=1, retain=True)
    subscribing = mqtt_properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=7)
    options = SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True)
    async with mqtt_of(server, "a/b c", will=will, **lasting()) as client:
        await client.subscribe("x/#", options=options, properties=subscribing)
        answer = await http.get("/api/v1/clients/a%2Fb%20c")
        told = answer.json()
    assert told["client_id"] == "a/b c"
    assert (told["user"], told["door"], told["connected"]) == (None, "mqtt", True)
    assert (told["left_at"], told["expires_at"], told["expiry_s"]) == (None, None, 100)
    assert (told["subscriptions"], told["is_slow"]) == (1, False)
    assert told["filters"] == [
        {
            "filter": "x/#",
            "qos": 1,
            "no_local": True,
            "retain_as_published": True,
            "identifier": 7,
            "marks": False,
            "policy": "drop-newest",
        }
    ]
    assert told["has_will"]
    assert told["will"] == {
        "topic": "last/words",
        "qos": 1,
        "retain": True,
        "payload_bytes": 3,
        "delay_s": 0.0,
    }


async def test_an_absent_client_is_told_with_what_it_is_owed(server: Server, http: httpx.AsyncClient) -> None:
    async with mqtt_of(server, "reader", **lasting()) as reader:
        await reader.subscribe("a", qos=1)
    async with mqtt_of(server) as sender:
        for _ in range(3):
            await sender.publish("a", b"x", qos=1)
    told = (await http.get("/api/v1/clients/reader")).json()
    assert (told["connected"], told["owed_messages"], told["in_flight"]) == (False, 3, 0)
    gone, forgotten = (datetime.fromisoformat(told[key]) for key in ("left_at", "expires_at"))
    assert forgotten - gone == timedelta(seconds=100)
    assert (told["connected_at"], told["will"]) == (None, None)


async def test_a_client_is_told_with_when_it_came(server: Server, http: httpx.AsyncClient) -> None:
    times = []
    for _ in range(2):
        before = time_ns() // 1000
        async with mqtt_of(server, "reader", **lasting()):
            told = (await http.get("/api/v1/clients/reader")).json()
            assert told == (await http.get("/api/v1/clients/reader")).json()
        times.append(microseconds(told["connected_at"]))
        assert before <= times[-1] <= time_ns() // 1000
    assert times[0] < times[1]


async def test_what_waits_for_a_client_that_reads_nothing_is_counted(
    server: Server, http: httpx.AsyncClient
) -> None:
    async with mqtt_of(server, "reader") as reader:
        await reader.subscribe("a", qos=1)
        session = server.broker.sessions["reader"]
        server.broker.pause(session)
        server.broker.publish_server("a", b"12345")
        (told,) = (await listed(http, search="reader"))["clients"]
        assert (told["waiting_messages"], told["waiting_bytes"]) == (1, 5)
        server.broker.unpause(session)


async def test_what_is_not_acknowledged_is_in_flight(server: Server, http: httpx.AsyncClient) -> None:
    async with mqtt_of(server, "reader") as reader:
        reader._client.manual_ack_set(True)
        await reader.subscribe("a", qos=1)
        async with mqtt_of(server) as sender:
            await sender.publish("a", b"x", qos=1)
        assert (await http.get("/api/v1/clients/reader")).json()["in_flight"] == 1


async def test_a_client_that_is_not_known_is_said_so(http: httpx.AsyncClient) -> None:
    answer = await http.get("/api/v1/clients/nobody")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown-client")


@pytest.mark.parametrize("client_id", ["a/../b", "..", "a?b#c"])
async def test_a_client_whose_id_no_path_can_name_is_seen_and_disconnected_too(
    server: Server, http: httpx.AsyncClient, client_id: str
) -> None:
    asked = {"client_id": client_id}
    async with mqtt_of(server, "other"):
        gone = mqtt_of(server, client_id)
        await gone.__aenter__()
        assert (await http.get("/api/v1/client", params=asked)).json()["client_id"] == client_id
        ended = await http.delete("/api/v1/client", params=asked)
        assert ids(await listed(http, connected=True)) == ["other"]
        assert ended.json() == {"client_id": client_id, "disconnected": True, "session_ended": False}


async def test_where_a_client_is_connected_from_is_told(server: Server, http: httpx.AsyncClient) -> None:
    async with mqtt_of(server, "a", **lasting()), Talker(server) as talker, follow(server, "x"):
        here = {row["client_id"]: row for row in (await listed(http))["clients"]}
        assert [row["door"] for row in here.values()].count("web") == 2
        assert here[talker.client_id]["address"] == "{}:{}".format(*talker.connection.local_address)
        assert all(row["address"].startswith("127.0.0.1:") for row in here.values())
    assert (await http.get("/api/v1/clients/a")).json()["address"] is None


@pytest.mark.parametrize("path", ["/api/v1/clients", "/api/v1/clients/a", "/api/v1/slow", "/cluster/status"])
async def test_clients_are_shown_only_to_those_who_may_read_the_server_s_topics(
    start: Start, tmp_path: Path, path: str
) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\nboth #\n")
    server = await start(access=AccessSettings(acl_file=str(rules)))
    async with client_of(server) as http, mqtt_of(server, "a"):
        assert (await http.get(path)).status_code == 403
        rules.write_text("anonymous\nboth #\nsubscribe $SYS/#\n")
        server.reload()
        assert (await http.get(path)).status_code == 200
