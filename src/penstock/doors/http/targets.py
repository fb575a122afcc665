"""What a request asks for: the target in its first line, taken apart and checked.

Paths are percent-decoded once, and the same decoded path decides everything: which route answers, who may
ask, what the application sees. So an escaped slash is a slash, at every place: `a%2Fb` names the topic `a/b`,
and no spelling of a path gets around a check. Nothing is tidied: `//` has an empty level between its slashes,
as topics may. A segment `..`, control characters, bad escapes and text that is not UTF-8 are refused.
"""

import re
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from penstock.errors import InvalidRequest

ABSOLUTE = re.compile(rb"https?://([^/?]*)(.*)", re.IGNORECASE)
ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
EVERYTHING = b"*"


class Target(Struct, frozen=True):
    """Where a request is meant to go."""

    path: str
    raw_path: bytes
    query: bytes
    host: bytes | None = None
    """Who it is for, where the target itself says so."""


def parse_target(target: bytes) -> Target:
    """Take the target of a request apart.

    Raises:
        InvalidRequest: it names nothing that a server could have.
    """
    host = None
    if not target.startswith(b"/"):
        found = ABSOLUTE.fullmatch(target)
        if found is None:
            raise InvalidRequest("the target of a request begins with a slash")
        host, target = found[1], found[2]
        target = target if target.startswith(b"/") else b"/" + target
    if b"#" in target:
        raise InvalidRequest("a target has no fragment; write %23 for #")
    raw_path, _, query = target.partition(b"?")
    return Target(decode_path(raw_path), raw_path, query, host)


def decode_path(raw_path: bytes) -> str:
    """The path that is meant by the bytes of one.

    Raises:
        InvalidRequest: they mean none.
    """
    if ESCAPE.search(raw_path):
        raise InvalidRequest("the path has a % that begins no escape")
    try:
        path = (unquote_to_bytes(raw_path) if b"%" in raw_path else raw_path).decode()
    except UnicodeDecodeError:
        raise InvalidRequest("the path is not UTF-8") from None
    if CONTROL.search(path):
        raise InvalidRequest("the path has a control character")
    if ".." in path and ".." in path.split("/"):
        raise InvalidRequest("the path has a segment '..'")
    return path
