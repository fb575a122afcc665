"""Composition root: builds a running server from settings and every other room."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.app.server import Server, best_loop

__all__ = ["Server", "best_loop"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # takes a while; `penstock serve` checks its settings first
        from penstock.app import server  # noqa: PLC0415

        return getattr(server, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
