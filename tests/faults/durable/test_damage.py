"""Cut and flipped bytes anywhere in a data directory: it starts, serves the rest, and tells what is gone."""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.request import urlopen

import pytest

from penstock.wire.mqtt import PubAck, Publish, ReasonCode, Version
from tests.doors.mqtt.peers import FOR_EVER, Peer, Peers
from tests.faults.durable.homes import Home, MakeHome
from tests.faults.durable.load import TOPICS, Publisher, Subscriber, name_of
from tests.storage.disk.damage import flip_byte
from tests.support.fork_server import ForkServer
from tests.support.waiting import until

NAME = "writer"
MESSAGES = 11_000
"""One sealed batch, and some rows that are not sealed yet."""
OWED = range(0, MESSAGES, TOPICS)
"""What the absent one is owed: every third message."""
KEPT = {f"kept/{number}": b"value %d" % number for number in range(50)}
ROUNDS = 6
WINDOW = 20
END = b"the end"
TOLD = re.compile(r"^\S+ (?:warning|error) .*(?:damage|lost)", re.MULTILINE)
PATIENCE_S = 20.0

Damage = Callable[[bytes, Random], bytes]


def flip(data: bytes, dice: Random) -> bytes:
    """One bit is the other way."""
    place = dice.randrange(len(data))
    return data[:place] + bytes((data[place] ^ 1 << dice.randrange(8),)) + data[place + 1 :]


def cut(data: bytes, dice: Random) -> bytes:
    """The end is missing."""
    return data[: dice.randrange(len(data))]


def scribble(data: bytes, dice: Random) -> bytes:
    """Some bytes in a row are others."""
    place = dice.randrange(len(data))
    others = dice.randbytes(min(dice.randrange(1, 64), len(data) - place))
    return data[:place] + others + data[place + len(others) :]


def shift(data: bytes, dice: Random) -> bytes:
    """Some bytes are missing, and everything behind them is not where it was."""
    place = dice.randrange(len(data))
    return data[:place] + data[place + dice.randrange(1, 64) :]


def blank(data: bytes, dice: Random) -> bytes:
    """A page was never written."""
    place = dice.randrange(len(data)) & ~4095
    return data[:place] + bytes(min(4096, len(data) - place)) + data[place + 4096 :]


def blank_first(data: bytes, dice: Random) -> bytes:
    """The first page was never written."""
    return bytes(min(4096, len(data))) + data[4096:]


def append(data: bytes, dice: Random) -> bytes:
    """There is more than there should be."""
    return data + dice.randbytes(dice.randrange(1, 4096))


WAYS: tuple[Damage, ...] = (flip, flip, cut, cut, scribble, blank, append)


@pytest.fixture(scope="module", params=["killed", "sealed", "stopped"])
def original(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer | None
) -> Iterator[Home]:
    """A data directory with a bit of everything, whose server is gone."""
    home = Home(tmp_path_factory.mktemp("original"), forks=fork_server)
    home.start()
    try:
        asyncio.run(write_everything(home, is_sealed=request.param != "killed"))
        if request.param == "stopped":
            home.stop()
        else:
            home.kill()
        yield home
    finally:
        home.leave()


async def write_everything(home: Home, *, is_sealed: bool) -> None:
    async with clients_of(home) as peers:
        absent = await come(peers)
        assert await absent.subscribe(f"load/{NAME}/0", qos=1) == (1,)
        await absent.leave()
        keeper = await peers.connect()
        for topic, value in KEPT.items():
            await keeper.publish(topic, value, retain=True)
    await Publisher(home, NAME, Version.V5, 1, window=1_000, count=MESSAGES).run()
    if is_sealed:
        await until(home.has_sealed, "nothing was sealed", timeout_s=PATIENCE_S, every_s=0.05)


@asynccontextmanager
async def clients_of(home: Home) -> AsyncIterator[Peers]:
    """Clients of the server that runs now."""
    peers = Peers(home.port)
    try:
        yield peers
    finally:
        await peers.close()


async def come(peers: Peers) -> Peer:
    return await peers.connect("absent", clean=False, expiry=FOR_EVER)


def harm(home: Home, dice: Random) -> str:
    """Damage one file in one way, and tell which; small files are met as often as large ones."""
    files = sorted(file for file in home.data.rglob("*") if file.is_file() and file.stat().st_size)
    weights = [file.stat().st_size for file in files] if dice.random() < 0.5 else None
    return damage(home, dice.choices(files, weights)[0], dice.choice(WAYS), dice)


def damage(home: Home, file: Path, way: Damage, dice: Random) -> str:
    """Damage a file, and tell how."""
    before = file.read_bytes()
    file.write_bytes(way(before, dice))
    what = f"{way.__name__} {file.relative_to(home.data)} of {len(before)} bytes"
    print(what)
    return what


class Findings:
    """What is left after a start, as clients see it."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.values: dict[str, bytes] = {}
        self.has_session = False
        self.has_subscription = False

    @property
    def is_complete(self) -> bool:
        is_known = self.has_session and self.has_subscription
        return is_known and self.numbers == list(OWED) and self.values == KEPT


async def look(peers: Peers) -> Findings:
    """Ask for everything, and check that nothing comes that was never there."""
    findings = Findings()
    absent = await come(peers)
    findings.has_session = absent.connack.session_present
    publisher = await peers.connect()
    reason = await publisher.publish(f"load/{NAME}/0", END)
    findings.has_subscription = reason != ReasonCode.NO_MATCHING_SUBSCRIBERS
    while findings.has_subscription:
        message = await absent.receive(Publish, PATIENCE_S)
        await absent.send(PubAck(message.packet_id))
        if message.payload == END:
            break
        name = name_of(message.payload)
        assert name is not None, message
        assert name[0] == NAME
        assert message.topic == f"load/{NAME}/0"
        findings.numbers.append(name[1])
    assert findings.numbers == sorted(set(findings.numbers))
    reader = await peers.connect()
    await reader.subscribe("kept/#")
    for packet in await reader.fence():
        assert isinstance(packet, Publish)
        assert packet.payload == KEPT[packet.topic]
        findings.values[packet.topic] = packet.payload
    return findings


async def goes_on(home: Home) -> None:
    """Whatever was there before, what comes now is kept."""
    async with clients_of(home) as peers:
        subscriber = await peers.connect("later", clean=False, expiry=FOR_EVER)
        await subscriber.subscribe("later", qos=1)
        await subscriber.leave()
        publisher = await peers.connect()
        assert await publisher.publish("later", b"kept") == 0
    await home.killed_and_back()
    async with clients_of(home) as peers:
        subscriber = await peers.connect("later", clean=False, expiry=FOR_EVER)
        assert subscriber.connack.session_present
        assert (await subscriber.receive(Publish)).payload == b"kept"


async def check(home: Home, what: str) -> None:
    """It starts, tells what is gone, serves the rest, and goes on."""
    try:
        await home.open()
        async with clients_of(home) as peers:
            findings = await look(peers)
        print(f"  {len(findings.numbers)} of {len(OWED)}, {len(findings.values)} of {len(KEPT)}")
        assert findings.is_complete or TOLD.search(home.logged), what
        await goes_on(home)
        assert "Traceback" not in home.logged, what
    finally:
        home.leave()
    shutil.rmtree(home.folder)


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_damage_is_told_and_the_rest_is_served(
    original: Home, tmp_path: Path, dice: Random, scale: int, number: int
) -> None:
    """A thousand times in a soak."""
    for trial in range(1 if scale == 1 else 55):
        home = original.copy_to(tmp_path / f"trial-{trial}")
        await check(home, harm(home, dice))


async def test_journal_with_missing_bytes_does_not_stop_a_start(
    original: Home, tmp_path: Path, dice: Random, scale: int
) -> None:
    """Here RocksDB itself may never come back from opening it."""
    for trial in range(scale):
        home = original.copy_to(tmp_path / f"trial-{trial}")
        journals = [file for file in home.data.rglob("*.log") if file.stat().st_size]
        for file in journals:
            await check(home, damage(home, file, shift, dice))


@pytest.mark.parametrize("original", ["stopped"], indirect=True)
@pytest.mark.parametrize("word", [b"sessions\0absent", b"correlation_id"], ids=["sessions", "batches"])
async def test_damage_to_what_is_in_tables_is_told_and_goes_no_further(
    original: Home, tmp_path: Path, dice: Random, word: bytes
) -> None:
    """A table of sessions, or one of sealed batches, which have the names of their columns in them."""
    home = original.copy_to(tmp_path / "trial")
    tables = [file for file in home.data.rglob("*.sst") if word in file.read_bytes()]
    assert tables
    for file in tables:
        damage(home, file, blank_first, dice)
    await check(home, str(word))


def drops_of(home: Home, client_id: str) -> list[dict[str, Any]]:
    """What is recorded as not delivered to a session."""
    url = f"http://127.0.0.1:{home.server.port_of('http')}/api/v1/drops?client={client_id}"
    with urlopen(url) as response:
        drops: list[dict[str, Any]] = json.load(response)["drops"]
        return drops


async def test_one_flipped_bit_costs_one_block_and_not_the_queue(make_home: MakeHome) -> None:
    """The block is what one commit wrote; what is lost is logged, and recorded for the session."""
    home = make_home({"http": {"port": 0}})
    await home.open()
    absent = Subscriber(home, "absent", Version.V5, 1)
    await absent.subscribe()
    await absent.leave()
    publisher = Publisher(home, NAME, Version.V5, 1, window=WINDOW, count=20 * WINDOW)
    await publisher.run()
    await home.stopped_and_back()  # moves what is in the journal into tables
    await home.close()
    word = f"{NAME}:{10 * WINDOW}:".encode()
    (table,) = [file for file in home.data.rglob("*.sst") if word in file.read_bytes()]
    flip_byte(table, table.read_bytes().index(word))
    await home.open()
    reading = asyncio.create_task(absent.run())
    await absent.has({(NAME, 20 * WINDOW - 1)})
    await absent.settle()
    reading.cancel()
    lost = [number for number in range(20 * WINDOW) if (NAME, number) not in absent.arrivals]
    assert 10 * WINDOW in lost
    assert len(lost) <= 3 * WINDOW
    assert TOLD.search(home.logged)
    drops = drops_of(home, "absent")
    assert {drop["reason"] for drop in drops} == {"damaged"}
    assert sum(drop["count"] for drop in drops) == len(lost)
