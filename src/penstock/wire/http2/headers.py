"""What a request's header fields must be (RFC 9113 section 8), and what they say.

Fields are checked as a whole where that is cheaper than one by one: every call has some ten of them.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

from penstock.errors import WireError
from penstock.wire.http2.static_table import FIELDS, Field

METHOD, SCHEME, AUTHORITY, PATH = b":method", b":scheme", b":authority", b":path"
_PSEUDO = frozenset((METHOD, SCHEME, AUTHORITY, PATH))
_FORBIDDEN = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_CHECKED = frozenset((b"te", b"content-length", b"host"))
_FREE = frozenset(
    name
    for name in (
        *(name for name, _ in FIELDS[1:]),
        *(b"grpc-accept-encoding", b"grpc-encoding", b"grpc-timeout"),
    )
    if not name.startswith(b":") and name not in _FORBIDDEN | _CHECKED
)
"""Names that need no look at their letters."""
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_LENGTH = re.compile(rb"[0-9]{1,18}")


class MalformedRequest(WireError):
    """Header fields that no request may have; the text says what is wrong."""


class RequestHead(Struct, frozen=True):
    """What a client asks for. Scheme and path are empty for CONNECT, authority if it is not told.

    `fields` are all others, in the order in which they came; a name may be there more than once.
    """

    method: bytes
    scheme: bytes
    authority: bytes
    path: bytes
    fields: tuple[Field, ...]
    content_length: int | None = None


def request_head(fields: list[Field]) -> RequestHead:
    """The head of a request.

    Raises:
        MalformedRequest: section 8 forbids it.
    """
    pseudo: dict[bytes, bytes] = {}
    others: tuple[Field, ...] = ()
    for index, (name, value) in enumerate(fields):
        if name not in _PSEUDO:
            others = tuple(fields[index:])
            break
        if name in pseudo:
            raise MalformedRequest(f"{name.decode()} twice")  # section 8.3
        pseudo[name] = value
    _check_values(fields)
    checked = _check_names(others)
    method, path = pseudo.get(METHOD, b""), pseudo.get(PATH, b"")
    scheme, authority = pseudo.get(SCHEME, b""), pseudo.get(AUTHORITY, b"")
    if method == b"CONNECT":
        if not authority or SCHEME in pseudo or PATH in pseudo:
            raise MalformedRequest("CONNECT with a scheme or a path, or without an authority")  # section 8.5
    elif not method or not scheme:
        raise MalformedRequest("no method or no scheme")  # section 8.3.1
    elif not path.startswith(b"/") and not (path == b"*" and method == b"OPTIONS"):
        raise MalformedRequest("no path, or one that does not begin with a slash")  # section 8.3.1
    length = _check_special(others, authority) if checked else None
    return RequestHead(method, scheme, authority, path, others, length)


def check_trailers(fields: list[Field]) -> None:
    """Whether these may stand behind a body.

    Raises:
        MalformedRequest: section 8 forbids it.
    """
    _check_values(fields)
    _check_names(fields)


def _check_values(fields: list[Field]) -> None:
    """Look at all at once, each on a line of its own (section 8.2.1)."""
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
        raise MalformedRequest("a value with line ends, NUL or white space around it")


def _check_names(fields: Iterable[Field]) -> bool:
    """Whether any of them has a value that is to be looked at, too."""
    is_special = False
    for name, _ in fields:
        if name in _FREE:
            continue
        if name in _CHECKED:
            is_special = True
        elif name in _FORBIDDEN:
            raise MalformedRequest(f"connection-specific field {name.decode()}")  # section 8.2.2
        elif not _NAME.fullmatch(name):
            raise MalformedRequest(_name_fault(name))
    return is_special


def _name_fault(name: bytes) -> str:
    if name.startswith(b":"):
        return "unknown pseudo-header field, or one behind other fields"  # section 8.3
    return "a field name with upper case or other characters that names do not have"  # section 8.2.1


def _check_special(fields: Iterable[Field], authority: bytes) -> int | None:
    """The content length, if one is told."""
    length: int | None = None
    for name, value in fields:
        if name == b"te" and value.lower() != b"trailers":
            raise MalformedRequest("te other than trailers")  # section 8.2.2
        if name == b"host" and authority and value != authority:
            raise MalformedRequest("host other than :authority")  # section 8.3.1
        if name == b"content-length":
            if not _LENGTH.fullmatch(value) or length not in (None, int(value)):
                raise MalformedRequest("content-length is no number, or two")  # section 8.1.1
            length = int(value)
    return length
