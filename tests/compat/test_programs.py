"""Unchanged programs written for `nexusd_client`, in their own processes."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.compat.nexusd_client import AsyncNexusdClient
from tests.client.grpc.cable import Cable, cable_to
from tests.client.grpc.nexusd.daemon import Daemon
from tests.support.servers import StartServer, bare_environment

PROGRAMS = Path(__file__).parent / "programs"
AS_NEXUSD = """
import runpy, sys
import penstock.compat.nexusd_client
sys.modules["nexusd_client"] = penstock.compat.nexusd_client
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
TIMEOUT_S = 30.0


@pytest.fixture(params=["nexusd", "penstock"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """Of a daemon, and of a server."""
    if request.param == "nexusd":
        daemon = Daemon()
        yield daemon.port
        daemon.stop()
    else:
        start_server: StartServer = request.getfixturevalue("start_server")
        yield start_server().port_of("grpc")


@asynccontextmanager
async def running(program: str, address: str, count: int) -> AsyncIterator[Process]:
    words = [sys.executable, "-c", AS_NEXUSD, str(PROGRAMS / f"{program}.py"), address, str(count)]
    process = await asyncio.create_subprocess_exec(*words, env=bare_environment(), stdout=PIPE)
    try:
        yield process
        async with asyncio.timeout(TIMEOUT_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def lines(process: Process, is_last: Callable[[str], bool] = lambda line: False) -> list[str]:
    """What a program prints, up to a line."""
    assert process.stdout is not None
    found: list[str] = []
    async with asyncio.timeout(TIMEOUT_S):
        async for line in process.stdout:
            found.append(line.decode().rstrip("\n"))
            if is_last(found[-1]):
                break
    return found


async def reading(client: Any, *values: int) -> None:
    for value in values:
        await client.publish("sensors/temperature", b'{"value": %d}' % value)


async def test_a_publisher_and_a_subscriber_meet(port: int) -> None:
    address = f"127.0.0.1:{port}"
    async with running("subscriber", address, 4) as subscriber:
        assert await lines(subscriber, lambda line: line == "state CONNECTED") == ["state CONNECTED"]
        async with running("publisher", address, 3) as publisher:
            assert await lines(publisher) == ["True 1 True"] * 3
        said = await lines(subscriber)
    assert said == [
        "[1] config/settings {'theme': 'dark'}",
        "[1] sensors/temperature {'value': 1}",
        "[2] sensors/temperature {'value': 2}",
        "[3] sensors/temperature {'value': 3}",
        "state DISCONNECTED",
    ]


async def test_a_subscriber_that_comes_late_gets_what_was_retained(port: int) -> None:
    address = f"127.0.0.1:{port}"
    async with running("publisher", address, 1) as publisher:
        await lines(publisher)
    async with running("subscriber", address, 1) as subscriber:
        assert (await lines(subscriber))[1] == "[1] config/settings {'theme': 'dark'} retained"


async def interrupted(cable: Cable, port: int, count: int) -> list[str]:
    """What a subscriber says whose connection breaks, while something is published."""
    direct = AsyncNexusdClient(f"127.0.0.1:{port}")
    async with direct as client, running("subscriber", cable.address, count) as subscriber:
        await lines(subscriber, lambda line: line == "state CONNECTED")
        await reading(client, 1)
        assert await lines(subscriber, lambda line: line.startswith("[1]"))
        cable.unplug()
        await lines(subscriber, lambda line: line == "state RECONNECTING")
        await reading(client, 2)
        cable.plug()
        again = await lines(subscriber, lambda line: line == "state CONNECTED")
        assert again == ["state CONNECTED"]
        await reading(client, 3)
        return await lines(subscriber)


async def test_a_subscriber_loses_nothing_when_a_connection_to_penstock_breaks(
    start_server: StartServer,
) -> None:
    port = start_server().port_of("grpc")
    async with cable_to(port) as cable:
        assert await interrupted(cable, port, 3) == [
            "[2] sensors/temperature {'value': 2} replay",
            "[3] sensors/temperature {'value': 3}",
            "state DISCONNECTED",
        ]


async def test_a_subscriber_is_told_of_the_gap_when_a_connection_to_nexusd_breaks() -> None:
    daemon = Daemon()
    async with cable_to(daemon.port) as cable:
        said = await interrupted(cable, daemon.port, 2)
    daemon.stop()
    assert said == [
        "gap sensors/temperature: expected 2, got -1",
        "[3] sensors/temperature {'value': 3}",
        "state DISCONNECTED",
    ]


async def test_a_program_with_a_loop_does_both(port: int) -> None:
    address = f"127.0.0.1:{port}"
    async with AsyncNexusdClient(address) as client, running("both", address, 5) as program:
        saying = asyncio.create_task(lines(program))
        while not saying.done():
            await client.publish("async/ready", b"")  # it may not listen yet
            await asyncio.sleep(0.1)
        assert await saying == [f"{number + 1} {number}" for number in range(5)]
