"""GET / for browsers, GET /ui/...: the console, which is the files of `penstock.console`.

No credentials are needed: the files are public, and the calls of the pages have the rights of their user.
Programs that ask for `/` get JSON, as before: only a client that prefers `text/html` gets the page. Browsers
cache the files and revalidate them each time.
"""

from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

from penstock.doors.web.context import Web

if TYPE_CHECKING:
    from fastapi import APIRouter

    from penstock.net.http.request import Request
    from penstock.net.http.routes import Routes

PACKAGE = "penstock.console"
FOLDER = "/ui"
INDEX, ICON = "index.html", "favicon.svg"
TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "ico": "image/x-icon",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "png": "image/png",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
"""Content types by suffix; other files of the package are not served."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = [
    ("cache-control", "no-cache"),
    ("content-security-policy", POLICY),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
]
UNCHANGED = 304
PATHS = (
    FOLDER,
    f"/{ICON}",
    "/penstock.js",
    "/ws",
    "/api/v1/me",
    "/api/v1/login",
    "/api/v1/logout",
    "/api/v1/publish",
    "/api/v1/events",
    "/api/v1/topics",
    "/api/v1/messages",
    "/api/v1/retained",
)
"""Paths of the console and of its calls, which the admin port serves, too."""


class StaticFile:
    """A file in memory, and by what mark a browser knows it."""

    def __init__(self, content: bytes, content_type: str, headers: list[tuple[str, str]] = HEADERS) -> None:
        self.content = content
        self._content_type = content_type
        self.tag = f'"{sha256(content).hexdigest()[:32]}"'
        self._headers = [*headers, ("etag", self.tag)]

    def take(self, request: "Request") -> None:
        """Respond with the file, or 304."""
        known = request.header(b"if-none-match") or ""
        if "*" in known or self.tag in known:
            request.respond(UNCHANGED, headers=self._headers)
        else:
            request.respond(200, self.content, content_type=self._content_type, headers=self._headers)


@cache
def load_files() -> dict[str, StaticFile]:
    """Read the files of the console, by their path in its package."""
    found = dict(_walk(files(PACKAGE), ""))
    return {
        path: StaticFile(file.read_bytes(), TYPES[path.rpartition(".")[2]]) for path, file in found.items()
    }


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for child in folder.iterdir():
        path = f"{prefix}{child.name}"
        if child.is_dir():
            yield from _walk(child, f"{path}/")
        elif path.rpartition(".")[2] in TYPES:
            yield path, child


def add_hot_routes(table: "Routes", web: Web) -> None:
    """Let the listener give the files itself."""
    known = load_files()
    root = StaticFile(known[INDEX].content, TYPES["html"], [*HEADERS, ("vary", "accept")])
    table.add("GET", "/", root.take, is_open=True, max_body_bytes=0, is_page=True)
    for path, file in _by_path(known).items():
        table.add("GET", path, file.take, is_open=True, max_body_bytes=0)
    table.everywhere(*PATHS)


def _by_path(known: dict[str, StaticFile]) -> dict[str, StaticFile]:
    """Files by the paths at which they are served."""
    by_path = {f"{FOLDER}/{path}": file for path, file in known.items()}
    by_path |= {FOLDER: known[INDEX], f"{FOLDER}/": known[INDEX]}
    return by_path | ({f"/{ICON}": known[ICON]} if ICON in known else {})


def routes(web: Web) -> "APIRouter":
    """Routes for the application; not a part of the API that it describes."""
    from fastapi import APIRouter, Response  # noqa: PLC0415 - slow to load, and not needed by the rest
    from fastapi import Request as AppRequest  # noqa: PLC0415

    from penstock.doors.web.support.requests import respond_by  # noqa: PLC0415

    router = APIRouter()

    def add(path: str, file: StaticFile) -> None:
        @router.get(path, include_in_schema=False)
        async def give(request: AppRequest) -> Response:
            return await respond_by(file.take, request)

    for path, file in _by_path(load_files()).items():
        add(path, file)
    return router
