"""kill -9 under load: nothing acknowledged is lost, nothing changes places, QoS 2 comes once."""

from random import Random

import pytest

from penstock.wire.mqtt import Version
from tests.doors.mqtt.peers import both_versions
from tests.faults.durable.crashing import Load, kill_with
from tests.faults.durable.homes import Home, MakeHome

with_acknowledgements = pytest.mark.parametrize("qos", [1, 2])


@both_versions
@with_acknowledgements
async def test_kills_under_load_lose_nothing(
    make_home: MakeHome, dice: Random, scale: int, version: Version, qos: int
) -> None:
    """Two kills; twenty in a soak."""
    home = make_home()
    await home.open()
    await Load(home, version, qos).run([kill_with(dice)] * 2 * scale, dice)
    home.was_well()


@both_versions
@with_acknowledgements
async def test_stops_under_load_lose_nothing(
    make_home: MakeHome, dice: Random, version: Version, qos: int
) -> None:
    home = make_home()
    await home.open()
    await Load(home, version, qos).run([Home.stopped_and_back], dice)
    home.was_well()


@both_versions
@with_acknowledgements
async def test_kills_lose_nothing_that_the_operating_system_has(
    make_home: MakeHome, dice: Random, version: Version, qos: int
) -> None:
    """`durability: os` does not wait for the disk, which a crash of the server alone does not ask for."""
    home = make_home({"durability": "os"})
    await home.open()
    await Load(home, version, qos).run([kill_with(dice)], dice)
    home.was_well()
