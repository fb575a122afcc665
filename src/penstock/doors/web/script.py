"""GET /penstock.js: the client for web pages, as it is in `static/`, where npm finds it too.

It is open to everyone: a page that loads a module can send no credentials with it, and there is nothing in it
that is not public. Browsers keep it, and ask each time whether it is still the same.
"""

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.doors.web.context import Web

if TYPE_CHECKING:
    from fastapi import APIRouter

    from penstock.doors.http.requests import Request
    from penstock.doors.http.routes import Routes

PATH = "/penstock.js"
FILE = Path(__file__).parent / "static" / "penstock.js"
JAVASCRIPT = "text/javascript; charset=utf-8"
UNCHANGED = 304


class Script:
    """The file, and by what mark a browser knows it."""

    def __init__(self, file: Path = FILE) -> None:
        self._text = file.read_bytes()
        self.tag = f'"{sha256(self._text).hexdigest()[:32]}"'

    def take(self, request: "Request") -> None:
        """Give the file to whoever does not have it."""
        headers = [("cache-control", "no-cache"), ("etag", self.tag), ("x-content-type-options", "nosniff")]
        known = request.header(b"if-none-match") or ""
        if "*" in known or self.tag in known:
            request.respond(UNCHANGED, headers=headers)
        else:
            request.respond(200, self._text, content_type=JAVASCRIPT, headers=headers)


def add_hot_routes(table: "Routes", web: Web) -> None:
    """Let the listener give the file itself."""
    table.add("GET", PATH, Script().take, is_open=True, max_body_bytes=0)


def routes(web: Web) -> "APIRouter":
    """The same for the application; it is no part of the API that it describes."""
    from fastapi import APIRouter, Response  # noqa: PLC0415 - slow to load, and not needed by the rest
    from fastapi import Request as AppRequest  # noqa: PLC0415

    from penstock.doors.web.hot import answer_by  # noqa: PLC0415

    router, take = APIRouter(), Script().take

    @router.get(PATH, include_in_schema=False)
    async def script(request: AppRequest) -> Response:
        return await answer_by(take, request)

    return router
