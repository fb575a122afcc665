"""What is here: every entry leads somewhere, at the port where it is read."""

import pytest

from penstock.doors.mqtt.settings import MqttSettings
from penstock.net.http.settings import HttpSettings
from tests.doors.serving import Start, client_of

PLACES = {"id": "s", "topic": "a"}
FOUR = {"mqtt", "websocket", "streams", "api"}
NOT_TO_BE_ASKED = {"/mqtt", "/ws", "/api/v1/streams"}
"""Where something else than a question is expected, or a path begins."""


async def listed(start: Start, path: str, http: HttpSettings, mqtt: MqttSettings) -> dict[str, str]:
    """The interfaces that a server names; each of them is there."""
    server = await start(http=http, mqtt=mqtt)
    async with client_of(server) as client:
        interfaces: dict[str, str] = (await client.get(path)).json()["interfaces"]
        for each in interfaces.values():
            answer = await client.get(each.format(**PLACES))
            is_there = answer.status_code != 404 or answer.json().get("code", "not-found") != "not-found"
            assert is_there or each in NOT_TO_BE_ASKED, each
    return interfaces


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/", {*FOUR, "events", "topics", "stats", "console", "client", "health", "ready", "live"}),
        ("/api/v1", {"me", "publish", "stage", "topics", "tree", "messages", "retained"}),
    ],
)
async def test_what_is_only_at_the_admin_port_is_not_named_elsewhere(
    start: Start, path: str, names: set[str]
) -> None:
    apart = await listed(start, path, HttpSettings(port=(0,), admin_port=0), MqttSettings(port=0))
    assert set(apart) == names
    together = await listed(start, path, HttpSettings(port=(0,)), MqttSettings(port=0))
    assert set(together) > names


async def test_mqtt_is_named_only_where_it_is(start: Start) -> None:
    settings = HttpSettings(port=(0,))
    assert "mqtt" in await listed(start, "/", settings, MqttSettings(port=0))
    assert "mqtt" not in await listed(start, "/", settings, MqttSettings(port=0, over_http=False))


async def test_clients_of_ipubsub_find_their_greeting_at_the_root(start: Start) -> None:
    async with client_of(await start()) as client:
        assert (await client.get("/")).json()["hello"] == "This is the iPubSub service"
        assert "Penstock" in (await client.get("/api/v1")).json()["hello"]
