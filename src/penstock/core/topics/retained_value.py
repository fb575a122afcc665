"""Packed retained value: one message in few bytes, because there may be a million."""

from struct import Struct as Layout

from msgspec import Struct

from penstock.model import Properties
from penstock.runs import NEVER, Run, Shape

_STAMPS = Layout(">QQQ")  # sequence, offset and time, before the payload
_HEAD = _STAMPS.size


class Extras(Struct, frozen=True, gc=False):
    """Rare parts of a message."""

    properties: Properties | None
    expires_at: float


class RetainedValue(Struct, frozen=True, gc=False):
    """Packed run of one message without its frame; `run` unpacks it."""

    data: bytes
    shape: Shape
    client_id: str
    extras: Extras | None = None

    @classmethod
    def of(cls, run: Run, shape: Shape) -> "RetainedValue":
        """The last message of a run; the shape is that of its bare payload."""
        last = run.count - 1
        stamps = _STAMPS.pack(run.sequence + last, run.offset + last, run.published_at)
        has_extras = run.properties is not None or run.expires_at != NEVER
        extras = Extras(run.properties, run.expires_at) if has_extras else None
        return cls(stamps + run.payload(last), shape, run.client_id, extras)

    @property
    def sequence(self) -> int:
        return int(_STAMPS.unpack_from(self.data)[0])

    @property
    def offset(self) -> int:
        return int(_STAMPS.unpack_from(self.data)[1])

    @property
    def published_at(self) -> int:
        return int(_STAMPS.unpack_from(self.data)[2])

    @property
    def expires_at(self) -> float:
        return NEVER if self.extras is None else self.extras.expires_at

    def is_expired(self, now: float) -> bool:
        """Return whether the lifetime is over at a time of the monotonic clock."""
        return self.extras is not None and NEVER < self.extras.expires_at <= now

    def payload(self) -> bytes:
        return self.data[_HEAD:]

    def run(self, topic: str) -> Run:
        """The message again; the bytes are those of the value, however many runs are made of it."""
        sequence, offset, published_at = _STAMPS.unpack_from(self.data)
        return Run(
            topic,
            self.data,
            _HEAD,
            len(self.data),
            1,
            self.shape,
            None if self.extras is None else self.extras.properties,
            client_id=self.client_id,
            sequence=sequence,
            offset=offset,
            published_at=published_at,
            expires_at=self.expires_at,
        )
