"""Everything that can be called at the sidecar door.

A door loads this when it opens, and not before: protobuf takes a while to import.
"""

from collections.abc import Callable

from msgspec import Struct

from penstock.core.broker import Broker
from penstock.core.clock import Clock
from penstock.doors.sidecar.calls import Method, Methods
from penstock.doors.sidecar.settings import SidecarSettings


class Offer(Struct, frozen=True):
    """What a door offers."""

    methods: Methods
    drain: Callable[[], None]
    """Called when the server begins to stop."""
    close: Callable[[], None]
    """Called when all sessions have ended: calls that still go on have to end too."""
    configure: Callable[[SidecarSettings], None] = lambda settings: None
    """Called when there are other settings."""


def load(settings: SidecarSettings, broker: Broker, clock: Clock) -> Offer:
    """Build all services."""
    from penstock.doors.sidecar import health, reflection  # noqa: PLC0415 - see above
    from penstock.doors.sidecar.service import Service  # noqa: PLC0415
    from penstock.doors.sidecar.v1.service import PenstockService  # noqa: PLC0415

    service, own = Service(settings, broker, clock), PenstockService(settings, broker, clock)
    methods: dict[str, Method] = {**service.methods, **own.methods}
    names = {path[1:].rpartition("/")[0] for path in methods}
    condition = health.Health({*names, *reflection.NAMES})
    methods |= condition.methods
    methods |= reflection.reflection_methods({*names, health.NAME})

    def configure(settings: SidecarSettings) -> None:
        service.configure(settings)
        own.settings = settings

    def drain() -> None:
        condition.drain()
        own.drain()

    def close() -> None:
        condition.close()
        own.close()

    return Offer(methods, drain, close, configure)
