"""Every setting has its place in a reload, and what is said to count at once does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import asdict

from penstock.app import Server
from penstock.client import MqttClient
from penstock.config import Loaded, Reload, load, reload_of
from penstock.config.keys import known_keys
from penstock.config.load import values_of
from penstock.config.reload import KEYS, reload_classes
from penstock.wire.mqtt.properties import PacketProperties
from tests.e2e.reloading import KNOWN, LOOKS, ON_DISK, VALUES, Look, look_at, other_value
from tests.support.certificates import Authority

PORTS = {"mqtt.port": 0, "mqtt.tls_port": 0, "http.port": 0, "sidecar.port": 0}
ELSEWHERE = {
    *("tls.certificate_file", "tls.key_file", "tls.ca_file", "tls.client_certificates", "tls.name_as_user"),
    "tls.minimum_version",
    *("access.password_file", "access.acl_file", "access.allow_anonymous"),
    *("logging.level", "logging.format"),
}
"""What files, clients and the log have to tell: `test_reload.py` and `test_reload_effects.py` ask them."""
LIVE = [key for key in known_keys() if reload_of(key) is not Reload.RESTART and key not in ELSEWHERE]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    return Authority().issue(tmp_path_factory.mktemp("certificates"), "server").both


for_all = partial(pytest_asyncio.fixture, scope="module", loop_scope="module")
in_one_loop = pytest.mark.asyncio(loop_scope="module")
"""One server for all keys: each test brings all of its settings back."""


@asynccontextmanager
async def running(certificate: str, flags: dict[str, Any]) -> AsyncIterator[Server]:
    """A server with encryption, which has settings of its own, and with somebody who is away."""
    server = Server(wanted(certificate, flags).settings)
    await server.start()
    try:
        assert server.mqtt.port is not None
        stays = PacketProperties(session_expiry=60)
        async with MqttClient.connect(port=server.mqtt.port, client_id="absent", properties=stays) as client:
            await client.subscribe("known/#", qos=1)
            await client.subscribe("$share/readers/known/#", qos=1)
        async with MqttClient.connect(port=server.mqtt.port) as client:
            for word in (b"one", b"two"):  # the second makes a ring
                await client.publish(KNOWN, word, qos=1)
        yield server
    finally:
        await server.stop()


@for_all()
async def in_memory(certificate: str) -> AsyncIterator[Server]:
    async with running(certificate, {}) as server:
        yield server


@for_all()
async def on_disk(certificate: str, data: dict[str, Any]) -> AsyncIterator[Server]:
    async with running(certificate, data) as server:
        yield server


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return {"data_dir": str(tmp_path_factory.mktemp("data"))}


async def settle(server: Server, look: Look, expected: Any) -> Any:
    """What counts as soon as it is what is expected, or after a while: topics follow in turns of the loop."""
    for _ in range(1_000):
        if look(server) == expected:
            break
        await asyncio.sleep(0.01)
    return look(server)


def wanted(certificate: str, flags: dict[str, Any]) -> Loaded:
    return load(flags={**PORTS, "tls.certificate_file": certificate, **flags})


def test_every_setting_is_in_one_class() -> None:
    named = [name for sections in KEYS.values() for names in sections.values() for name in names.split()]
    assert reload_classes().keys() == known_keys().keys()
    assert len(named) == len(known_keys())


def test_nothing_is_looked_at_that_is_no_live_setting() -> None:
    assert (LOOKS.keys() | ON_DISK.keys() | VALUES.keys()) <= {*LIVE, *ELSEWHERE}


@in_one_loop
@pytest.mark.parametrize("key", [key for key in LIVE if key not in ON_DISK])
async def test_a_running_server_takes_another_value(key: str, in_memory: Server, certificate: str) -> None:
    await change_and_return(in_memory, key, partial(wanted, certificate), {})


@in_one_loop
@pytest.mark.parametrize("key", list(ON_DISK))
async def test_a_server_with_a_data_directory_takes_another_value(
    key: str, on_disk: Server, certificate: str, data: dict[str, Any]
) -> None:
    await change_and_return(on_disk, key, partial(wanted, certificate), data)


async def change_and_return(
    server: Server, key: str, load: Callable[[dict[str, Any]], Loaded], base: dict[str, Any]
) -> None:
    """Give a key another value and the one before, and look each time which one counts."""
    look = look_at(key)
    before = values_of(server.settings)[key]
    assert await settle(server, look, before) == before
    after = load({**base, key: other_value(key, before)})
    plan = server.reload(after)
    assert plan is not None
    assert [(change.key, change.after) for change in plan.applied] == [(key, after.values()[key])]
    assert await settle(server, look, after.values()[key]) == after.values()[key] != before
    server.reload(load(base))
    assert await settle(server, look, before) == before


@in_one_loop
@pytest.mark.parametrize("key", [key for key in known_keys() if reload_of(key) is Reload.RESTART])
async def test_what_waits_for_a_restart_changes_nothing_and_is_told(
    key: str, in_memory: Server, certificate: str, tmp_path: Path
) -> None:
    values = {
        "node_id": "another",
        "host": "localhost",
        "sidecar.host": "localhost",
        "data_dir": str(tmp_path / "data"),
        "durability": "os",
        "log.capture": ["known/#"],
        "mqtt.proxies": ["192.0.2.0/24"],
        "http.proxies": ["192.0.2.0/24"],
        "http.port": "off",
        "mqtt.websocket_port": 0,
        "mqtt.websocket_tls_port": 0,
        "http.tls_port": 0,
        "http.admin_port": 0,
        "sidecar.tls_port": 0,
    }
    server = in_memory
    before = server.settings
    value = values[key] if key in values else other_value(key, values_of(before)[key])
    plan = server.reload(wanted(certificate, {key: value}))
    assert plan is not None
    assert key in plan.needs_restart and plan.applied == ()
    assert server.settings == before
    assert server.effective_settings()["needs_restart"] == plan.needs_restart
    server.reload(wanted(certificate, {}))
    assert server.effective_settings()["needs_restart"] == ()


@in_one_loop
async def test_a_data_directory_brings_its_capture_with_the_restart(
    in_memory: Server, certificate: str, tmp_path: Path
) -> None:
    plan = in_memory.reload(wanted(certificate, {"data_dir": str(tmp_path / "data")}))
    assert plan is not None and plan.needs_restart == ("data_dir", "log.capture")
    assert asdict(in_memory.broker.settings.log)["capture"] == ()
