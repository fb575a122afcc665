"""Audit trail: who came, logged in, subscribed and administered, at every door, if that is wanted."""

from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiomqtt
import httpx
import pytest
from structlog.testing import capture_logs

import penstock
from penstock.app import Server
from penstock.app.logging import AUDIT
from penstock.config.settings import LoggingSettings
from penstock.core.access.passwords import hash_password
from penstock.core.settings import AccessSettings
from penstock.errors import BadCredentials
from tests.doors.serving import Start, client_of, mqtt_of, port_of

Lines = list[MutableMapping[str, Any]]
ANNA = {"username": "anna", "password": "secret"}


@pytest.fixture
def lines() -> Iterator[Lines]:
    with capture_logs() as captured:
        yield captured


@pytest.fixture
def access(tmp_path: Path) -> AccessSettings:
    passwords = tmp_path / "passwords"
    passwords.write_text(f"anna:{hash_password(b'secret')}\n")
    return AccessSettings(password_file=str(passwords))


def audited(lines: Lines) -> list[tuple[str, str | None]]:
    return [(line["event"], line.get("user")) for line in lines if line.get("logger") == AUDIT]


async def test_a_client_of_mqtt_is_followed_from_login_to_its_end(
    start: Start, access: AccessSettings, lines: Lines
) -> None:
    server = await start(access=access, logging=LoggingSettings(audit=True))
    with pytest.raises(aiomqtt.MqttError):
        async with mqtt_of(server, "thief", username="anna", password="guess"):
            pass
    async with mqtt_of(server, "pump", **ANNA) as pump:
        await pump.subscribe("a/#", qos=1)
        await pump.unsubscribe("a/#")
        async with client_of(server) as http:
            answer = await http.delete("/api/v1/clients/pump", auth=("anna", "secret"))
            assert answer.status_code == 200
    assert audited(lines) == [
        ("login refused", "anna"),
        ("connected", "anna"),
        ("subscribed", "anna"),
        ("unsubscribed", "anna"),
        ("logged in", "anna"),
        ("disconnected", "anna"),
        ("client dismissed", "anna"),
    ]
    subscribed = next(line for line in lines if line["event"] == "subscribed")
    assert (subscribed["client"], subscribed["filter"], subscribed["qos"]) == ("pump", "a/#", 1)
    assert subscribed["peer"].startswith("127.0.0.1:")


async def test_logins_over_http_and_grpc_are_one_line_for_each_connection(
    start: Start, access: AccessSettings, lines: Lines
) -> None:
    server = await start(access=access, logging=LoggingSettings(audit=True))
    async with client_of(server) as http:
        for password in ("secret", "secret", "guess"):
            await http.get("/api/v1/topics", auth=("anna", password))
    address = f"127.0.0.1:{port_of(server, 'grpc')}"
    async with penstock.connect(address, user="anna", password="secret") as client:
        await client.publish("a", b"1")
        await client.topics()
    with pytest.raises(BadCredentials):
        async with penstock.connect(address, user="anna", password="guess"):
            pass
    found = [(line["event"], line["door"]) for line in lines if line["event"].startswith("log")]
    assert [each for each in found if each[1] == "web"] == [("logged in", "web"), ("login refused", "web")]
    sidecar = [event for event, door in found if door == "sidecar"]
    assert (sidecar.count("logged in"), "login refused" in sidecar) == (1, True)


async def test_nothing_is_audited_unless_it_is_asked_for(start: Start, lines: Lines) -> None:
    server = await start()
    async with mqtt_of(server, "pump") as pump, client_of(server) as http:
        await pump.subscribe("a")
        await http.post("/topics", json={"name": "made"})
    assert audited(lines) == []


async def test_topics_are_audited_with_their_makers(start: Start, lines: Lines) -> None:
    server: Server = await start(logging=LoggingSettings(audit=True))
    async with client_of(server) as http:
        assert (await http.post("/topics", json={"name": "made"})).status_code < httpx.codes.BAD_REQUEST
        assert (await http.delete("/topics/made")).status_code < httpx.codes.BAD_REQUEST
    assert audited(lines) == [("topic created", None), ("topic deleted", None)]


async def test_refusals_are_logged_with_the_user(
    start: Start, access: AccessSettings, tmp_path: Path, lines: Lines
) -> None:
    rules = tmp_path / "acl"
    rules.write_text("user anna\nsubscribe a\n")
    server = await start(access=AccessSettings(password_file=access.password_file, acl_file=str(rules)))
    async with mqtt_of(server, "pump", **ANNA) as pump:
        with suppress(aiomqtt.MqttError):
            await pump.subscribe("b", qos=1)
        with suppress(aiomqtt.MqttError):
            await pump.publish("b", b"1", qos=1)
    refused = [line for line in lines if line["event"] in ("publish refused", "subscription refused")]
    assert [(line["event"], line["user"]) for line in refused] == [
        ("subscription refused", "anna"),
        ("publish refused", "anna"),
    ]
