"""Reload: comparison of new settings with those of a running server.

Every key is in one of the classes below. Keys of the class `RESTART` keep their value until the next start;
all others are applied at once. Enabling or disabling TLS opens and closes ports, so it needs a restart
although other certificates do not.
"""

from enum import StrEnum
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from penstock.config.load import Loaded, assemble, values_of
from penstock.config.settings import Settings


class Reload(StrEnum):
    """Point from which a changed value applies."""

    NOW = "at once"
    SUBSCRIPTIONS = "new subscriptions"
    CONNECTIONS = "new connections"
    RESTART = "restart"


KEYS: dict[Reload, dict[str, str]] = {
    Reload.RESTART: {
        "": "node_id host data_dir durability",
        # Readers use either the log or the ring of a topic; that cannot change while they read.
        "log": "capture",
        "ring": "partitions",
        "mqtt": "port tls_port websocket_port websocket_tls_port over_http proxies backlog",
        "http": "port tls_port admin_port admin_tls proxies backlog",
        "sidecar": "port tls_port host backlog",
    },
    Reload.CONNECTIONS: {
        "tls": "certificate_file key_file ca_file client_certificates name_as_user minimum_version",
        "mqtt": "max_payload_bytes max_control_bytes receive_maximum max_inflight topic_alias_maximum "
        "outgoing_topic_aliases connect_timeout_s max_keep_alive_s max_connections write_buffer_bytes "
        "retain_available check_payload_format response_topics",
        "http": "max_head_bytes max_target_bytes max_headers request_timeout_s body_rate_bytes keep_alive_s "
        "write_timeout_s write_rate_bytes write_buffer_bytes max_connections",
        "web": "rate_per_s burst max_message_bytes deflate ping_s",
        "websocket": "hosts",
        "sidecar": "max_message_bytes max_streams max_connections connect_timeout_s write_buffer_bytes "
        "idle_s ping_s",
        "connections": "per_address",
        "sessions": "max_expiry_s takeover_by_other_users",
    },
    Reload.SUBSCRIPTIONS: {
        "mqtt": "maximum_qos wildcard_subscriptions shared_subscriptions subscription_identifiers policy",
        "sidecar": "wildcards policy paused_ttl_ms heartbeat_s",
        "sessions": "max_subscriptions",
    },
    Reload.NOW: {
        "": "topics default_ttl_ms max_payload_bytes reaper_interval_ms shutdown_timeout_s sys_interval_s",
        "logging": "level format audit",
        "connections": "rate_per_address burst_per_address failures_per_address failure_burst_per_address",
        "tls": "check_interval_s",
        "mqtt": "publish_rate publish_burst",
        "http": "cors_origins max_body_bytes max_bodies_bytes max_pipelined",
        "web": "explicit_topics slow_after_ms login_s login_idle_s",
        "websocket": "origins",
        "sidecar": "max_unfinished_bytes max_paused",
        "metrics": "topics json_topics nexusd_names mqtt_names",
        "access": "password_file acl_file allow_anonymous",
        "topic": "max_bytes max_levels max_topics",
        "ring": "messages topic_bytes total_bytes",
        "outbox": "messages bytes shared_bytes block_timeout_ms block_wildcards",
        "sessions": "max_sessions owed_messages owed_bytes",
        "retained": "max_messages",
        "ledger": "rows",
        "log": "memory_bytes queued_bytes retention_s retention_bytes owed_bytes max_holds "
        "max_holds_per_owner max_hold_lapse_s max_readers read_timeout_s",
        "message_ids": "window_s max",
        "stage": "lapse_s max_bytes max_part_bytes max_part_rows max_stages keys_s max_keys",
        "slow": "after_ms keep_s max_clients",
        "streams": "default_size max_size stream_bytes total_bytes max_streams max_waiting idle_s "
        "abandoned_s default_timeout_s max_timeout_s",
    },
}
"""Every key by its class and its section."""


class Change(Struct, frozen=True):
    """Key with a changed value."""

    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.key}: {_written(self.before)} -> {_written(self.after)}"


class Reloading(Struct, frozen=True):
    """Result of a reload."""

    settings: Settings
    """Effective settings: the new values, except those that need a restart."""
    applied: tuple[Change, ...]
    needs_restart: tuple[str, ...]
    """Keys whose new value applies at the next start."""


@cache
def reload_classes() -> dict[str, Reload]:
    """Class of every key."""
    return {
        f"{section}.{name}" if section else name: kind
        for kind, sections in KEYS.items()
        for section, names in sections.items()
        for name in names.split()
    }


def reload_of(key: str) -> Reload:
    """Point from which a changed value of this key applies; a rule counts as its list."""
    return reload_classes()[key.partition("[")[0]]


def compare(running: Settings, wanted: Loaded) -> Reloading:
    """Split changed settings into those that apply now and those that need a restart."""
    before, after = values_of(running), wanted.values()
    changed = [key for key in after if before[key] != after[key]]
    turns_tls = (running.tls.certificate_file is None) != (wanted.settings.tls.certificate_file is None)
    waiting = [
        key for key in changed if reload_of(key) is Reload.RESTART or (turns_tls and key.startswith("tls."))
    ]
    settings: Settings = assemble(Settings, "", after | {key: before[key] for key in waiting})
    applied = tuple(Change(key, before[key], after[key]) for key in changed if key not in waiting)
    return Reloading(settings, applied, tuple(waiting))


def _written(value: Any) -> str:
    """Value as text; of a rule only the fields that are set."""
    if value is None:
        return "unset"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, Struct):
        given = {name: each for name, each in asdict(value).items() if each is not None}
        return " ".join(f"{name}={each}" for name, each in given.items())
    return str(value).lower() if isinstance(value, bool) else str(value)
