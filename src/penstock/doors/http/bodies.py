"""Bodies while they come: how their parts are kept, and how many bytes of them there may be."""

from penstock.doors.http.requests import Refusal, Request
from penstock.errors import TooLarge

SMALL_BYTES = 1024
"""A part below this size is joined with the next: a list of tiny ones costs many times what they hold."""
BUSY_HEADERS = [("Retry-After", "1")]


def gather(parts: list[bytes], data: bytes) -> None:
    """Keep one more part."""
    if parts and len(parts[-1]) < SMALL_BYTES:
        parts[-1] += data
    else:
        parts.append(data)


class Bodies:
    """The bytes of all bodies that are with one listener, from when they come until their request is over.

    Whoever brings a further body while there are too many is told to come again. A body that is alone may be
    as large as its own limit says.
    """

    __slots__ = ("held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    def hold(self, request: Request, size: int) -> None:
        """Some of a body has come, and is kept.

        Raises:
            Refusal: there is no room for it.
        """
        request.held_bytes += size
        self.held_bytes += size
        if self.held_bytes > self.limit_bytes and self.held_bytes > request.held_bytes:
            detail = "too many bodies are on their way; try again"
            raise Refusal(503, detail, code="too-busy", headers=BUSY_HEADERS)

    def release(self, request: Request) -> None:
        """Nobody needs the body of a request any more."""
        self.held_bytes -= request.held_bytes
        request.held_bytes = 0


def too_large(limit: int) -> Refusal:
    """What a body beyond a limit is told."""
    return Refusal(413, f"a body here may have {limit} bytes", code=TooLarge.code)
