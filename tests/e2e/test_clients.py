"""The clients that people use, in both versions: the same stories with each of them."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from uuid import uuid4

import pytest

from penstock.client import Version
from tests.e2e import driven_clients
from tests.e2e.clients import LIBRARIES, Client, Message, Options
from tests.e2e.driven_clients import DrivenClient
from tests.support.servers import RunningServer

KIB = 1024
MIB = 1024 * KIB
LARGEST_PAYLOAD = 3968 * 1024

Join = Callable[..., Awaitable[Client]]

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning:gmqtt"),
    pytest.mark.timeout(600),  # the first run compiles clients
]
every_qos = pytest.mark.parametrize("qos", range(3))


@pytest.fixture(scope="module")
def programs() -> Iterator[None]:
    """Ends the programs whose clients were used."""
    yield
    DrivenClient.stop_all()


@pytest.fixture(params=[*LIBRARIES, *driven_clients.LIBRARIES], ids=lambda library: library.__name__)
def library(request: pytest.FixtureRequest, programs: None) -> type[Client]:
    chosen: type[Client] = request.param
    return chosen


@pytest.fixture(params=list(Version), ids=lambda version: version.name)
def version(request: pytest.FixtureRequest) -> Version:
    chosen: Version = request.param
    return chosen


@pytest.fixture
def topic() -> str:
    return f"clients/{uuid4().hex}"


@pytest.fixture
async def join(server: RunningServer, library: type[Client], version: Version) -> AsyncIterator[Join]:
    """Connects clients; those that have not left disconnect at the end."""
    joined: list[Client] = []

    async def join_one(
        client_id: str = "", *, is_kept: bool = False, will: Message | None = None, port: int = 0
    ) -> Client:
        client = library(Options(version, client_id or uuid4().hex, is_kept, will))
        await client.connect(port or server.port)
        joined.append(client)
        return client

    yield join_one
    for client in joined:
        if not client.is_gone:
            await client.disconnect()


@every_qos
async def test_message_is_published_and_received(join: Join, topic: str, qos: int) -> None:
    subscriber, publisher = await join(), await join()
    await subscriber.subscribe(topic, qos)
    await publisher.publish(topic, b"hello", qos)
    assert await subscriber.receive() == [Message(topic, b"hello", qos, False)]


@every_qos
async def test_quality_is_lowered_to_what_was_granted(join: Join, topic: str, qos: int) -> None:
    subscriber, publisher = await join(), await join()
    await subscriber.subscribe(topic, qos)
    await publisher.publish(topic, b"hello", 2)
    assert await subscriber.receive() == [Message(topic, b"hello", qos, False)]


async def test_wildcards_reach_what_they_match(join: Join, topic: str) -> None:
    one_level, all_levels, publisher = await join(), await join(), await join()
    await one_level.subscribe(f"{topic}/+/temperature")
    await all_levels.subscribe(f"{topic}/#")
    names = ["hall/temperature", "hall/humidity", "hall/lamp/temperature", "stairs/temperature"]
    for name in names:
        await publisher.publish(f"{topic}/{name}", name.encode(), 1)
    assert [message.payload.decode() for message in await all_levels.receive(4)] == names
    assert [message.payload.decode() for message in await one_level.receive(2)] == [names[0], names[3]]


@every_qos
async def test_retained_message_is_kept_replaced_and_erased(join: Join, topic: str, qos: int) -> None:
    publisher, first, second = await join(), await join(), await join()
    await publisher.publish(topic, b"old", qos, retain=True)
    await publisher.publish(topic, b"new", qos, retain=True)
    await publisher.publish(f"{topic}/fence", b"", 1)
    await first.subscribe(topic, 2)
    assert await first.receive() == [Message(topic, b"new", qos, True)]
    await publisher.publish(topic, b"", qos, retain=True)
    assert await first.receive() == [Message(topic, b"", qos, False)]
    await second.subscribe(topic, 2)
    await publisher.publish(topic, b"live", 1)
    assert await second.receive() == [Message(topic, b"live", 1, False)]


async def test_will_comes_after_a_cut_and_not_after_a_goodbye(join: Join, topic: str) -> None:
    watcher = await join()
    await watcher.subscribe(f"{topic}/#", 1)
    polite = await join(will=Message(f"{topic}/polite", b"never", 1, False))
    rude = await join(will=Message(f"{topic}/rude", b"gone", 1, False))
    await polite.leave()
    await rude.drop()
    assert await watcher.receive() == [Message(f"{topic}/rude", b"gone", 1, False)]
    assert watcher.messages.empty()


async def test_shared_subscription_hands_each_message_to_one(join: Join, topic: str) -> None:
    members = [await join() for _ in range(3)]
    for member in members:
        await member.subscribe(f"$share/workers/{topic}", 1)
    publisher = await join()
    for number in range(30):
        await publisher.publish(topic, b"%d" % number, 1)
    found = [message for member in members for message in await member.receive(10)]
    assert sorted(int(message.payload) for message in found) == list(range(30))


async def test_kept_session_gets_what_it_missed(join: Join, topic: str) -> None:
    name = uuid4().hex
    subscriber = await join(name, is_kept=True)
    await subscriber.subscribe(topic, 2)
    await subscriber.leave()
    publisher = await join()
    for number in range(20):
        await publisher.publish(topic, b"%d" % number, 1 + number % 2)
    subscriber = await join(name, is_kept=True)
    got = await subscriber.receive(20)
    for qos in (1, 2):  # a client may hand over one at QoS 2 only when it is released
        mine = [int(message.payload) for message in got if message.qos == qos]
        assert mine == list(range(qos - 1, 20, 2))


@every_qos
@pytest.mark.parametrize("size", [0, 16 * KIB, MIB, LARGEST_PAYLOAD])
async def test_payload_of_any_size_arrives_whole(join: Join, topic: str, qos: int, size: int) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    print(f"SEED={seed}")
    payload = random.Random(seed).randbytes(size)
    subscriber, publisher = await join(), await join()
    await subscriber.subscribe(topic, qos)
    await publisher.publish(topic, payload, qos)
    assert await subscriber.receive() == [Message(topic, payload, qos, False)]


@every_qos
async def test_many_messages_arrive_in_order(join: Join, topic: str, qos: int, scale: int) -> None:
    subscriber, publisher = await join(), await join()
    await subscriber.subscribe(f"{topic}/#", qos)
    count = 300 * scale
    for first in range(0, count, 50):  # within any window
        numbers = range(first, min(first + 50, count))
        await asyncio.gather(*(publisher.publish(f"{topic}/{n % 3}", b"%d" % n, qos) for n in numbers))
    got = await subscriber.receive(count)
    for remainder in range(3):
        mine = [int(message.payload) for message in got if message.topic == f"{topic}/{remainder}"]
        assert mine == list(range(remainder, count, 3))


async def test_many_clients_hear_one(join: Join, topic: str) -> None:
    listeners = [await join() for _ in range(20)]
    for listener in listeners:
        await listener.subscribe(topic, 1)
    publisher = await join()
    for number in range(10):
        await publisher.publish(topic, b"%d" % number, 1)
    for listener in listeners:
        assert [int(message.payload) for message in await listener.receive(10)] == list(range(10))
