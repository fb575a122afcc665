"""The sidecar door's settings."""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.model import Policy

KIB = 1024
MIB = 1024 * KIB

Port = Annotated[int, Meta(ge=0, le=65535)]


class SidecarSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ports and limits of gRPC."""

    port: Port | None = 5672
    """Port of gRPC; `off` (None) keeps it closed, 0 takes a free port."""
    tls_port: Port | None = None
    """Port with TLS; needs `tls.certificate_file`."""
    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    """The address it listens on: its own, so that it is not widened together with the other doors."""
    max_message_bytes: Annotated[int, Meta(ge=1024, le=256 * MIB)] = 4 * MIB + 64 * KIB
    """Largest message of a call; a payload has a limit of its own, and needs some room around it."""
    max_streams: Annotated[int, Meta(ge=1, le=1_000_000)] = 1_000
    """Most calls at the same time on one connection."""
    max_unfinished_bytes: Annotated[int, Meta(ge=MIB)] = 64 * MIB
    """Most bytes of messages that are not whole yet, of large metadata, and of responses that wait to be read
    when their calls are over, of all connections; beyond it calls are refused."""
    max_connections: Annotated[int, Meta(ge=0)] = 0
    """Most connections at the same time; 0 means the process's file limit less 500, which all doors share."""
    connect_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    """Longest HTTP/2 handshake: until a new connection has sent its preface and confirmed our settings."""
    idle_s: Annotated[float, Meta(ge=0)] = 3_600.0
    """Longest time without a call before a connection gets GOAWAY; 0 means no limit."""
    write_buffer_bytes: Annotated[int, Meta(ge=1024, le=MIB)] = 64 * KIB
    """Bytes that wait in a connection's transport before messages go to outboxes."""
    backlog: Annotated[int, Meta(ge=1)] = 1_024
    """Connections that may wait to be accepted."""
    ping_s: Annotated[float, Meta(ge=0)] = 30.0
    """Silence after which a connection is pinged, and time for its response; 0 means no pings."""
    heartbeat_s: Annotated[float, Meta(ge=0)] = 30.0
    """Silence after which a subscription gets a heartbeat; 0 means none."""
    wildcards: bool = True
    """Accept filters with wildcards in `topics` of a subscription."""
    policy: Policy = Policy.DROP_OLDEST
    """Policy for a subscription's full outbox, unless a rule for its topic has another."""
    paused_ttl_ms: Annotated[int, Meta(ge=0)] = 300_000
    """Time in which a paused or interrupted subscription can be resumed."""
    max_paused: Annotated[int, Meta(ge=1)] = 100_000
    """Most subscriptions that wait to be resumed; when there are more, the oldest go."""
