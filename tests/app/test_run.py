"""A server's life by signals, told with one that serves nothing."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from penstock.app import run
from penstock.config import Loaded, load
from penstock.errors import InvalidConfig


class Server:
    """Notes what it is told; at one of its moments something happens to the process."""

    moments: dict[str, Callable[[], None]]
    told: list[str]

    def __init__(self, settings: object, origins: object, read: object) -> None:
        self.doors = [self]
        self._reach("made")

    def _reach(self, moment: str) -> None:
        self.told.append(moment)
        self.moments.get(moment, lambda: None)()

    def addresses(self) -> list[str]:
        return ["mqtt://here"]

    async def start(self) -> None:
        self._reach("started")

    async def stop(self) -> None:
        self._reach("stopped")

    def reload(self, wanted: Loaded) -> object:
        self._reach("reloaded")
        return wanted


def send(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Runs a server with things that happen at its moments, and tells which moments it had."""

    def live(**moments: Callable[[], None]) -> list[str]:
        told = list[str]()
        monkeypatch.setattr(Server, "moments", moments, raising=False)
        monkeypatch.setattr(Server, "told", told, raising=False)
        monkeypatch.setattr("penstock.app.Server", Server)
        monkeypatch.setattr(run, "_configure_logging", lambda settings: None)

        def read() -> Loaded:
            told.append("read")
            moments.get("read", lambda: None)() if told == ["read"] else None
            return load(flags={"logging.format": "json"})

        run.run(read)
        return told

    return live


@pytest.mark.parametrize("moment", ["read", "made", "started"])
def test_a_hangup_while_the_server_starts_counts_when_it_has_started(
    moment: str, live: Callable[..., list[str]]
) -> None:
    told = live(**{moment: send(signal.SIGHUP)}, reloaded=send(signal.SIGTERM))
    assert told == ["read", "made", "started", "read", "reloaded", "stopped"]


def test_a_hangup_while_the_server_stops_changes_nothing(live: Callable[..., list[str]]) -> None:
    told = live(started=send(signal.SIGTERM), stopped=send(signal.SIGHUP))
    assert told == ["read", "made", "started", "stopped"]


def test_hangups_and_an_end_are_heard_in_their_order(live: Callable[..., list[str]]) -> None:
    left = [signal.SIGHUP, signal.SIGHUP, signal.SIGTERM]
    told = live(
        started=send(signal.SIGHUP), reloaded=lambda: os.kill(os.getpid(), left.pop(0) if left else 0)
    )
    assert told == ["read", "made", "started", *["read", "reloaded"] * 3, "stopped"]


def test_signals_mean_afterwards_what_they_meant_before(live: Callable[..., list[str]]) -> None:
    before = signal.getsignal(signal.SIGHUP)
    live(started=send(signal.SIGTERM))
    assert signal.getsignal(signal.SIGHUP) is before

    def refuse() -> Loaded:
        raise InvalidConfig("no")

    with pytest.raises(InvalidConfig):
        run.run(refuse)
    assert signal.getsignal(signal.SIGHUP) is before


FREED = """
import ctypes
from penstock.app.run import configure_allocator

class Figures(ctypes.Structure):
    _fields_ = [(f"field{number}", ctypes.c_size_t) for number in range(10)]

count = ctypes.CDLL(None).mallinfo2
count.restype = Figures
configure_allocator(%s)
first = bytes(16 << 20)  # freed, it would raise the size that counts as large
del first
before = count().field4  # bytes in blocks with pages of their own
second = bytes(8 << 20)
print(count().field4 - before >= len(second))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="not glibc")
@pytest.mark.parametrize(("environ", "has_pages"), [({}, True), ({"GLIBC_TUNABLES": ""}, False)])
def test_freed_memory_is_returned_unless_the_environment_says_otherwise(
    environ: dict[str, str], has_pages: bool
) -> None:
    command = [sys.executable, "-c", FREED % environ]
    assert subprocess.check_output(command, text=True).strip() == str(has_pages)
