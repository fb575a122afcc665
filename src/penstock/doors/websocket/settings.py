"""Who may come from a web page."""

from msgspec import Struct


class WebSocketSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which web pages may open a WebSocket or send a request, and under which names they find the server."""

    origins: tuple[str, ...] = ()
    """Further origins of web pages: `https://example.org`, or a host name alone; `*` for any."""
    hosts: tuple[str, ...] = ()
    """Further names of this server, as clients write them in its address; `*` for any."""
