"""What tests are made of.

For tests of programs that use Penstock: `server`, a whole server in the test's own process, and a pytest
plugin (`penstock.testing.plugin`) with fixtures of it. Everything else here is for Penstock's own tests, and
may change: movable time, connections in memory, readable frames.

Each name is loaded when it is first asked for, so that pytest starts as fast with the plugin as without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.broker import Client, Stage, as_tagged
    from penstock.testing.clock import ManualClock, ManualHandle, ManualScheduler
    from penstock.testing.disk import Disk
    from penstock.testing.forms import Delivered, PlainForm, as_plain, read_frames
    from penstock.testing.running import AsyncRunningServer, RunningServer, server
    from penstock.testing.samples import make_run, make_session, payloads_of, sample_shape
    from penstock.testing.sink import MemorySink

_LOADED_LATER = {
    "AsyncRunningServer": "running",
    "Client": "broker",
    "Delivered": "forms",
    "Disk": "disk",
    "ManualClock": "clock",
    "ManualHandle": "clock",
    "ManualScheduler": "clock",
    "MemorySink": "sink",
    "PlainForm": "forms",
    "RunningServer": "running",
    "Stage": "broker",
    "as_plain": "forms",
    "as_tagged": "broker",
    "make_run": "samples",
    "make_session": "samples",
    "payloads_of": "samples",
    "read_frames": "forms",
    "sample_shape": "samples",
    "server": "running",
}

__all__ = [
    "AsyncRunningServer",
    "Client",
    "Delivered",
    "Disk",
    "ManualClock",
    "ManualHandle",
    "ManualScheduler",
    "MemorySink",
    "PlainForm",
    "RunningServer",
    "Stage",
    "as_plain",
    "as_tagged",
    "make_run",
    "make_session",
    "payloads_of",
    "read_frames",
    "sample_shape",
    "server",
]


def __getattr__(name: str) -> Any:
    if name in _LOADED_LATER:
        return getattr(import_module(f"{__name__}.{_LOADED_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
