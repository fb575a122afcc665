"""HTTP server of the dashboard: Streamlit on an open socket, until SIGINT or SIGTERM.

Streamlit's HTML shell is served with two changes. The title is Penstock from the start, and the page names
the address of the backend: otherwise Streamlit first looks below the address of each page and the browser's
console reports an error.
"""

import signal
import socket
import sys
from functools import cache
from pathlib import Path
from typing import Any

import streamlit
import streamlit as st
import uvicorn
from starlette.responses import HTMLResponse
from starlette.routing import Route
from streamlit import config

from penstock.dashboard.app import PAGES
from penstock.dashboard.listener import is_loopback
from penstock.dashboard.poller import Source, start_poller
from penstock.dashboard.style import THEME

STREAMLIT_TITLE = "<title>Streamlit</title>"
SHELL_HEAD = (
    "<title>Penstock</title>\n    <script>window.__streamlit = {BACKEND_BASE_URL: `${location.origin}/`, "
    "MAIN_PAGE_BASE_URL: `${location.origin}/`}</script>"
)
SCRIPT = Path(__file__).parent / "script" / "run.py"
LOCAL_NAMES = ["localhost", "127.0.0.1", "[::1]", "::1"]
STOP_TIMEOUT_S = 2
"""Time for browsers to disconnect on shutdown."""
OPTIONS: dict[str, Any] = {
    "browser.gatherUsageStats": False,  # sends no telemetry and writes nothing to the home folder
    "client.showErrorDetails": "none",
    "client.showErrorLinks": False,
    "client.showSidebarNavigation": False,
    "client.toolbarMode": "minimal",
    "global.developmentMode": False,
    "logger.hideWelcomeMessage": True,
    "logger.level": "error",
    "runner.magicEnabled": False,
    "server.fileWatcherType": "none",
    "server.headless": True,
    "server.runOnSave": False,
    **THEME,
}
"""Streamlit options; they override its files and environment variables."""


def serve(source: Source, listener: socket.socket) -> None:
    """Serve the dashboard until SIGINT or SIGTERM, then close the socket."""
    config.get_config_options(force_reparse=True, options_from_flags=_options_for(listener))
    poller = start_poller(source)
    app = st.App(SCRIPT, routes=page_routes(list(PAGES)))
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=STOP_TIMEOUT_S)
    )
    signal.signal(signal.SIGTERM, _end)
    with listener:
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:  # uvicorn shuts down, then raises the signal again
            pass
        finally:
            poller.stop()


@cache
def html_shell() -> str:
    """HTML of every page."""
    html = Path(streamlit.__file__).with_name("static").joinpath("index.html").read_text(encoding="utf-8")
    return html.replace(STREAMLIT_TITLE, SHELL_HEAD, 1)


def page_routes(pages: list[str]) -> list[Route]:
    """Routes of the root and of every page."""

    async def respond(_: object) -> HTMLResponse:
        return HTMLResponse(html_shell(), headers={"Cache-Control": "no-cache"})

    return [Route(path, respond) for path in ("/", *(f"/{page}" for page in pages))]


def _end(*_: object) -> None:
    sys.exit(0)


def _options_for(listener: socket.socket) -> dict[str, Any]:
    """Streamlit options for a socket.

    DNS rebinding protection: on loopback, only names of this machine are accepted as host.
    """
    host, port = listener.getsockname()[:2]
    hosts = {"server.allowedHosts": LOCAL_NAMES} if is_loopback(listener) else {}
    return {**OPTIONS, "server.address": host, "server.port": port, **hosts}
