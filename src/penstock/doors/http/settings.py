"""The HTTP listener's settings."""

from typing import Annotated

from msgspec import Meta, Struct

KIB = 1024
MIB = 1024 * KIB

Port = Annotated[int, Meta(ge=0, le=65535)]


class HttpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where HTTP is spoken, and where its limits are."""

    port: tuple[Port, ...] = (8080,)
    """Where it listens, one port or several; `off` keeps it closed, 0 takes a free port."""
    tls_port: Port | None = None
    """Where it listens with TLS; needs `tls.certificate_file`."""
    admin_port: Port | None = None
    """A port of its own for metrics, the log and the views of clients, which the others then do not offer."""
    admin_tls: bool = False
    """Whether the admin port speaks TLS, and nothing else; needs `tls.certificate_file`."""
    proxies: tuple[str, ...] = ()
    """Networks, as `10.0.0.0/8`, whose connections begin with a PROXY protocol v2 header."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages that may call and read everything here, as `https://example.org`; `*` for any."""
    max_head_bytes: Annotated[int, Meta(ge=1024, le=MIB)] = 64 * KIB
    """Largest head of a request: its first line and its headers."""
    max_target_bytes: Annotated[int, Meta(ge=256, le=MIB)] = 32 * KIB
    """Longest path and query of a request."""
    max_headers: Annotated[int, Meta(ge=8, le=10_000)] = 100
    """Most headers of a request."""
    max_body_bytes: Annotated[int, Meta(ge=0)] = 8 * MIB
    """Largest body of a request, unless what is asked for takes larger ones."""
    max_bodies_bytes: Annotated[int, Meta(ge=0)] = 256 * MIB
    """Most bytes of all bodies that are being received or worked on; beyond it a further one is told 503."""
    request_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    """Longest from the first byte of a request to its last, and from a connection to its first byte."""
    body_rate_bytes: Annotated[int, Meta(ge=1)] = 64 * KIB
    """Bytes a second that a body must bring to be given longer than that."""
    keep_alive_s: Annotated[float, Meta(gt=0)] = 75.0
    """How long a connection may wait for its next request."""
    write_timeout_s: Annotated[float, Meta(gt=0)] = 30.0
    """How long a client may read nothing of its answer before it is cut."""
    write_buffer_bytes: Annotated[int, Meta(ge=1024, le=64 * MIB)] = 256 * KIB
    """Bytes of answers that wait for one client before its next request, or the rest of the answer, waits."""
    max_pipelined: Annotated[int, Meta(ge=1, le=10_000)] = 128
    """Requests of one connection that are worked on at the same time, about."""
    max_connections: Annotated[int, Meta(ge=0)] = 0
    """Most connections at the same time; 0 means the process's file limit less 500, which all doors share."""
    backlog: Annotated[int, Meta(ge=1)] = 1_024
    """Connections that may wait to be accepted."""
