"""The sidecar door of a whole server: what it loads, TLS, and subscriptions that survive a crash."""

import asyncio
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from penstock.client import MqttClient
from penstock.wire.sidecar.messages import nexusd
from tests.doors.sidecar.calling import TIMEOUT_S, Events, Stub, sequences
from tests.faults.durable.homes import Home, MakeHome, homes_below
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.servers import StartServer, bare_environment

HOST = "127.0.0.1"
REPLAY = nexusd.GAP_RECOVERY_REPLAY_BUFFER


@pytest.fixture
async def make_home(tmp_path: Path) -> AsyncIterator[MakeHome]:
    async for make in homes_below(tmp_path):
        yield make


# Starting


def imported(*flags: str) -> list[str]:
    """What a server has imported by the time it listens everywhere, in that order."""
    words = [sys.executable, "-X", "importtime", "-m", "penstock", "serve", "--mqtt-port", "0", *flags]
    with subprocess.Popen(
        words, env=bare_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        while not server.stdout.readline().startswith(b"Try"):
            assert server.poll() is None
        server.terminate()
        _, said = server.communicate(timeout=20)
    assert server.returncode == 0
    return re.findall(r"^import time:.*\| +(\S+)$", said.decode(), re.MULTILINE)


def is_heavy(name: str) -> bool:
    return name == "grpc" or name.startswith(("google.protobuf", "penstock.doors.sidecar.nexusd.service"))


def test_server_without_the_door_does_without_what_it_needs() -> None:
    names = imported("--http-port", "off", "--sidecar-port", "off")
    assert "penstock.app" in names
    assert [name for name in names if is_heavy(name)] == []


def test_server_with_the_door_loads_what_it_needs_as_the_last_thing() -> None:
    names = imported("--http-port", "off", "--sidecar-port", "0")
    assert "google.protobuf" in names
    assert "grpc" not in names, "that is for clients"
    assert names.index("penstock.app") < names.index("google.protobuf")


def test_door_that_is_off_is_closed_and_not_in_the_banner(start_server: StartServer) -> None:
    server = start_server({"sidecar": {"port": "off"}})
    assert "grpc" not in server.printed
    port = free_port()
    server = start_server({"sidecar": {"port": port}}, "--sidecar-port", "off")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port), 5)


# TLS


async def test_door_speaks_tls_and_names_its_protocol(start_server: StartServer, tmp_path: Path) -> None:
    authority = Authority()
    certificate = authority.issue(tmp_path, "server").both
    trusted = Path(authority.write(tmp_path / "authority")).read_bytes()
    server = start_server({"sidecar": {"tls_port": 0}, "tls": {"certificate_file": certificate}})
    address = f"{HOST}:{server.port_of('grpcs')}"
    credentials = grpc.ssl_channel_credentials(trusted)
    async with (
        grpc.aio.secure_channel(address, credentials) as channel,
        MqttClient.connect(port=server.port) as mqtt,
    ):
        events = Events(Stub(channel).subscribe(nexusd.SubscribeRequest(topics=["tls/#"])))
        await events.begin()
        await mqtt.publish("tls/a", b"secure", qos=1)
        assert await events.payloads(1) == [b"secure"]
    context = authority.client_context()
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection(HOST, server.port_of("grpcs"), ssl=context)
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    assert tls.selected_alpn_protocol() == "h2"
    writer.close()
    async with grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await Stub(channel).get_peers(nexusd.GetPeersRequest(), timeout=TIMEOUT_S)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


# Crashes


class Sidecar:
    """A client of the server that lives in a home at present, to be entered."""

    def __init__(self, home: Home) -> None:
        self._channel = grpc.aio.insecure_channel(f"{HOST}:{home.server.port_of('grpc')}")
        self.stub = Stub(self._channel)

    async def __aenter__(self) -> "Sidecar":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def publish(self, topic: str, *payloads: bytes) -> None:
        for payload in payloads:
            await self.stub.publish(nexusd.PublishRequest(topic=topic, payload=payload), timeout=TIMEOUT_S)

    async def subscribe(self, *topics: str) -> Events:
        events = Events(self.stub.subscribe(nexusd.SubscribeRequest(topics=topics)))
        await events.begin()
        return events

    async def resume(self, id: str, seen: dict[str, int]) -> tuple[Events, nexusd.SubscriptionInfo]:
        request = nexusd.ResumeSubscribeRequest(
            subscription_id=id, last_sequence_per_topic=seen, gap_recovery_mode=REPLAY
        )
        events = Events(self.stub.resume(request))
        return events, await events.begin()


@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_subscription_goes_on_after_the_server_has_ended(make_home: MakeHome, end: str) -> None:
    home = make_home()
    await home.open()
    async with Sidecar(home) as client:
        events = await client.subscribe("a", "b/#")
        await client.publish("a", b"1", b"2", b"3")
        await client.publish("b/x", b"4")
        assert sequences(await events.messages(4)) == [1, 2, 3, 1]
        await asyncio.to_thread(getattr(home, end))
    await home.open()
    async with Sidecar(home) as client:
        await client.publish("a", b"5")
        await client.publish("b/y", b"6")
        again, info = await client.resume(events.id, {"a": 2, "b/x": 1})
        assert (info.subscription_id, info.gap_detected, info.missed_message_count) == (events.id, False, 0)
        replayed = await again.messages(3, "replay_message")
        assert [(each.topic, each.payload, each.sequence_number) for each in replayed] == [
            ("a", b"3", 3),
            ("a", b"5", 4),
            ("b/y", b"6", 1),
        ]
        told = [event.replay_complete for _, event in await again.take(2)]
        assert [(each.topic, each.replayed_count, each.latest_sequence) for each in told] == [
            ("a", 2, 4),
            ("b/y", 1, 1),
        ]
        await client.publish("a", b"7")
        assert sequences(await again.messages(1)) == [5]
    await home.close()
    home.was_well()


async def test_subscriptions_are_resumed_once_after_many_crashes(make_home: MakeHome, scale: int) -> None:
    """Whatever was acknowledged arrives, once and in order, however often the server dies in between."""
    home = make_home()
    await home.open()
    id, got, published = "", list[int](), 0
    for life in range(3 * scale):
        async with Sidecar(home) as client:
            if life:
                events, info = await client.resume(id, {"a": len(got)} if got else {})
                assert not info.gap_detected
            else:
                events = await client.subscribe("a")
                id = events.id
            await client.publish("a", *(b"%d" % number for number in range(published, published + 20)))
            published += 20
            while len(got) < published - 7:  # the rest is still on its way when the server dies
                event = await events.next()
                kind = event.WhichOneof("event")
                if kind in ("message", "replay_message"):
                    got.append(getattr(event, kind).sequence_number)
            home.kill()
        await home.open()
    assert got == list(range(1, published - 6))
    await home.close()
    home.was_well()
