"""The MQTT door's settings."""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.model import Policy

KIB = 1024
MIB = 1024 * KIB


class MqttSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the MQTT door offers and where its limits are."""

    port: Annotated[int, Meta(ge=0, le=65535)] | None = 1883
    """Where the door listens; `off` (None) keeps it closed, 0 takes a free port."""
    max_payload_bytes: Annotated[int, Meta(ge=1, le=268_000_000)] = 4 * MIB
    """Largest payload a client may publish."""
    max_control_bytes: Annotated[int, Meta(ge=1024, le=256 * KIB)] = 65 * KIB
    """Largest packet other than PUBLISH, and most that a PUBLISH may have beside its payload."""
    receive_maximum: Annotated[int, Meta(ge=1, le=65535)] = 1_000
    """Unacknowledged QoS > 0 publishes an MQTT 5 client may have on its way to us."""
    max_inflight: Annotated[int, Meta(ge=1, le=65535)] = 1_000
    """Unacknowledged QoS > 0 deliveries to one client, unless it asks for fewer."""
    topic_alias_maximum: Annotated[int, Meta(ge=0, le=65535)] = 32
    """Topic aliases an MQTT 5 client may define on one connection; 0 allows none."""
    connect_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    """Longest wait for CONNECT on a new connection."""
    max_keep_alive_s: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Longest keep alive granted; 0 grants any, also none."""
    max_connections: Annotated[int, Meta(ge=0)] = 0
    """Most connections at the same time; 0 means the process's file limit less 500."""
    write_buffer_bytes: Annotated[int, Meta(ge=1024)] = 64 * KIB
    """Bytes that wait in a connection's transport before messages go to its outbox."""
    policy: Policy = Policy.DROP_NEWEST
    """What happens when a subscriber's outbox is full, unless a rule in `topics` says otherwise."""
    backlog: Annotated[int, Meta(ge=1)] = 1_024
    """Connections that may wait to be accepted."""
