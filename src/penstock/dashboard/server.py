"""Serves the dashboard: Streamlit in this process, on a socket that is there already, until told to stop."""

import signal
import socket
import sys
from pathlib import Path
from typing import Any

import streamlit as st
import uvicorn
from streamlit import config

from penstock.dashboard.listening import is_loopback
from penstock.dashboard.navigation import PAGES
from penstock.dashboard.poll import begin
from penstock.dashboard.shell import routes
from penstock.dashboard.source import Source
from penstock.dashboard.style import THEME

SCRIPT = Path(__file__).parent / "script" / "run.py"
LOCAL_NAMES = ["localhost", "127.0.0.1", "[::1]", "::1"]
STOP_TIMEOUT_S = 2
"""How long browsers have to let go when the dashboard ends."""

OPTIONS: dict[str, Any] = {
    "browser.gatherUsageStats": False,  # nothing is told to anybody, and nothing is written to the home
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
"""Options of Streamlit; they count more than its files and environment variables do."""


def serve(source: Source, listener: socket.socket) -> None:
    """Serve the dashboard until SIGINT or SIGTERM, and close the socket."""
    config.get_config_options(force_reparse=True, options_from_flags=_options_for(listener))
    poller = begin(source)
    app = st.App(SCRIPT, routes=routes(list(PAGES)))
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=STOP_TIMEOUT_S)
    )
    signal.signal(signal.SIGTERM, _end)
    with listener:
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:  # uvicorn ends by itself, and then hands the signal on
            pass
        finally:
            poller.stop()


def _end(*_: object) -> None:
    sys.exit(0)


def _options_for(listener: socket.socket) -> dict[str, Any]:
    """The options of Streamlit for a socket.

    Where only this machine can reach it, pages have to come from a name of this machine: another name that
    leads here is a trick of a foreign page.
    """
    host, port = listener.getsockname()[:2]
    hosts = {"server.allowedHosts": LOCAL_NAMES} if is_loopback(listener) else {}
    return {**OPTIONS, "server.address": host, "server.port": port, **hosts}
