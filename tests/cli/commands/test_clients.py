"""`penstock clients`: who is known, and one of them with everything."""

import asyncio

import pytest

from penstock.client import ConnectionLost, MqttClient
from penstock.wire.mqtt import PacketProperties
from tests.cli.http_commands import answering, port_of, rows_of, run
from tests.client.http.scripts import Caller, scripted
from tests.support.servers import RunningServer

CLIENT = {
    "client_id": "c",
    "user": None,
    "door": "mqtt",
    "connected": True,
    "subscriptions": 2,
    "waiting_messages": 0,
    "owed_messages": 0,
    "is_slow": False,
}


def test_clients_are_listed() -> None:
    with answering({"clients": [CLIENT], "next": None}) as address:
        result = run(port_of(address), "clients")
    assert result.exit_code == 0, result.output
    head, row = (line.split("\t") for line in result.stdout.splitlines())
    assert dict(zip(head, row, strict=True)) == {
        "client_id": "c",
        "user": "-",
        "door": "mqtt",
        "connected": "true",
        "subscriptions": "2",
        "waiting_messages": "0",
        "owed_messages": "0",
        "is_slow": "false",
    }


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["--connected", "--search", "x"], "?limit=1000&search=x&connected=true"),
        (["--absent"], "?limit=1000&connected=false"),
    ],
)
def test_the_server_is_asked_for_some(words: list[str], asked: str) -> None:
    def script(caller: Caller) -> None:
        assert caller.take()[0] == f"GET /api/v1/clients{asked} HTTP/1.1"
        caller.answer(b'{"clients":[],"next":null}')

    with scripted(script) as address:
        result = run(port_of(address), "clients", *words)
    assert result.exit_code == 0, result.output


def test_one_client_is_told_fact_by_fact() -> None:
    whole = {**CLIENT, "filters": [{"filter": "a/#", "qos": 1}, {"filter": "b", "qos": 0}]}
    with answering(whole) as address:
        result = run(port_of(address), "clients", "c")
    assert result.stdout.splitlines()[-2:] == ["filters: filter a/#, qos 1", "filters: filter b, qos 0"]
    with answering(whole) as address:
        assert rows_of(run(port_of(address), "clients", "c", "-o", "json")) == [whole]


def test_a_client_that_is_not_there_is_an_error() -> None:
    refusal = {"detail": "there is no session of c", "code": "unknown-client"}
    said = "error: there is no session of c; `penstock clients` lists those there are\n"
    for words in (("c",), ("c", "--disconnect")):
        with answering(refusal, status="404 Not Found") as address:
            result = run(port_of(address), "clients", *words)
        assert (result.exit_code, result.stderr) == (1, said)


def test_one_client_and_a_search_do_not_go_together() -> None:
    assert run(1, "clients", "c", "--search", "x").exit_code == 2


async def test_a_real_server_names_who_is_there(http_server: RunningServer) -> None:
    async with MqttClient.connect(port=http_server.port, client_id="there/1") as client:
        await client.subscribe("a", "b/#")
        port = http_server.port_of("http")
        listed = await asyncio.to_thread(run, port, "clients", "--connected", "--search", "there/")
        told = await asyncio.to_thread(run, port, "clients", "there/1")
    head, row = (line.split("\t") for line in listed.stdout.splitlines())
    shown = dict(zip(head, row, strict=True))
    assert (shown["client_id"], shown["subscriptions"], shown["is_slow"]) == ("there/1", "2", "false")
    assert "filters: filter b/#, qos 0" in told.stdout


def test_a_client_is_disconnected_and_its_session_stays(http_server: RunningServer) -> None:
    port = http_server.port_of("http")

    async def stay() -> str:
        """Answer why the connection ended."""
        async with MqttClient.connect(port=http_server.port_of("mqtt"), client_id="unwanted") as client:
            done = await asyncio.to_thread(run, port, "clients", "unwanted", "--disconnect", "-o", "json")
            assert rows_of(done) == [{"client_id": "unwanted", "disconnected": True}]
            with pytest.raises(ConnectionLost) as lost:
                await anext(client.messages)
            return str(lost.value)

    assert "administrative action" in asyncio.run(stay())


def test_nobody_of_that_name_cannot_be_disconnected(http_server: RunningServer) -> None:
    result = run(http_server.port_of("http"), "clients", "never-seen", "--disconnect")
    assert result.exit_code == 1
    assert "never-seen" in result.stderr


def test_to_disconnect_needs_a_name() -> None:
    assert run(1, "clients", "--disconnect").exit_code == 2
    assert run(1, "clients", "--end-session").exit_code == 2


def test_a_session_is_ended_and_its_client_id_is_free(http_server: RunningServer) -> None:
    port, mqtt_port = http_server.port_of("http"), http_server.port_of("mqtt")

    async def leave_a_session() -> None:
        properties = PacketProperties(session_expiry=1_000)
        async with MqttClient.connect(port=mqtt_port, client_id="gone", properties=properties):
            pass

    asyncio.run(leave_a_session())
    done = run(port, "clients", "gone", "--end-session", "-o", "json")
    assert rows_of(done) == [{"client_id": "gone", "disconnected": False, "session_ended": True}]
    assert run(port, "clients", "gone").exit_code == 1
