"""The end of a connection that somebody asked for over HTTP."""

from pathlib import Path

import aiomqtt
import grpc
import httpx
import pytest
from paho.mqtt.reasoncodes import ReasonCode
from structlog.testing import capture_logs
from websockets.exceptions import ConnectionClosed

import penstock
from penstock.app import Server
from penstock.client import Reconnection
from penstock.core.settings import AccessSettings
from penstock.errors import Conflict, PenstockError, UnknownClient
from tests.doors.serving import Start, client_of, mqtt_of, port_of
from tests.doors.sidecar.calling import Client
from tests.doors.web.admin.test_clients import lasting
from tests.doors.web.following import follow
from tests.doors.web.socket.talking import Talker
from tests.support.waiting import until

ADMINISTRATIVE_ACTION = 0x98


async def end(http: httpx.AsyncClient, client_id: str) -> bool:
    answer = await http.delete(f"/api/v1/clients/{client_id}")
    assert (answer.status_code, answer.json()["client_id"]) == (200, client_id), answer.text
    return bool(answer.json()["disconnected"])


async def test_an_mqtt_client_is_told_why_and_its_session_stays(
    server: Server, http: httpx.AsyncClient
) -> None:
    reasons: list[ReasonCode] = []
    with pytest.raises(aiomqtt.MqttError):
        async with mqtt_of(server, "pump", **lasting()) as client:
            client._client.on_disconnect = lambda *arguments: reasons.append(arguments[-2])
            await client.subscribe("a", qos=1)
            with capture_logs() as logged:
                assert await end(http, "pump")
            await until(lambda: reasons, "no reason was recorded")
            await client.publish("a", b"x", qos=1)
    assert [reason.value for reason in reasons] == [ADMINISTRATIVE_ACTION]
    said = [(event["event"], event["client_id"]) for event in logged if "client_id" in event]
    assert ("client disconnected on request", "pump") in said
    told = (await http.get("/api/v1/clients/pump")).json()
    assert (told["connected"], told["subscriptions"]) == (False, 1)
    assert not await end(http, "pump")
    async with mqtt_of(server, "pump", **lasting()):
        assert (await http.get("/api/v1/clients/pump")).json()["connected"]


async def test_a_session_that_does_not_outlive_its_connection_is_over(
    server: Server, http: httpx.AsyncClient
) -> None:
    with pytest.raises(aiomqtt.MqttError):
        async with mqtt_of(server, "a/b") as client:
            assert await end(http, "a/b")
            await client.publish("a", b"x", qos=1)
    answer = await http.delete("/api/v1/clients/a%2Fb")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown-client")


async def test_its_will_is_published(server: Server, http: httpx.AsyncClient) -> None:
    async with mqtt_of(server) as heir:
        await heir.subscribe("last/words")
        with pytest.raises(aiomqtt.MqttError):
            async with mqtt_of(server, "pump", will=aiomqtt.Will("last/words", b"bye")) as client:
                assert await end(http, "pump")
                await client.publish("a", b"x", qos=1)
        assert (await anext(heir.messages)).payload == b"bye"


async def test_a_client_of_ws_is_closed_with_words(server: Server, http: httpx.AsyncClient) -> None:
    async with Talker(server) as talker:
        assert await end(http, talker.client_id)
        with pytest.raises(ConnectionClosed) as closed:
            await talker.read()
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, "administrator" in closed.value.rcvd.reason) == (1008, True)


async def test_a_follower_of_events_is_told_why(server: Server, http: httpx.AsyncClient) -> None:
    async with follow(server, "a") as follower:
        (client_id,) = server.broker.sessions
        assert await end(http, client_id)
        event = await follower.next()
        assert (event.name, event.data["code"], event.data["retryable"]) == ("end", Conflict.code, False)
        assert await follower.is_over()


async def test_a_stream_of_nexusd_ends_with_a_status_and_can_be_resumed(
    server: Server, http: httpx.AsyncClient
) -> None:
    async with Client(server) as client:
        events = await client.subscribe("a")
        assert await end(http, events.id)
        code, text = await events.end()
        assert (code, "administrator" in text) == (grpc.StatusCode.ABORTED, True)
        await client.publish("a", b"x")
        again, _ = await client.resume(events.id)
        assert await again.payloads(1, "replay_message") == [b"x"]


async def test_a_stream_of_our_own_service_ends_with_the_error(
    server: Server, http: httpx.AsyncClient
) -> None:
    async with penstock.connect(f"127.0.0.1:{port_of(server, 'grpc')}", client_id="worker") as client:
        with pytest.raises(PenstockError) as refused:
            async with client.subscribe("a") as messages:
                answer = await http.delete("/api/v1/clients/worker", params={"end_session": True})
                assert answer.json()["session_ended"]
                await anext(aiter(messages))
        assert refused.value.code == UnknownClient.code


async def test_a_program_that_iterates_is_reconnected_like_any_client(
    server: Server, http: httpx.AsyncClient
) -> None:
    async with (
        penstock.connect(
            f"127.0.0.1:{port_of(server, 'grpc')}",
            client_id="worker",
            reconnection=Reconnection(initial_s=0.01),
        ) as client,
        client.subscribe("a") as messages,
    ):
        await client.publish("a", b"1")
        assert (await anext(aiter(messages))).payload == b"1"
        assert await end(http, "worker")
        server.broker.publish_server("a", b"2")
        assert (await anext(aiter(messages))).payload == b"2"
        await client.publish("a", b"3")
        assert (await anext(aiter(messages))).payload == b"3"


async def test_only_those_who_may_publish_to_the_servers_topics_may_do_it(
    start: Start, tmp_path: Path
) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\nboth #\nsubscribe $SYS/#\n")
    server = await start(access=AccessSettings(acl_file=str(rules)))
    async with client_of(server) as http, mqtt_of(server, "pump", **lasting()):
        answer = await http.delete("/api/v1/clients/pump")
        assert (answer.status_code, answer.json()["code"]) == (403, "not-authorized")
        assert "publish to $SYS/#" in answer.json()["detail"]
        rules.write_text("anonymous\nboth #\npublish $SYS/#\n")
        server.reload()
        assert (await http.delete("/api/v1/clients/pump")).status_code == 403, "it may not even look"
        rules.write_text("anonymous\nboth #\nboth $SYS/#\n")
        server.reload()
        assert server.broker.sessions["pump"].connection is not None
        assert (await http.delete("/api/v1/clients/nobody")).status_code == 404
