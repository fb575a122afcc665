"""What clients notice of other settings, those who are there and those who come."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from argon2 import PasswordHasher

from penstock.app import Server
from penstock.client import ConnectionRefused, HttpClient, MqttClient, RequestRefused
from penstock.config import Reloading, load
from penstock.errors import PenstockError
from penstock.telemetry.prometheus import render_text
from tests.support.certificates import Authority

PORTS = {"mqtt.port": 0, "mqtt.tls_port": 0, "http.port": 0, "sidecar.port": "off"}
CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
T = TypeVar("T")


class Scene:
    """A server and what it was told; every change is a whole reload."""

    def __init__(self, flags: dict[str, Any]) -> None:
        self._base = {**PORTS, **flags}
        self.server = Server(load(flags=self._base).settings)

    def change(self, flags: dict[str, Any]) -> Reloading:
        plan = self.server.reload(load(flags={**self._base, **flags}))
        assert plan is not None
        return plan

    def refuses(self, flags: dict[str, Any]) -> bool:
        return self.server.reload(load(flags={**self._base, **flags})) is None

    @property
    def port(self) -> int:
        assert self.server.mqtt.port is not None
        return self.server.mqtt.port

    @property
    def tls_port(self) -> int:
        return self.server.mqtt._listeners["mqtts"].port

    async def ask(self, work: Callable[[HttpClient], T]) -> T:
        """What a client of the HTTP door, which waits, gets."""

        def do() -> T:
            with HttpClient(self.server.http.addresses()[0]) as client:
                return work(client)

        return await asyncio.to_thread(do)


@asynccontextmanager
async def running(flags: dict[str, Any]) -> AsyncIterator[Scene]:
    scene = Scene(flags)
    await scene.server.start()
    try:
        yield scene
    finally:
        await scene.server.stop()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with running({}) as scene:
        yield scene


# Who may come in


@pytest.fixture
def passwords(tmp_path: Path) -> str:
    file = tmp_path / "passwords"
    file.write_text(f"ann:{CHEAP.hash('secret')}\n", encoding="utf-8")
    return str(file)


async def test_an_open_server_is_locked_and_opened_again(scene: Scene, passwords: str) -> None:
    stranger = await MqttClient.connect(port=scene.port)
    scene.change({"access.password_file": passwords})
    with pytest.raises(PenstockError):
        await stranger.publish("a", b"x", qos=1)
    with pytest.raises(ConnectionRefused):
        await MqttClient.connect(port=scene.port)
    async with MqttClient.connect(port=scene.port, user="ann", password="secret") as ann:
        await ann.publish("a", b"x", qos=1)
        scene.change({})
        await ann.publish("a", b"x", qos=1)
    async with MqttClient.connect(port=scene.port) as anyone:
        await anyone.publish("a", b"x", qos=1)


async def test_rules_count_for_who_is_connected(scene: Scene, tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\npublish allowed/#\n", encoding="utf-8")
    async with MqttClient.connect(port=scene.port) as client:
        await client.publish("other", b"x", qos=1)
        scene.change({"access.acl_file": str(rules)})
        await client.publish("allowed/a", b"x", qos=1)
        with pytest.raises(RequestRefused):
            await client.publish("other", b"x", qos=1)


async def test_of_two_faults_nothing_is_applied_not_even_what_is_right(scene: Scene, tmp_path: Path) -> None:
    before = scene.server.settings
    broken = tmp_path / "broken"
    broken.write_text("no line of a password file", encoding="utf-8")
    assert scene.refuses({"access.password_file": str(broken), "outbox.messages": 5})
    assert scene.server.settings is before
    async with MqttClient.connect(port=scene.port) as client:
        await client.publish("a", b"x", qos=1)


async def test_allow_anonymous_counts_at_once(passwords: str) -> None:
    async with running({"access.password_file": passwords}) as scene:
        with pytest.raises(ConnectionRefused):
            await MqttClient.connect(port=scene.port)
        scene.change({"access.allow_anonymous": True})
        guest = await MqttClient.connect(port=scene.port)
        await guest.publish("a", b"x", qos=1)
        scene.change({"access.allow_anonymous": False})
        with pytest.raises(PenstockError):
            await guest.publish("a", b"x", qos=1)


# Encryption


@pytest.fixture
def authorities() -> tuple[Authority, Authority]:
    return Authority(), Authority()


async def test_another_certificate_file_counts_for_who_comes(
    authorities: tuple[Authority, Authority], tmp_path: Path
) -> None:
    old, new = authorities
    async with running({"tls.certificate_file": old.issue(tmp_path, "old").both}) as scene:
        port = scene.tls_port
        async with MqttClient.connect(port=port, tls=old.client_context()) as there:
            files = new.issue(tmp_path, "new")
            scene.change({"tls.certificate_file": files.certificate, "tls.key_file": files.key})
            await there.publish("a", b"x", qos=1)
        async with MqttClient.connect(port=port, tls=new.client_context()) as client:
            await client.publish("a", b"x", qos=1)
        with pytest.raises(PenstockError):
            await MqttClient.connect(port=port, tls=old.client_context())


async def test_client_certificates_and_their_names_count_for_who_comes(
    authorities: tuple[Authority, Authority], tmp_path: Path
) -> None:
    authority, _ = authorities
    mine = authority.issue(tmp_path, "client", common_name="pump")
    rules = tmp_path / "acl"
    rules.write_text("user pump\npublish pumps/#\n", encoding="utf-8")
    async with running({"tls.certificate_file": authority.issue(tmp_path, "server").both}) as scene:
        wanted = {
            "tls.ca_file": authority.write(tmp_path / "ca.pem"),
            "tls.client_certificates": "required",
            "tls.name_as_user": True,
            "access.acl_file": str(rules),
        }
        plan = scene.change(wanted)
        assert {change.key for change in plan.applied} == wanted.keys()
        with pytest.raises(PenstockError):
            await MqttClient.connect(port=scene.tls_port, tls=authority.client_context())
        async with MqttClient.connect(port=scene.tls_port, tls=authority.client_context(mine)) as pump:
            await pump.publish("pumps/1", b"x", qos=1)
            with pytest.raises(RequestRefused):
                await pump.publish("valves/1", b"x", qos=1)


async def test_an_older_version_of_tls_is_refused_from_then_on(
    authorities: tuple[Authority, Authority], tmp_path: Path
) -> None:
    authority, _ = authorities
    context = authority.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with running({"tls.certificate_file": authority.issue(tmp_path, "server").both}) as scene:
        async with MqttClient.connect(port=scene.tls_port, tls=context) as client:
            await client.publish("a", b"x", qos=1)
        scene.change({"tls.minimum_version": "1.3"})
        with pytest.raises(PenstockError):
            await MqttClient.connect(port=scene.tls_port, tls=context)


async def test_encryption_is_turned_on_and_off_by_a_restart(
    authorities: tuple[Authority, Authority], tmp_path: Path
) -> None:
    file = authorities[0].issue(tmp_path, "server").both
    async with running({}) as scene:
        plan = scene.change({"tls.certificate_file": file, "tls.minimum_version": "1.3"})
        assert plan.applied == ()
        assert plan.needs_restart == ("tls.certificate_file", "tls.minimum_version")
    async with running({"tls.certificate_file": file}) as scene:
        plan = scene.change({"tls.certificate_file": "off"})
        assert plan.needs_restart == ("tls.certificate_file",)
        async with MqttClient.connect(port=scene.tls_port, tls=authorities[0].client_context()) as client:
            await client.publish("a", b"x", qos=1)


# What clients may do


async def test_what_mqtt_offers_is_told_to_who_comes_and_granted_from_then_on(scene: Scene) -> None:
    async with MqttClient.connect(port=scene.port) as there:
        assert list(await there.subscribe("a", qos=2)) == [2]
        scene.change({"mqtt.maximum_qos": 1, "mqtt.max_payload_bytes": 100})
        assert list(await there.subscribe("b", qos=2)) == [1]
        await there.publish("a", bytes(1_000), qos=2)  # as it was told when it came
    async with MqttClient.connect(port=scene.port) as new:
        told = new.connack.properties
        assert told.maximum_qos == 1
        assert told.maximum_packet_size == 100 + scene.server.settings.mqtt.max_control_bytes


async def test_a_rate_counts_for_who_is_connected_until_there_is_none(scene: Scene) -> None:
    async with MqttClient.connect(port=scene.port) as client:
        await client.publish("a", b"x", qos=1)
        scene.change({"mqtt.publish_rate": 0.001, "mqtt.publish_burst": 2})
        await client.publish("a", b"x", qos=1)
        await client.publish("a", b"x", qos=1)
        with pytest.raises(RequestRefused, match="rate"):
            await client.publish("a", b"x", qos=1)
        scene.change({})
        await client.publish("a", b"x", qos=1)


async def test_a_limit_by_address_counts_for_who_comes_after_it(scene: Scene) -> None:
    before = await MqttClient.connect(port=scene.port)
    scene.change({"connections.per_address": 1})
    async with MqttClient.connect(port=scene.port):
        await before.disconnect()
        await asyncio.sleep(0.05)  # whoever came before the limit was not counted, and frees nothing
        with pytest.raises(PenstockError):
            await MqttClient.connect(port=scene.port)
    scene.change({"connections.per_address": 2})
    async with MqttClient.connect(port=scene.port), MqttClient.connect(port=scene.port):
        with pytest.raises(PenstockError):
            await MqttClient.connect(port=scene.port)


async def test_payloads_and_bodies_have_the_new_limits(scene: Scene) -> None:
    await scene.ask(lambda client: client.publish("a", payload=bytes(2_000)))
    scene.change({"max_payload_bytes": 1_000})
    with pytest.raises(PenstockError, match="1000"):
        await scene.ask(lambda client: client.publish("a", payload=bytes(2_000)))
    scene.change({"http.max_body_bytes": 100})
    with pytest.raises(PenstockError, match="100"):
        await scene.ask(lambda client: client.publish("a", payload=bytes(500)))


async def test_retained_values_have_the_new_limit(scene: Scene) -> None:
    async with MqttClient.connect(port=scene.port) as client:
        await client.publish("a", b"x", qos=1, retain=True)
        scene.change({"retained.max_messages": 1})
        await client.publish("b", b"x", qos=1, retain=True)
        assert scene.server.broker.topics["b"].retained is None
        scene.change({"retained.max_messages": 2})
        await client.publish("b", b"x", qos=1, retain=True)
        assert scene.server.broker.topics["b"].retained is not None


# What is kept, and what is told


async def sequences(scene: Scene, topic: str) -> list[int]:
    history = await scene.ask(lambda client: client.messages(topic))
    return [message.sequence for message in history.messages]


async def test_known_topics_keep_more_or_less(scene: Scene) -> None:
    async with MqttClient.connect(port=scene.port) as client:
        for _ in range(5):
            await client.publish("a/b", b"x", qos=1)
        scene.change({"topics": [{"filter": "a/#", "ring_messages": 2}]})
        assert await sequences(scene, "a/b") == [4, 5]
        scene.change({"ring.messages": 3})
        for _ in range(5):
            await client.publish("a/b", b"x", qos=1)
        assert await sequences(scene, "a/b") == [8, 9, 10]


async def test_messages_live_as_long_as_the_settings_say_when_they_come(scene: Scene) -> None:
    async with MqttClient.connect(port=scene.port) as client:
        await client.publish("a", b"stays", qos=1)
        scene.change({"default_ttl_ms": 1})
        await client.publish("a", b"goes", qos=1)
        await asyncio.sleep(0.05)
        assert await sequences(scene, "a") == [1]


async def test_metrics_have_the_names_that_are_asked_for(scene: Scene) -> None:
    async def told() -> str:
        return (await render_text(scene.server._metrics)).decode()

    assert "nexusd_" not in await told()
    scene.change({"metrics.nexusd_names": True})
    assert "nexusd_" in await told()


async def test_figures_are_published_more_often(scene: Scene) -> None:
    scene.change({"sys_interval_s": 0.05})
    async with MqttClient.connect(port=scene.port) as client:
        await client.subscribe("$SYS/broker/uptime")
        async with asyncio.timeout(8):  # less than the interval before
            for _ in range(3):
                await anext(aiter(client.messages))
