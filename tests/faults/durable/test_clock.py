"""A wall clock that is set by an hour while the server runs: nothing ends too early, and nothing too late."""

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from penstock.wire.mqtt import PacketProperties, Publish, Version, Will
from tests.doors.mqtt.peers import Peers, both_versions, payloads
from tests.faults.durable.crashing import End, Load
from tests.faults.durable.homes import Home, MakeHome

HOUR_S = 3600
LIFE_S = 600
"""Longer than any test, and shorter than an hour."""
SHORT_S = 1
SETTLE_S = 0.5
"""Much longer than the server waits between looking for what has expired."""
SETTINGS = {"reaper_interval_ms": 50, "log": {"retention_s": LIFE_S}}
LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1")


class WallClock:
    """The wall clock of a server; its monotonic clock goes on as it is."""

    def __init__(self, folder: Path) -> None:
        found = [path for pattern in LIBRARIES for path in Path("/").glob(pattern.lstrip("/"))]
        if not found:
            pytest.skip("libfaketime is not here")
        self._library = found[0]
        self._file = folder / "wall-clock"
        self.set(0)

    @property
    def environment(self) -> Mapping[str, str]:
        """What a server has to be started with."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, offset_s: int) -> None:
        """So many seconds before or after the true time from now on."""
        draft = self._file.with_suffix(".new")
        draft.write_text(f"{offset_s:+d}\n", encoding="ascii")
        draft.replace(self._file)


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    return WallClock(tmp_path)


async def stopped(home: Home, peers: Peers) -> float:
    """Stop the server, and tell by how many seconds its clock was wrong at last."""
    await peers.close()
    await home.close()
    last = re.findall(r"^(\S+)Z \S+ +stopped", home.logged, re.MULTILINE)[-1]
    return (datetime.fromisoformat(f"{last}+00:00") - datetime.now(UTC)).total_seconds()


@both_versions
async def test_clock_that_is_set_forward_ends_nothing_early(
    make_home: MakeHome, clock: WallClock, peers: Peers, version: Version
) -> None:
    """Keep alive and sessions, and with MQTT 5 messages, retained values and delayed wills."""
    home = make_home(SETTINGS, environment=clock.environment)
    await home.open()
    lives = PacketProperties(message_expiry=LIFE_S) if version is Version.V5 else PacketProperties()
    here = await peers.connect("", version, keep_alive=60, port=home.port)
    await here.subscribe("will", qos=1)
    away = await peers.connect("away", version, clean=False, expiry=LIFE_S, port=home.port)
    await away.subscribe("a/#", qos=1)
    await away.leave()
    delay = PacketProperties(will_delay=LIFE_S)
    if version is Version.V5:
        will = Will("will", b"too early", 1, False, delay)
        testator = await peers.connect("testator", expiry=LIFE_S, will=will, port=home.port)
        await testator.cut()
    for number in range(3):
        await here.publish(f"a/{number}", b"%d" % number, properties=lives)
    await here.publish("kept", b"value", retain=True, properties=lives)
    clock.set(HOUR_S)
    await asyncio.sleep(SETTLE_S)
    await here.publish("a/3", b"3", properties=lives)
    assert await here.fence() == []
    away = await peers.connect("away", version, clean=False, expiry=LIFE_S, port=home.port)
    assert away.connack.session_present
    got = await away.receive_all(4)
    assert payloads(got) == [b"0", b"1", b"2", b"3"]
    if version is Version.V5:
        assert all(0 < (message.properties.message_expiry or 0) <= LIFE_S for message in got)
    reader = await peers.connect("", version, port=home.port)
    await reader.subscribe("kept")
    assert (await reader.receive(Publish)).payload == b"value"
    assert await stopped(home, peers) > HOUR_S / 2
    home.was_well()


async def test_clock_that_is_set_back_prolongs_nothing(
    make_home: MakeHome, clock: WallClock, peers: Peers
) -> None:
    home = make_home(SETTINGS, environment=clock.environment)
    await home.open()
    lives = PacketProperties(message_expiry=SHORT_S)
    here = await peers.connect(port=home.port)
    await here.subscribe("will", qos=1)
    away = await peers.connect("away", clean=False, expiry=LIFE_S, port=home.port)
    await away.subscribe("a", qos=1)
    await away.leave()
    gone = await peers.connect("gone", clean=False, expiry=SHORT_S, port=home.port)
    await gone.leave()
    will = Will("will", b"in time", 1, False, PacketProperties(will_delay=SHORT_S))
    testator = await peers.connect("testator", expiry=LIFE_S, will=will, port=home.port)
    sender = await peers.connect(port=home.port)  # which gets no will between its acknowledgements
    await testator.cut()
    await sender.publish("a", b"short", properties=lives)
    await sender.publish("kept", b"short", retain=True, properties=lives)
    await sender.publish("a", b"long")
    clock.set(-HOUR_S)
    assert (await here.receive_all(1))[0].payload == b"in time"
    await asyncio.sleep(SHORT_S + SETTLE_S)
    away = await peers.connect("away", clean=False, expiry=LIFE_S, port=home.port)
    assert payloads(await away.receive_all(1)) == [b"long"]
    reader = await peers.connect(port=home.port)
    await reader.subscribe("kept")
    assert await reader.fence() == []
    gone = await peers.connect("gone", clean=False, expiry=SHORT_S, port=home.port)
    assert not gone.connack.session_present
    assert await stopped(home, peers) < -HOUR_S / 2
    home.was_well()


@pytest.mark.parametrize("offset_s", [-HOUR_S, HOUR_S])
async def test_keep_alive_ends_in_its_own_time(
    make_home: MakeHome, clock: WallClock, peers: Peers, offset_s: int
) -> None:
    home = make_home(SETTINGS, environment=clock.environment)
    await home.open()
    quiet = [await peers.connect("", version, keep_alive=SHORT_S, port=home.port) for version in Version]
    steady = [await peers.connect("", version, keep_alive=60, port=home.port) for version in Version]
    clock.set(offset_s)
    for peer in quiet:
        await peer.last_words()
    for peer in steady:
        assert await peer.fence() == []
    home.was_well()


def set_by(clock: WallClock, dice: Random) -> End:
    """Sets the clock to anything within an hour; now and then the server is killed at that moment."""

    async def end(home: Home) -> None:
        clock.set(dice.randrange(-HOUR_S, HOUR_S))
        if dice.random() < 0.1:
            await home.killed_and_back()

    return end


async def test_clock_that_jumps_about_loses_nothing(
    make_home: MakeHome, clock: WallClock, dice: Random, scale: int
) -> None:
    """A hundred times in a soak."""
    home = make_home(SETTINGS, environment=clock.environment)
    await home.open()
    await Load(home, Version.V5, 2).run([set_by(clock, dice)] * 10 * scale, dice, most=50)
    home.was_well()
