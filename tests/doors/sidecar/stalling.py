"""A subscriber that takes nothing for a while, without megabytes to fill its connection."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.app import Server
from penstock.doors.sidecar.nexusd.stream import Stream


def stream_of(server: Server, id: str) -> Stream:
    """The stream of a subscription."""
    sink = server.broker.sessions[id].connection
    assert isinstance(sink, Stream)
    return sink


@contextmanager
def stall(server: Server, id: str) -> Iterator[None]:
    """Let a stream be full, as its transport does when its client does not read."""
    stream = stream_of(server, id)
    stream.pause_writing()
    yield
    stream.resume_writing()
