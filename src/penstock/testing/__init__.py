"""What tests are made of: movable time, connections in memory, readable frames."""

from penstock.testing.broker import Client, Stage, as_tagged
from penstock.testing.clock import ManualClock, ManualHandle, ManualScheduler
from penstock.testing.disk import Disk
from penstock.testing.forms import Delivered, PlainForm, as_plain, read_frames
from penstock.testing.samples import make_run, make_session, payloads_of, sample_shape
from penstock.testing.sink import MemorySink

__all__ = [
    "Client",
    "Delivered",
    "Disk",
    "ManualClock",
    "ManualHandle",
    "ManualScheduler",
    "MemorySink",
    "PlainForm",
    "Stage",
    "as_plain",
    "as_tagged",
    "make_run",
    "make_session",
    "payloads_of",
    "read_frames",
    "sample_shape",
]
