"""The HTML that a browser gets first, with our name on it.

Streamlit's own is used, with two changes: it is called Penstock from the first moment on, and it is told
where the dashboard is. Otherwise it would look for that below the address of each page first, and the
browser's console would complain that it is not there.
"""

from functools import cache
from pathlib import Path

import streamlit
from starlette.responses import HTMLResponse
from starlette.routing import Route

TITLE = "<title>Streamlit</title>"
HERE = (
    "<title>Penstock</title>\n    <script>window.__streamlit = {BACKEND_BASE_URL: `${location.origin}/`, "
    "MAIN_PAGE_BASE_URL: `${location.origin}/`}</script>"
)


@cache
def shell() -> str:
    """The HTML of every page."""
    html = Path(streamlit.__file__).with_name("static").joinpath("index.html").read_text(encoding="utf-8")
    return html.replace(TITLE, HERE, 1)


def routes(pages: list[str]) -> list[Route]:
    """Where a browser may come in: at the root, or at a page."""

    async def answer(_: object) -> HTMLResponse:
        return HTMLResponse(shell(), headers={"Cache-Control": "no-cache"})

    return [Route(path, answer) for path in ("/", *(f"/{page}" for page in pages))]
