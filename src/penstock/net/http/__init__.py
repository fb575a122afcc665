"""HTTP listener, shared by doors: it parses, authenticates, and calls their routes."""

from penstock.net.http.settings import HttpSettings

__all__ = ["HttpSettings"]
