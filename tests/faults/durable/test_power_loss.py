"""Power loss on a strict file system: all that was acknowledged is there, in new files and folders too."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.wire.mqtt import Version
from tests.faults.durable.disk_shim import recorded_disk, what_power_leaves
from tests.faults.durable.homes import Home, MakeHome
from tests.faults.durable.load import Publisher, Subscriber
from tests.faults.durable.reckoning import ALL_IS_WELL, names_of, reckon

MESSAGES = 30
LARGE_BYTES = 100_000
"""Several of these fill a write buffer, so that tables and further journals are made."""

Life = Callable[[Home, Publisher], Awaitable[None]]


async def begin(home: Home, publisher: Publisher) -> None:
    """The first start alone."""
    await publisher.run()


async def restart(home: Home, publisher: Publisher) -> None:
    """A second server, after an orderly stop; its messages are acknowledged too."""
    await home.stopped_and_back()
    await publisher.run()


async def crash(home: Home, publisher: Publisher) -> None:
    """A second server, after a kill."""
    await home.killed_and_back()
    await publisher.run()


@pytest.mark.parametrize(
    ("life", "size"), [(begin, 0), (restart, LARGE_BYTES), (crash, 0)], ids=["begin", "restart", "crash"]
)
async def test_power_loss_takes_nothing_that_was_acknowledged(
    make_home: MakeHome, disk_shim: Path, tmp_path: Path, life: Life, size: int
) -> None:
    root, records, after = tmp_path / "disk", tmp_path / "synced", tmp_path / "after"
    root.mkdir()
    data = Path("var", "penstock", "data")  # all of it is new
    home = make_home(data=root / data, environment=recorded_disk(disk_shim, root, records))
    await home.open()
    absent = Subscriber(home, "absent", Version.V5, 1, size=size)
    await absent.subscribe()
    await absent.leave()
    publisher = Publisher(home, "publisher", Version.V5, 1, window=5, count=MESSAGES, size=size)
    later = Publisher(home, "later", Version.V5, 1, window=5, count=MESSAGES, size=size)
    publishers = [publisher] if life is begin else [publisher, later]
    if life is not begin:
        await publisher.run()
    await life(home, publishers[-1])
    home.kill()

    what_power_leaves(root, records, after)
    home.data, home.environment = after / data, {}
    await home.open()
    reading = asyncio.create_task(absent.run())
    await absent.has(names_of(publishers))
    await absent.settle()
    reading.cancel()
    assert reckon(publishers, absent) == ALL_IS_WELL
    home.was_well()
