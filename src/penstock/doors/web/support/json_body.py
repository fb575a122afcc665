"""JSON bodies of requests.

Forms are not supported, but curl announces one by default: so a body announced as a form, or not at all,
is JSON.
"""

from typing import Any, TypeVar

from fastapi import Request
from msgspec.json import Decoder

from penstock.doors.web.publishing.raw_message import FORM
from penstock.doors.web.support.json_decoding import decode
from penstock.doors.web.support.responses import reference_to
from penstock.errors import TooLarge, UnsupportedMedia
from penstock.net.http.errors import JSON

T = TypeVar("T")


MAX_BYTES = 4 << 20
"""No such body needs more."""
BODY_REFUSALS = (TooLarge, UnsupportedMedia)
"""Errors of any body."""


async def read_json(request: Request, shape: type[T]) -> T:
    """Read and decode the body of a request.

    Raises:
        UnsupportedMedia: another content type.
        TooLarge: too many bytes.
        InvalidRequest: not JSON, or not of this shape.
    """
    media = media_of(request)
    if media not in ("", JSON, FORM):
        raise UnsupportedMedia(f"this is {media}: send {JSON}")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BYTES:
            raise TooLarge(f"such a body may have {MAX_BYTES} bytes")
    return decode(Decoder(shape), bytes(body))


def media_of(request: Request) -> str:
    """Return the content type of a body without parameters; empty if there is none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def takes_json(shape: type, example: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI description of such a body, for `openapi_extra`."""
    content = {JSON: {"schema": reference_to(shape), "example": example}}
    return {"requestBody": {"required": True, "content": content}}
