"""Request headers of gRPC: a method with its metadata and deadline, or a refusal.

Clients send the same fields with every call of a kind, so a connection parses each of them once.
"""

from collections.abc import Sequence

from penstock.core.access.identity import Identity
from penstock.doors.sidecar.transport.method import Metadata, Method, Methods
from penstock.wire.grpc import (
    CallFault,
    Status,
    check_encoding,
    decode_metadata,
    decode_timeout,
    encode_refusal,
    is_grpc,
)
from penstock.wire.http2 import Field, RequestHead, encode_headers

LONGEST_TIMEOUT_S = 365 * 24 * 3600.0
"""Longer timeouts mean no deadline."""
REQUESTS_REMEMBERED = 64
"""Kinds of calls of one connection whose header fields are parsed once."""
HEAVY_BYTES = 4_096
"""Fields of a call that are larger than this are not remembered for the next one, and counted."""
FIELD_BYTES = 100
"""Approximate cost of a field besides its text."""
SHOWN_CHARACTERS = 200

_TEXT = (b"content-type", b"text/plain")
NOT_POST = encode_headers([(b":status", b"405"), (b"allow", b"POST"), _TEXT])
NOT_GRPC = encode_headers([(b":status", b"415"), _TEXT])


class Request:
    """Parsed head of a call, and of all calls of its kind on a connection.

    Args:
        method: None if the call is refused.
        refusal: the header block of the whole response then.
        status: the status of the refusal; None if the request is not gRPC.
        heavy_bytes: size of its fields, if it is large enough to be counted.
    """

    __slots__ = (
        "encoding",
        "generation",
        "heavy_bytes",
        "identity",
        "metadata",
        "method",
        "path",
        "refusal",
        "status",
        "timeout_s",
    )

    def __init__(
        self,
        path: str,
        method: Method | None = None,
        metadata: Metadata = (),
        timeout_s: float | None = None,
        encoding: bytes = b"identity",
        refusal: bytes = b"",
        status: Status | None = None,
        heavy_bytes: int = 0,
    ) -> None:
        self.path = path
        self.method = method
        self.metadata = metadata
        self.timeout_s = timeout_s
        self.encoding = encoding
        self.refusal = refusal
        self.status = status
        self.heavy_bytes = heavy_bytes
        self.identity: Identity | None = None  # of the last call of this kind
        self.generation = 0  # of the files that proved it


class RequestCache:
    """Parsed heads of one connection."""

    __slots__ = ("_requests",)

    def __init__(self) -> None:
        self._requests: dict[int, tuple[RequestHead, Request]] = {}

    def read(self, head: RequestHead, methods: Methods) -> Request:
        """Return the parsed head of a request; the wire returns the same object for the same fields."""
        known = self._requests.get(id(head))
        if known is not None:
            return known[1]
        request = read_request(head, methods)
        if request.heavy_bytes or request.refusal:  # it would cost more to remember
            return request
        if len(self._requests) >= REQUESTS_REMEMBERED:
            self._requests.clear()
        self._requests[id(head)] = (head, request)  # the head is referenced, so its id stays unique
        return request

    def clear(self) -> None:
        """Forget all of them, and the identities with them."""
        self._requests.clear()


def read_request(head: RequestHead, methods: Methods) -> Request:
    """Parse the head of a request."""
    path = head.path.decode("latin-1")
    if head.method != b"POST":
        return Request(path, refusal=NOT_POST)
    fields = dict(head.fields)  # of those that may be there only once
    if not is_grpc(fields.get(b"content-type", b"")):
        return Request(path, refusal=NOT_GRPC)
    method = methods.get(path)
    if method is None:
        text = f"there is no method {path[:SHOWN_CHARACTERS]}"
        return _refuse(path, Status.UNIMPLEMENTED, text)
    timeout, encoding = fields.get(b"grpc-timeout"), fields.get(b"grpc-encoding", b"identity")
    try:
        check_encoding(encoding)
        timeout_s = None if timeout is None else decode_timeout(timeout)
        metadata = decode_metadata(head.fields)
    except CallFault as fault:
        return _refuse(path, fault.status, str(fault))
    if timeout_s is not None and timeout_s > LONGEST_TIMEOUT_S:
        timeout_s = None
    return Request(path, method, tuple(metadata), timeout_s, encoding, heavy_bytes=_heavy_bytes(head.fields))


def _refuse(path: str, status: Status, text: str) -> Request:
    return Request(path, refusal=encode_refusal(status, text), status=status)


def _heavy_bytes(fields: Sequence[Field]) -> int:
    size = sum([len(name) + len(value) for name, value in fields]) + FIELD_BYTES * len(fields)
    return size if size > HEAVY_BYTES else 0
