"""Header blocks: joined from their frames, decoded, and checked (RFC 9113 section 8).

Clients send the same block with every call of the same kind, once their fields are in the dynamic table.
Such a block is decoded and checked once, until the table changes. Fields are checked as a whole where that
is cheaper than one by one: every call has about ten of them.
"""

import re
from collections.abc import Iterable

from penstock.wire.http2.errors import ConnectionFault, ErrorCode, MalformedHead
from penstock.wire.http2.events import RequestHead, ResponseHead
from penstock.wire.http2.hpack import Decoder, encode_headers
from penstock.wire.http2.hpack_tables import FIELDS, Field
from penstock.wire.http2.limits import Limits

METHOD, SCHEME, AUTHORITY, PATH = b":method", b":scheme", b":authority", b":path"
STATUS = b":status"
_PSEUDO = frozenset((METHOD, SCHEME, AUTHORITY, PATH))
_FORBIDDEN = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_CHECKED = frozenset((b"te", b"content-length", b"host"))
_FREE = frozenset(
    name
    for name in (
        *[name for name, _ in FIELDS[1:]],
        *(b"grpc-accept-encoding", b"grpc-encoding", b"grpc-timeout"),
    )
    if not name.startswith(b":") and name not in _FORBIDDEN | _CHECKED
)
"""Names that need no further check."""
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_STATUS = re.compile(rb"[1-9][0-9]{2}")
_NOT_MODIFIED = 304
"""Has the content length of a body that does not follow."""
_KNOWN_LIMIT = 64
_KNOWN_BLOCK_BYTES = 256


def request_head(fields: list[Field]) -> RequestHead:
    """The head of a request.

    Raises:
        MalformedHead: section 8 forbids it.
    """
    pseudo: dict[bytes, bytes] = {}
    others: tuple[Field, ...] = ()
    for index, (name, value) in enumerate(fields):
        if name not in _PSEUDO:
            others = tuple(fields[index:])
            break
        if name in pseudo:
            raise MalformedHead(f"{name.decode()} twice")  # section 8.3
        pseudo[name] = value
    _check_values(fields)
    checked = _check_names(others)
    method, path = pseudo.get(METHOD, b""), pseudo.get(PATH, b"")
    scheme, authority = pseudo.get(SCHEME, b""), pseudo.get(AUTHORITY, b"")
    if method == b"CONNECT":
        if not authority or SCHEME in pseudo or PATH in pseudo:
            raise MalformedHead("CONNECT with a scheme or a path, or without an authority")  # section 8.5
    elif not method or not scheme:
        raise MalformedHead("no method or no scheme")  # section 8.3.1
    elif not path.startswith(b"/") and not (path == b"*" and method == b"OPTIONS"):
        raise MalformedHead("no path, or one that does not begin with a slash")  # section 8.3.1
    length = _check_special(others, authority) if checked else None
    return RequestHead(method, scheme, authority, path, others, length)


def encode_request(
    method: bytes,
    path: bytes,
    authority: bytes,
    fields: Iterable[Field] = (),
    *,
    scheme: bytes = b"http",
) -> bytes:
    """Encode the head of a request, which any client connection can send as often as it wants.

    Raises:
        MalformedHead: section 8 forbids it, or the method is HEAD or CONNECT, whose responses have rules of
            their own.
    """
    if method in (b"HEAD", b"CONNECT"):
        raise MalformedHead(f"{method.decode()} is not supported")
    all_fields = [(METHOD, method), (SCHEME, scheme), (PATH, path), (AUTHORITY, authority), *fields]
    request_head(all_fields)
    return encode_headers(all_fields)


def response_head(fields: list[Field]) -> ResponseHead:
    """The head of a response, perhaps an informational one.

    Raises:
        MalformedHead: section 8 forbids it.
    """
    if not fields or fields[0][0] != STATUS or not _STATUS.fullmatch(fields[0][1]):
        raise MalformedHead("no status of three digits")  # section 8.3.2
    status, others = int(fields[0][1]), fields[1:]
    _check_values(others)
    length = _check_special(others, b"") if _check_names(others) else None
    return ResponseHead(status, tuple(others), None if status == _NOT_MODIFIED else length)


def check_trailers(fields: list[Field]) -> None:
    """Check that these may stand behind a body.

    Raises:
        MalformedHead: section 8 forbids it.
    """
    _check_values(fields)
    _check_names(fields)


def _check_values(fields: list[Field]) -> None:
    """Check all values at once, each on a line of its own (section 8.2.1)."""
    lines = b"\n".join([b"", *[value for _, value in fields], b""])
    is_bad = (
        lines.count(b"\n") != len(fields) + 1
        or b"\0" in lines
        or b"\r" in lines
        or b"\n " in lines
        or b"\n\t" in lines
        or b" \n" in lines
        or b"\t\n" in lines
    )
    if is_bad:
        raise MalformedHead("a value with line ends, NUL or white space around it")


def _check_names(fields: Iterable[Field]) -> bool:
    """True if the value of a name has to be checked, too."""
    is_special = False
    for name, _ in fields:
        if name in _FREE:
            continue
        if name in _CHECKED:
            is_special = True
        elif name in _FORBIDDEN:
            raise MalformedHead(f"connection-specific field {name.decode()}")  # section 8.2.2
        elif not _NAME.fullmatch(name):
            raise MalformedHead(_name_fault(name))
    return is_special


def _name_fault(name: bytes) -> str:
    if name.startswith(b":"):
        return "unknown pseudo-header field, or one behind other fields"  # section 8.3
    return "a field name with upper case or other characters that names do not have"  # section 8.2.1


def _check_special(fields: Iterable[Field], authority: bytes) -> int | None:
    """Check te, host and content-length; return the content length, if given."""
    length: int | None = None
    for name, value in fields:
        if name == b"te" and value.lower() != b"trailers":
            raise MalformedHead("te other than trailers")  # section 8.2.2
        if name == b"host" and authority and value != authority:
            raise MalformedHead("host other than :authority")  # section 8.3.1
        if name == b"content-length":
            if not _LENGTH.fullmatch(value) or length not in (None, int(value)):
                raise MalformedHead(
                    "content-length is not a number, or given twice with different values"
                )  # section 8.1.1
            length = int(value)
    return length


class BlockReader:
    """Decodes blocks in order of arrival, unwanted ones included, since all change the table.

    `open_id` is the stream whose block is not whole yet; None if there is none.
    """

    __slots__ = ("_decoder", "_is_last", "_known", "_limit_bytes", "_parts", "_size_bytes", "open_id")

    def __init__(self, limits: Limits) -> None:
        self._decoder = Decoder(limits.header_list_bytes)
        self._limit_bytes = limits.header_block_bytes
        self._known: dict[bytes, RequestHead] = {}
        self.open_id: int | None = None
        self._is_last = False  # nothing follows the block that is not whole
        self._parts: list[bytes] = []
        self._size_bytes = 0

    def begin(self, stream_id: int, fragment: bytes, *, is_last: bool) -> None:
        """Keep the first part of a block that is not whole yet.

        Raises:
            ConnectionFault: it is too long already.
        """
        self.open_id, self._is_last = stream_id, is_last
        self.add(fragment)

    def add(self, fragment: bytes) -> None:
        """Keep another part.

        Raises:
            ConnectionFault: it is too long already.
        """
        self._size_bytes += len(fragment)
        self._check_size(self._size_bytes)
        self._parts.append(fragment)

    def finish(self) -> tuple[bytes, bool]:
        """Return all parts joined, and whether nothing follows them in the stream; clear them."""
        block = b"".join(self._parts)
        self._parts, self._size_bytes, self.open_id = [], 0, None
        return block, self._is_last

    def head(self, block: bytes) -> RequestHead | None:
        """The head of a request; None if it is too large.

        Raises:
            MalformedHead: no request may be like this.
            ConnectionFault: the block cannot be decoded.
        """
        known = self._known.get(block)
        if known is not None:
            return known
        before = self._decoder.changes
        fields = self.decode(block)
        if fields is None:
            return None
        head = request_head(fields)
        if before == self._decoder.changes and len(block) <= _KNOWN_BLOCK_BYTES:
            if len(self._known) >= _KNOWN_LIMIT:
                self._known.clear()
            self._known[block] = head
        return head

    def response(self, block: bytes) -> ResponseHead | None:
        """The head of a response; None if it is too large.

        Raises:
            MalformedHead: no response may be like this.
            ConnectionFault: the block cannot be decoded.
        """
        fields = self.decode(block)
        return None if fields is None else response_head(fields)

    def decode(self, block: bytes) -> list[Field] | None:
        """Decode the fields alone; None if they are too large.

        Raises:
            ConnectionFault: the block cannot be decoded, or is too long for that.
        """
        self._check_size(len(block))
        before = self._decoder.changes
        fields = self._decoder.decode(block)
        if before != self._decoder.changes:
            self._known.clear()
        return fields

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            text = f"header block of more than {self._limit_bytes} bytes"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, text)
