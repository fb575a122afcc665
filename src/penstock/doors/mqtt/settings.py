"""The MQTT door's settings."""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.model import Policy

KIB = 1024
MIB = 1024 * KIB


Port = Annotated[int, Meta(ge=0, le=65535)]


class MqttSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ports, capabilities and limits of MQTT."""

    port: Port | None = 1883
    """Port of MQTT; `off` (None) keeps it closed, 0 takes a free port."""
    tls_port: Port | None = 8883
    """The same with TLS, open only if `tls.certificate_file` is set."""
    websocket_port: Port | None = None
    """Separate port for MQTT over WebSocket, with the path `/mqtt`."""
    websocket_tls_port: Port | None = None
    """The same with TLS."""
    over_http: bool = True
    """Serve MQTT over WebSocket also at `/mqtt` on the HTTP ports."""
    proxies: tuple[str, ...] = ()
    """Networks, as `10.0.0.0/8`, whose connections begin with a PROXY protocol v2 header."""
    max_payload_bytes: Annotated[int, Meta(ge=1, le=268_000_000)] = 4 * MIB - 128 * KIB
    """Largest payload a client may publish. With topic and properties it fits the 4 MiB of gRPC clients."""
    max_control_bytes: Annotated[int, Meta(ge=1024, le=256 * KIB)] = 65 * KIB
    """Largest packet other than PUBLISH, and most that a PUBLISH may have beside its payload."""
    receive_maximum: Annotated[int, Meta(ge=1, le=65535)] = 1_000
    """Unacknowledged QoS > 0 publishes that an MQTT 5 client may send."""
    max_inflight: Annotated[int, Meta(ge=1, le=65535)] = 1_000
    """Unacknowledged QoS > 0 deliveries to one client, unless it asks for fewer."""
    topic_alias_maximum: Annotated[int, Meta(ge=0, le=65535)] = 10
    """Topic aliases an MQTT 5 client may define on one connection; 0 allows none."""
    outgoing_topic_aliases: Annotated[int, Meta(ge=0, le=65535)] = 10
    """Most topic aliases for messages to an MQTT 5 client that accepts some; 0 uses none."""
    connect_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    """Longest wait for CONNECT on a new connection."""
    max_keep_alive_s: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Longest keep alive granted to MQTT 5 clients, as CONNACK states; 0 grants any, also none."""
    max_connections: Annotated[int, Meta(ge=0)] = 0
    """Most connections at the same time; 0 means the process's file limit less 500."""
    write_buffer_bytes: Annotated[int, Meta(ge=1024, le=MIB)] = 64 * KIB
    """Bytes that wait in a connection's transport before messages go to its outbox."""
    publish_rate: Annotated[float, Meta(ge=0)] = 0.0
    """Messages a second that one client may publish on average; 0 sets no limit."""
    publish_burst: Annotated[int, Meta(ge=1)] = 1_000
    """Messages that one client may publish at once when it was quiet before."""
    maximum_qos: Annotated[int, Meta(ge=0, le=2)] = 2
    """Highest QoS that is taken and granted."""
    retain_available: bool = True
    """Accept retained messages."""
    wildcard_subscriptions: bool = True
    """Accept filters with wildcards."""
    shared_subscriptions: bool = True
    """Accept shared subscriptions."""
    subscription_identifiers: bool = True
    """Accept subscription identifiers."""
    check_payload_format: bool = True
    """Check that a payload announced as UTF-8 is UTF-8."""
    response_topics: str = "response/%c"
    """Response information for MQTT 5 clients that request it, with their client identifier for `%c`."""
    policy: Policy = Policy.DROP_NEWEST
    """Policy for a subscriber's full outbox, unless a rule in `topics` has another."""
    backlog: Annotated[int, Meta(ge=1)] = 1_024
    """Connections that may wait to be accepted."""
