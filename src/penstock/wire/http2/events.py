"""Events that a connection returns to its owner, and the heads of requests and responses."""

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


class ResponseHead(Struct, frozen=True):
    """Head of a response. `fields` are all but the status, in order; a name may be repeated."""

    status: int
    fields: tuple[Field, ...]
    content_length: int | None = None


class Event(Struct, frozen=True):
    """Anything that happened."""


class RequestStarted(Event, frozen=True):
    """A request has begun; if `is_last`, without a body."""

    stream_id: int
    head: RequestHead
    is_last: bool


class ResponseStarted(Event, frozen=True):
    """A response has begun; if `is_last`, without a body, and the call is over."""

    stream_id: int
    head: ResponseHead
    is_last: bool


class BodyReceived(Event, frozen=True, gc=False):
    """Some of a body, perhaps none; `is_last` says that nothing follows."""

    stream_id: int
    data: bytes
    is_last: bool


class TrailersReceived(Event, frozen=True):
    """Header fields behind the body of a response: the call is over."""

    stream_id: int
    fields: tuple[Field, ...]


class StreamReset(Event, frozen=True, gc=False):
    """A stream is over: the peer has cancelled it, or has broken a rule."""

    stream_id: int
    code: int


class RequestUnprocessed(Event, frozen=True, gc=False):
    """A request that the server has not processed: it may be sent again, whatever it does.

    The server has refused the stream, or has said goodbye before it.
    """

    stream_id: int


class Drained(Event, frozen=True, gc=False):
    """All that waited for the peer's window is on its way: there is room for more, or all is said."""

    stream_id: int


class Ponged(Event, frozen=True, gc=False):
    """The peer has acknowledged a ping."""

    payload: bytes


class GoneAway(Event, frozen=True, gc=False):
    """The peer says goodbye; open streams continue, unless `RequestUnprocessed` follows."""

    code: int
    text: str
