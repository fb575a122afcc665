"""Root of all settings: a section for each room, and the few that belong to no room.

`core_settings` and `access_sources` derive the parts for core and for access control. No file is read here.
"""

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from penstock.core.access.file_access import Sources
from penstock.core.settings import AccessSettings, CoreSettings
from penstock.doors.mqtt.settings import MqttSettings
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.doors.web.settings import WebSettings
from penstock.errors import InvalidConfig
from penstock.net.address_limits import AddressLimitSettings
from penstock.net.http import HttpSettings
from penstock.net.tls import TlsSettings
from penstock.net.websocket import WebSocketSettings
from penstock.storage.open import StorageSettings
from penstock.telemetry.settings import MetricsSettings


class LoggingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Log of the server, written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is written."""
    format: Literal["text", "json"] = "text"
    """One plain line or one JSON object per event."""
    audit: bool = False
    """Write connections, logins, subscriptions and acts of administrators too, each as one line with
    `logger=penstock.audit`, whatever the level.
    """


class Settings(CoreSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of the server."""

    node_id: str = ""
    """Name of this server. Empty derives one from the log: stable with a data directory, otherwise random at
    each start.
    """
    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    """Address that doors listen on, except the sidecar door, which has its own."""
    data_dir: Annotated[str, Meta(min_length=1)] | None = None
    """Folder of the log and the state; unset keeps them in memory."""
    durability: Literal["fsync", "os", "memory"] = "fsync"
    """When a message for the data directory is acknowledged. `fsync`: once it is on stable storage, so it
    survives a power loss. `os`: once the operating system has it, so it survives `kill -9` of the server, but
    not a power loss. `memory`: at once, and written in the background, so a kill may lose the last moments.
    """
    shutdown_timeout_s: Annotated[float, Meta(ge=0)] = 10.0
    """Time for connections to drain when the server stops."""
    sys_interval_s: Annotated[float, Meta(ge=0)] = 10.0
    """Interval at which statistics are published below `$SYS/broker/`; 0 publishes none."""
    logging: LoggingSettings = LoggingSettings()
    connections: AddressLimitSettings = AddressLimitSettings()
    tls: TlsSettings = TlsSettings()
    mqtt: MqttSettings = MqttSettings()
    http: HttpSettings = HttpSettings()
    web: WebSettings = WebSettings()
    websocket: WebSocketSettings = WebSocketSettings()
    sidecar: SidecarSettings = SidecarSettings()
    metrics: MetricsSettings = MetricsSettings()
    access: AccessSettings = AccessSettings()


def core_settings(settings: Settings) -> CoreSettings:
    """Part of the settings for core."""
    return CoreSettings(**{name: getattr(settings, name) for name in CoreSettings.__struct_fields__})


def storage_settings(settings: Settings) -> StorageSettings:
    """Part of the settings for storage."""
    return StorageSettings(**{name: getattr(settings, name) for name in StorageSettings.__struct_fields__})


def access_sources(settings: Settings) -> Sources:
    """Sources of users and rights.

    Raises:
        InvalidConfig: the server would be open to other machines without an explicit setting.
    """
    access, has_names = settings.access, settings.tls.name_as_user
    if access.password_file is None and access.acl_file is None:
        _check_hosts(settings)
        if not has_names:
            return Sources(None, None, allow_anonymous=True)
    # A password file requires login, on loopback too.
    allow_anonymous = access.allow_anonymous or (access.allow_anonymous is None and not access.password_file)
    passwords = Path(access.password_file) if access.password_file else None
    rules = Path(access.acl_file) if access.acl_file else None
    return Sources(passwords, rules, allow_anonymous, has_names)


def _check_hosts(settings: Settings) -> None:
    access = settings.access
    is_decided = access.allow_anonymous or (settings.tls.name_as_user and access.allow_anonymous is False)
    for key, host in _hosts(settings).items():
        if not is_loopback(host) and not is_decided:
            raise InvalidConfig(
                f"{key}: {host} is not loopback, and there is neither access.password_file nor "
                "access.acl_file; set one, or use --allow-anonymous"
            )


def _hosts(settings: Settings) -> dict[str, str]:
    """Addresses that doors listen on, by setting."""
    sidecar = settings.sidecar
    is_open = sidecar.port is not None or sidecar.tls_port is not None
    return {"host": settings.host} | ({"sidecar.host": sidecar.host} if is_open else {})


def is_loopback(host: str) -> bool:
    """True if only this machine can reach that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
