"""Will: the message that is published when a connection ends without a goodbye."""

from msgspec import Struct

from penstock.model import NEVER, Properties


class Will(Struct, frozen=True):
    """Message that is published when a connection ends without a goodbye."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties | None = None
    ttl: float = NEVER
    delay: float = 0.0
