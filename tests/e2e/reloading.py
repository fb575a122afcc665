"""For every setting that a running server takes: another value, and where to look which one counts.

Where something is decided by asking a room's settings at that moment, it is enough that the room has them:
that is what `HOLDERS` are for. Whatever was made of a setting at the start is looked at itself, by `LOOKS`.
"""

from collections.abc import Callable
from typing import Any

from penstock.app import Server
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedGroup
from penstock.core.topics.topic import Topic

Look = Callable[[Server], Any]

KNOWN = "known/topic"
"""A topic that was there before."""
ORIGIN, HOST = "https://pages.example", "broker.example"

VALUES: dict[str, Any] = {
    "topics": [{"filter": "known/#", "ring_messages": 7}],
    "mqtt.response_topics": "elsewhere/%c",
    "mqtt.policy": "drop-oldest",
    "mqtt.publish_rate": 7.0,
    "sidecar.policy": "block",
    "http.cors_origins": [ORIGIN],
    "websocket.hosts": [HOST],
    "websocket.origins": [ORIGIN],
    "ring.total_bytes": 16 * 1024,
}
"""What a setting becomes; else a switch is turned, and a number gets one less, or 7 where that is too few."""


def other_value(key: str, present: Any) -> Any:
    """A value that the setting does not have."""
    if key in VALUES:
        return VALUES[key]
    if isinstance(present, bool):
        return not present
    return type(present)(present - 1 if present > 1 else 7)


def at(server: Server, section: str) -> Any:
    """What core asks for a section at the moment at which it needs it."""
    return getattr(server.broker._node.settings, section)


HOLDERS: dict[str, Look] = {
    "mqtt": lambda server: server.mqtt.settings,
    "http": lambda server: server.http.settings,
    "web": lambda server: server.socket.settings,
    "sidecar": lambda server: server.sidecar.settings,
    "metrics": lambda server: server._metrics.settings,
    "topic": lambda server: at(server, "topic"),
    "sessions": lambda server: at(server, "sessions"),
    "log": lambda server: server.broker.settings.log,
    "stage": lambda server: at(server, "stage"),
    "streams": lambda server: server.broker.streams._settings,
}


def known(server: Server) -> Topic:
    return server.broker.topics[KNOWN]


def outbox(server: Server) -> Any:
    return server.broker._node.queues.shared_buffer.most


def group(server: Server) -> Any:
    """What may wait for a shared group, which has been there before."""
    found = server.broker._node.router.find_group("$share/readers/known/#")
    assert isinstance(found, SharedGroup)
    return found.offline_queue._limits


def absent(server: Server) -> Session:
    """Somebody who is away, and has been owed something before."""
    return server.broker.sessions["absent"]


def guard(server: Server) -> Any:
    return server._address_limits


def terms(server: Server) -> Any:
    """What a WebSocket's handshake is held under; the entrance is made when somebody comes."""
    socket = server.socket
    socket._entrance = socket._entrance or socket._open_entrance()
    return socket._entrance.terms


def pings(server: Server) -> Any:
    terms(server)
    assert server.socket._entrance is not None
    return server.socket._entrance._keepalive


def sidecar(server: Server) -> Any:
    """What NexusD's methods share."""
    offer = server.sidecar._offer
    assert offer is not None
    services: Any = offer.configure
    return services.__self__.nexusd._sidecar


LOOKS: dict[str, Look] = {
    # No section
    "topics": lambda server: server.broker.topics._settings.topics,
    "logging.audit": lambda server: server.broker.audit._write is not None,
    "default_ttl_ms": lambda server: known(server).rules.ttl * 1000,
    "max_payload_bytes": lambda server: server.broker._node.settings.max_payload_bytes,
    "reaper_interval_ms": lambda server: server._housekeeping.timers.intervals["reap"] * 1000,
    "shutdown_timeout_s": lambda server: server.settings.shutdown_timeout_s,
    "sys_interval_s": lambda server: server._housekeeping.timers.intervals["report"],
    # Who comes from where
    "connections.per_address": lambda server: guard(server)._most,
    "connections.rate_per_address": lambda server: guard(server)._rate,
    "connections.burst_per_address": lambda server: guard(server)._arrivals._burst,
    "connections.failures_per_address": lambda server: guard(server)._failures._rate,
    "connections.failure_burst_per_address": lambda server: guard(server)._failures._burst,
    "tls.check_interval_s": lambda server: server._housekeeping.timers.intervals["certificates"],
    "http.cors_origins": lambda server: (ORIGIN,) if server._origins.may_read(ORIGIN) else (),
    "websocket.origins": lambda server: (ORIGIN,) if server._origins.is_welcome(ORIGIN, "us") else (),
    "websocket.hosts": lambda server: (HOST,) if server._origins.is_ours(HOST) else (),
    # The MQTT door
    "mqtt.max_payload_bytes": lambda server: (
        (server.mqtt.announcement.maximum_packet_size or 0) - server.mqtt.settings.max_control_bytes
    ),
    "mqtt.receive_maximum": lambda server: server.mqtt.announcement.receive_maximum,
    "mqtt.topic_alias_maximum": lambda server: server.mqtt.announcement.topic_alias_maximum,
    "mqtt.connect_timeout_s": lambda server: server.mqtt._listeners["mqtt"].timeout_s,
    "mqtt.max_connections": lambda server: (
        server.mqtt._registry.most if server.mqtt._registry.most < server._connection_limit.limit else 0
    ),
    "mqtt.maximum_qos": lambda server: server.mqtt.abilities.maximum_qos,
    "mqtt.retain_available": lambda server: server.mqtt.abilities.retain,
    "mqtt.check_payload_format": lambda server: server.mqtt.abilities.checks_payload_format,
    # The HTTP listener, and what is behind it
    "http.max_body_bytes": lambda server: server.http._heads[0].max_body_bytes,
    "http.max_bodies_bytes": lambda server: server.http.bodies.limit_bytes,
    "http.request_timeout_s": lambda server: server.http._listeners[0][1].timeout_s,
    "http.max_connections": lambda server: (
        server.http._registry.most if server.http._registry.most < server._connection_limit.limit else 0
    ),
    "web.explicit_topics": lambda server: server._web.profile.explicit_topics,
    "web.slow_after_ms": lambda server: server.socket.slow_after_s * 1000,
    "web.max_message_bytes": lambda server: terms(server).limit_bytes,
    "web.deflate": lambda server: terms(server).deflates,
    "web.ping_s": lambda server: pings(server).ping_s,
    "stage.max_part_bytes": lambda server: server._routes.body_limit("/api/v1/stage"),
    "metrics.topics": lambda server: server._metrics.labels.limit,
    # The sidecar door
    "sidecar.max_streams": lambda server: server.sidecar.limits.streams,
    "sidecar.max_unfinished_bytes": lambda server: server.sidecar._max_unfinished_bytes,
    "sidecar.connect_timeout_s": lambda server: server.sidecar._listeners[0][1].timeout_s,
    "sidecar.max_connections": lambda server: (
        server.sidecar._registry.most if server.sidecar._registry.most < server._connection_limit.limit else 0
    ),
    "sidecar.max_paused": lambda server: server.broker.paused.limit,
    "sidecar.wildcards": lambda server: sidecar(server).settings.wildcards,
    "sidecar.policy": lambda server: sidecar(server).settings.policy,
    "sidecar.paused_ttl_ms": lambda server: sidecar(server).settings.paused_ttl_ms,
    "sidecar.heartbeat_s": lambda server: sidecar(server).settings.heartbeat_s,
    # Core
    "ring.messages": lambda server: known(server).ring._limit,  # type: ignore[union-attr]
    "ring.topic_bytes": lambda server: known(server).ring._limit_bytes,  # type: ignore[union-attr]
    "ring.total_bytes": lambda server: (
        server.broker.topics.rings.partitions[0].limit_bytes * len(server.broker.topics.rings.partitions)
    ),
    "outbox.messages": lambda server: outbox(server).messages,
    "outbox.bytes": lambda server: outbox(server).bytes,
    "outbox.shared_bytes": lambda server: server.broker._node.queues.shared_buffer.free,
    "outbox.block_timeout_ms": lambda server: server.broker.backpressure.timeout * 1000,
    "outbox.block_wildcards": lambda server: server.broker._node.queues._block_wildcards,
    "sessions.owed_messages": lambda server: _same(
        group(server).messages,
        absent(server).offline_queue._limits.messages,  # type: ignore[union-attr]
    ),
    "sessions.owed_bytes": lambda server: _same(
        group(server).bytes,
        absent(server).offline_queue._limits.bytes,  # type: ignore[union-attr]
    ),
    "retained.max_messages": lambda server: server.broker.retained.limit,
    "ledger.rows": lambda server: server.broker.ledger._rows_limit,
    "message_ids.window_s": lambda server: server.broker._node.dedup._window,
    "message_ids.max": lambda server: server.broker._node.dedup._known.limit,
    "slow.after_ms": lambda server: server.broker.slow_consumers._after_s * 1000,
    "slow.keep_s": lambda server: server.broker.slow_consumers._keep_us / 1_000_000,
    "slow.max_clients": lambda server: server.broker.slow_consumers._limit,
    "streams.stream_bytes": lambda server: server.broker.streams.buffers._settings.stream_bytes,
    "streams.total_bytes": lambda server: server.broker.streams.buffers._settings.total_bytes,
    # The log
    "log.memory_bytes": lambda server: server._storage.log._limit_bytes,  # type: ignore[attr-defined]
}
ON_DISK: dict[str, Look] = {
    "log.retention_s": lambda server: server._storage.log._retention.settings.retention_s,  # type: ignore[attr-defined]
    "log.retention_bytes": lambda server: (
        server._storage.log._retention.settings.retention_bytes  # type: ignore[attr-defined]
    ),
    "log.owed_bytes": lambda server: server._storage.log._retention.settings.owed_bytes,  # type: ignore[attr-defined]
    "log.max_holds": lambda server: server._storage.log.holds._limit,  # type: ignore[attr-defined]
    "log.max_holds_per_owner": lambda server: server._storage.log.holds._limit_per_owner,  # type: ignore[attr-defined]
    "log.max_hold_lapse_s": lambda server: server._storage.log.holds._longest_lapse_s,  # type: ignore[attr-defined]
}
"""What only a server with a data directory decides."""


def _same(first: int, second: int) -> int:
    assert first == second
    return first


def look_at(key: str) -> Look:
    """Tells which value of a setting counts, in the unit of the setting."""
    if (look := LOOKS.get(key) or ON_DISK.get(key)) is not None:
        return look
    section, _, name = key.partition(".")
    return lambda server: getattr(HOLDERS[section](server), name)
