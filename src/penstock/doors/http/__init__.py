"""The HTTP listener: it belongs to no door. Doors give it routes; it parses, checks who asks, and answers."""

from penstock.doors.http.settings import HttpSettings

__all__ = ["HttpSettings"]
