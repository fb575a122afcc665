"""A start with many messages that wait for someone absent: how long it takes, and that all of them come."""

import asyncio

from penstock.wire.mqtt import Version
from tests.doors.mqtt.peers import both_versions
from tests.faults.durable.homes import MakeHome
from tests.faults.durable.load import Publisher, Subscriber
from tests.faults.durable.reckoning import ALL_IS_WELL, names_of, reckon

WINDOW = 1_000


@both_versions
async def test_all_that_waits_is_delivered_in_order_after_a_kill(
    make_home: MakeHome, scale: int, version: Version
) -> None:
    """A hundred thousand in a soak."""
    home = make_home()
    await home.open()
    absent = Subscriber(home, "absent", version, 1)
    await absent.subscribe()
    await absent.leave()
    publisher = Publisher(home, "publisher", version, 1, window=WINDOW, count=10_000 * scale)
    await publisher.run()
    await home.killed_and_back()
    print(f"started in {home.starts_s[-1]:.2f} s, {home.starts_s[0]:.2f} s with nothing to restore")
    reading = asyncio.create_task(absent.run())
    await absent.has(names_of([publisher]))
    await absent.settle()
    reading.cancel()
    assert reckon([publisher], absent) == ALL_IS_WELL
    assert len(absent.arrivals) == 10_000 * scale
    home.was_well()
