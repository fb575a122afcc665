"""GET /penstock.js: the client for web pages, from `static/`, where npm finds it too.

No credentials are needed: a page that loads a module can send none, and the file is public. Browsers cache
it and revalidate it each time.
"""

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.doors.web.context import Web

if TYPE_CHECKING:
    from fastapi import APIRouter

    from penstock.net.http.request import Request
    from penstock.net.http.routes import Routes

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
        """Respond with the file, or 304."""
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
    """Routes for the application; not a part of the API that it describes."""
    from fastapi import APIRouter, Response  # noqa: PLC0415 - slow to load, and not needed by the rest
    from fastapi import Request as AppRequest  # noqa: PLC0415

    from penstock.doors.web.support.requests import respond_by  # noqa: PLC0415

    router, take = APIRouter(), Script().take

    @router.get(PATH, include_in_schema=False)
    async def script(request: AppRequest) -> Response:
        return await respond_by(take, request)

    return router
