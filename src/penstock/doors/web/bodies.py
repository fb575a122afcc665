"""Bodies that are JSON, read into shapes.

Nothing here takes forms, and curl says that it sends one unless it is told otherwise: so what says that it is
a form, or says nothing, is JSON as well.
"""

from typing import Any, TypeVar

from fastapi import Request
from msgspec.json import Decoder

from penstock.doors.http.problems import JSON
from penstock.doors.web.answers import reference_to
from penstock.doors.web.bare import FORM
from penstock.doors.web.decoding import decode
from penstock.errors import TooLarge, UnsupportedMedia

MAX_BYTES = 4 << 20
"""No such body needs more."""
BODY_REFUSALS = (TooLarge, UnsupportedMedia)
"""What may be wrong with a body whatever it should be."""
T = TypeVar("T")


async def read_json(request: Request, shape: type[T]) -> T:
    """The body of a request.

    Raises:
        UnsupportedMedia: it says that it is something else.
        TooLarge: it has more bytes than anyone needs.
        InvalidRequest: it is no JSON, or not of this shape.
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
    """What a body says that it is, without parameters; nothing, if it does not."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def takes_json(shape: type, example: dict[str, Any]) -> dict[str, Any]:
    """What the description of the API says of such a body, for `openapi_extra`."""
    content = {JSON: {"schema": reference_to(shape), "example": example}}
    return {"requestBody": {"required": True, "content": content}}
