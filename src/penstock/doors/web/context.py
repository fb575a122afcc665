"""What the endpoints of the web door share. Nothing here, and nothing it imports, loads FastAPI."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from penstock.core.broker import Broker
from penstock.core.clock import Clock
from penstock.doors.web.settings import WebSettings
from penstock.model import Run

if TYPE_CHECKING:
    from penstock.core.archive import Archive
    from penstock.core.staging import Staging
    from penstock.doors.http.settings import HttpSettings
    from penstock.telemetry.figures import Figures


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
    figures: "Figures"
    staging: "Staging"
    archive: "Archive | None" = None
    """The log, if it can be read in bulk: with a data directory."""
    read_arrow: "Callable[[bytes, int, int], Iterator[Run]] | None" = None
    """Rows of an Arrow stream that unpacks to at most so many bytes."""
    config: Callable[[], dict[str, Any]] = dict
    """The settings in effect and where they are from, as `configuration.py` tells them."""
    is_draining: Callable[[], bool] = lambda: False
    """The server takes nothing new any more."""
    has_mqtt: bool = True
    """MQTT over WebSocket is at the same port."""
