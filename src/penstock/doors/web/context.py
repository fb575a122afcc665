"""Context that the endpoints of the web door share, and awaiting its commits.

Neither this module nor its imports load FastAPI.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from penstock.core.broker import Broker
from penstock.core.ports.log import Settled
from penstock.core.runtime.clock import Clock
from penstock.doors.web.settings import WebSettings
from penstock.errors import PenstockError, StorageUnavailable
from penstock.runs import Run

if TYPE_CHECKING:
    from penstock.core.access.logins import Logins
    from penstock.core.ports.archive import Archive
    from penstock.core.staging.staging import Staging
    from penstock.net.http.settings import HttpSettings
    from penstock.net.password_checks import PasswordChecks
    from penstock.telemetry.metrics import ServerMetrics

T = TypeVar("T")


class Web(Struct, kw_only=True):
    """The server, as the endpoints see it."""

    broker: Broker
    clock: Clock
    version: str
    build: str
    """`compiled` or `pure`."""
    node_id: str
    started_at: float
    """On the monotonic clock."""
    settings: "HttpSettings"
    profile: WebSettings = WebSettings()
    figures: "ServerMetrics"
    staging: "Staging"
    archive: "Archive | None" = None
    """The log, if it can be read in bulk: with a data directory."""
    read_arrow: "Callable[[bytes, int, int], Iterator[Run]] | None" = None
    """Rows of an Arrow stream that unpacks to at most this many bytes."""
    config: Callable[[], dict[str, Any]] = dict
    """The settings in effect and their sources, for `admin/config.py`."""
    reload: Callable[[], dict[str, Any]] = dict
    """Reads all settings and files again, and applies them; raises InvalidConfig if one is wrong."""
    is_draining: Callable[[], bool] = lambda: False
    """The server takes nothing new any more."""
    logins: "Logins | None" = None
    """Logins of the console; None where the listener has none."""
    password_checks: "PasswordChecks | None" = None
    """Password checks of all doors, for logins."""
    addresses: Callable[[], dict[str, list[str]]] = dict
    """Addresses of the open doors by name."""
    has_mqtt: bool = True
    """MQTT over WebSocket is at the same port."""


async def outcome_of(start: Callable[[Callable[[T | PenstockError], None]], None]) -> T:
    """Call `start` with a callback, and return what the callback gets; raise it if it is an error."""
    outcome: asyncio.Future[T | PenstockError] = asyncio.get_running_loop().create_future()

    def settle(result: T | PenstockError) -> None:
        if not outcome.done():  # the request may have been cancelled
            outcome.set_result(result)

    start(settle)
    result = await outcome
    if isinstance(result, PenstockError):
        raise result
    return result


async def stored(when_stored: Callable[[Settled], None]) -> None:
    """Wait until the changes of this turn of the loop are committed.

    Raises:
        StorageUnavailable: the commit failed. It will be retried; repeating the request is safe.
    """

    def start(settle: Callable[[PenstockError | None], None]) -> None:
        def on_settled(failure: Exception | None) -> None:
            settle(None if failure is None else StorageUnavailable(f"not stored yet: {failure}"))

        when_stored(on_settled)

    await outcome_of(start)
