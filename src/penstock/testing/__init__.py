"""Test servers for programs that use Penstock.

`server()` runs a whole server in the process of the test. The pytest plugin (`penstock.testing.plugin`) has
fixtures for it. Names load lazily, so that the plugin does not slow down the start of pytest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.servers import AsyncRunningServer, RunningServer, server

_LOADED_LATER = {"AsyncRunningServer": "servers", "RunningServer": "servers", "server": "servers"}

__all__ = ["AsyncRunningServer", "RunningServer", "server"]


def __getattr__(name: str) -> Any:
    if name in _LOADED_LATER:
        return getattr(import_module(f"{__name__}.{_LOADED_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
