"""A messaging server with one topic space and several front doors.

Its Python client begins with `connect`, or `connect_sync` in programs without a loop.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.aio import connect
    from penstock.client.sync import connect_sync

__all__ = ["__version__", "connect", "connect_sync"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in ("connect", "connect_sync"):  # a server should not load a client, nor what that needs
        from penstock import client  # noqa: PLC0415

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
