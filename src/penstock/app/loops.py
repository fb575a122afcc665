"""Which event loop a server runs on."""

import asyncio
from collections.abc import Callable


def best_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes the fastest loop that there is here."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:  # not on every platform
        return asyncio.new_event_loop
    return uvloop.new_event_loop
