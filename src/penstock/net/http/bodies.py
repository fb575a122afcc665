"""Request bodies: joining their parts, and the memory budget of all of them."""

from penstock.errors import TooLarge
from penstock.net.http.request import Refusal, Request

HIGH_WATER_BYTES = 64 * 1024
"""Bytes of a body that may wait for the application before reading pauses."""
SMALL_BYTES = 1024
"""A part below this size is joined with the next: a list of tiny ones needs many times their bytes."""
BUSY_HEADERS = [("Retry-After", "1")]


def gather(parts: list[bytes], data: bytes) -> None:
    """Append one more part."""
    if parts and len(parts[-1]) < SMALL_BYTES:
        parts[-1] += data
    else:
        parts.append(data)


class BodyBudget:
    """Memory budget of all bodies at one listener, from their arrival to the end of their request.

    Beyond the budget a further body is refused with 503. A single body may be as large as its own limit.
    """

    __slots__ = ("held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    def hold(self, request: Request, size: int) -> None:
        """Count received bytes of a body.

        Raises:
            Refusal: the budget is exceeded.
        """
        request.held_bytes += size
        self.held_bytes += size
        if self.held_bytes > self.limit_bytes and self.held_bytes > request.held_bytes:
            detail = "too many bodies are on their way; try again"
            raise Refusal(503, detail, code="too-busy", headers=BUSY_HEADERS)

    def release(self, request: Request) -> None:
        """Release the bytes of a request's body."""
        self.held_bytes -= request.held_bytes
        request.held_bytes = 0


def too_large(limit: int) -> Refusal:
    """Refusal of a body beyond its limit."""
    return Refusal(413, f"a body here may have {limit} bytes", code=TooLarge.code)
