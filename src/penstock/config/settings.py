"""The root of all settings: each room's own, as sections, and the few that belong to no room."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from penstock.core.settings import AccessSettings, CoreSettings
from penstock.doors.guard import GuardSettings
from penstock.doors.http import HttpSettings
from penstock.doors.mqtt.settings import MqttSettings
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.doors.tls import TlsSettings
from penstock.doors.web.settings import WebSettings
from penstock.doors.websocket import WebSocketSettings
from penstock.telemetry.settings import MetricsSettings


class LoggingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The program's own log, written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe events that are written."""
    format: Literal["text", "json"] = "text"
    """One plain line or one JSON object per event."""


class Settings(CoreSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything the server can be told: what core knows, and what surrounds it."""

    node_id: str = ""
    """The name of this server among others; empty means one that is made from the log: with a data directory
    it stays the same, otherwise it is random at each start."""
    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    """The address that doors listen on, but the sidecar door, which has its own."""
    data_dir: Annotated[str, Meta(min_length=1)] | None = None
    """Folder where the log and the state are kept; unset keeps them in memory."""
    durability: Literal["fsync", "os", "memory"] = "fsync"
    """When what goes into the data directory is acknowledged. `fsync`: once it is on stable storage, so it
    survives a loss of power. `os`: once the operating system has it, so it survives `kill -9` of the server,
    but not a loss of power. `memory`: at once, and written in the background, so a kill may lose the last
    moments."""
    shutdown_timeout_s: Annotated[float, Meta(ge=0)] = 10.0
    """How long connections may take to drain when the server stops."""
    sys_interval_s: Annotated[float, Meta(ge=0)] = 10.0
    """How often the server's figures are published below `$SYS/broker/`; 0 publishes none."""
    logging: LoggingSettings = LoggingSettings()
    connections: GuardSettings = GuardSettings()
    tls: TlsSettings = TlsSettings()
    mqtt: MqttSettings = MqttSettings()
    http: HttpSettings = HttpSettings()
    web: WebSettings = WebSettings()
    websocket: WebSocketSettings = WebSocketSettings()
    sidecar: SidecarSettings = SidecarSettings()
    metrics: MetricsSettings = MetricsSettings()
    access: AccessSettings = AccessSettings()


def core_settings(settings: Settings) -> CoreSettings:
    """The part of the settings that core is told."""
    return CoreSettings(**{name: getattr(settings, name) for name in CoreSettings.__struct_fields__})
