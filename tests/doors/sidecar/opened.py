"""The sidecar door on a free port, with nothing behind it but what a test offers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.core.access.access import OpenAccess
from penstock.core.broker import Broker
from penstock.core.runtime.clock import SystemClock
from penstock.core.settings import CoreSettings
from penstock.doors.sidecar.door import Services, SidecarDoor
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.net.address_limits import AddressLimits, AddressLimitSettings
from penstock.net.password_checks import PasswordChecks
from penstock.storage.memory import MemoryLog


@asynccontextmanager
async def opened(offer: Services) -> AsyncIterator[str]:
    """Where clients find what is offered."""
    loop, clock = asyncio.get_running_loop(), SystemClock()
    log = MemoryLog(0)
    broker = Broker(CoreSettings(), OpenAccess(), log, log.state, clock, loop)
    checks = PasswordChecks(broker.access, loop, AddressLimits(AddressLimitSettings(), clock))
    door = SidecarDoor(SidecarSettings(port=0), broker, clock, lambda: offer, password_checks=checks)
    await door.open()
    try:
        yield door.addresses()[0].removeprefix("grpc://")
    finally:
        await door.close()
        await door.finish(5.0)
        checks.close()
