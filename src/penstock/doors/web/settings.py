"""The web door's settings: how `/ws` and the topics of its clients behave."""

from typing import Annotated

from msgspec import Meta, Struct

KIB = 1024
MIB = 1024 * KIB


class WebSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How JSON clients over WebSocket and REST are served."""

    explicit_topics: bool = True
    """Whether a topic has to be made by `POST /topics` before clients of `/ws` may use it."""
    slow_after_ms: Annotated[int, Meta(ge=0)] = 500
    """How old the oldest event that waits for a client may get before the client is told and cut; 0 waits
    until its outbox is full."""
    rate_per_s: Annotated[float, Meta(ge=0)] = 0.0
    """Messages a second that one connection may send; 0 sets no limit."""
    burst: Annotated[int, Meta(ge=1)] = 500
    """Messages that one connection may send at once beyond its rate."""
    max_message_bytes: Annotated[int, Meta(ge=1024)] = 6 * MIB
    """Largest message of a client."""
    deflate: bool = False
    """Whether clients that ask for compression get it."""
    ping_s: Annotated[float, Meta(ge=0)] = 20.0
    """How long a client may be silent before it is asked for a sign of life, and how long it may then take;
    0 asks nobody."""
