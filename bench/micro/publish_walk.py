"""Modules that one publish executes on the server's loop, with the number of calls in each.

    python -m bench.micro.publish_walk [mqtt | v1 | nexusd] [--disk]

A walk is what a reader has to open to follow a publish from the publisher's bytes to those of a subscriber at
the same door, and to the acknowledgement. Several publishes are profiled after others have filled the caches;
what all of them have in common counts, without the callbacks of an idle server: its timers.
"""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import reduce
from operator import add, and_
from pathlib import Path
from types import FrameType
from typing import Any

import penstock
from penstock.testing import RunningServer, server

ROOT = f"{Path(penstock.__file__).parent}/"
TOPIC = "plant/walk"
WARM_UP = 9
ROUNDS = 5
SETTLE_S = 0.05
"""Time for the commit, and for acknowledgements after it."""

Publish = Callable[[], Awaitable[object]]


@asynccontextmanager
async def over_mqtt(running: RunningServer) -> AsyncIterator[Publish]:
    """A publisher at QoS 1, and a subscriber at QoS 0, whose deliveries need no acknowledgement."""
    async with running.aio.mqtt() as subscriber, running.aio.mqtt() as publisher:
        await subscriber.subscribe(TOPIC)
        yield lambda: publisher.publish(TOPIC, b"1", qos=1)


@asynccontextmanager
async def over_v1(running: RunningServer) -> AsyncIterator[Publish]:
    """A publisher and a subscriber of `penstock.v1`."""
    async with running.aio.connect() as client, client.subscribe(TOPIC):
        yield lambda: client.publish(TOPIC, b"1")


@asynccontextmanager
async def over_nexusd(running: RunningServer) -> AsyncIterator[Publish]:
    """A publisher and a subscriber of NexusD's service."""
    from penstock.compat.nexusd_client import AsyncNexusdClient  # noqa: PLC0415 - gRPC takes a moment to load

    async with AsyncNexusdClient(running.grpc_address) as client:
        subscription = client.subscribe([TOPIC])
        reading = asyncio.create_task(anext(aiter(subscription)))
        await asyncio.to_thread(running.wait_for_subscribers, TOPIC)
        yield lambda: client.publish(TOPIC, b"1")
        await reading


DOORS: dict[str, Callable[[RunningServer], AbstractAsyncContextManager[Publish]]] = {
    "mqtt": over_mqtt,
    "v1": over_v1,
    "nexusd": over_nexusd,
}


async def walk(running: RunningServer, door: str) -> Counter[str]:
    """Calls by module that each publish makes."""
    async with DOORS[door](running) as publish:
        for _ in range(WARM_UP):
            await publish()
        timers = set.intersection(*[set(await profile(running, be_idle)) for _ in range(ROUNDS)])
        rounds = [await profile(running, publish) for _ in range(ROUNDS)]
    return reduce(
        and_, [_sum(made for root, made in calls.items() if root not in timers) for calls in rounds]
    )


async def be_idle() -> None:
    """Publish nothing."""


async def profile(running: RunningServer, publish: Publish) -> dict[str, Counter[str]]:
    """Calls by module while one message is published and delivered, for each callback of the loop."""
    calls: dict[str, Counter[str]] = {}
    depth, root = 0, ""

    def on_event(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth, root
        name = frame.f_code.co_filename
        if not name.startswith(ROOT) or "/testing/" in name:
            return
        if event == "call":
            root = root if depth else frame.f_code.co_qualname
            depth += 1
            calls.setdefault(root, Counter())[name.removeprefix(ROOT)] += 1
        elif event == "return":
            depth -= 1

    await asyncio.sleep(SETTLE_S)
    running.call(lambda _: sys.setprofile(on_event))
    await publish()
    await asyncio.sleep(SETTLE_S)
    running.call(lambda _: sys.setprofile(None))
    return calls


def _sum(counters: Iterable[Counter[str]]) -> Counter[str]:
    return reduce(add, counters, Counter())


def main() -> None:
    """Print the walks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("doors", nargs="*", default=[*DOORS], metavar="door")
    parser.add_argument("--disk", action="store_true", help="with a data directory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"data_dir": folder} if options.disk else {}
        for door in options.doors:
            with server(**settings) as running:
                calls = asyncio.run(walk(running, door))
            print(f"{door}: {len(calls)} modules, {calls.total()} calls")
            for name, count in sorted(calls.items()):
                print(f"  {count:3}  {name}")


if __name__ == "__main__":
    main()
