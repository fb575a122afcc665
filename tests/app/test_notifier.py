"""What a service manager gets, at a real socket."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from penstock.app.run import Notifier

PLACES = ["path", "abstract"]


@pytest.fixture(params=PLACES)
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A manager's socket, and the name that the environment has for it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@penstock-{token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0", 1))
        listening.settimeout(20)
        yield listening, name


def told(listening: socket.socket) -> list[str]:
    return listening.recv(4096).decode().split("\n")


def test_it_says_when_it_is_ready_and_when_it_stops(manager: tuple[socket.socket, str]) -> None:
    listening, name = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})
    notifier.ready("serving mqtt://127.0.0.1:1883")
    notifier.stopping()
    assert told(listening) == ["READY=1", "STATUS=serving mqtt://127.0.0.1:1883"]
    assert told(listening) == ["STOPPING=1", "STATUS=stopping"]


def test_a_reload_has_the_time_of_the_clock_that_a_manager_has_too(
    manager: tuple[socket.socket, str],
) -> None:
    listening, name = manager
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
    Notifier({"NOTIFY_SOCKET": name}).reloading()
    words = dict(word.split("=") for word in told(listening))
    assert words.keys() == {"RELOADING", "MONOTONIC_USEC", "STATUS"}
    assert before <= int(words["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000


async def test_signs_of_life_come_from_the_loop(manager: tuple[socket.socket, str]) -> None:
    listening, name = manager
    listening.setblocking(False)
    loop = asyncio.get_running_loop()
    notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000"})
    notifier.ping(loop)
    for _ in range(4):
        assert await asyncio.wait_for(loop.sock_recv(listening, 4096), 20) == b"WATCHDOG=1"
    notifier.close()


async def test_a_loop_that_is_stuck_gives_no_sign(manager: tuple[socket.socket, str]) -> None:
    listening, name = manager
    listening.setblocking(False)
    notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "3000"})
    notifier.ping(asyncio.get_running_loop())
    assert listening.recv(4096) == b"WATCHDOG=1"
    time.sleep(0.1)
    with pytest.raises(BlockingIOError):
        listening.recv(4096)
    notifier.close()


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": str(os.getpid() + 1)},
    ],
)
async def test_who_was_not_asked_gives_no_signs(
    manager: tuple[socket.socket, str], environment: dict[str, str]
) -> None:
    listening, name = manager
    listening.setblocking(False)
    notifier = Notifier({"NOTIFY_SOCKET": name, **environment})
    notifier.ping(asyncio.get_running_loop())
    with pytest.raises(BlockingIOError):
        listening.recv(4096)


async def test_signs_are_given_to_who_asked_this_very_process(manager: tuple[socket.socket, str]) -> None:
    listening, name = manager
    asked = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}
    notifier = Notifier(asked)
    notifier.ping(asyncio.get_running_loop())
    assert told(listening) == ["WATCHDOG=1"]
    notifier.close()


@pytest.mark.parametrize("name", ["", "relative", "/no/such/socket", "@nobody-listens", "/" + "x" * 300])
def test_where_nobody_listens_the_server_goes_on(name: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000000"})
    notifier.ready("serving")
    notifier.reloading()
    notifier.stopping()
    notifier.close()
