"""Context that the endpoints of the web door share. Neither this module nor its imports load FastAPI."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from penstock.core.broker import Broker
from penstock.core.runtime.clock import Clock
from penstock.doors.web.settings import WebSettings
from penstock.model import Run

if TYPE_CHECKING:
    from penstock.core.ports.archive import Archive
    from penstock.core.staging.staging import Staging
    from penstock.net.http.settings import HttpSettings
    from penstock.telemetry.metrics import ServerMetrics


class Web(Struct, kw_only=True):
    """The server, as the endpoints see it."""

    broker: Broker
    clock: Clock
    version: str
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
    is_draining: Callable[[], bool] = lambda: False
    """The server takes nothing new any more."""
    has_mqtt: bool = True
    """MQTT over WebSocket is at the same port."""
