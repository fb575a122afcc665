"""What the stories of our own service share: a server, and somebody who calls it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher

from penstock.core.settings import AccessSettings
from penstock.doors.sidecar.settings import SidecarSettings
from tests.doors.serving import Start
from tests.doors.sidecar.v1.people import Caller, House

QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
RULES = (
    "user alice\npublish mine/#\nsubscribe mine/#\nuser *\nsubscribe own/%c\nuser admin\nsubscribe $SYS/#\n"
)

Build = Callable[..., Awaitable[House]]
"""Starts a server; what is given as `door` are settings of the door, the rest of the server."""


@pytest.fixture
async def build(start: Start) -> AsyncIterator[Build]:
    """Starts servers; all are stopped after the test."""
    houses: list[House] = []

    async def build(door: dict[str, Any] | None = None, **settings: Any) -> House:
        server = await start(sidecar=SidecarSettings(port=0, **(door or {})), **settings)
        houses.append(House(server, start))
        return houses[-1]

    yield build
    for house in houses:
        await house.hang_up()


@pytest.fixture
async def house(build: Build) -> House:
    """A server that keeps everything in memory."""
    return await build()


@pytest.fixture
def caller(house: House) -> Caller:
    """Somebody who calls it."""
    return house.caller()


@pytest.fixture
async def guarded(build: Build, tmp_path: Path) -> House:
    """A server that knows alice and an admin."""
    names = ("alice", "admin")
    (tmp_path / "passwords").write_text("".join(f"{name}:{QUICK.hash('secret')}\n" for name in names))
    (tmp_path / "acl").write_text(RULES)
    access = AccessSettings(password_file=str(tmp_path / "passwords"), acl_file=str(tmp_path / "acl"))
    return await build(access=access)
