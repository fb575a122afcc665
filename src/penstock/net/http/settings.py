"""The HTTP listener's settings."""

from typing import Annotated

from msgspec import Meta, Struct

KIB = 1024
MIB = 1024 * KIB

Port = Annotated[int, Meta(ge=0, le=65535)]


class HttpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ports and limits of HTTP."""

    port: tuple[Port, ...] = (8080,)
    """Ports, one or several; `off` keeps HTTP closed, 0 takes a free port."""
    tls_port: Port | None = None
    """Port with TLS; needs `tls.certificate_file`."""
    admin_port: Port | None = None
    """Separate port for metrics, the log and the views of clients, which the other ports then do not
    offer."""
    admin_tls: bool = False
    """Use TLS, and nothing else, on the admin port; needs `tls.certificate_file`."""
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
    """Largest body of a request, unless the path allows larger ones."""
    max_bodies_bytes: Annotated[int, Meta(ge=0)] = 256 * MIB
    """Most bytes of all bodies being received or processed; beyond it a further one gets 503."""
    request_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    """Longest from the first byte of a request to its last, and from a connection to its first byte."""
    body_rate_bytes: Annotated[int, Meta(ge=1)] = 64 * KIB
    """Bytes a second that a body must bring to get longer than that."""
    keep_alive_s: Annotated[float, Meta(gt=0)] = 75.0
    """Longest time between two requests of a connection."""
    write_timeout_s: Annotated[float, Meta(gt=0)] = 30.0
    """Longest time that a client may leave its response unread."""
    write_rate_bytes: Annotated[int, Meta(ge=0)] = KIB
    """Bytes a second that a client with too much unread must read, on average over that time; with 0 any
    byte will do."""
    write_buffer_bytes: Annotated[int, Meta(ge=1024, le=64 * MIB)] = 256 * KIB
    """Unread bytes of responses to one client before its next request, or the rest of the response, waits."""
    max_pipelined: Annotated[int, Meta(ge=1, le=10_000)] = 128
    """Pipelined requests of one connection that are processed at the same time, about."""
    max_connections: Annotated[int, Meta(ge=0)] = 0
    """Most connections at the same time; 0 means the process's file limit less 500, which all doors share."""
    backlog: Annotated[int, Meta(ge=1)] = 1_024
    """Connections that may wait to be accepted."""
