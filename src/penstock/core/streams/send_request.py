"""Value of one send to a stream."""

from msgspec import Struct

from penstock.core.access.identity import Identity
from penstock.model import Door, Properties
from penstock.runs import NEVER, Run, bare_shape

JSON = "application/json"
_IN_MEMORY, _STORED = bare_shape(Door.STREAMS, 0, False), bare_shape(Door.STREAMS, 1, False)


class Sending(Struct, frozen=True, gc=False):
    """One message on its way into a stream, and how it is sent."""

    topic: str
    payload: bytes
    message_id: str
    identity: Identity
    capacity: int | None = None
    """Buffer size of the stream, if this is its first send; None for the setting."""
    wait_s: float = 0.0
    """Longest wait for room, or for a receiver without a buffer; 0 evicts the oldest message."""
    ttl_s: float = NEVER
    is_stored: bool = False
    """It goes into the log, and gets its response after the commit."""
    content_type: str | None = JSON
    known_as: str | None = None
    """The message id in the one spelling that counts, if it may be written in others."""

    def run(self) -> Run:
        """The message, not published yet."""
        properties = Properties(content_type=self.content_type, message_id=self.message_id)
        shape = _STORED if self.is_stored else _IN_MEMORY
        return Run(self.topic, self.payload, 0, len(self.payload), 1, shape, properties, self.ttl_s)
