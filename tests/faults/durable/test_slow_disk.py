"""A slow disk: memory stays within its limits, publishers wait, and nothing acknowledged is lost."""

import asyncio
import json
import os
from pathlib import Path
from threading import Event
from urllib.request import Request, urlopen

import pytest

from penstock.client import MqttClient
from tests.faults.durable.disk_shim import slow_disk
from tests.faults.durable.homes import Home, MakeHome
from tests.faults.watching import MIB, Costs
from tests.support.waiting import until

SYNC_MS = 100
PUBLISHERS = 40
PAYLOAD = os.urandom(8_000)
"""Below the size of large reads, so that what all publishers bring in a turn fits into the rest."""
QUEUED_BYTES = 8 * MIB
CEILING_BYTES = 180 * MIB
"""Rings 50, queued commits 8 and what a turn brings, the same again while it is written, write buffers 64."""
SETTINGS = {"log": {"capture": ["#"], "queued_bytes": QUEUED_BYTES}, "http": {"port": 0}}
PATIENCE_S = 120.0
LEVELS = {0: 30 * MIB, 1: 12 * MIB}
"""How much is published at a level, in a soak ten times as much."""


def get(home: Home, path: str) -> bytes:
    with urlopen(f"http://127.0.0.1:{home.server.port_of('http')}{path}", timeout=PATIENCE_S) as response:
        body: bytes = response.read()
        return body


def status_of(home: Home) -> tuple[str, str]:
    """The health of the server and of its log."""
    health = json.loads(get(home, "/health"))
    return health["status"], health["log"]["status"]


async def publish(home: Home, number: int, qos: int, count: int) -> int:
    """Publish as fast as the server takes it; return how many were taken over."""
    async with MqttClient.connect(port=home.port) as client:
        if qos:
            await asyncio.gather(*(client.publish(f"t/{number}", PAYLOAD, qos=1) for _ in range(count)))
        else:
            for _ in range(count):
                await client.publish(f"t/{number}", PAYLOAD)
            await client.publish(f"t/{number}", PAYLOAD, qos=1)  # after this one all are taken over
    return count + (not qos)


async def request(home: Home) -> int:
    """Publish by a request."""
    url = f"http://127.0.0.1:{home.server.port_of('http')}/api/v1/publish"
    body = json.dumps({"topic": "t/http", "payload": "x" * 10_000}).encode()

    def post() -> int:
        asked = Request(url, body, {"Content-Type": "application/json"})
        with urlopen(asked, timeout=PATIENCE_S) as response:  # noqa: S310 - our own server
            return int(response.status == 200)

    return await asyncio.to_thread(post)


@pytest.mark.parametrize("qos", LEVELS)
async def test_a_slow_disk_makes_publishers_wait_and_takes_no_more_memory(
    make_home: MakeHome, disk_shim: Path, scale: int, qos: int
) -> None:
    home = make_home(SETTINGS, environment=slow_disk(disk_shim, SYNC_MS))
    await home.open()
    costs, count = Costs(home.server), LEVELS[qos] * scale // PUBLISHERS // len(PAYLOAD)
    seen: list[tuple[int, int, str, str]] = []
    is_over = Event()

    def look() -> None:
        while not is_over.wait(0.1):
            figures = json.loads(get(home, "/metrics"))
            seen.append((costs.more_bytes, figures["log"]["queued_bytes"], *status_of(home)))

    get(home, "/metrics")  # loads what the first request needs
    looking = asyncio.create_task(asyncio.to_thread(look))
    async with asyncio.timeout(PATIENCE_S):
        publishing = [publish(home, number, qos, count) for number in range(PUBLISHERS)]
        taken = await asyncio.gather(*publishing, *(request(home) for _ in range(2)))
    is_over.set()
    await looking
    assert max(more for more, *_ in seen) < CEILING_BYTES
    assert max(queued for _, queued, *_ in seen) < 2 * QUEUED_BYTES
    assert ("degraded", "behind") in [(status, log) for *_, status, log in seen]
    assert home.logged.count("the disk does not keep up, publishers wait") == 1

    async def is_well() -> bool:
        return await asyncio.to_thread(status_of, home) == ("healthy", "ok")

    await until(is_well, "the log is still behind", PATIENCE_S)
    home.kill()  # everything was acknowledged
    home.environment = {}
    await home.open()
    stored = json.loads(get(home, "/health"))["log"]["last_offset"]
    assert stored >= sum(taken)
