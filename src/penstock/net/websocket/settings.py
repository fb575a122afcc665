"""Settings of WebSockets and web pages: origins and host names."""

from msgspec import Struct


class WebSocketSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Origins of web pages that may use the server, and its host names."""

    origins: tuple[str, ...] = ()
    """Further origins of web pages: `https://example.org`, or a host name alone; `*` for any."""
    hosts: tuple[str, ...] = ()
    """Further names of this server, as clients write them in its address; `*` for any."""
