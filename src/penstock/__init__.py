"""Messaging server with one topic space and several front doors.

Its Python client starts with `connect`, or with `connect_sync` in blocking programs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.grpc.client import connect
    from penstock.client.grpc.sync import connect_sync

__all__ = ["__version__", "connect", "connect_sync"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in ("connect", "connect_sync"):  # lazy: a server must not load a client and its dependencies
        from penstock import client  # noqa: PLC0415

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
