"""All gRPC services of the door.

The door loads this module when it opens, and not before: protobuf takes time to import.
"""

from collections.abc import Callable

from msgspec import Struct

from penstock.core.broker import Broker
from penstock.core.runtime.clock import Clock
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.doors.sidecar.transport.method import Method, Methods


class Services(Struct, frozen=True):
    """Methods of all services, and their callbacks."""

    methods: Methods
    drain: Callable[[], None]
    """Called when the server begins to stop."""
    close: Callable[[], None]
    """Called when all sessions have ended: calls that still continue have to end too."""
    configure: Callable[[SidecarSettings], None] = lambda settings: None
    """Called when there are other settings."""


def load_services(settings: SidecarSettings, broker: Broker, clock: Clock) -> Services:
    """Build all services."""
    from penstock.doors.sidecar.nexusd.service import Service  # noqa: PLC0415
    from penstock.doors.sidecar.standard import health, reflection  # noqa: PLC0415 - see above
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

    return Services(methods, drain, close, configure)
