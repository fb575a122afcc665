"""The web door's settings: how `/ws`, the topics of its clients, and logins of the console behave."""

from typing import Annotated

from msgspec import Meta, Struct

KIB = 1024
MIB = 1024 * KIB


class WebSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of JSON clients over WebSocket and REST, and of logins."""

    explicit_topics: bool = True
    """Require that a topic is created by `POST /topics` before clients of `/ws` may use it."""
    slow_after_ms: Annotated[int, Meta(ge=0)] = 500
    """Age of the oldest queued event at which a client of `/ws` is closed; 0 means when its outbox is
    full."""
    rate_per_s: Annotated[float, Meta(ge=0)] = 0.0
    """Messages a second that one connection may send; 0 sets no limit."""
    burst: Annotated[int, Meta(ge=1)] = 500
    """Messages that one connection may send at once beyond its rate."""
    max_message_bytes: Annotated[int, Meta(ge=1024)] = 6 * MIB
    """Largest message of a client."""
    deflate: bool = False
    """Compress messages for clients that ask for it."""
    login_s: Annotated[float, Meta(ge=60)] = 12 * 3600.0
    """Longest time that a login of the console lasts."""
    login_idle_s: Annotated[float, Meta(ge=60)] = 1800.0
    """Time without a request after which a login of the console ends."""
    ping_s: Annotated[float, Meta(ge=0)] = 20.0
    """Silence after which a client is pinged, and time for its response; 0 means no pings."""
