"""Both twins when servers fail, hang, restart or refuse them."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent
from threading import Timer

import pytest
from argon2 import PasswordHasher

import penstock
from penstock import testing
from penstock.client import (
    ClientState,
    ConnectionLost,
    ConnectionRefused,
    CursorFile,
    GapNotice,
    NoAnswer,
    Outgoing,
    ReceivedMessage,
    Reconnection,
)
from penstock.client.grpc import connection as connections
from penstock.errors import BadCredentials, NotAuthorized, PenstockError
from tests.client.grpc.cable import cable_to
from tests.client.grpc.conftest import MortalServer
from tests.client.grpc.twins import PATIENCE_S, QUICK, Connect, take, take_until, texts
from tests.support.certificates import Authority
from tests.support.servers import StartServer
from tests.support.waiting import until

StartMortal = Callable[..., MortalServer]
TWICE = Reconnection(initial_s=0.05, attempts=1)


class States:
    """The states that a client went through."""

    def __init__(self) -> None:
        self.seen: list[ClientState] = []
        self.errors: list[PenstockError | None] = []

    def note(self, state: ClientState, error: PenstockError | None) -> None:
        self.seen.append(state)
        self.errors.append(error)

    async def reach(self, state: ClientState, times: int = 1) -> None:
        await until(
            lambda: self.seen.count(state) >= times,
            "the state was not reached often enough",
            timeout_s=PATIENCE_S,
        )


async def test_a_durable_server_that_is_killed_stores_each_message_once_and_nothing_is_missing(
    connect: Connect, start_mortal: StartMortal, tmp_path: Path
) -> None:
    server = start_mortal(data_dir=str(tmp_path / "data"))
    gaps: list[GapNotice] = []
    total = 3_000
    async with (
        connect(server.address, reconnection=QUICK, on_gap=gaps.append, connect_timeout_s=None) as client,
        client.subscribe("log/#", buffer=100) as messages,
    ):
        taking = asyncio.create_task(take_until(messages, "end"))

        async def publish(first: int, count: int) -> None:
            numbers = range(first, first + count)
            await client.publish_many(
                [Outgoing(topic="log/a", payload=str(number), message_id=str(number)) for number in numbers]
            )

        for first in range(0, total, 1_000):
            publishing = asyncio.create_task(publish(first, 1_000))
            await asyncio.sleep(0.02)
            await asyncio.to_thread(server.restart)
            await publishing
        await client.publish("log/a", "end", message_id="end")
        got = await taking
        async with client.subscribe("log/a", last=total + 1) as past:
            stored = await take(past, total + 1)
    assert texts(stored) == [*map(str, range(total)), "end"]
    assert [message.sequence for message in stored] == list(range(1, total + 2))
    kept = list(map(place_of, stored))
    places = list(map(place_of, got))
    assert [place for place in places if place in set(kept)] == kept  # each of them once, and in order
    assert [place for place in places if place not in set(kept) and not is_beyond(place, kept)] == []
    assert [gap for gap in gaps if gap.reason != "lost-uncommitted"] == []


def place_of(message: ReceivedMessage) -> tuple[int, int]:
    """What names a message in its topic."""
    return message.epoch, message.sequence


def is_beyond(place: tuple[int, int], kept: list[tuple[int, int]]) -> bool:
    """Whether a message was delivered, and then lost with the server: deliveries do not wait for the disk.

    Its publisher has sent it again, and the next life of the server has given its sequence once more.
    """
    epoch, sequence = place
    return sequence > max((last for life, last in kept if life <= epoch), default=0)


async def test_a_server_that_forgot_everything_is_told_as_a_gap(
    connect: Connect, start_mortal: StartMortal
) -> None:
    server, states = start_mortal(), States()
    gaps: list[GapNotice] = []
    async with (
        connect(server.address, reconnection=QUICK, on_gap=gaps.append, on_state=states.note) as client,
        client.subscribe("a/#") as messages,
    ):
        await client.publish("a/b", "before")
        assert texts(await take(messages, 1)) == ["before"]
        await asyncio.to_thread(server.restart)
        await states.reach(ClientState.CONNECTED, times=2)
        await until(lambda: gaps, "no gap was reported", timeout_s=PATIENCE_S)
        await client.publish("a/b", "after")
        assert texts(await take(messages, 1)) == ["after"]
    assert [(gap.filters, gap.count, gap.reason) for gap in gaps] == [(("a/#",), None, "epoch-changed")]


async def test_the_state_is_told_when_an_idle_connection_goes_and_comes_back(
    connect: Connect, start_mortal: StartMortal
) -> None:
    server, states = start_mortal(), States()
    async with connect(server.address, reconnection=QUICK, on_state=states.note) as client:
        server.kill()
        await states.reach(ClientState.RECONNECTING, times=2)
        server.start()
        await states.reach(ClientState.CONNECTED, times=2)
        assert (await client.publish("a", "b")).sequence == 1
    tried = [ClientState.DISCONNECTED, ClientState.RECONNECTING]
    assert states.seen[:5] == [ClientState.CONNECTED, *tried, *tried]
    assert states.seen[-2:] == [ClientState.CONNECTED, ClientState.DISCONNECTED]
    assert isinstance(states.errors[1], ConnectionLost)
    assert states.errors[-1] is None


async def test_a_client_gives_up_after_its_attempts(connect: Connect, start_mortal: StartMortal) -> None:
    server, states = start_mortal(), States()
    twice = Reconnection(initial_s=0.01, attempts=2)
    async with (
        connect(server.address, reconnection=twice, on_state=states.note) as client,
        client.subscribe("a") as messages,
    ):
        server.kill()
        with pytest.raises(ConnectionLost):
            await take(messages, 1)
        assert client.state is ClientState.FAILED
        with pytest.raises(ConnectionLost):
            await client.publish("a", "b")
    assert states.seen.count(ClientState.RECONNECTING) == 2


async def test_a_publish_in_the_dark_is_not_repeated_unless_it_has_an_id(
    connect: Connect, start_mortal: StartMortal
) -> None:
    server, states = start_mortal(), States()
    async with connect(server.address, reconnection=QUICK, on_state=states.note) as client:
        server.kill()
        await states.reach(ClientState.DISCONNECTED)
        publishing = asyncio.create_task(client.publish("a", "patient", message_id="1"))
        await asyncio.sleep(0.1)
        assert not publishing.done()
        server.start()
        assert (await asyncio.wait_for(publishing, PATIENCE_S)).sequence == 1


async def test_nobody_there_is_told_in_time(connect: Connect) -> None:
    with pytest.raises(ConnectionRefused):
        async with connect("127.0.0.1:1", connect_timeout_s=0.3, reconnection=QUICK):
            pass
    with pytest.raises(ConnectionRefused):
        async with connect("127.0.0.1:1", reconnection=Reconnection(attempts=0)):
            pass


async def test_a_server_of_another_kind_is_told_with_what_is_known(connect: Connect) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        writer.transport.abort()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        address = f"127.0.0.1:{other.sockets[0].getsockname()[1]}"
        with pytest.raises(ConnectionRefused, match=f"{address} speaks HTTP, not gRPC"):
            async with connect(address, connect_timeout_s=1.5, reconnection=QUICK):
                pass


async def test_a_server_that_is_slow_to_greet_is_waited_for(connect: Connect, address: str) -> None:
    async with cable_to(int(address.rpartition(":")[2])) as cable:
        cable.hold()
        asyncio.get_running_loop().call_later(1.5, cable.release)
        async with connect(cable.address, reconnection=Reconnection(attempts=0)) as client:
            assert client.state is ClientState.CONNECTED


async def test_a_server_that_hangs_is_told_in_time(connect: Connect) -> None:
    with testing.server() as server, ExitStack() as faults:
        async with (
            connect(server.grpc_address, timeout_s=0.5) as client,
            client.subscribe("a") as messages,
        ):
            faults.enter_context(server.stalled())
            for waiting in (
                client.publish("a", "b"),
                client.topics(),
                messages.add("b"),
                messages.remove("a"),
                client.subscribe("c").__aenter__(),
            ):
                with pytest.raises(NoAnswer):
                    await asyncio.wait_for(waiting, PATIENCE_S)
        with pytest.raises(ConnectionRefused):
            async with connect(server.grpc_address, connect_timeout_s=0.5):
                pass


async def test_a_line_that_went_dead_is_noticed_by_who_only_listens(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quicker = {
        "grpc.keepalive_time_ms": 300,
        "grpc.keepalive_timeout_ms": 1_000,
        "grpc.http2.ping_timeout_ms": 1_000,
    }
    options = [(name, quicker.get(name, value)) for name, value in connections._OPTIONS]
    monkeypatch.setattr(connections, "_OPTIONS", options)
    states = States()
    async with (
        cable_to(int(address.rpartition(":")[2])) as cable,
        penstock.connect(cable.address, on_state=states.note) as client,
        client.subscribe("silence"),
    ):
        await asyncio.sleep(1.5)  # several pings
        assert states.seen == [ClientState.CONNECTED]
        cable.hold()
        await states.reach(ClientState.DISCONNECTED)


async def test_filters_that_overlap_bring_a_message_once(address: str, tmp_path: Path) -> None:
    topic, states = f"overlap/{tmp_path.name}", States()
    async with (
        cable_to(int(address.rpartition(":")[2])) as cable,
        penstock.connect(address) as publisher,
        penstock.connect(cable.address, reconnection=QUICK, on_state=states.note) as client,
        client.subscribe(f"{topic}/#") as messages,
    ):
        await messages.add(f"{topic}/a", f"{topic}/b")
        cable.unplug()
        await states.reach(ClientState.DISCONNECTED)
        await publisher.publish_many([(f"{topic}/a", str(number)) for number in range(3)])
        cable.plug()
        await states.reach(ClientState.CONNECTED, times=2)
        got = texts(await take(messages, 3))
        await until(
            lambda: messages.filters == (f"{topic}/#", f"{topic}/a", f"{topic}/b") and messages.statement,
            "the subscriptions or the statement did not arrive",
        )
        await messages.add(f"{topic}/c")  # behind all that is being resumed
        await publisher.publish(f"{topic}/a", "live")
        assert got + texts(await take(messages, 1)) == ["0", "1", "2", "live"]


async def test_shared_filters_go_on_beside_others(address: str, tmp_path: Path) -> None:
    topic, states = f"shared/{tmp_path.name}", States()
    async with (
        cable_to(int(address.rpartition(":")[2])) as cable,
        penstock.connect(address) as publisher,
        penstock.connect(cable.address, reconnection=QUICK, on_state=states.note) as client,
        client.subscribe(f"$share/group/{topic}/a", f"{topic}/b") as messages,
    ):
        cable.unplug()
        await states.reach(ClientState.DISCONNECTED)
        await publisher.publish(f"{topic}/b", "meanwhile")
        cable.plug()
        assert texts(await take(messages, 1)) == ["meanwhile"]
        await messages.add(f"{topic}/c")  # behind all that is being resumed
        await publisher.publish(f"{topic}/a", "shared")
        assert texts(await take(messages, 1)) == ["shared"]


async def test_filters_that_are_removed_while_the_server_is_away_are_waited_for_no_more(
    address: str,
) -> None:
    states = States()
    async with (
        cable_to(int(address.rpartition(":")[2])) as cable,
        penstock.connect(cable.address, reconnection=QUICK, on_state=states.note) as client,
        client.subscribe("away/a") as messages,
    ):
        cable.unplug()
        await states.reach(ClientState.DISCONNECTED)
        adding = asyncio.create_task(messages.add("away/b"))
        await asyncio.sleep(0)
        removing = asyncio.create_task(messages.remove("away/b"))
        await asyncio.wait_for(adding, PATIENCE_S)
        cable.plug()
        await asyncio.wait_for(removing, PATIENCE_S)
        assert messages.filters == ("away/a",)


async def test_a_wrong_password_is_not_tried_again(
    connect: Connect, start_server: StartServer, tmp_path: Path
) -> None:
    states = States()
    passwords, rules = tmp_path / "passwords", tmp_path / "acl"
    quick = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
    passwords.write_text(f"ann:{quick.hash('ann!')}\n", encoding="utf-8")
    rules.write_text("user ann\nboth mine/#\n", encoding="utf-8")
    server = start_server({"access": {"password_file": str(passwords), "acl_file": str(rules)}})
    address = f"127.0.0.1:{server.port_of('grpc')}"
    with pytest.raises(BadCredentials):
        async with connect(address, user="ann", password="no", reconnection=QUICK, on_state=states.note):
            pass
    with pytest.raises(BadCredentials):
        async with connect(address):
            pass
    assert ClientState.RECONNECTING not in states.seen
    assert states.seen[-1] is ClientState.FAILED
    async with (
        connect(address, user="ann", password="ann!") as client,
        client.subscribe("mine/#") as messages,
    ):
        with pytest.raises(NotAuthorized):
            await client.publish("yours", "x")
        with pytest.raises(NotAuthorized):
            await messages.add("yours")
        await client.publish("mine/a", "x")
        assert texts(await take(messages, 1)) == ["x"]


async def test_a_server_with_tls_is_trusted_by_the_file_of_its_authority(
    connect: Connect, start_server: StartServer, tmp_path: Path
) -> None:
    authority = Authority()
    files = authority.issue(tmp_path, "server")
    trusted, other = authority.write(tmp_path / "ca.pem"), Authority().write(tmp_path / "other.pem")
    tls = {"certificate_file": files.certificate, "key_file": files.key}
    server = start_server({"tls": tls, "mqtt": {"tls_port": "off"}, "sidecar": {"tls_port": 0}})
    address = f"127.0.0.1:{server.port_of('grpcs')}"
    async with connect(address, tls=trusted) as client:
        assert (await client.publish("a", "b")).sequence == 1
    with pytest.raises(ConnectionRefused, match=r"(?i)certificate"):
        async with connect(address, tls=other, connect_timeout_s=PATIENCE_S, reconnection=TWICE):
            pass


READER = """
import asyncio, os, sys
import penstock
from penstock.client import CursorFile

address, file, count = sys.argv[1], CursorFile(sys.argv[2], every_s=0), int(sys.argv[3])

async def read_async():
    async with penstock.connect(address) as client, client.subscribe("jobs", after=file, last=0) as messages:
        print("ready", flush=True)
        async for message in messages:
            deal_with(message)

def read_sync():
    with penstock.connect_sync(address) as client, client.subscribe("jobs", after=file, last=0) as messages:
        print("ready", flush=True)
        for message in messages:
            deal_with(message)

dealt = 0

def deal_with(message):
    global dealt
    dealt += 1
    print(message.text, flush=True)
    if dealt == count:
        os._exit(9)  # in the middle of it

asyncio.run(read_async()) if sys.argv[4] == "async" else read_sync()
"""


def start_reader(*words: str) -> "subprocess.Popen[str]":
    """A process that has subscribed."""
    command = [sys.executable, "-c", dedent(READER), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def rest_of(process: "subprocess.Popen[str]") -> list[str]:
    """What it still says; `communicate` would leave out what came together with the first line."""
    assert process.stdout is not None
    impatience = Timer(PATIENCE_S, process.kill)
    impatience.start()
    with process:
        said = process.stdout.read().split()
    impatience.cancel()
    return said


@pytest.mark.parametrize("twin", ["async", "sync"])
async def test_a_process_that_was_killed_goes_on_where_it_was(
    twin: str, start_mortal: StartMortal, tmp_path: Path
) -> None:
    server = start_mortal(data_dir=str(tmp_path / "data"))
    file = str(tmp_path / "cursor")
    first = start_reader(server.address, file, "5", twin)
    async with penstock.connect(server.address) as client:
        for number in range(10):
            await client.publish("jobs", str(number))
        assert await asyncio.to_thread(rest_of, first) == ["0", "1", "2", "3", "4"]
        again = await asyncio.to_thread(start_reader, server.address, file, "10", twin)
        for number in range(10, 20):
            await client.publish("jobs", str(number))
        after = await asyncio.to_thread(rest_of, again)
    start = int(after[0])
    assert start <= 4  # what it was dealing with comes again, and perhaps what it took with it
    assert after == [str(number) for number in range(start, start + 10)]


async def test_a_cursor_file_is_there_before_the_first_message_is(
    connect: Connect, address: str, tmp_path: Path
) -> None:
    file, topic = CursorFile(tmp_path / "cursor"), f"first/{tmp_path.name}"
    async with connect(address) as client, client.subscribe(topic, after=file):
        cursor = file.read()
        await client.publish(topic, "never taken")
        async with client.subscribe(topic, after=cursor) as again:
            assert texts(await take(again, 1)) == ["never taken"]


async def test_a_cursor_file_is_up_to_date_when_a_subscription_is_left(
    connect: Connect, address: str, tmp_path: Path
) -> None:
    file = CursorFile(tmp_path / "cursor")
    topic = f"left/{tmp_path.name}"
    async with connect(address) as client:
        async with client.subscribe(topic, after=file) as messages:
            await client.publish_many([(topic, str(number)) for number in range(3)])
            assert texts(await take(messages, 2)) == ["0", "1"]
            messages.confirm()
        async with client.subscribe(topic, after=file) as messages:
            start = (await take(messages, 1))[0].text
        assert start in ("0", "2")  # all three may have come together, which is how far a cursor can tell
