"""Events that a connection returns to its owner, and the head of a request."""

from msgspec import Struct

from penstock.wire.http2.hpack_tables import Field


class RequestHead(Struct, frozen=True):
    """Head of a request. Scheme and path are empty for CONNECT, authority if absent.

    `fields` are all others, in order; a name may be repeated.
    """

    method: bytes
    scheme: bytes
    authority: bytes
    path: bytes
    fields: tuple[Field, ...]
    content_length: int | None = None


class Event(Struct, frozen=True):
    """Anything that happened."""


class RequestStarted(Event, frozen=True):
    """A request has begun; if `is_last`, without a body."""

    stream_id: int
    head: RequestHead
    is_last: bool


class BodyReceived(Event, frozen=True, gc=False):
    """Some of a request's body, perhaps none; `is_last` says that nothing follows."""

    stream_id: int
    data: bytes
    is_last: bool


class StreamReset(Event, frozen=True, gc=False):
    """A stream is over: its client has cancelled it, or has broken a rule."""

    stream_id: int
    code: int


class Drained(Event, frozen=True, gc=False):
    """All that waited for the client's window is on its way: there is room for more, or all is said."""

    stream_id: int


class Ponged(Event, frozen=True, gc=False):
    """The client has acknowledged a ping."""

    payload: bytes


class GoneAway(Event, frozen=True, gc=False):
    """The client says goodbye; its open streams continue."""

    code: int
    text: str
