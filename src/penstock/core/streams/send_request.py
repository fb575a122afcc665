"""Value of one send to a stream."""

from typing import Final

from penstock.core.access.identity import Identity
from penstock.model import Door, Properties
from penstock.runs import NEVER, Run, bare_shape

JSON = "application/json"
_IN_MEMORY: Final = bare_shape(Door.STREAMS, 0, False)
_STORED: Final = bare_shape(Door.STREAMS, 1, False)


class Sending:
    """One message on its way into a stream, and how it is sent.

    Args:
        capacity: buffer size of the stream, if this is its first send; None for the setting.
        wait_s: longest wait for room, or for a receiver without a buffer; 0 evicts the oldest message.
        is_stored: it goes into the log, and gets its response after the commit.
        known_as: the message id in the one spelling that counts, if it may be written in others.
    """

    __slots__ = ("capacity", "identity", "is_stored", "known_as", "run", "topic", "wait_s")

    def __init__(
        self,
        topic: str,
        payload: bytes,
        message_id: str,
        identity: Identity,
        capacity: int | None = None,
        wait_s: float = 0.0,
        ttl_s: float = NEVER,
        is_stored: bool = False,
        content_type: str | None = JSON,
        known_as: str | None = None,
    ) -> None:
        self.topic = topic
        self.identity = identity
        self.capacity = capacity
        self.wait_s = wait_s
        self.is_stored = is_stored
        self.known_as = known_as
        properties = Properties(content_type=content_type, message_id=message_id)
        shape = _STORED if is_stored else _IN_MEMORY
        self.run = Run(topic, payload, 0, len(payload), 1, shape, properties, ttl_s)
        """The message, not published yet."""
