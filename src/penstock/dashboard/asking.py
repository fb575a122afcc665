"""Asking the server for what only one browser wants to see; the poller asks for the rest."""

from collections.abc import Callable

from penstock.dashboard.panels import attempt, show_nothing
from penstock.dashboard.poll import current


def ask(work: Callable[[], None]) -> None:
    """Do what asks the server, unless it is silent: all parts of a page would wait for it in turn."""
    if current().is_silent:
        show_nothing("The server does not answer now.")
    else:
        attempt(work)
